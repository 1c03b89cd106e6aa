"""Our row-wise pass with any library of collectives: the steps of ``perfmodel project``, in order.

bucketize            sort ids by owner, the rank that holds their row
all_to_all_splits    tell each peer, as 3 int64, how many bags, ids and samples it will receive
all_to_all_lengths   send each owner the number of its ids in every bag (int64)
all_to_all_ids       send every id to its owner, as a row of the owner's joined tables
permute              turn received lengths into offsets; ids stay as received (see ``lookup``)
gather_pool          sum looked-up rows to one partial bag for each bag of every rank, fp32
reduce_scatter       sum the partial bags to bags
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, pairwise
from typing import TYPE_CHECKING, Any

from calibrate.operations import Operation, Place, Provider
from calibrate.passes import lookup
from calibrate.passes.id_sets import IdSet, draw_sets
from calibrate.passes.pattern_rows import Borrowed, PatternTables, count_wrong, sum_bags
from calibrate.planning.kernel_cells import POOLED_BYTES, SMALL_BYTES, count_lookups
from calibrate.providers import torch_world
from calibrate.providers.torch_world import find_scatter_and_gather
from calibrate.ranks.clocks import read_elapsed_s, record_event
from perfmodel.errors import BadInputError
from perfmodel.schema.evidence import Clock
from perfmodel.schema.runs import LookupWork, Point, PointKind

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup

STEPS = (
    "bucketize",
    "all_to_all_splits",
    "all_to_all_lengths",
    "all_to_all_ids",
    "permute",
    "gather_pool",
    "reduce_scatter",
)
SPLITS = 3
"""Numbers that each rank first sends to each peer: bags, ids, samples."""

OWNER_ROWS = 2**32
"""Most pattern rows per owner: row r of the joined tables of owner g has the number g OWNER_ROWS + r."""


@dataclass(frozen=True)
class Job:
    """The look-up of a pass (``work``), and the ranks that do it together."""

    work: LookupWork
    ranks: tuple[int, ...]
    index: int  # place of this rank among ``ranks``

    @property
    def owners(self) -> int:
        """Number of ranks that share the tables."""
        return len(self.ranks)

    @property
    def block(self) -> int:
        """Number of rows of each table that one rank holds; the last rank may have fewer."""
        return -(-self.work.rows // self.owners)

    @property
    def bags(self) -> int:
        """Number of bags of one rank's samples: samples x tables."""
        return self.work.batch * self.work.tables


class PassBuffers:
    """Buffers of a pass, made once: G ranks, T tables, B samples of a rank, D columns.

    splits_sent, splits  SPLITS numbers for, and from, each rank [G, SPLITS];  out  bags [T B, D]
    lengths, offsets     of the bags of all ranks [G T B], [G T B + 1]
    The buffer for ids grows if a rank receives more than before. The second number is that of a call's ids.
    """

    def __init__(self, job: Job, device: torch.device) -> None:
        import torch

        G = job.owners
        bags = job.bags
        empty = partial(torch.empty, dtype=torch.int64, device=device)
        self.splits_sent = torch.tensor([bags, bags, job.work.batch], device=device).repeat(G, 1)
        self.splits = empty((G, SPLITS))
        self.lengths = empty(G * bags)
        self.offsets = empty(G * bags + 1)
        self.out = empty((bags, job.work.dim), dtype=torch.float32)
        self._ids = empty(2 * count_lookups(job.work))

    def ids(self, count: int) -> torch.Tensor:
        """A buffer for ``count`` ids."""
        return self._ids.resize_(count)  # its memory never shrinks


