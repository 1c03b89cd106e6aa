"""Results of comparing a traced run with its prediction, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from perfmodel.passes.steps import StepRow
from perfmodel.question.plans import JUDGED
from perfmodel.schema.evidence import Evidence
from perfmodel.validate.traced.causes import Reason
from perfmodel.validate.traced.seen import PassSeen

WHOLE, STEPS_ALONE, CALIBRATED = JUDGED
"""What judges a run: the pass with its waits and gaps, its steps, or its calibrated steps."""


FAR = 2.0
"""A time this many times as long as predicted, or a band that contains this ratio and its inverse,
confirms nothing."""


@dataclass(frozen=True, eq=False)
class PredictedTime:
    """A predicted time with its 95 % band [s]."""

    time_s: float
    low_s: float
    high_s: float

    def holds(self, measured_s: float) -> bool:
        """Whether a measured time is inside the band."""
        return self.low_s <= measured_s <= self.high_s

    def is_exceeded(self, measured_s: float, spread_s: tuple[float, float]) -> bool:
        """Whether a measured median exceeds ``FAR`` times the prediction, and its spread the prediction.

        spread_s  10th and 90th percentile
        """
        return measured_s > FAR * self.time_s and spread_s[0] > self.time_s


@dataclass(frozen=True, eq=False)
class ComparedStep:
    """One step, predicted and measured.

    limit    value that limits the predicted time;  evidence  of the prediction
    planned_bytes, seen_bytes  of the busiest traced rank; 0 for kernels, whose bytes no trace has
    own_s    time after the last rank arrived, median over the iterations;  spread_s  10th and 90th percentile
    wait_s   wait for the last rank, mean over ranks, median over the iterations
    reasons  if it is outside the band, likeliest first
    """

    name: str
    label: str
    collective: str
    predicted: PredictedTime
    evidence: str
    limit: str
    planned_bytes: float
    seen_bytes: float
    own_s: float
    spread_s: tuple[float, float]
    wait_s: float
    iterations: int
    backward: bool
    reasons: tuple[Reason, ...] = ()

    @property
    def calibrated(self) -> bool:
        """Whether the prediction is based on measurements of this machine, or of a similar machine."""
        return Evidence(self.evidence).rank <= Evidence.EXTRAPOLATED.rank

    @property
    def far(self) -> bool:
        """Whether it takes over ``FAR`` times its prediction in most iterations, even if inside its band."""
        return self.predicted.is_exceeded(self.own_s, self.spread_s)

    @property
    def inside(self) -> bool:
        """Whether its measured time is in the band, and not far from the prediction (``far``)."""
        return self.predicted.holds(self.own_s) and not self.far

    def to_dict(self) -> dict[str, Any]:
        """The step as plain values in SI units, in the public schema."""
        return {
            "name": self.name,
            "label": self.label,
            "collective": self.collective,
            "predicted_s": self.predicted.time_s,
            "low_s": self.predicted.low_s,
            "high_s": self.predicted.high_s,
            "measured_s": self.own_s,
            "measured_p10_s": self.spread_s[0],
            "measured_p90_s": self.spread_s[1],
            "wait_s": self.wait_s,
            "iterations": self.iterations,
            "inside": self.inside,
            "far": self.far,
            "planned_bytes": self.planned_bytes,
            "seen_bytes": self.seen_bytes,
            "evidence": self.evidence,
            "reasons": [each.to_dict() for each in self.reasons],
        }


@dataclass(frozen=True, eq=False)
class ComparedRun:
    """Result of comparing a traced run with its prediction.

    lines       the matched steps;  missing  planned steps that the trace does not have
    predicted   time that corresponds to ``measured_s``, with the calibration's hand-over between steps
    of_steps    predicted time of all matched steps
    steps_s     sum of the measured steps;  calibrated_s  sum of steps with a calibrated prediction
    whole_s, wait_s, idle_s, other_s  in the iteration of median length, for the mean rank: the pass, its
                waits for other ranks, gaps without any kernel, and other kernels in gaps
    reasons     for the judged time, largest first;  judged  which time is judged: one of ``JUDGED``
    findings    facts in the traces, whether times agree or not: waits for ranks, a slow rank, gaps
    of_these    whether the calibration was made from these same traces
    """

    run: PassSeen
    lines: tuple[ComparedStep, ...]
    predicted: PredictedTime
    of_steps: PredictedTime
    steps_s: float
    calibrated_s: float
    whole_s: float
    wait_s: float
    idle_s: float
    other_s: float
    missing: tuple[StepRow, ...]
    reasons: tuple[Reason, ...]
    judged: str = WHOLE
    findings: tuple[Reason, ...] = ()
    of_these: bool = False

    @property
    def measured_s(self) -> float:
        """The measured time that is judged: the whole pass, or the part that ``judged`` names [s]."""
        return {WHOLE: self.whole_s, STEPS_ALONE: self.steps_s, CALIBRATED: self.calibrated_s}[self.judged]

    @property
    def own_s(self) -> float:
        """The pass without waits, gaps and other kernels, for the mean rank [s]."""
        return self.whole_s - self.wait_s - self.idle_s - self.other_s

    @property
    def inside(self) -> bool:
        """Whether the judged time is in its band."""
        return self.predicted.holds(self.measured_s)

    @property
    def agrees(self) -> bool:
        """Whether the judged time is in a band that could have refuted it, and no judged step is far off.

        Limits: ``FAR`` times the prediction or its inverse, or a band that contains both -> False
        """
        known = self.predicted
        ratio = self.measured_s / known.time_s if known.time_s > 0 else 1.0
        wide = known.holds(known.time_s / FAR) and known.holds(known.time_s * FAR)
        return self.inside and 1 / FAR < ratio < FAR and not wide and not self.far

    @property
    def far(self) -> tuple[ComparedStep, ...]:
        """Judged steps that are far from their prediction."""
        return tuple(
            line for line in self.lines if line.far and (line.calibrated or self.judged != CALIBRATED)
        )

    @cached_property
    def outside(self) -> tuple[ComparedStep, ...]:
        """Steps that are outside their bands."""
        return tuple(line for line in self.lines if not line.inside)

    def to_dict(self) -> dict[str, Any]:
        """The result as plain values in SI units, in the public schema of ``--json``."""
        trace = self.run.trace
        return {
            "ranks": list(trace.ranks),
            "world_size": trace.world_size,
            "all_ranks": trace.complete,
            "iterations": len(trace.steps),
            "iterations_left_out": trace.skipped,
            "judged": self.judged,
            "inside": self.inside,
            "agrees": self.agrees,
            "calibrated_from_these": self.of_these,
            "predicted_s": self.predicted.time_s,
            "low_s": self.predicted.low_s,
            "high_s": self.predicted.high_s,
            "steps_s": self.steps_s,
            "calibrated_s": self.calibrated_s,
            "whole_s": self.whole_s,
            "own_s": self.own_s,
            "wait_s": self.wait_s,
            "idle_s": self.idle_s,
            "other_kernels_s": self.other_s,
            "steps": [line.to_dict() for line in self.lines],
            "missing": [row.name for row in self.missing],
            "not_of_the_plan": [
                {"collective": what.collective, "ranks": what.ranks, "payload_bytes": what.payload_bytes,
                 "count": count, "time_s": time, "why": what.why}
                for what, count, time in self.run.left_over
            ],
            "other_kernels": dict(self.run.other_kernels),
            "reasons": [each.to_dict() for each in self.reasons],
            "findings": [each.to_dict() for each in self.findings],
        }  # fmt: skip
