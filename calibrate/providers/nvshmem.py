"""Collectives of NVSHMEM on a CUDA stream, with nvshmem4py."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from calibrate.operations import Place
from calibrate.patterns import BufferLayout
from calibrate.providers import torch_world
from calibrate.providers.buffers import Arena, compute_arena_bytes
from calibrate.providers.collective_calls import (
    Call,
    CollectiveOperation,
    CollectiveProvider,
    count_shared_gpus,
)
from perfmodel.errors import BadInputError, NoHardwareError
from perfmodel.schema.runs import Point

_HEAP_SLACK_BYTES = 2**30
"""Part of the symmetric heap for NVSHMEM itself, if the heap cannot grow [bytes]."""

_ROOT = 0  # the rank that makes the unique id
_NO_MASK = 0  # of what a team's configuration sets


class Nvshmem(CollectiveProvider):
    """Collectives of NVSHMEM: one PE per rank, one team per group. Rank 0 makes the unique id of the job."""

    name = "nvshmem"

    def open(self, place: Place, address: Mapping[str, str]) -> None:
        """Start NVSHMEM; the unique id is sent by torch.distributed (``address`` as in ``join``).

        Limits: more ranks than GPUs on a node -> NoHardwareError, since team collectives would crash
        """
        import torch

        if gpus := count_shared_gpus(place.local_ranks, address):
            raise NoHardwareError(
                f"{place.local_ranks} ranks share {gpus} GPUs: NVSHMEM's team collectives would crash.",
                "start one rank per GPU.",
            )
        dist = torch_world.join(place, address)
        import nvshmem.bindings as bindings
        import nvshmem.core as core

        self._core = core
        self._bindings = bindings
        self._rank = place.rank
        device = importlib.import_module("cuda.core").Device(torch.cuda.current_device())
        device.set_current()
        os.environ.setdefault("NVSHMEM_SYMMETRIC_SIZE", str(compute_heap_bytes()))
        unique = core.get_unique_id(empty=bool(place.rank))
        dist.broadcast(torch.from_numpy(np.asarray(unique._data).view(np.int8)), _ROOT)
        core.init(device=device, uid=unique, rank=place.rank, nranks=place.ranks, initializer_method="uid")
        self._arena = Arena(lambda size: core.tensor((size,), dtype=torch.uint8), compute_arena_bytes())
        self._groups[tuple(range(place.ranks))] = core.Teams.TEAM_WORLD

    def open_group(self, ranks: Sequence[int]) -> None:
        """Make a team for ``ranks``; every rank of the job calls it. Unequally spaced ranks get none."""
        key = tuple(ranks)
        if key not in self._groups and (stride := find_stride(key)):
            start, *_ = key
            team = self._core.team_split_strided(
                self._core.Teams.TEAM_WORLD,
                start,
                stride,
                len(key),
                self._core.TeamConfig(),
                _NO_MASK,
                new_team_name=f"perfmodel_{'_'.join(map(str, key))}",
            )
            if self._rank in key:
                self._groups[key] = team

    def barrier(self, ranks: Sequence[int]) -> None:
        """NVSHMEM's barrier on the stream, and a wait for it."""
        import torch

        self._bindings.barrier_on_stream(self.group(ranks), _get_stream())
        torch.cuda.synchronize()

    def close(self) -> None:
        """Free the memory and leave NVSHMEM."""
        if not self._groups:
            return
        self._groups.clear()
        self._core.free_tensor(self._arena.send)
        self._core.free_tensor(self._arena.recv)
        self._core.finalize()
        torch_world.leave()

    def group(self, ranks: Sequence[int]) -> Any:
        """As in the base class. Limits: ranks that are not equally far apart -> BadInputError"""
        if not find_stride(ranks):
            raise BadInputError(
                f"NVSHMEM has no team of ranks {list(ranks)}.", "the ranks of a team are equally far apart."
            )
        return super().group(ranks)

    def _make(self, layout: BufferLayout, group: Any, point: Point) -> CollectiveOperation:
        """As in the base class, on the one pair of buffers in symmetric memory."""
        send, recv = self._arena.views(layout)
        return CollectiveOperation(layout, self._call(layout, group, recv), lambda: ([send], recv))

    def _call(self, layout: BufferLayout, team: Any, recv: Any) -> Call:
        """The function that queues a collective. The count that NVSHMEM takes differs by collective."""
        name, count = {
            "all_to_all": ("alltoall", layout.block),
            "reduce_scatter": ("sum_reducescatter", layout.block),
            "all_gather": ("fcollect", layout.block),
            "all_reduce": ("sum_reduce", layout.elements),
            "broadcast": ("broadcast", layout.elements),
        }[layout.operation]
        function = getattr(self._bindings, f"float_{name}_on_stream")
        into = recv.data_ptr()  # needed even if the layout receives nothing: the root of a broadcast
        if layout.operation == "broadcast":
            out = self._arena.send.data_ptr()
            return lambda send, _: function(team, into, out, count, 0, _get_stream())
        return lambda send, _: function(team, into, send.data_ptr(), count, _get_stream())


def compute_heap_bytes() -> int:
    """Bytes of the symmetric heap: two buffers, and what NVSHMEM itself needs."""
    return 2 * compute_arena_bytes() + _HEAP_SLACK_BYTES


def find_stride(ranks: Sequence[int]) -> int:
    """Distance between neighbouring numbers of ``ranks``, which rise; 0 if it is not constant."""
    stride, *further = {after - before for before, after in pairwise(ranks)}
    return 0 if further else stride


def _get_stream() -> int:
    """The handle of torch's current CUDA stream, as NVSHMEM's functions take it."""
    import torch

    handle: int = torch.cuda.current_stream().cuda_stream
    return handle
