"""What a whole pass adds to its collectives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from perfmodel.collectives.derivation import curve_time
from perfmodel.collectives.library import Array
from perfmodel.schema.calibration import Calibration, Curve
from perfmodel.schema.evidence import Evidence
from perfmodel.schema.fields import Interval

BETWEEN = "between_steps"
_LIKE = dict.fromkeys(
    ("all_to_all_bags", "all_to_all_sparse_bags", "reduce_scatter_inside"), "reduce_scatter_bags"
)
"""Other collectives that run after the gather, delayed as much as the measured collective to which each is
mapped."""
_Z95 = 1.96


@dataclass(frozen=True)
class Sent:
    """A collective step of some configurations: bytes, ranks and time [s] of the step in each of them."""

    name: str
    collective: str
    payload_bytes: Array
    gpus: Array
    time_s: Array


@dataclass(frozen=True)
class Handover:
    """Extra time of collectives in a whole pass, beyond their times when they are timed alone.

        t = colder + waits                                                                           [s]

    colder  sum over steps of max(0, t_after(S) - t_alone(S)): measured curves after a kernel and alone [s]
    waits   sum of constants h of steps and between steps (``sum_waits_s``) [s]: medians, over the run's whole
            passes, of their time beyond t_after
    pairs      (t_after, t_alone) curves by collective;  constants  h by step
    Source: variant after_kernel and the composed passes of a calibration, except the passes that are held out
    Limits: neither was measured -> 0;  nothing is sent -> 0;  S below the smallest size -> the difference of
    the floors
    """

    pairs: Mapping[str, tuple[tuple[Curve, Curve], ...]] = field(default_factory=dict)
    constants: Mapping[str, Interval] = field(default_factory=dict)

    @staticmethod
    def from_calibration(calibration: Calibration) -> Handover:
        """The hand-over times that a calibration measured."""
        pairs: dict[str, tuple[tuple[Curve, Curve], ...]] = {}
        for after in calibration.after_kernel:
            alone = calibration.curve(after.collective, after.gpus, after.domain_gpus)
            if alone is not None:
                pairs[after.collective] = (*pairs.get(after.collective, ()), (after, alone))
        return Handover(pairs, calibration.handover_s)

    @property
    def known(self) -> bool:
        """Whether the calibration measured hand-over times."""
        return bool(self.pairs or self.constants)

    def sum_waits_s(self, names: Iterable[str]) -> float:
        """The constants of these steps, and of what is between them, together [s]."""
        constants = (self.constants.get(_LIKE.get(name, name)) for name in (*names, BETWEEN))
        return sum(constant.value for constant in constants if constant)

    def sum_times(self, steps: Iterable[Sent]) -> tuple[Array, Array, Array, NDArray[np.int8]]:
        """(low, time, high [s], rank of the evidence) of all collective steps of a pass together."""
        low, time, high = np.zeros(1), np.zeros(1), np.zeros(1)
        rank, taken = np.zeros(1, np.int8), np.zeros(1, bool)
        for step in steps:
            sent = step.time_s > 0
            middle, error, evidence = self._compare_curves(step)
            constant = self.constants.get(_LIKE.get(step.name, step.name))
            for_step = (constant.low, constant.value, constant.high) if constant else (0.0, 0.0, 0.0)
            low = low + np.where(sent, np.maximum(middle - error, 0) + for_step[0], 0)
            time = time + np.where(sent, middle + for_step[1], 0)
            high = high + np.where(sent, middle + error + for_step[2], 0)
            rank, taken = np.maximum(rank, np.where(sent, evidence, 0)), taken | sent
        between = self.constants.get(BETWEEN)
        if between is not None:
            low, time, high = (
                total + np.where(taken, end, 0)
                for total, end in ((low, between.low), (time, between.value), (high, between.high))
            )
        return low, time, high, rank.astype(np.int8)

    def _compare_curves(self, step: Sent) -> tuple[Array, Array, NDArray[np.int8]]:
        """By how much a collective takes longer right after a kernel: (time [s], its 95 % half-width,
        evidence rank)."""
        size, gpus = np.broadcast_arrays(np.asarray(step.payload_bytes, float), np.asarray(step.gpus, float))
        extra, error = np.zeros(size.shape), np.zeros(size.shape)
        rank = np.full(size.shape, Evidence.INTERPOLATED.rank, np.int8)
        pairs = self.pairs.get(step.collective, ())
        if not pairs:
            return extra, error, rank
        for count in np.unique(gpus):
            after, alone = min(pairs, key=lambda pair: abs(np.log2(pair[0].gpus / count)))
            rows = gpus == count
            slow = curve_time(after, np.maximum(size[rows], 1))
            extra[rows] = np.maximum(slow - curve_time(alone, np.maximum(size[rows], 1)), 0)
            noise = float(np.sqrt(np.mean(np.square(after.left_out_log_sd or [after.anchor_log_sd]))))
            error[rows] = np.minimum(_Z95 * noise * slow, extra[rows])
            measured = (size[rows] <= after.anchor_bytes[-1]) & (after.gpus == count)
            rank[rows] = np.where(measured, Evidence.INTERPOLATED.rank, Evidence.EXTRAPOLATED.rank)
        return extra, error, rank
