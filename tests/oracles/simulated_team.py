"""A team of ranks that do nothing: known curves, known noise, a clock of its own, and faults on demand.

It stands in for real ranks wherever the truth must be known: does a calibration find it again, inside its
intervals, whatever goes wrong on the way?
"""

from __future__ import annotations

import math
import random
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from calibrate.operations import Availability, RankTimes
from calibrate.planning.measurement_plan import BACKENDS, MeasurementPlan
from calibrate.planning.world import World
from calibrate.running.interfaces import RunOutcome
from calibrate.running.stopping import Summary
from perfmodel.errors import PerfmodelError, RankLostError
from perfmodel.schema.evidence import SAMPLE_OPERATIONS, Clock
from perfmodel.schema.runs import KERNELS, Point, PointKind, RunHeader

SKEW = 0.1
"""Share by which the other ranks are faster than the last one of a group."""


@dataclass(frozen=True)
class TrueCurve:
    """Time of a call:  t(S) = (alpha^p + (S / beta)^p)^(1/p)  [s];  S payload [bytes], beta [bytes/s]."""

    alpha_s: float
    beta_bytes_per_s: float
    p: float = 1.0

    def time_s(self, payload_bytes: float) -> float:
        """Limits: S = 0 -> alpha; S large -> S / beta"""
        transfer_s = payload_bytes / self.beta_bytes_per_s
        larger, smaller = max(self.alpha_s, transfer_s), min(self.alpha_s, transfer_s)
        return float(larger * (1 + (smaller / larger) ** self.p) ** (1 / self.p))


class SimulatedTeam:
    """Ranks whose calls take what ``curves`` say; pass ``team.clock`` to ``calibrate`` as its clock.

    curves       by operation, or "" (any other);  kernels  whether torch and our pass are there too
    visit_noise  standard deviation of the logarithm from visit to visit; ``call_noise``: from call to call
    faults       what happens in which visit (the first is 1): wrong elements, nothing checked (unchecked), no
                 byte sent (silent), a refusal of the library (refused), a lost rank (dead, hung), a
                 clock that jumps (ahead), a slow GPU (throttled), a signal in the middle (its name)
    """

    def __init__(
        self,
        curves: Mapping[str, TrueCurve],
        *,
        ranks: int = 2,
        backends: Sequence[str] = ("gloo",),
        device: str = "cpu",
        kernels: bool = False,
        visit_noise: float = 0.0,
        call_noise: float = 0.0,
        overhead_s: float = 0.005,
        faults: Mapping[int, str] | None = None,
        seed: int = 0,
        cores_per_node: int = 0,
    ) -> None:
        self.curves, self.faults = dict(curves), dict(faults or {})
        self.visit_noise, self.call_noise, self.overhead_s = visit_noise, call_noise, overhead_s
        self.visits: list[tuple[Point, int]] = []  # each point and its calls, in order
        self.closed, self.deadlines_s = 0, 0.0
        self._random, self._now_s = random.Random(seed), 1000.0
        library = Availability(True, version="1.0", clocks=(Clock.EAGER,), operations=SAMPLE_OPERATIONS)
        bench = Availability(True, version="1.0", clocks=(Clock.EAGER,), operations=(*KERNELS, "row_wise"))
        ours = ("torch", "exchange") if kernels else ()
        self._world = World(
            ranks,
            device=device,
            providers=dict.fromkeys(backends, library) | dict.fromkeys(ours, bench),
            memory_bytes=2.0**33,
            cores_per_node=cores_per_node,
            versions=dict.fromkeys((*BACKENDS, "torch"), "1.0"),
            hosts=("node0",),
        )

    def world(self) -> World:
        """The ranks that it plays."""
        return self._world

    def clock(self) -> float:
        """Its own time [s]: it passes only in visits."""
        return self._now_s

    def close(self) -> None:
        """Counts how often it was closed."""
        self.closed += 1

    def visit(
        self, point: Point, ranks: Sequence[int], *, calls: int, salt: int, deadline_s: float
    ) -> list[RankTimes]:
        """Times of ``calls`` calls, the last rank of the group the slowest; or the fault of this visit."""
        self.visits.append((point, calls))
        self.deadlines_s += deadline_s
        fault = self.faults.get(len(self.visits), "")
        self._fail(fault, ranks, deadline_s)
        curve = self.curves.get(point.operation) or self.curves[""]
        level_s = curve.time_s(point.payload_bytes) * math.exp(self._random.gauss(0.0, self.visit_noise))
        starts: list[float] = []
        spans: list[float] = []
        self._now_s += self.overhead_s
        for _ in range(calls):
            starts.append(self._now_s)
            spans.append(level_s * math.exp(self._random.gauss(0.0, self.call_noise)))
            self._now_s += spans[-1] + 1e-6
        return [self._time_rank(point, rank == ranks[-1], starts, spans, fault) for rank in ranks]

    def _time_rank(
        self, point: Point, last: bool, starts: list[float], spans: list[float], fault: str
    ) -> RankTimes:
        share = 1.0 if last else 1.0 - SKEW
        ends = [start + share * span for start, span in zip(starts, spans, strict=True)]
        if last and fault == "ahead":
            ends[-1] = starts[-1] + 3600.0
        silent = fault == "silent" or point.kind is PointKind.KERNEL
        return RankTimes(
            starts_s=list(starts),
            ends_s=ends,
            bytes_sent=0 if silent else max(point.payload_bytes, 1),
            checked=0 if fault == "unchecked" else max(point.payload_bytes // 4, 1),
            wrong=1 if fault == "wrong" and last else 0,
            slowdowns=["thermal"] if fault == "throttled" else [],
        )

    def _fail(self, fault: str, ranks: Sequence[int], deadline_s: float) -> None:
        name = f"rank {ranks[-1]} (node 0)"
        if fault == "dead":
            raise RankLostError(name, "died (signal 9)")
        if fault == "hung":
            self._now_s += deadline_s
            raise RankLostError(name, f"did not answer for {deadline_s:.0f} s")
        if fault == "refused":
            raise PerfmodelError("the library refuses this size.")
        if fault in signal.Signals.__members__:
            signal.raise_signal(signal.Signals[fault])


@dataclass
class Recorder:
    """A listener that keeps what it is told: of progress all but the point."""

    done_at_start: int = -1
    seen: list[tuple[float, int, Summary | None, float]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    outcome: RunOutcome | None = None

    def started(self, plan: MeasurementPlan, header: RunHeader, done: int, left_s: float) -> None:
        self.done_at_start = done

    def progress(self, done: float, total: int, point: Point, summary: Summary | None, left_s: float) -> None:
        self.seen.append((done, total, summary, left_s))

    def warning(self, text: str) -> None:
        self.warnings.append(text)

    def finished(self, outcome: RunOutcome) -> None:
        self.outcome = outcome
