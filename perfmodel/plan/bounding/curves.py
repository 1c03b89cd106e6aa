"""For bounds: the time of each step of a pass as an increasing curve of a single size in bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfmodel import effort
from perfmodel.effort import Work
from perfmodel.engine.cost import Evaluator
from perfmodel.engine.steps import Step
from perfmodel.engine.tables import Array, Ints
from perfmodel.engine.timing import round_off

_PIECES = 256
_FIRST_LOG2 = 8
_LAST_LOG2 = 48
_HEAD = _FIRST_LOG2 + 1  # index of the size 2^8


@dataclass(frozen=True)
class StepCurves:
    """Times of P steps, each an increasing function of u, the largest resource that the step waits for.

    Steps that wait for the same resources are added: the exchange of bags, and of their gradients.
    There are J pairs of a step and a resource that it waits for.

    sizes   [M] values of u, from 0 up;  times  [P, M] least time if u is at or above each size [s]
    step, resource   [J] index of the step, and of the resource, of each pair
    scale   [J] bytes of the resource that count as one byte of the step's first resource
    work    counts how often times are evaluated
    Limits: ``times`` at sizes[m] is the step's time at sizes[m - 1] (or above it, if that is less): never
            more than at any u from there on, 1/256 octave of slack;  u = 0 -> 0, or the gather's launch;
            sizes are where ``FastCurve`` is exact
    """

    sizes: Array
    times: Array
    step: Ints
    resource: Ints
    scale: Array
    work: Work

    @staticmethod
    def build(evaluator: Evaluator) -> StepCurves:
        """The curves of a pass; a step that never runs here takes no time."""
        within = 1 + np.arange(_PIECES) / _PIECES
        octaves = np.ldexp(within, np.arange(_FIRST_LOG2, _LAST_LOG2)[:, np.newaxis]).ravel()
        sizes = np.concatenate([2.0 ** np.arange(_FIRST_LOG2), octaves])
        steps = (*evaluator.steps, *evaluator.times.apart)
        groups: dict[tuple[tuple[int, ...], bool], list[Step]] = {}
        for member in steps:
            resources = tuple(int(resource) for resource in member.resources)
            waited = tuple(sorted(resources)) if member.collective else resources
            groups.setdefault((waited, member.gathers), []).append(member)  # a gather: DRAM and L2 bytes
        pairs = [
            (p, resource, _find_scale(evaluator, alike[0], place))
            for p, ((resources, _), alike) in enumerate(groups.items())
            for place, resource in enumerate(resources)
        ]
        width = max(index for _, index, _ in pairs) + 1
        loads = np.zeros((sizes.size, width))
        for _, index, factor in pairs:
            loads[:, index] = sizes * factor
        taken = evaluator.times.estimate_steps(loads)
        idle = evaluator.times.estimate_steps(np.zeros((1, width)))
        times = np.zeros((len(groups), sizes.size + 1))
        for p, alike in enumerate(groups.values()):
            for name in (member.name for member in alike if member.name in taken):
                least = np.minimum.accumulate(taken[name][::-1])[::-1]
                times[p, 0] += idle[name][0]
                times[p, 1:] += np.concatenate([least[:1], least[:-1]])
        return StepCurves(
            sizes=np.concatenate([[0.0], sizes]),
            times=round_off(times),
            step=np.array([step for step, _, _ in pairs]),
            resource=np.array([resource for _, resource, _ in pairs]),
            scale=np.array([scale for _, _, scale in pairs]),
            work=evaluator.work,
        )

    def convert(self, loads: Array) -> Array:
        """Loads [..., J] of the pairs of a step and a resource, from loads [..., K] of all resources.

        The result is in the units of the curves: bytes of the first resource of each step.
        """
        return np.asarray(loads[..., self.resource] / self.scale)

    def interpolate(self, step: Ints, u: Array) -> Array:
        """Times of some steps at given sizes u, interpolated linearly between the listed sizes [s].

        step  [n] indices of the steps;  u  [..., n] their sizes; the result has the shape of u
        Limits: u = 0 -> the first of ``times``;  within 0.1 % of ``Evaluator.parts``
        """
        self.work.add(effort.CURVES)
        self.work.add(effort.CURVE_POINT, u.size)
        half, exponent = np.frexp(np.maximum(u, 2.0**_FIRST_LOG2))  # u = half 2^exponent, half < 1
        place = (exponent - 1 - _FIRST_LOG2 + 2 * half - 1) * _PIECES
        low = np.minimum(place.astype(np.int64), self.sizes.size - _HEAD - 3)
        fraction = place - low
        index = low + _HEAD + 1
        line = self.times[step, index] * (1 - fraction) + self.times[step, index + 1] * fraction
        small = np.minimum(np.searchsorted(self.sizes, u), _HEAD)
        return np.where(u < self.sizes[_HEAD], self.times[step, small], line)


def _find_scale(evaluator: Evaluator, step: Step, place: int) -> float:
    """Bytes of a step's resource ``place`` that take as long as a byte of its first resource."""
    if step.collective or place == 0:
        return 1.0
    slopes = evaluator.times.find_slopes(step)
    runs = bool(slopes[place])  # the slope is 0 for a step that never runs here
    return slopes[0] / slopes[place] if runs else 1.0
