"""PyTorch's symmetric memory between the GPUs of a node: its all-reduce, and copies into peers' memory.

An all-reduce up to ONE_SHOT_BYTES is one-shot (every rank reads all others), a larger one two-shot, in place.
All-to-all and all-gather write into the peers' buffers and end with the signal pads' barrier.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from calibrate.operations import Availability, Place
from calibrate.patterns import BufferLayout
from calibrate.providers import torch_world
from calibrate.providers.device_collectives import (
    Arena,
    Call,
    DeviceCollectives,
    DeviceOperation,
    arena_bytes,
    require_own_gpus,
    torch_dtype,
    torch_with_cuda,
)
from perfmodel.errors import BadInputError

OPERATIONS = ("all_to_all", "all_gather", "all_reduce")
ONE_SHOT_BYTES = 256 * 1024


def availability() -> Availability:
    """Whether PyTorch with CUDA and a GPU are here."""
    return torch_with_cuda(OPERATIONS)


class SymmetricMemory(DeviceCollectives):
    """Collectives by PyTorch's symmetric memory, with a send and a receive buffer that peers can reach."""

    name = "symmetric_memory"
    operations = OPERATIONS

    def open(self, place: Place, address: Mapping[str, str]) -> None:
        """Join torch.distributed and allocate; ``address`` as in ``torch_world.join``.

        Limits: more ranks than GPUs on a node -> NoHardwareError
        """
        import torch
        import torch.distributed._symmetric_memory as symmetric

        require_own_gpus(place, address, "symmetric memory joins different GPUs")
        self._dist, self._symmetric = torch_world.join(place, address), symmetric
        self._place, self._rank = place, place.rank
        device = torch.device("cuda", torch.cuda.current_device())
        self._arena = Arena(
            lambda size: symmetric.empty(size, dtype=torch.uint8, device=device), arena_bytes()
        )

    def open_group(self, ranks: Sequence[int]) -> None:
        """Make a group for ``ranks``, which map each other's buffers; every rank of the job calls it."""
        if tuple(ranks) in self._groups:
            return
        group = torch_world.new_group(self._dist, ranks, "nccl")
        first = self._place.rank - self._place.local_rank
        on_node = all(first <= rank < first + self._place.local_ranks for rank in ranks)
        if self._rank in ranks and on_node:
            sent = self._symmetric.rendezvous(self._arena.send, group)
            received = self._symmetric.rendezvous(self._arena.recv, group)
            self._groups[tuple(ranks)] = (group.group_name, sent, received)

    def barrier(self, ranks: Sequence[int]) -> None:
        """The barrier of the signal pads, and a wait for it."""
        self._group(ranks)[2].barrier(channel=0)
        self.synchronize()

    def close(self) -> None:
        """Leave torch.distributed."""
        if self._groups:
            self._groups.clear()
            torch_world.leave()

    def _make(self, one: BufferLayout, variant: str, ranks: tuple[int, ...]) -> DeviceOperation:
        kind = torch_dtype(one)
        send, recv = self._arena.views(one, kind)
        name, _, handle = self._group(ranks)
        if one.operation == "all_reduce":
            if one.dtype.name != "float32":
                raise BadInputError(f"symmetric_memory sums fp32 only, not {one.dtype.name}.")
            if one.payload_bytes <= ONE_SHOT_BYTES:
                return DeviceOperation(one, _one_shot(name), send, recv)
            return DeviceOperation(one, _two_shot(name), send, recv, in_place=True)
        counts = one.send_counts if one.operation == "all_to_all" else one.send_counts * one.ranks
        begins = [0, *accumulate(one.send_counts)] if one.operation == "all_to_all" else [0] * (one.ranks + 1)
        order = [(one.index + step) % one.ranks for step in range(1, one.ranks + 1)]
        parts = [
            (
                slice(begins[p], begins[p] + counts[p]),
                handle.get_buffer(p, (counts[p],), kind, one.index * counts[p]),
            )
            for p in order
        ]
        return DeviceOperation(one, _put(parts, handle), send, recv)


def _one_shot(group: str) -> Call:
    import torch

    return lambda send, recv: torch.ops.symm_mem.one_shot_all_reduce_out(send, "sum", group, recv)


def _two_shot(group: str) -> Call:
    import torch

    return lambda _, recv: torch.ops.symm_mem.two_shot_all_reduce_(recv, "sum", group)


def _put(parts: Sequence[tuple[slice, Any]], handle: Any) -> Call:
    """A function that copies each part into its peer's buffer, then waits until all ranks have done so.

    parts   (slice of the send buffer, view of the peer's buffer);  handle  has the barrier of the group
    """

    def call(send: Any, _: Any) -> None:
        for part, zone in parts:
            zone.copy_(send[part])
        handle.barrier(channel=0)

    return call
