"""For bounds: the time of each step of a pass as an increasing curve of a single size in bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel import effort
from perfmodel.effort import Work
from perfmodel.engine.cost import Evaluator
from perfmodel.engine.steps import Step
from perfmodel.engine.timing import round_off

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_PIECES = 256
_FIRST_LOG2, _LAST_LOG2 = 8, 48
_HEAD = _FIRST_LOG2 + 1  # index of the size 2^8


def scale_of(evaluator: Evaluator, step: Step, at: int) -> float:
    """Weight of a byte of a step's resource ``at``: bytes of the step's first resource that take as long."""
    if step.collective or at == 0:
        return 1.0
    slopes = evaluator.times.find_slopes(step)
    return slopes[0] / slopes[at] if slopes[at] else 1.0  # the slope is 0 for a step that never runs here


def _waited(step: Step) -> tuple[tuple[int, ...], bool]:
    """(indices of the resources that a step waits for, whether it is a gather: DRAM and L2 bytes)."""
    resources = tuple(int(resource) for resource in step.resources)
    return tuple(sorted(resources)) if step.collective else resources, step.gathers


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
    def of(evaluator: Evaluator) -> StepCurves:
        """The curves of a pass; a step that never runs here takes no time."""
        within = 1 + np.arange(_PIECES) / _PIECES
        octaves = np.ldexp(within, np.arange(_FIRST_LOG2, _LAST_LOG2)[:, np.newaxis]).reshape(-1)
        sizes = np.concatenate([2.0 ** np.arange(_FIRST_LOG2), octaves])
        step, resource, scale = [], [], []
        steps = (*evaluator.steps, *evaluator.times.apart)
        where = {_waited(found): found for found in reversed(steps)}
        waits = list(dict.fromkeys(_waited(found) for found in steps))
        for p, (resources, gathers) in enumerate(waits):
            for at, name in enumerate(resources):
                step.append(p)
                resource.append(int(name))
                scale.append(scale_of(evaluator, where[resources, gathers], at))
        width = max(resource) + 1
        loads = np.zeros((sizes.size, width))
        for k, factor in zip(resource, scale, strict=True):
            loads[:, k] = sizes * factor
        taken = evaluator.times.estimate_steps(loads)
        none = evaluator.times.estimate_steps(np.zeros((1, width)))
        times = np.zeros((len(waits), sizes.size + 1))
        for found in steps:
            if found.name in taken:
                p = waits.index(_waited(found))
                at_least = np.minimum.accumulate(taken[found.name][::-1])[::-1]
                times[p, 0] += none[found.name][0]
                times[p, 1:] += np.concatenate([at_least[:1], at_least[:-1]])
        waited = np.array(step), np.array(resource), np.array(scale)
        return StepCurves(np.concatenate([[0.0], sizes]), round_off(times), *waited, evaluator.work)

    def units(self, loads: Array) -> Array:
        """Converts loads [..., K] of all K resources to loads [..., J] of the J pairs of step and resource.

        The result is in the units of the curves: bytes of the first resource of each step.
        """
        return np.asarray(loads[..., self.resource] / self.scale)

    def least(self, slope: Array, first: Ints, last: Ints) -> Array:
        """The minimum over u of (time - slope u) for each of P steps [s].

        slope  [P] seconds per byte;  first, last  [P] u is between the sizes with these indices
        """
        value = self.times - slope[:, np.newaxis] * self.sizes
        at = np.arange(self.sizes.size)
        value[(at < first[:, np.newaxis]) | (at > last[:, np.newaxis])] = np.inf
        return np.asarray(value.min(axis=1))

    def between(self, step: Ints, u: Array) -> Array:
        """Times of some steps at given sizes u, interpolated linearly between the listed sizes [s].

        step  [n] indices of the steps;  u  [..., n] their sizes; the result has the shape of u
        Limits: u = 0 -> the first of ``times``;  within 0.1 % of ``Evaluator.parts``
        """
        self.work.add(effort.CURVES)
        self.work.add(effort.CURVE_POINT, u.size)
        half, exponent = np.frexp(np.maximum(u, 2.0**_FIRST_LOG2))  # u = half 2^exponent, half < 1
        place = (exponent - 1 - _FIRST_LOG2 + 2 * half - 1) * _PIECES
        low = np.minimum(place.astype(np.int64), self.sizes.size - _HEAD - 3)
        part = place - low
        at = low + _HEAD + 1
        line = self.times[step, at] * (1 - part) + self.times[step, at + 1] * part
        small = np.minimum(np.searchsorted(self.sizes, u), _HEAD)
        return np.where(u < self.sizes[_HEAD], self.times[step, small], line)
