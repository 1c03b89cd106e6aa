"""Times of many passes at once, without bands, for searches and bounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from perfmodel.engine.handover import BETWEEN
from perfmodel.engine.steps import Step
from perfmodel.engine.timing import PassTimes

Array = NDArray[np.float64]
TimeOf = Callable[[Array], Array]
LAUNCHES = "launches_of_group_"
"""Prefix of the launches of each group of tables among the names in ``FastTimes.parts``."""
_LEAST, _BIG, _BESIDE = 2.0**-60, 2.0**50, 2.0**20
"""Loads at which a kernel is evaluated to derive its floor and its slopes [bytes]."""


@dataclass(frozen=True)
class KernelLine:
    """The time of a kernel as a function of its loads.

        t = floor + max_k(slope_k x_k)        [s]

    resources  whose bytes are x_k;  slopes  [s/byte];  floor  launch floor, 0 if all x_k are 0 [s]
    """

    resources: tuple[int, ...]
    slopes: tuple[float, ...]
    floor: float


class FastTimes(PassTimes):
    """``PassTimes`` on one number of GPUs, for many passes at once.

    ``most`` is the busiest rank's loads [..., K] in bytes; times have shape [...].
    Each step approximates ``exact``: a collective by lines between 256 sizes per octave, a kernel by its
    floor and the largest of its loads times their slopes.
    """

    def fast(self, most: Array) -> Array:
        """Times of whole passes [s].

        Within 0.1 % of the sum of ``exact``; 100 000 passes in tens of milliseconds.
        """
        total = np.zeros(most.shape[:-1])
        for time in self._fast.values():
            total += time(most)
        return total

    def parts(self, most: Array) -> dict[str, Array]:
        """Times of every step by name, each rising with its loads.

        A collective's time includes its hand-over; hand-over between steps, if any, is "between_steps".
        """
        return {name: time(most) for name, time in self._fast.items()}

    @cached_property
    def apart(self) -> tuple[Step, ...]:
        """The launches of each group of tables, as steps that ``fast`` adds separately."""
        return tuple(Step(f"{LAUNCHES}{at}", (cast("Any", r),)) for at, r in enumerate(self.groups))

    def slopes(self, step: Step) -> tuple[float, ...]:
        """Seconds per byte of each resource of a kernel."""
        return self._line(step).slopes

    def _line(self, step: Step) -> KernelLine:
        """The line of a kernel: its floor from ``exact`` at small loads, each slope from one large load."""
        resources = tuple(map(int, step.resources))
        loads = np.zeros((len(resources) + 1, max((*step.resources, *self.groups)) + 1))
        loads[0, resources] = _LEAST
        loads[1:, resources] = np.where(np.eye(len(resources)), _BIG, _BESIDE)
        floor, *times = self.exact(step, loads).time_s.tolist()
        return KernelLine(resources, tuple((time - floor) / (_BIG - _LEAST) for time in times), floor)

    @cached_property
    def _fast(self) -> dict[str, TimeOf]:
        """For every step, its time as a function of the loads."""
        fast: dict[str, TimeOf] = {}
        launches_s = 0.0
        for step in self.steps:
            if step.collective and self.group(step)[0] > 1:
                fast[step.name] = self._of_collective(step)
            elif not step.collective and (step.always or step.alone or self.gpus > 1):
                line = self._line(step)
                launch = line.floor if step.grouped and self.groups else 0.0
                launches_s += launch
                fast[step.name] = _of_kernel(line, launch, always=step.always)
        for step in self.apart:
            fast[step.name] = _of_launches(step.resources[0], launches_s)
        between = self.basis.setting.handover.constants.get(BETWEEN)
        if between is not None and self.gpus > 1:
            needs = [step.resources[0] for step in self.steps if step.collective]
            fast[BETWEEN] = lambda most: between.value * (most[..., needs].max(axis=-1) > 0)
        return fast

    def _of_collective(self, step: Step) -> TimeOf:
        def exact(size: Array) -> Array:
            time = self.collective(step, size).time_s
            known = self.basis.setting.handover
            if not known.known:
                return time
            between = known.constants.get(BETWEEN)
            return time + known.times([self.sent(step, size, time)])[1] - (between.value if between else 0)

        sizes = step.resources
        if step.splits:
            fixed = float(exact(np.array([self.splits_bytes]))[0])
            return lambda most: np.asarray(fixed * (most[..., sizes[0]] > 0))
        curve = FastCurve(exact)
        if len(sizes) == 1:
            return lambda most: curve(most[..., sizes[0]])
        return lambda most: curve(np.maximum(most[..., sizes[0]], most[..., sizes[1]]))


def _of_kernel(line: KernelLine, launch: float, *, always: bool) -> TimeOf:
    """The time of a kernel as a function of the loads.

    launch  part of the floor that is counted elsewhere [s];  always  whether it runs even without work
    """
    floor = line.floor - launch

    def time(most: Array) -> Array:
        columns = zip(line.resources, line.slopes, strict=True)
        resource, slope = next(columns)
        longest = most[..., resource] * slope
        for resource, slope in columns:
            longest = np.maximum(longest, most[..., resource] * slope)
        return np.asarray(longest + floor if always else longest + floor * (longest > 0))

    return time


def _of_launches(resource: int, launches_s: float) -> TimeOf:
    return lambda most: np.asarray(launches_s * (most[..., resource] > 0), dtype=np.float64)


_SMALLEST_LOG2, _LARGEST_LOG2, _CELL_BITS = -20, 48, 8
_MANTISSA_BITS, _BIAS = 52, 1023


class FastCurve:
    """A curve t(S) as straight pieces, 256 per octave, indexed by the bits of S.

    S   bytes, any shape; 0 (or less than 2^-20) gives 0 s, less than 1 byte the time of 1 byte
    Source: an octave of IEEE numbers is 2^52 equal steps: the exponent and the first 8 bits give the piece
    Limits: at piece boundaries exact; elsewhere within 0.1 % of any curve whose exponent d ln t / d ln S
            changes by less than 1 within a piece;  above 2^48 -> the last piece is extended
    """

    def __init__(self, time: Callable[[Array], Array]) -> None:
        octaves = _LARGEST_LOG2 - _SMALLEST_LOG2
        cells = 1 << _CELL_BITS
        steps = np.tile(1 + np.arange(cells) / cells, octaves)
        exponents = np.repeat(np.arange(octaves), cells) + _SMALLEST_LOG2
        edges = np.append(np.ldexp(steps, exponents), 2.0**_LARGEST_LOG2)
        values = np.asarray(time(np.maximum(edges, 1)), dtype=np.float64)
        slope = np.diff(values) / np.diff(edges)
        self._slope = np.concatenate([[0.0], slope])
        self._base = np.concatenate([[0.0], values[:-1] - slope * edges[:-1]])
        self._first = ((_SMALLEST_LOG2 + _BIAS) << _CELL_BITS) - 1
        self._shift = _MANTISSA_BITS - _CELL_BITS

    def __call__(self, size: Any) -> Array:
        """Times [s] of sizes [bytes]."""
        S = np.asarray(size, dtype=np.float64)
        piece = (S.view(np.int64) >> self._shift) - self._first
        piece = np.minimum(np.maximum(piece, 0), self._slope.size - 1)
        return np.asarray(self._base[piece] + self._slope[piece] * S)


# Weight of each unit of a search's work [ns]: about its time on one core, with its overhead. Fitted to the
# CPU time of searches of all sizes (benchmarks/work_units.py). A wrong constant makes a search longer or
# shorter than its name says; answers stay reproducible.
SCORING, SCORED_ROW = 220_000.0, 1_800.0  # one call that scores passes; one pass in it
CURVES, CURVE_POINT = 400_000.0, 20.0  # one call that evaluates the steps' curves; one point
LISTED = 8_500.0  # an option whose loads are computed
PRICED = 1.9  # a load of an option that is priced
PACKED_TABLE = 2_400.0  # a table that is packed
PLACED = 8.4  # a load of a rank that is examined for a place
EVENED = 4.9  # a load of a change that is tried in rebalancing
LINES = 4_500_000.0  # lines under a curve
COSTED, COSTED_TABLE = 5_000_000.0, 1_450.0  # an exact count of a plan's loads; one table of it
EXACT = 4_000_000.0  # one call that computes exact times of steps
_DROPPED_BITS = 20  # of 52 that are dropped: about 10 decimal digits stay
_HALF = np.int64(1 << (_DROPPED_BITS - 1))
_KEPT = np.int64(-(1 << _DROPPED_BITS))


def steady(values: Array) -> Array:
    """Values rounded to 33 significant bits, ties away from 0, for a search to compare.

    The last bits of a sum depend on the CPU. Values that differ by rounding alone become equal, except the
    few in a million at an edge.
    Limits: 0, infinities -> unchanged;  relative change -> at most 2^-33
    """
    bits = np.asarray(values, dtype=np.float64).view(np.int64)
    return np.asarray(((bits + _HALF) & _KEPT).view(np.float64))
