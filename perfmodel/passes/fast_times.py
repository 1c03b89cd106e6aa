"""Times of many passes at once, without bands, for searches and bounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from perfmodel.passes.fast_curve import FastCurve
from perfmodel.passes.handover import BETWEEN
from perfmodel.passes.steps import Step
from perfmodel.passes.timing import PassTimes

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
