"""The cost of passes: the time of every step with its band, and their sums.

Every pass is costed here: row-wise passes of many configurations, the plans of a search, one plan in full.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np

from perfmodel.collectives.library import Array, Codes, Timing, constant
from perfmodel.engine.settings import Setting, find_clock
from perfmodel.engine.steps import HANDOVER, STEPS, Step, StepRow, Times, label_step, sum_causes
from perfmodel.engine.timing import PassTimes
from perfmodel.model import bands
from perfmodel.schema.evidence import MAIN_SHARE, Evidence

Busiest = Callable[[Step], tuple[float, float, int]]
"""Returns, of a step of one plan: bytes of the busiest GPU, mean bytes of a GPU, the busiest GPU."""


@dataclass(frozen=True)
class TimedStep:
    """A step of many passes: bytes that a GPU sends or moves in it, and its times."""

    step: Step
    payload_bytes: Array
    timing: Timing

    @property
    def name(self) -> str:
        """Name of the step."""
        return self.step.name

    @property
    def collective(self) -> str:
        """Collective that the step runs; "" for a kernel."""
        return self.step.collective


@dataclass(frozen=True, eq=False)
class PassCost:
    """Steps of passes one after the other: every step waits for its busiest GPU. Arrays [...], one per pass.

    Source of the band: collectives share one cause of error, kernels another, sorts of ids a third
    (``Step.cause``); the causes combine in quadrature (``bands.sum_band``)
    """

    setting: Setting
    steps: tuple[TimedStep, ...]

    @property
    def time_s(self) -> Array:
        """Time of each pass [s]."""
        return np.asarray(sum(step.timing.time_s for step in self.steps))

    @property
    def floor_s(self) -> Array:
        """Latency of each pass: the part that no faster link or memory shortens [s]."""
        return np.asarray(sum(step.timing.floor_s for step in self.steps))

    @cached_property
    def causes(self) -> dict[str, Times]:
        """(low, centre, high) of each cause of error [s]."""
        timings = ((step.step.cause, step.timing) for step in self.steps)
        return sum_causes((cause, (t.low_s, t.time_s, t.high_s)) for cause, t in timings)

    @property
    def band(self) -> Times:
        """(low, centre, high) of each pass [s]."""
        return bands.sum_band(*self.causes.values())

    @property
    def evidence(self) -> Codes:
        """Rank of the weakest evidence of a step."""
        return reduce(np.maximum, (step.timing.evidence for step in self.steps))

    @property
    def main_evidence(self) -> Codes:
        """Rank of the weakest evidence behind a large share of the time. Source: ``Evidence.main``"""
        time, rests = self.time_s, dict[int, Array]()
        for step in self.steps:
            ranks, seconds = step.timing.evidence, step.timing.time_s
            lowest, highest = int(ranks.min(initial=len(Evidence))), int(ranks.max(initial=0))
            for rank in range(lowest, highest + 1):
                share = seconds if lowest == highest else np.where(ranks == rank, seconds, 0)
                rests[rank] = rests[rank] + share if rank in rests else share
        main, weaker, enough = np.zeros(time.shape, dtype=np.int8), np.zeros_like(time), MAIN_SHARE * time
        for rank in sorted(rests, reverse=True):
            weaker = weaker + rests[rank]
            np.maximum(main, np.int8(rank), out=main, where=weaker > enough)
        return main

    def build_rows(self, index: int, busiest: Busiest | None = None) -> tuple[StepRow, ...]:
        """Lines of an answer for the pass at ``index``: the steps that take time.

        busiest  of a plan whose GPUs differ
        """
        total_s = float(sum(step.timing.time_s[index] for step in self.steps))
        rows = []
        for step in self.steps:
            timing, time_s = step.timing, float(step.timing.time_s[index])
            if time_s == 0:
                continue
            payload, mean, rank = float(step.payload_bytes[index]), 0.0, 0
            if busiest is not None and step.name != HANDOVER:
                payload, mean, rank = busiest(step.step)
            library, setting = timing.library_names[int(timing.library[index])], self.setting
            row = StepRow(
                name=step.name,
                label=label_step(step.name),
                collective=step.collective,
                library=library,
                payload_bytes=payload,
                time_s=time_s,
                share=time_s / total_s,
                low_s=float(timing.low_s[index]),
                high_s=float(timing.high_s[index]),
                floor_s=float(timing.floor_s[index]),
                clock=setting.kernel_clock if step.step.is_kernel else find_clock(setting.links, library),
                evidence=Evidence.from_rank(int(timing.evidence[index])),
                limit=timing.limit_names[int(timing.limit[index])],
                mean_bytes=mean,
                rank=rank,
            )
            rows.append(row)
        return tuple(rows)


def cost_passes(
    times: PassTimes,
    most: Array,
    steps: Sequence[Step] | None = None,
) -> PassCost:
    """Time the steps of passes that have bytes, and their hand-over if a calibration measured it.

    times   of the steps, with the GPUs of each pass;  most  loads of the busiest GPU [..., K] in bytes
    steps   None: all that any of the passes has
    Limits: one GPU -> the kernels of the look-up alone
    """
    if steps is None:
        used = [bool(most[..., resource].any()) for resource in range(most.shape[-1])]
        steps = [step for step in times.steps if step.always or any(used[x] for x in step.resources)]
    timed = []
    for step, timing in zip(steps, times.time_steps(steps, most), strict=True):
        moved = np.atleast_1d(most[..., step.resources[0]])
        if step.collective:
            moved = times.find_payload(step, most)
        timed.append(TimedStep(step, moved, timing))
    handover = _time_handover(times, timed)
    return PassCost(times.basis.setting, (*timed, *([handover] if handover else [])))


def _time_handover(times: PassTimes, steps: Sequence[TimedStep]) -> TimedStep | None:
    handover = times.basis.setting.handover
    sent = [
        times.describe_sent(step.step, step.payload_bytes, step.timing.time_s)
        for step in steps
        if step.collective
    ]
    if not handover.known or not sent:
        return None
    shape = steps[0].timing.time_s.shape
    *parts, rank = handover.sum_times(sent)
    low, time, high = (np.broadcast_to(end, shape) for end in parts)
    none, library = constant(0, shape), (times.basis.setting.backend,)
    weakest = np.broadcast_to(rank, shape)
    timing = Timing(time, low, high, time, weakest, none, (HANDOVER,), none, library)
    return TimedStep(STEPS[HANDOVER], np.zeros(shape), timing)
