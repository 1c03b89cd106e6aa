"""A lower bound on the time of all plans: the Lagrangian at the slopes of a good plan's steps.

For any prices w >= 0 of the mean loads of ranks and m >= 0 of all memory, no plan takes less than

    sum_q n_q min_o (w . average_o + m memory_o / limit)  +  sum_p min_u (F_p(u) - s_p u)  -  m        [s]

q  a kind of table, with n_q equal tables;  o  its sharding options;  average_o  mean load of a rank
F_p(u)  time of step p when the busiest rank's load is u
s_p  the sum of w over the resources that step p waits for

Source: weak duality: the busiest rank's loads are at least the mean loads, and a plan's memory is at most the
limit. The slopes of F_p at the loads of a good plan are near the best prices: slopes at mixtures with the
loads of the cheapest options (Frank and Wolfe) gave no higher bound.
Source: Everett, Operations Research 11 (1963): prices of memory
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfmodel import effort
from perfmodel.effort import Work
from perfmodel.engine.cost import Evaluator
from perfmodel.engine.steps import Step
from perfmodel.engine.tables import Array, Ints
from perfmodel.engine.timing import round_off
from perfmodel.plan.choices.scheme_options import Options, find_least

_PIECES = 256
_FIRST_LOG2, _LAST_LOG2 = 8, 48
_HEAD = _FIRST_LOG2 + 1  # index of the size 2^8
_TRIALS = 8  # of the price of memory
_SPREAD = 4.0  # factor between prices of memory, until one price is too low and one too high
_ROUNDING = 1e-9  # of a time
_ABOVE = 1 + 1e-9  # of a load
_SLOPES_LOG2 = np.arange(6, 42, 0.75)
"""Sizes, as powers of two, between which and twice of which chords have the slopes of the lines."""


@dataclass(frozen=True)
class StepCurves:
    """Times of P steps, each an increasing function of u, the largest resource that the step waits for.

    Steps that wait for the same resources are added: the exchange of bags, and of their gradients.
    There are J pairs of a step and a resource that it waits for.

    sizes   [M] values of u, from 0 up;  times  [P, M] least time if u is at or above each size [s]
    step, resource   [J] index of the step, and of the resource, of each pair
    scale   [J] bytes of the resource that count as one byte of the step's first resource
    work    counts how often times are evaluated
    Limits: ``times`` at sizes[m], m > 1, is the step's time at sizes[m - 1] (or above it, if that is less):
            never more than at any u from there on, 1/256 octave of slack;  u = 0 -> 0, or the gather's
            launch;  sizes are where ``FastCurve`` is exact
    """

    sizes: Array
    times: Array
    step: Ints
    resource: Ints
    scale: Array
    work: Work

    @staticmethod
    def build(evaluator: Evaluator) -> StepCurves:
        """The curves of a pass; a step that never runs takes no time. Launches are steps of their own."""
        within = 1 + np.arange(_PIECES) / _PIECES
        octaves = np.ldexp(within, np.arange(_FIRST_LOG2, _LAST_LOG2)[:, np.newaxis]).ravel()
        sizes = np.concatenate([[0.0], 2.0 ** np.arange(_FIRST_LOG2), octaves])
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
        times = np.zeros((len(groups), sizes.size))
        for p, alike in enumerate(groups.values()):
            for name in (member.name for member in alike if member.name in taken):
                least = np.minimum.accumulate(taken[name][::-1])[::-1]
                times[p] += np.concatenate([least[:2], least[1:-1]])  # a size lower: no bound is too high
        step = np.array([p for p, _, _ in pairs])
        resource = np.array([index for _, index, _ in pairs])
        scale = np.array([factor for _, _, factor in pairs])
        return StepCurves(sizes, round_off(times), step, resource, scale, evaluator.work)

    def convert(self, loads: Array) -> Array:
        """Loads [..., J] of the pairs, in bytes of each step's first resource, from loads [..., K]."""
        return np.asarray(loads[..., self.resource] / self.scale)

    def interpolate(self, step: Ints, u: Array) -> Array:
        """Times of some steps at given sizes u, interpolated linearly between the listed sizes [s].

        step  [n] indices of the steps;  u  [..., n] their sizes; the result has the shape of u
        Limits: u = 0 -> the first of ``times``;  within 0.1 % of ``Evaluator.parts``
        """
        self.work.add(effort.CURVES)
        self.work.add(effort.CURVE_POINT, u.size)
        half, exponent = np.frexp(np.maximum(u, 2.0**_FIRST_LOG2))  # u = half 2^exponent, half < 1
        place = (exponent - 1 - _FIRST_LOG2 + 2 * half - 1) * _PIECES  # of u among the sizes, not whole
        low = np.minimum(place.astype(np.int64), self.sizes.size - _HEAD - 3)
        fraction = place - low
        index = low + _HEAD + 1
        line = self.times[step, index] * (1 - fraction) + self.times[step, index + 1] * fraction
        small = np.minimum(np.searchsorted(self.sizes, u), _HEAD)
        return np.where(u < self.sizes[_HEAD], self.times[step, small], line)


def _find_scale(evaluator: Evaluator, step: Step, place: int) -> float:
    """Bytes of a step's resource ``place`` that take as long as a byte of its first resource."""
    if step.collective:
        return 1.0
    slopes = evaluator.times.find_slopes(step)
    return slopes[0] / slopes[place] if slopes[place] else 1.0  # 0: a step that never runs here


