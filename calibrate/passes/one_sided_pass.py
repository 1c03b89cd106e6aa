"""Our row-wise look-up by one-sided writes (calibrate.cuda.row_wise_exchange), timed as whole passes.

On GPUs ranks write into each other's memory through NVSHMEM; on CPUs through shared memory, with the same
kernels built for CPUs, which shows that they are right and says nothing of their speed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from calibrate.cuda.exchange_memory import Sizes, count_held
from calibrate.cuda.row_wise_exchange import RowWiseExchange
from calibrate.cuda.symmetric_worlds import SharedWorld, SymmetricWorld
from calibrate.operations import Place, Provider
from calibrate.passes.exchange_pass import OWNER_ROWS, Job, PassOperation, read_pass
from calibrate.passes.id_sets import IdSet
from calibrate.passes.pattern_rows import Borrowed, PatternTables
from calibrate.planning.kernel_cells import POOLED_BYTES, SMALL_BYTES, count_lookups
from calibrate.providers.torch_world import find_device
from calibrate.ranks.launch import join_store
from perfmodel.errors import BadInputError
from perfmodel.schema.runs import Point

OFFSET_BYTES = 4
"""Bytes of the offset of each bag's ids, which one rank sends another."""


class OneSidedOperation(PassOperation):
    """A look-up by one method (``three`` or ``fused``) among the ranks of ``world``.

    table  this rank's rows of all tables, joined. Stages are timed as far as the host sees them end.
    """

    def __init__(
        self, job: Job, sets: Sequence[IdSet], method: str, world: SymmetricWorld, table: Borrowed
    ) -> None:
        """job  the look-up;  sets  ids of calls, in turn. ``prepare`` makes the exchange, for each visit."""
        super().__init__(job, sets, world.device)
        work = job.work
        ids = count_lookups(work)
        self._sizes = Sizes((work.rows,) * work.tables, work.dim, work.batch, ids, method)
        self._world = world
        self._world.reuses = True  # a visit ends its exchange
        self._table = table
        self._exchange: RowWiseExchange | None = None

    @property
    def bytes_sent(self) -> int:
        """Bytes that this rank sent to others in the last call: offsets, ids and partial bags."""
        job = self._job
        to_each = OFFSET_BYTES * job.bags + POOLED_BYTES * job.bags * job.work.dim
        elsewhere = int((self._ids // job.block != job.index).sum())
        return (job.owners - 1) * to_each + elsewhere * SMALL_BYTES

    def prepare(self, salt: int) -> None:
        """As in the base class; also write the rows of each table, and make the exchange, with all ranks."""
        super().prepare(salt)
        self._table.take()
        job = self._job
        count = count_held(job.work.rows, job.owners, job.index)
        held = [self._table.rows[table * job.block :][:count] for table in range(job.work.tables)]
        self._exchange = RowWiseExchange(self._world, held, self._sizes)

    def run(self) -> None:
        """One timed look-up of all tables; its stages are marked on the clock."""
        assert self._exchange is not None
        self._clock.start()
        self._bags = self._exchange.queue(self._ids, self._lengths, mark=self._clock.mark)

    def check(self) -> tuple[int, int]:
        """(wrong, compared) elements of the last call; raises the kernels' faults, and ends the exchange."""
        assert self._exchange is not None
        self._exchange.raise_faults()
        counts = super().check()
        self._exchange.close()
        self._exchange = None
        self._table.give_back()
        return counts

    def _by_table(self, bags: Any) -> Any:
        """Bags [B, T, D] as [T B, D]."""
        return bags.transpose(0, 1).reshape(-1, self._job.work.dim)


class OneSidedPass(Provider):
    """Provider of our one-sided look-ups: ``three`` and ``fused``."""

    name = "one_sided"

    def open(self, place: Place, address: Mapping[str, str]) -> None:
        """Take this rank's device; on GPUs, join NVSHMEM through a store at ``address``."""
        self._place = place
        self._run = address["run"]
        self._device = find_device(place)
        self._tables = PatternTables(self._device)
        self._worlds: dict[tuple[int, ...], SymmetricWorld] = {}
        self._join = partial(join_store, address["host"], int(address["port"]))
        if place.device == "cuda":
            from calibrate.cuda.nvshmem_world import NvshmemWorld

            store = self._join(f"{self._run}/one-sided")
            world = NvshmemWorld(store, place.rank, place.ranks, self._device)
            self._worlds[tuple(range(place.ranks))] = world

    def open_group(self, ranks: Sequence[int]) -> None:
        """On CPUs, map the memory of ``ranks``. NVSHMEM's ranks are all those of the job."""
        group = tuple(ranks)
        if self._device.type == "cpu" and self._place.rank in group and group not in self._worlds:
            store = self._join(f"{self._run}/{group}")
            self._worlds[group] = SharedWorld(store, group.index(self._place.rank), len(group))

    def operation(self, point: Point, ranks: Sequence[int]) -> OneSidedOperation:
        """The operation that times the look-up of ``point``.

        Limits: as ``read_pass``; ranks that map no memory -> BadInputError
        """
        job, sets = read_pass(point, ranks, self._place.rank, self.name)
        world = self._worlds.get(tuple(ranks))
        if world is None:
            raise BadInputError(
                f"no one-sided look-up of ranks {list(ranks)}: they map no memory.",
                "over NVSHMEM, time all ranks of the job.",
            )
        first_row = job.index * OWNER_ROWS
        rows = job.work.tables * job.block
        table = Borrowed(lambda: self._tables.rows(first_row, rows, job.work.dim, point.dtype))
        return OneSidedOperation(job, sets, point.implementation, world, table)

    def barrier(self, ranks: Sequence[int]) -> None:
        """Agree with all ranks: some 0.1 ms, where no library of collectives is open."""
        self._worlds[tuple(ranks)].agree("barrier")

    def close(self) -> None:
        """Free the memory, and leave NVSHMEM if it was started here."""
        self._tables.clear()
        for world in self._worlds.values():
            with contextlib.suppress(Exception):  # a rank that died cannot leave with the others
                world.close()
        self._worlds.clear()
