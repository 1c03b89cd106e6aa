"""Collectives of gloo over TCP, with torch.distributed: works everywhere, with noisy times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from calibrate.operations import Availability
from calibrate.patterns import BufferLayout
from calibrate.providers import torch_world
from calibrate.providers.host_collectives import Call, HostCollectives, HostOperation, InPlaceHostOperation
from perfmodel.schema.evidence import SAMPLE_OPERATIONS


def availability() -> Availability:
    """Whether PyTorch is installed; it is not imported."""
    return torch_world.torch_here(Gloo.clocks, SAMPLE_OPERATIONS, ("cpu",))


class Gloo(HostCollectives, torch_world.TorchCollectives):
    """Collectives of torch.distributed on CPU tensors that share memory with the numpy buffers."""

    name = backend = "gloo"

    def barrier(self, ranks: Sequence[int]) -> None:
        """gloo's barrier."""
        self._dist.barrier(group=self._group(ranks))

    def _call(self, one: BufferLayout, variant: str, group: Any) -> Call:
        return torch_world.calls(self._dist, one, variant, group)

    def _wrap(self, array: NDArray[Any]) -> Any:
        return torch_world.tensor_of(array)

    @staticmethod
    def _kind(operation: str) -> type[HostOperation]:
        return InPlaceHostOperation if operation == "all_reduce" else HostOperation
