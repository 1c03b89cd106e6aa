"""NCCL against NVSHMEM on the same GPUs: ratio for small messages, and size from which NCCL is faster."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf

import numpy as np

from perfmodel.collectives.choose import list_matching
from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.engine.tables import Array
from perfmodel.model.bands import compute_ratio_band
from perfmodel.schema.calibration import Curve
from perfmodel.schema.evidence import Backend, Clock
from perfmodel.schema.machine import load_machine

MACHINE = "h200-sxm-ib"
GPUS = 8
COLLECTIVES = ("all_reduce", "all_gather", "all_to_all", "broadcast")
PAIRS = (
    (Clock.DEVICE, Clock.STREAM),
    (Clock.DEVICE, Clock.EAGER),
    (Clock.STREAM, Clock.STREAM),
    (Clock.GRAPH, Clock.GRAPH),
)
"""(clock of NVSHMEM, clock of NCCL): the paper's, TorchRec's, and two pairs with equal conditions."""
SMALL_BYTES = 1024.0
_PER_OCTAVE = 16


@dataclass(frozen=True)
class Comparison:
    """Times of two collectives, NCCL's and NVSHMEM's, on the sizes that both were measured at.

    low, high  95 % band of NCCL's time over NVSHMEM's, with independent errors; empty unless from ``compare``
    """

    payload_bytes: Array
    nvshmem_s: Array
    nccl_s: Array
    low: Array = field(default_factory=lambda: np.zeros(0))
    high: Array = field(default_factory=lambda: np.zeros(0))

    @property
    def ends(self) -> tuple[Comparison, Comparison]:
        """Two comparisons with NCCL's times changed: the ratio at the low and at the high end of its band."""
        fast = replace(self, nccl_s=self.low * self.nvshmem_s)
        return fast, replace(self, nccl_s=self.high * self.nvshmem_s)

    @property
    def small_ratio(self) -> float:
        """NCCL's time over NVSHMEM's at 1 KiB. Limits: above 1 -> NVSHMEM is faster there"""
        return float(np.interp(SMALL_BYTES, self.payload_bytes, self.nccl_s / self.nvshmem_s))

    @property
    def crossover_bytes(self) -> float:
        """Size from which NCCL stays faster [bytes]. Limits: it is faster at all sizes -> 0;  never -> inf"""
        ahead = np.flatnonzero(self.nvshmem_s <= self.nccl_s)
        return float([0.0, *self.payload_bytes[1:], inf][ahead[-1] + 1 if ahead.size else 0])

    @property
    def winner(self) -> str:
        """The faster library: "nccl", "nvshmem", or "nvshmem, then nccl"."""
        return {0.0: "nccl", inf: "nvshmem"}.get(self.crossover_bytes, "nvshmem, then nccl")

    def rise(self, start_bytes: float, end_bytes: float) -> tuple[float, float]:
        """(NVSHMEM's, NCCL's) time at ``end_bytes`` over the time at ``start_bytes``."""
        ends = [start_bytes, end_bytes]
        start_s, end_s = np.interp(ends, self.payload_bytes, self.nvshmem_s)
        nccl_first, nccl_last = np.interp(ends, self.payload_bytes, self.nccl_s)
        return float(end_s / start_s), float(nccl_last / nccl_first)


@lru_cache(maxsize=32)
def compare(collective: str, nvshmem_clock: Clock, nccl_clock: Clock) -> Comparison | None:
    """NCCL against NVSHMEM for a collective on 8 H200 GPUs of one node; None if one was not measured.

    nvshmem_clock, nccl_clock  how the times of each were taken
    """
    curves = list[Curve]()
    models = list[CollectiveModel]()
    for backend, clock in ((Backend.NVSHMEM, nvshmem_clock), (Backend.NCCL, nccl_clock)):
        calibration = next(iter(list_matching(MACHINE, backend, clock)), None)
        if calibration:
            models.append(CollectiveModel(load_machine(MACHINE), calibration))
            curves += filter(None, [calibration.curve(collective, GPUS, GPUS)])
    if not curves[1:]:
        return None
    sizes = list_common_sizes(curves)
    nvshmem, nccl = [model.estimate(collective, sizes, GPUS) for model in models]
    low, _, high = compute_ratio_band(
        (nccl.low_s, nccl.time_s, nccl.high_s), (nvshmem.low_s, nvshmem.time_s, nvshmem.high_s)
    )
    return Comparison(sizes, nvshmem.time_s, nccl.time_s, low, high)


def list_common_sizes(curves: list[Curve]) -> Array:
    """Sizes within the measured ranges of all curves, 16 per octave [bytes]."""
    low = max(c.anchor_bytes[0] for c in curves)
    high = min(c.anchor_bytes[-1] for c in curves)
    steps = round(np.log2(high / low) * _PER_OCTAVE)
    return np.asarray(np.geomspace(low, high, steps + 1))
