"""The relaxed problem and its results: parts of all plans, loads and curves, relaxed optima."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from perfmodel.passes.allowed_tiers import CODES, WITH_CACHE
from perfmodel.passes.schemes import Exchange
from perfmodel.plan.bounding.curves import StepCurves
from perfmodel.plan.bounding.tangents import Tangents
from perfmodel.plan.choices.options import Options

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Subspace:
    """A part of all plans.

    allowed, forced  [6] kinds of exchange that a plan may use, and that it must use
    cap, floor       [J] no shard has more of a resource than ``cap``; some rank has ``floor`` in one shard
    fewest, most     [Q] limits for the share of the tables of each kind that are replicated
    first, last      [P] range of indices in ``StepCurves.sizes`` of the busiest rank's loads
    tiers            [Q, 4] codes of tiers that the tables of each kind may be in
    used             [4] tiers that some table must be in
    """

    allowed: Mask
    forced: Mask
    cap: Array
    floor: Array
    fewest: Array
    most: Array
    first: Ints
    last: Ints
    tiers: Mask
    used: Mask

    @staticmethod
    def whole(problem: Problem) -> Subspace:
        """All plans."""
        kinds, o = len(Exchange), problem.options
        used = np.isin(np.arange(kinds), o.exchange)
        J, Q = problem.own.shape[1], o.count.size
        return Subspace(
            used,
            np.zeros(kinds, dtype=bool),
            np.full(J, np.inf),
            np.zeros(J),
            np.zeros(Q),
            np.ones(Q),
            np.zeros(len(problem.curves.times), dtype=np.int64),
            np.minimum(problem.last, problem.curves.at_most(problem.curves.most)),
            np.ones((Q, len(CODES)), dtype=bool),
            np.zeros(len(CODES), dtype=bool),
        )

    def options(self, problem: Problem) -> Mask:
        """[O] options that its plans may use."""
        return self.among(problem.options, problem.own)

    def among(self, o: Options, own: Array) -> Mask:
        """[O] which of some options its plans may use; own  [O, J] loads of a shard, in units of u."""
        fits = (own <= self.cap).all(axis=1) if np.isfinite(self.cap).any() else np.ones(len(own), dtype=bool)
        if o.tier is not None:
            fits &= self.tiers[o.group, o.tier]
        possible = np.where(o.copied, self.most[o.group] > 0, self.fewest[o.group] < 1)
        return np.asarray(self.allowed[o.exchange] & fits & possible)


@dataclass(eq=False)
class Relaxation:
    """Solution of a relaxed problem.

    bound_s  no plan in the part takes less [s]
    chosen   [n] options that were considered;  share  [n] of each in the relaxed optimum
    columns  [m, Q] options for every kind of table that the multipliers preferred on the way
    sizes    [J] largest load of a rank in the relaxed optimum;  everywhere  [J] the part that all have
    step_s   [P] estimated time of each step [s]
    room     time that doubling all memory would save, by its multiplier [s]
    finer    whether more programs could raise the bound
    """

    bound_s: float
    chosen: Ints
    share: Array
    columns: Ints
    sizes: Array
    everywhere: Array
    step_s: Array
    room: float
    finer: bool = False


@dataclass(eq=False)
class Problem:
    """Tables, curves and memory limit of all relaxed problems in one search.

    cached_s  [O] least time to fill a table's cache with this option [s], if it runs beside the batch before
              and so is a step outside the curves; None: it is among the curves
    """

    options: Options
    curves: StepCurves
    limit_bytes: float
    most_s: float  # of a known plan: in a better plan no step takes longer
    cached_s: Array | None = None
    last: Ints = field(init=False)
    tangents: Tangents = field(init=False)
    binding: Ints = field(init=False)

    def __post_init__(self) -> None:
        times = self.curves.times
        rest = times.min(axis=1).sum() - times.min(axis=1)
        at = [
            np.searchsorted(line, max(self.most_s - more, 0), "right")
            for line, more in zip(times, rest, strict=True)
        ]
        self.last = np.minimum(np.array(at), self.curves.sizes.size - 1)
        self.tangents = Tangents(self.curves)
        self.binding = np.zeros((0, 3), dtype=np.int64)  # rows of the last linear program that were binding
        self.count = self.options.count.astype(np.float64)
        o = self.options  # loads in the units of u; own of a shard, everywhere of a table
        self.own, self.everywhere, self.average = (
            self.curves.units(loads) for loads in (o.own, o.everywhere, o.average)
        )

    def least(self, value: Array) -> tuple[Array, Ints]:
        """For every kind of table, the least of ``value`` [O] and the option that has it, each [Q]."""
        return least_of(value, self.options.first)

    def largest(self, at: Ints, load: Array) -> Array:
        """Sums of the largest loads that tables may bring with some of the options, shape [J].

        at  [n] options;  load  [n, J] of each of them
        """
        of_kind = np.zeros((self.count.size, load.shape[1]))
        np.maximum.at(of_kind, self.options.group[at], load)
        return np.asarray(self.count @ of_kind)

    def least_s(self, part: Subspace) -> float:
        """Latency of the steps that every plan of a part has, or of prefetched steps beside them [s]."""
        mask = part.options(self)
        forced = self.forced_steps(part, mask)
        least = float(np.where(forced, self.curves.times[:, 1], self.curves.times[:, 0]).sum())
        o = self.options
        if self.cached_s is None or o.tier is None:
            return least
        used = [mask & (o.tier == code) for code in WITH_CACHE if part.used[code]]
        return max([least, *(float(self.cached_s.min(where=some, initial=np.inf)) for some in used)])

    def forced_steps(self, part: Subspace, mask: Mask) -> Mask:
        """[P] steps that run whenever the part's kinds of exchange and tiers are in use."""
        steps = np.zeros(len(self.curves.times), dtype=bool)
        o = self.options
        uses = [mask & (o.exchange == kind) for kind in np.flatnonzero(part.forced)]
        if o.tier is not None:
            uses += [mask & (o.tier == tier) for tier in np.flatnonzero(part.used)]
        for at in uses:
            if at.any():
                steps[self.curves.step[(self.average[at] > 0).all(axis=0)]] = True
        return steps


def least_of(value: Array, first: Ints) -> tuple[Array, Ints]:
    """Per kind of table, (least value [Q], the option that has it [Q]); the first option among equals."""
    least = np.minimum.reduceat(value, first[:-1])
    group = np.repeat(np.arange(least.size), np.diff(first))
    at = np.flatnonzero(value == least[group])
    _, where = np.unique(group[at], return_index=True)
    return least, at[where]
