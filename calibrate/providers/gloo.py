"""Collectives of gloo over TCP, through torch.distributed: right everywhere, and an unsteady clock."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrate.machine.libraries import install_torch
from calibrate.operations import Availability, Place, RawCollectives
from calibrate.patterns import BufferLayout
from calibrate.providers import torch_world
from calibrate.providers.host_collectives import Call, HostCollectives, HostOperation, InPlaceHostOperation
from perfmodel.schema.evidence import SAMPLE_OPERATIONS


def availability() -> Availability:
    """Whether PyTorch is installed; it is not imported."""
    if importlib.util.find_spec("torch") is None:
        return Availability(False, "torch is not installed", install_torch())
    version = f"torch {importlib.metadata.version('torch')}"
    return Availability(
        True, version=version, clocks=Gloo.clocks, operations=SAMPLE_OPERATIONS, devices=("cpu",)
    )


class Gloo(HostCollectives, RawCollectives):
    """Collectives of torch.distributed on CPU tensors that share memory with the numpy buffers."""

    name = "gloo"

    def open(self, place: Place, address: Mapping[str, str]) -> None:
        """Join torch.distributed; ``address`` as in ``torch_world.join``."""
        self._dist = torch_world.join(place, address)
        self._rank = place.rank

    def open_group(self, ranks: Sequence[int]) -> None:
        """A gloo group for ``ranks``; every rank of the job calls this."""
        if tuple(ranks) not in self._groups:
            group = torch_world.new_group(self._dist, ranks, "gloo")
            self._groups[tuple(ranks)] = (group, tuple(ranks))

    def barrier(self, ranks: Sequence[int]) -> None:
        """gloo's barrier."""
        self._dist.barrier(group=self._group(ranks)[0])

    def raw_all_to_all(
        self,
        send: Any,
        send_counts: Sequence[int],
        recv: Any,
        recv_counts: Sequence[int],
        ranks: Sequence[int],
        *,
        equal: bool = False,
    ) -> None:
        """As RawCollectives has it, by ``all_to_all_single``; equal parts need no counts."""
        out, into, group = _tensor(send), _tensor(recv), self._group(ranks)[0]
        torch_world.all_to_all(self._dist, out, send_counts, into, recv_counts, group, equal)

    def raw_reduce_scatter(self, send: Any, recv: Any, ranks: Sequence[int]) -> None:
        """As RawCollectives has it, by torch's reduce-scatter of whole tensors."""
        reduce_scatter, _ = torch_world.scatter_and_gather(self._dist)
        reduce_scatter(_tensor(recv), _tensor(send), group=self._group(ranks)[0])

    def close(self) -> None:
        """Leave torch.distributed."""
        if self._groups:
            self._groups.clear()
            torch_world.leave()

    def _call(self, one: BufferLayout, variant: str, group: Any) -> Call:
        return torch_world.calls(self._dist, one, variant, *group)

    def _wrap(self, array: NDArray[Any]) -> Any:
        return _tensor(array)

    @staticmethod
    def _kind(operation: str) -> type[HostOperation]:
        return InPlaceHostOperation if operation == "all_reduce" else HostOperation


def _tensor(buffer: Any) -> Any:
    """A torch tensor on the memory of a numpy array."""
    if isinstance(buffer, np.ndarray):
        import torch

        return torch.from_numpy(buffer)
    return buffer