def compute_lower_bound(
    options: Options, curves: StepCurves, limit_bytes: float, loads: Array, limit_s: float
) -> float:
    """A time [s] that every plan faster than ``limit_s`` takes at least, by the formula of this module.

    options      the schemes that each kind of table may have, with their loads and memory
    curves       the time of each step as a function of its load
    limit_bytes  memory of a rank;  limit_s  time of a known plan: in a faster plan no step takes longer
    loads        loads of the busiest rank of this plan [bytes], for each of J pairs (step, its resource)
    Limits: tables without loads -> the latency of the steps that always run
    """
    prices = _Prices(options, curves, limit_bytes, limit_s)
    return prices.bound(prices.find_slopes(loads), float(prices.evaluate_lines(loads).max(axis=1).sum()))


class _Prices:
    """Computes prices of loads, and the bound that they give.

    average, active  [O, J] mean loads of a rank with each option, by pair;  [J] whether there are any
    reach       [P] largest index in ``StepCurves.sizes`` that a step may reach within ``limit_s``, and with
                the largest load of each table, if every rank has the loads that it waits for
    slope, cut  [P, I] lines below the curve of each step: time >= slope u + cut [s]
    """

    def __init__(self, options: Options, curves: StepCurves, limit_bytes: float, limit_s: float) -> None:
        """Find how far steps may go in a plan faster than ``limit_s``, and lines below their curves."""
        self.options = options
        self.curves = curves
        self.limit_bytes = limit_bytes
        self.average = curves.convert(options.average)
        self.active = self.average.any(axis=0)
        idle = curves.times.min(axis=1)
        left = limit_s - (idle.sum() - idle)  # time for a step if all others take their least
        within = [np.searchsorted(line, room, "right") for line, room in zip(curves.times, left, strict=True)]
        largest = np.maximum.reduceat(self.average, options.begin[:-1]) * options.count[:, np.newaxis]
        uneven = options.shard[:, curves.resource].any(axis=0)
        # The most that a step may wait for: all tables on each rank, or anything where ranks differ.
        most = np.zeros(len(curves.times))
        np.maximum.at(most, curves.step, np.where(uneven, np.inf, largest.sum(axis=0)))
        self.reach = np.minimum(within, np.searchsorted(curves.sizes, most * _ABOVE))
        self.slope, self.cut = self._draw_lines()

    def _draw_lines(self) -> tuple[Array, Array]:
        """(slopes [P, I], cuts [P, I]) of I lines for each step, that are nowhere above its curve.

        They touch the curve, up to ``reach``; slopes are those of chords of the curve, cuts times at u = 0.
        """
        curves = self.curves
        curves.work.add(effort.LINES, len(curves.times))
        size = 2.0**_SLOPES_LOG2
        place = np.searchsorted(curves.sizes, np.stack([size, 2 * size]))
        chords = (curves.times[:, place[1]] - curves.times[:, place[0]]) / size
        slopes, cuts = [], []
        for step, end in enumerate(self.reach):
            line, sizes = curves.times[step, : end + 1], curves.sizes[: end + 1]
            edges = [0.0, 0.0, 0.0]  # the flat line, and the first and last edges of the hull
            if end:
                edges[1] = np.min((line[1:] - line[0]) / (sizes[1:] - sizes[0]))
                edges[2] = np.max((line[-1] - line[:-1]) / (sizes[-1] - sizes[:-1]))
            slope = np.concatenate([edges, chords[step]])
            slopes.append(slope)
            cuts.append(np.min(line - slope[:, np.newaxis] * sizes, axis=1))
        return np.stack(slopes), np.stack(cuts)

    def evaluate_lines(self, loads: Array) -> Array:
        """[P, I] values of the lines at the largest load of each step, from loads [J] of the busiest rank."""
        size = np.zeros(len(self.slope))
        np.maximum.at(size, self.curves.step, loads)
        return np.asarray(self.slope * size[:, np.newaxis] + self.cut)

    def find_slopes(self, loads: Array) -> Array:
        """Prices of loads [J]: the slope of each step's hull, for the resource that limits the step.

        Limits: a step that does not run -> the steepest line from 0, so that its loads are not free
        """
        step = self.curves.step
        lines = self.evaluate_lines(loads)
        top = lines.max(axis=1)[:, np.newaxis]
        touch = np.isclose(lines, top, _ROUNDING, 1e-15)  # lines of the hull at this load
        slope = (touch * self.slope).max(axis=1)
        price = np.zeros(step.size)
        for p in range(slope.size):
            waits = np.flatnonzero(step == p)
            price[waits[np.argmax(loads[waits])]] = slope[p]
        return np.where(self.active, price, 0.0)

    def bound(self, price: Array, usual_s: float) -> float:
        """Best bound over a few prices of memory [s].

        price  [J] of mean loads;  usual_s  a typical time of a pass, from which the tried prices follow
        """
        o, curves = self.options, self.curves
        curves.work.add(effort.PRICED, self.average.size)
        # If all tables of a kind have an option: what its loads cost, and its share of a rank's memory.
        cost = round_off(self.average @ price * o.count[o.group])
        memory = o.average_memory / self.limit_bytes * o.count[o.group]
        of_step = np.bincount(curves.step, price, len(self.slope)).astype(np.float64)
        value = curves.times - of_step[:, np.newaxis] * curves.sizes  # F_p(u) - s_p u
        value[np.arange(curves.sizes.size) > self.reach[:, np.newaxis]] = np.inf
        steps_s = float(value.min(axis=1).sum())
        best_s = -np.inf
        low = memory_s = 0.0
        high = np.inf
        for _ in range(_TRIALS):
            least, option = find_least(cost + memory_s * memory, o.begin)
            best_s = max(best_s, float(least.sum()) + steps_s - memory_s)
            if float(memory[option].sum()) > 1:
                low = memory_s
            else:
                high = memory_s
            if not high:
                break
            if np.isinf(high):
                memory_s = memory_s * _SPREAD or usual_s
            else:
                memory_s = float(np.sqrt(low * high)) if low else high / _SPREAD
        return best_s
