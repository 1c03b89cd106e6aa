"""Collectives of MPI on CPU ranks, with mpi4py."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from calibrate.machine.libraries import install_mpi
from calibrate.operations import Availability, Place, RawCollectives, Slots
from calibrate.patterns import BufferLayout
from calibrate.providers.host_collectives import Call, HostCollectives, as_numpy
from perfmodel.errors import NoHardwareError
from perfmodel.schema.evidence import SAMPLE_OPERATIONS

_FINALIZE_S = 5.0


def availability() -> Availability:
    """Whether mpi4py and a launcher are installed; MPI itself is not started."""
    if importlib.util.find_spec("mpi4py") is None:
        return Availability(False, "mpi4py is not installed", install_mpi())
    beside = Path(sys.executable).parent / "mpirun"
    started = any(name in os.environ for name in ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"))
    if not (started or beside.exists() or shutil.which("mpirun")):
        return Availability(False, "mpirun is not on the path", install_mpi())
    version = f"mpi4py {importlib.metadata.version('mpi4py')}"
    return Availability(
        True, version=version, clocks=Mpi.clocks, operations=SAMPLE_OPERATIONS, devices=("cpu",)
    )


def start() -> Any:
    """Start MPI and return it; ``leave`` ends it. Limits: it does not load -> NoHardwareError"""
    try:
        import mpi4py

        mpi4py.rc.thread_level = "serialized"
        mpi4py.rc.finalize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise NoHardwareError(f"mpi4py cannot be used ({error}).", install_mpi()) from error
    return MPI


def leave() -> None:
    """End MPI if it is running, but wait at most 5 s: the end would wait for a rank that died."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None or not mpi.Is_initialized() or mpi.Is_finalized():
        return
    leaving = threading.Thread(target=mpi.Finalize, daemon=True)
    leaving.start()
    leaving.join(_FINALIZE_S)


class Mpi(HostCollectives, RawCollectives):
    """Blocking MPI collectives. One communicator per group, in the order of its ranks."""

    name = "mpi"

    def open(self, place: Place, address: Mapping[str, str]) -> None:
        """Start MPI and join the world.

        Limits: a rank that mpirun did not start, or another number of ranks -> NoHardwareError
        """
        self._mpi, self._rank = start(), place.rank
        world = self._mpi.COMM_WORLD
        if (world.size, world.rank) != (place.ranks, place.rank):
            raise NoHardwareError(
                f"MPI sees rank {world.rank} of {world.size}, this job rank {place.rank} of {place.ranks}.",
                "start the ranks with mpirun, or let `perfmodel calibrate` start them.",
            )
        self._groups[tuple(range(world.size))] = world

    def open_group(self, ranks: Sequence[int]) -> None:
        """Make a communicator for ``ranks``; every rank of the job calls this."""
        if tuple(ranks) not in self._groups:
            world = self._mpi.COMM_WORLD
            self._groups[tuple(ranks)] = world.Create(world.Get_group().Incl(list(ranks)))

    def barrier(self, ranks: Sequence[int]) -> None:
        """MPI's barrier."""
        self._group(ranks).Barrier()

    def raw_all_to_all(self, send: Slots, recv: Slots, ranks: Sequence[int], *, equal: bool = False) -> None:
        """As in RawCollectives, by ``Alltoallv``; equal parts by ``Alltoall``."""
        group, out, into = self._group(ranks), as_numpy(send.buffer), as_numpy(recv.buffer)
        if equal:
            group.Alltoall(out, into)
        else:
            group.Alltoallv([out, list(send.counts)], [into, list(recv.counts)])

    def raw_reduce_scatter(self, send: Any, recv: Any, ranks: Sequence[int]) -> None:
        """As in RawCollectives, by ``Reduce_scatter_block``."""
        self._group(ranks).Reduce_scatter_block(as_numpy(send), as_numpy(recv))

    def close(self) -> None:
        """Leave MPI."""
        self._groups.clear()
        leave()

    def _call(self, one: BufferLayout, variant: str, group: Any) -> Call:
        if one.operation == "all_to_all" and variant == "uneven":
            return self._uneven(one, group)
        if one.operation == "sendrecv":
            after, ahead = (one.index + 1) % one.ranks, (one.index - 1) % one.ranks
            return lambda send, recv: group.Sendrecv(send, after, recvbuf=recv, source=ahead)
        if one.operation == "broadcast":
            return (
                (lambda send, _: group.Bcast(send)) if one.index == 0 else lambda _, recv: group.Bcast(recv)
            )
        calls: dict[str, Call] = {
            "all_to_all": group.Alltoall,
            "reduce_scatter": group.Reduce_scatter_block,
            "all_gather": group.Allgather,
            "all_reduce": group.Allreduce,
        }
        return calls[one.operation]

    @staticmethod
    def _uneven(one: BufferLayout, group: Any) -> Call:
        out, into = list(one.send_counts), list(one.recv_counts)
        return lambda send, recv: group.Alltoallv([send, out], [recv, into])