class PassOperation(Operation):
    """A pass that looks up several sets of ids in turn, copied into fixed buffers as a new batch would be."""

    def __init__(self, job: Job, sets: Sequence[IdSet], device: torch.device) -> None:
        """job  the look-up, and its ranks;  sets  of ids, looked up in turn;  device  of this rank."""
        import torch

        self._job = job
        self._sets = [[torch.from_numpy(x).to(device) for x in (s.ids, s.lengths)] for s in sets]
        ids, lengths = next(iter(self._sets))
        self._ids = ids.clone()
        self._lengths = lengths.clone()
        self._bags: torch.Tensor | None = None
        self._clock = CudaSteps() if device.type == "cuda" else HostSteps()
        self._clock.start()

    @property
    def bytes_sent(self) -> int:
        """Bytes that this rank sent to others in the last call: splits, lengths, ids and partial bags."""
        job = self._job
        to_each = SMALL_BYTES * (SPLITS + job.bags) + POOLED_BYTES * job.bags * job.work.dim
        elsewhere = int((self._ids // job.block != job.index).sum())
        return (job.owners - 1) * to_each + elsewhere * SMALL_BYTES

    def prepare(self, salt: int) -> None:
        """Choose the set of ids to begin with, by ``salt`` (the visit's number); discard earlier bags."""
        start = salt * 7919 % len(self._sets)  # a prime: successive visits begin far apart
        self._turns = cycle((*self._sets[start:], *self._sets[:start]))
        self._bags = None

    def before(self) -> None:
        """Copy the next set of ids into the buffers."""
        ids, lengths = next(self._turns)
        self._ids.copy_(ids)
        self._lengths.copy_(lengths)

    def check(self) -> tuple[int, int]:
        """Compare the bags of the last call with sums of pattern rows: (wrong, compared) elements."""
        expected = compute_bags(self._job, self._ids, self._lengths)
        wrong = expected.numel() if self._bags is None else count_wrong(self._by_table(self._bags), expected)
        return wrong, expected.numel()

    def steps_s(self) -> Mapping[str, float]:
        """This rank's time of each step of the last call [s]; empty for TorchRec, whose pass marks none."""
        return self._clock.steps_s()

    def _by_table(self, bags: torch.Tensor) -> torch.Tensor:
        """The bags of a call, brought into the order table, sample [T B, D]."""
        return bags


class ExchangeOperation(PassOperation):
    """This project's own pass."""

    def __init__(
        self, job: Job, group: ProcessGroup, table: Borrowed, sets: Sequence[IdSet], device: torch.device
    ) -> None:
        """group  torch's process group of the ranks;  sets  of ids, looked up in turn
        table  this rank's rows of all tables, joined [T block, D], fp32 or fp16
        """
        super().__init__(job, sets, device)
        self._group = group
        self._table = table
        self._buffers = PassBuffers(job, device)

    def prepare(self, salt: int) -> None:
        """As in the base class; also write the table's rows and poison the bags."""
        super().prepare(salt)
        self._table.take()
        self._buffers.out.fill_(float("nan"))

    def run(self) -> None:
        """Run the pass. A step is marked on the clock when its last call has returned."""
        import torch.distributed as dist

        job = self._job
        group = self._group
        buffers = self._buffers
        mark = self._clock.mark
        self._clock.start()
        reduce_scatter, _ = find_scatter_and_gather(dist)
        sent = lookup.bucketize(self._ids, self._lengths, job.work.tables, job.block, job.owners)
        buffers.splits_sent[:, 1] = sent.counts
        mark("bucketize")
        dist.all_to_all_single(buffers.splits, buffers.splits_sent, group=group)
        send_counts = sent.counts.tolist()
        recv_counts = buffers.splits[:, 1].tolist()
        mark("all_to_all_splits")
        dist.all_to_all_single(buffers.lengths, sent.lengths.view(-1), group=group)
        mark("all_to_all_lengths")
        received = buffers.ids(sum(recv_counts))
        dist.all_to_all_single(received, sent.ids, recv_counts, send_counts, group=group)
        mark("all_to_all_ids")
        lookup.sum_lengths(buffers.lengths, buffers.offsets)
        mark("permute")
        bags_of_all = lookup.gather_pool(self._table.rows, received, buffers.offsets[:-1])
        mark("gather_pool")
        reduce_scatter(buffers.out.view(-1), bags_of_all.view(-1), group=group)
        mark("reduce_scatter")
        self._bags = buffers.out

    def check(self) -> tuple[int, int]:
        """(wrong, compared) elements of the last call; gives the memory of the table back."""
        self._table.give_back()
        return super().check()


def compute_bags(job: Job, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """The bags that a pass must return, fp32 [T B, D], computed from the numbers of the rows alone."""
    import torch

    bag = torch.arange(job.bags, device=ids.device).repeat_interleave(lengths)
    row = bag // job.work.batch * job.block + ids % job.block  # of the owner, as ``bucketize`` numbers it
    return sum_bags(ids // job.block * OWNER_ROWS + row, lengths, job.work.dim)  # owner: id // block


class HostSteps:
    """Times steps with the host's clock; this suits CPUs, where a call has ended when it returns."""

    def start(self) -> None:
        """Begin a call: discard the times of the last one."""
        self._names: list[str] = []
        self._marks = [self._now()]

    def mark(self, name: str) -> None:
        """Record that the step ``name`` has ended; on a GPU, that its last call has been queued."""
        self._marks.append(self._now())
        self._names.append(name)

    def steps_s(self) -> dict[str, float]:
        """Seconds of each step of the last call, by the step's name."""
        times = [self._between(begin, end) for begin, end in pairwise(self._marks)]
        return dict(zip(self._names, times, strict=True))

    def _now(self) -> Any:
        """This moment, for ``_between``."""
        return time.perf_counter()

    def _between(self, first: Any, last: Any) -> float:
        """Time between two moments, as ``_now`` returned them: on CPUs readings of a clock [s]."""
        return float(last - first)


class CudaSteps(HostSteps):
    """Times the steps of a pass with CUDA events, which ``steps_s`` reads once the stream is idle."""

    def _now(self) -> torch.cuda.Event:
        import torch

        return record_event(torch.cuda)

    def _between(self, first: torch.cuda.Event, last: torch.cuda.Event) -> float:
        return read_elapsed_s(first, last)


def read_pass(point: Point, ranks: Sequence[int], rank: int, name: str) -> tuple[Job, list[IdSet]]:
    """(the pass that ``point`` describes, the sets of ids that rank number ``rank`` looks up in it).

    ranks  all ranks of the pass;  name  of the provider, for messages
    Limits: no whole pass, ids of other than 8 bytes, ranks that would own no row, bags whose sums
    would be rounded -> BadInputError
    """
    work = point.work
    is_pass = point.kind in (PointKind.COMPOSED, PointKind.LOOKUP)
    if not is_pass or work is None or (point.clock != Clock.EAGER and name != "one_sided"):
        raise BadInputError(f"{name} times whole passes, one host call each.")
    job = Job(work, tuple(ranks), list(ranks).index(rank))
    if work.rows < job.owners or work.id_bytes != SMALL_BYTES:
        raise BadInputError(
            f"{work.rows} rows over {job.owners} ranks, with ids of {work.id_bytes} bytes.",
            "every rank must own a row, and ids have 8 bytes.",
        )
    return job, draw_sets(work, point.dtype, zlib.crc32(f"{rank} {point.key}".encode()))


class GroupedPass(Provider):
    """Common part of passes over torch.distributed: groups of their own, on the rank's device."""

    name = ""

    def open(self, place: Place, address: Mapping[str, str]) -> None:
        """Join torch.distributed, and take this rank's device."""
        self._dist = torch_world.join(place, address)
        self._rank = place.rank
        self._device = torch_world.find_device(place)
        self._backends = ("nccl", "rccl") if place.device == "cuda" else ("gloo",)
        self._backend, *_ = self._backends
        self._groups: dict[tuple[int, ...], ProcessGroup | int] = {}

    def open_group(self, ranks: Sequence[int]) -> None:
        """Make a group for ``ranks``; every rank of the job calls this."""
        if tuple(ranks) not in self._groups:
            self._groups[tuple(ranks)] = torch_world.make_group(self._dist, ranks, self._backend)

    def barrier(self, ranks: Sequence[int]) -> None:
        """torch.distributed's barrier."""
        self._dist.barrier(group=self._groups[tuple(ranks)])

    def close(self) -> None:
        """Discard the groups, and leave torch.distributed."""
        self._groups.clear()
        torch_world.leave()

    def _group(self, point: Point, ranks: Sequence[int]) -> ProcessGroup:
        """The open group of ``ranks``. Limits: another library than this device's -> BadInputError"""
        if point.backend not in self._backends:
            raise BadInputError(
                f"{self.name} cannot be timed over {point.backend}.", f"here it runs over {self._backend}."
            )
        return self._groups[tuple(ranks)]


class ExchangePass(GroupedPass):
    """Provider of our row-wise pass."""

    name = "exchange"

    def open(self, place: Place, address: Mapping[str, str]) -> None:
        """As in the base class."""
        super().open(place, address)
        self._tables = PatternTables(self._device)

    def operation(self, point: Point, ranks: Sequence[int]) -> ExchangeOperation:
        """The operation that times the pass of ``point``. Limits: as ``read_pass`` and ``_group``"""
        job, sets = read_pass(point, ranks, self._rank, self.name)
        first_row = job.index * OWNER_ROWS
        rows = job.work.tables * job.block
        table = Borrowed(lambda: self._tables.rows(first_row, rows, job.work.dim, point.dtype))
        return ExchangeOperation(job, self._group(point, ranks), table, sets, self._device)

    def close(self) -> None:
        """Free the tables, and leave."""
        self._tables.clear()
        super().close()
