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

BATCHES = 5  # times of a visit on a clock of back-to-back calls, as real ranks give them

FAULTS = (
    *("wrong", "unchecked", "silent", "refused", "dead", "hung"),
    *("back", "zero", "ahead", "nan", "throttled", "SIGINT", "SIGTERM", "SIGHUP"),
)
"""What a visit can be made to do: wrong elements, nothing checked, no byte sent, a refusal of the library,
a rank lost in two ways, clocks that jump, a slow GPU, a signal in the middle."""


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

    curves          by "operation:ranks", "operation" or "" (any other)
    visit_noise     standard deviation of the logarithm from visit to visit; ``call_noise``: from call to call
    skew            share by which the other ranks are faster than the last one of the group
    faults          what happens in which visit (the first is 1): one of ``FAULTS``
    """

    def __init__(
        self,
        curves: Mapping[str, TrueCurve],
        *,
        ranks: int = 2,
        nodes: int = 1,
        backends: Sequence[str] = ("gloo",),
        clocks: Sequence[Clock] = (Clock.EAGER,),
        device: str = "cpu",
        kernels: bool = False,
        visit_noise: float = 0.0,
        call_noise: float = 0.0,
        skew: float = 0.1,
        overhead_s: float = 0.005,
        faults: Mapping[int, str] | None = None,
        seed: int = 0,
        memory_bytes: float = 2.0**33,
        cores_per_node: int = 0,
    ) -> None:
        self.curves = dict(curves)
        self.visit_noise, self.call_noise, self.skew = visit_noise, call_noise, skew
        self.overhead_s = overhead_s
        self.faults = dict(faults or {})
        self.visits: list[tuple[Point, int]] = []  # each point and its calls, in order
        self.closed = 0
        self._random = random.Random(seed)
        self._now_s = 1000.0
        library = Availability(True, version="1.0", clocks=tuple(clocks), operations=SAMPLE_OPERATIONS)
        bench = Availability(True, version="1.0", clocks=(Clock.EAGER,), operations=(*KERNELS, "row_wise"))
        providers = dict.fromkeys(backends, library)
        providers |= dict.fromkeys(("torch", "exchange") if kernels else (), bench)
        self._world = World(
            ranks,
            nodes,
            device=device,
            providers=providers,
            memory_bytes=memory_bytes,
            cores_per_node=cores_per_node,
            versions=dict.fromkeys((*BACKENDS, "torch"), "1.0"),
            hosts=tuple(f"node{number}" for number in range(nodes)),
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

    def time_s(self, point: Point) -> float:
        """The truth: what a call of this point takes [s]."""
        names = (f"{point.operation}:{point.gpus}", point.operation, "")
        curve = next((self.curves[name] for name in names if name in self.curves), None)
        if curve is None:
            raise PerfmodelError(f"the simulation has no curve for {point.operation}.")
        return curve.time_s(point.payload_bytes)

    def visit(
        self, point: Point, ranks: Sequence[int], *, calls: int, round: int, salt: int, deadline_s: float
    ) -> list[RankTimes]:
        """Times of ``calls`` calls, the last rank of the group the slowest; then the fault of this visit."""
        self.visits.append((point, calls))
        fault = self.faults.get(len(self.visits), "")
        self._fail(fault, ranks, deadline_s)
        batch = 1 if point.clock is Clock.EAGER else math.ceil(calls / min(BATCHES, calls))
        level_s = self.time_s(point) * math.exp(self._random.gauss(0.0, self.visit_noise))
        starts: list[float] = []
        spans: list[float] = []
        self._now_s += self.overhead_s
        for _ in range(calls if batch == 1 else min(BATCHES, calls)):
            starts.append(self._now_s)
            spans.append(batch * level_s * math.exp(self._random.gauss(0.0, self.call_noise)))
            self._now_s += spans[-1] + 1e-6
        return [self._rank(point, rank == ranks[-1], starts, spans, batch, fault) for rank in ranks]

    def _rank(
        self, point: Point, last: bool, starts: list[float], spans: list[float], each: int, fault: str
    ) -> RankTimes:
        share = 1.0 if last else 1.0 - self.skew
        ends = [start + share * span for start, span in zip(starts, spans, strict=True)]
        if last and fault in _JUMPS:
            ends[-1] = starts[-1] + _JUMPS[fault]
        elements = max(point.payload_bytes // 4, 1)
        return RankTimes(
            starts_s=list(starts),
            ends_s=ends,
            calls_each=each,
            bytes_sent=0
            if fault == "silent" or point.kind is PointKind.KERNEL
            else max(point.payload_bytes, 1),
            checked=0 if fault == "unchecked" else elements,
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
    """A listener that keeps what it is told."""

    done_at_start: int = -1
    seen: list[tuple[float, int, Summary | None, float]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    outcome: RunOutcome | None = None

    def started(self, plan: MeasurementPlan, header: RunHeader, done: int, left_s: float) -> None:
        """Keeps ``done``."""
        self.done_at_start = done

    def progress(self, done: float, total: int, point: Point, summary: Summary | None, left_s: float) -> None:
        """Keeps all but the point."""
        self.seen.append((done, total, summary, left_s))

    def warning(self, text: str) -> None:
        """Keeps the text."""
        self.warnings.append(text)

    def finished(self, outcome: RunOutcome) -> None:
        """Keeps the outcome."""
        self.outcome = outcome


_JUMPS = {"back": -5.0, "zero": 0.0, "ahead": 3600.0, "nan": math.nan}  # length of the last call [s]
