"""Collectives of gloo over TCP, with torch.distributed: works everywhere, with noisy times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from calibrate import patterns
from calibrate.operations import Availability
from calibrate.providers import torch_world
from calibrate.providers.host_collectives import (
    CacheClearer,
    HostOperation,
    InPlaceHostOperation,
    Pool,
    l2_bytes,
    rotating_count,
)
from perfmodel.errors import BadInputError
from perfmodel.schema.evidence import COLLECTIVES, Clock
from perfmodel.schema.runs import Point, PointKind


def availability() -> Availability:
    """Whether PyTorch is installed; it is not imported."""
    return torch_world.torch_here(Gloo.clocks, COLLECTIVES, ("cpu",))


class Gloo(torch_world.TorchCollectives):
    """Collectives of torch.distributed on CPU tensors that share memory with the numpy buffers."""

    name = backend = "gloo"
    clocks: tuple[Clock, ...] = (Clock.EAGER, Clock.STREAM)

    def __init__(self) -> None:
        self._pool = Pool()
        self._groups: dict[tuple[int, ...], Any] = {}
        self._rank = 0
        self._l2 = l2_bytes()
        self._clear: CacheClearer | None = None

    def barrier(self, ranks: Sequence[int]) -> None:
        """gloo's barrier."""
        self._dist.barrier(group=self._group(ranks))

    def operation(self, point: Point, ranks: Sequence[int]) -> HostOperation:
        """The operation that times the collective of ``point`` over ``ranks``.

        Limits: not a collective, a clock that only GPUs have, less than one element per peer -> BadInputError
        """
        if point.kind is not PointKind.COLLECTIVE:
            raise BadInputError(f"{self.name} times collectives, not {point.operation}.")
        if point.clock not in self.clocks:
            raise BadInputError(
                f"{self.name} has no clock {point.clock}.", f"it has: {', '.join(self.clocks)}."
            )
        layout = patterns.layout(
            point.operation,
            point.payload_bytes,
            len(ranks),
            list(ranks).index(self._rank),
        )
        eager = point.clock is Clock.EAGER
        kind = InPlaceHostOperation if point.operation == "all_reduce" else HostOperation
        return kind(
            layout,
            torch_world.calls(self._dist, layout, self._group(ranks)),
            self._pool,
            rotating=rotating_count(layout.sender_bytes, self._l2) if eager else 1,
            clear=self._clearer().gather(layout.sender_bytes) if point.variant == "after_kernel" else None,
            wrap=torch_world.tensor_of,
        )

    def _group(self, ranks: Sequence[int]) -> Any:
        group = self._groups.get(tuple(ranks))
        if group is None:
            raise BadInputError(f"{self.name} has no group of ranks {list(ranks)}.", "open it on every rank.")
        return group

    def _clearer(self) -> CacheClearer:
        if self._clear is None:
            self._clear = CacheClearer(self._l2)
        return self._clear
