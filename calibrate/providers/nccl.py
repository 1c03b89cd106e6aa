"""Collectives of NCCL on GPUs, with torch.distributed, as TorchRec calls them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from calibrate.operations import Availability, Place
from calibrate.patterns import BufferLayout
from calibrate.providers import torch_world
from calibrate.providers.device_collectives import (
    Arena,
    DeviceCollectives,
    DeviceOperation,
    arena_bytes,
    gpus_of_node,
    torch_with_cuda,
)
from calibrate.running.versions import package_version
from perfmodel.errors import NoHardwareError
from perfmodel.schema.evidence import COLLECTIVES

SHARES_A_GPU_FROM = (2, 30)
"""The first NCCL that lets two ranks share one GPU: an experimental feature, for functional checks only."""

SHARE_VARIABLE = "NCCL_MULTI_RANK_GPU_ENABLE"


def availability() -> Availability:
    """Whether PyTorch with CUDA and a GPU are here."""
    found = torch_with_cuda(COLLECTIVES)
    version = package_version(("nvidia-nccl-cu13", "nvidia-nccl-cu12"))
    return replace(found, version=f"NCCL {version}, {found.version}") if found.usable and version else found


class Nccl(DeviceCollectives, torch_world.TorchCollectives):
    """Collectives of torch.distributed on CUDA tensors. An all-reduce overwrites its input with the sum."""

    name = backend = "nccl"
    operations = COLLECTIVES

    def open(self, place: Place, address: Mapping[str, str]) -> None:
        """Join torch.distributed; ``address`` as in ``torch_world.join``.

        Limits: more ranks than GPUs on a node with NCCL below 2.30 -> NoHardwareError
        """
        import torch

        version = tuple(torch.cuda.nccl.version())
        gpus = gpus_of_node(place, address)
        if place.local_ranks > gpus:
            share_gpu(version, place.local_ranks, gpus)
        super().open(place, address)
        self._token = torch.zeros(1, device="cuda")
        self._arena: Arena | None = None

    def open_group(self, ranks: Sequence[int]) -> None:
        """Make an NCCL communicator for ``ranks``; every rank of the job calls this."""
        known = tuple(ranks) in self._groups
        super().open_group(ranks)
        if not known and self._rank in ranks:  # the first call makes the communicator
            self.barrier(ranks)

    def barrier(self, ranks: Sequence[int]) -> None:
        """An all-reduce of one element, and a wait for it."""
        self._dist.all_reduce(self._token, group=self._group(ranks))
        self.synchronize()

    def close(self) -> None:
        """Leave torch.distributed."""
        self._arena = None
        super().close()

    def _make(self, one: BufferLayout, ranks: tuple[int, ...]) -> DeviceOperation:
        call = torch_world.calls(self._dist, one, self._group(ranks))
        send, recv = self._buffers(one)
        return DeviceOperation(one, call, send, recv, in_place=one.operation == "all_reduce")

    def _buffers(self, one: BufferLayout) -> tuple[Any, Any]:
        """(send, receive) buffers for a layout: the shared buffers if large enough, else new buffers."""
        import torch

        empty = partial(torch.empty, dtype=torch.uint8, device="cuda")
        if self._arena is None:
            self._arena = Arena(empty, arena_bytes())
        large = one.payload_bytes > self._arena.bytes_each
        arena = Arena(empty, one.payload_bytes) if large else self._arena
        return arena.views(one)


def share_gpu(version: tuple[int, ...], ranks: int, gpus: int) -> None:
    """Let ranks share GPUs if NCCL supports it; the times are then no calibration.

    Limits: NCCL below 2.30 -> NoHardwareError
    """
    if version[:2] < SHARES_A_GPU_FROM:
        found = ".".join(map(str, version))
        raise NoHardwareError(
            f"{ranks} ranks share {gpus} GPU{'s' if gpus > 1 else ''}, and NCCL {found} cannot do that.",
            f"start one rank per GPU; NCCL 2.30 can share one ({SHARE_VARIABLE}=1) as a functional check.",
        )
    os.environ[SHARE_VARIABLE] = "1"
