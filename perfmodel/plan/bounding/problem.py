"""The relaxed problem and its results: sets of plans, and the relaxed optimum of each."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from perfmodel.passes.schemes import Exchange
from perfmodel.plan.bounding.curves import StepCurves
from perfmodel.plan.bounding.tangents import Tangents
from perfmodel.plan.choices.options import Options

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Subspace:
    """A part of all plans: the plans within these limits.

    There are 6 kinds of exchange, J pairs of a step and its resource, Q kinds of table (equal tables are one
    kind) and P steps.

    allowed, forced  [6] kinds of exchange that a plan may use, and that it must use
    cap, floor       [J] no shard has a larger load than ``cap``; some rank holds a shard with at least
                     ``floor``
    fewest, most     [Q] least and largest share of the tables of each kind that are replicated
    first, last      [P] range of indices in ``StepCurves.sizes`` of the busiest rank's loads
    """

    allowed: Mask
    forced: Mask
    cap: Array
    floor: Array
    fewest: Array
    most: Array
    first: Ints
    last: Ints

    @staticmethod
    def whole(problem: Problem) -> Subspace:
        """The part without limits: all plans."""
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
            problem.last,
        )

    def options(self, problem: Problem) -> Mask:
        """Mask over all options of the problem: True where the plans of this part may use the option."""
        return self.among(problem.options, problem.own)

    def among(self, o: Options, own: Array) -> Mask:
        """Mask over the options ``o``: True where the plans of this part may use the option.

        own  load of a shard of each option, for each pair of step and resource, in the units of the curves
        """
        fits = (own <= self.cap).all(axis=1) if np.isfinite(self.cap).any() else np.ones(len(own), dtype=bool)
        possible = np.where(o.copied, self.most[o.group] > 0, self.fewest[o.group] < 1)
        return np.asarray(self.allowed[o.exchange] & fits & possible)


@dataclass(eq=False)
class Relaxation:
    """Solution of a relaxed problem, in which a table may have shares of several options.

    Q kinds of table, J pairs of a step and its resource, P steps, n options, m rounds of the solver.

    bound_s  no plan in the part takes less [s]
    chosen   [n] options that were considered;  share  [n] share of the tables that have each option
    columns  [m, Q] option of every kind of table that was cheapest in each round
    sizes    [J] largest load of a rank;  everywhere  [J] the part of this load that every rank has
    step_s   [P] estimated time of each step [s]
    room     time that twice the memory would save, by the price of memory [s]
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
    """Data of all relaxed problems of one search: options, curves of the steps, and the memory limit.

    most_s    upper limit of the time [s]
    last      [P] largest size index of each step within ``most_s``;  tangents  lines below its curve
    binding   [n, 3] rows of the last linear program that were binding
    """

    options: Options
    curves: StepCurves
    limit_bytes: float
    most_s: float  # of a known plan: in a better plan no step takes longer
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
        """(least value, its option) for each kind of table; ``value`` has one entry per option."""
        return least_of(value, self.options.first)

    def largest(self, at: Ints, load: Array) -> Array:
        """Upper limits of the loads [J]: the sum over all tables of the largest load among some options.

        at  [n] indices of these options;  load  [n, J] load of each
        """
        of_kind = np.zeros((self.count.size, load.shape[1]))
        np.maximum.at(of_kind, self.options.group[at], load)
        return np.asarray(self.count @ of_kind)

    def least_s(self, part: Subspace) -> float:
        """A least time of every plan of a part [s]: the latency of the steps that all of its plans have."""
        mask = part.options(self)
        forced = self.forced_steps(part, mask)
        return float(np.where(forced, self.curves.times[:, 1], self.curves.times[:, 0]).sum())

    def forced_steps(self, part: Subspace, mask: Mask) -> Mask:
        """[P] whether a step runs in every plan of a part, for an exchange that they must use."""
        steps = np.zeros(len(self.curves.times), dtype=bool)
        o = self.options
        for kind in np.flatnonzero(part.forced):
            at = mask & (o.exchange == kind)
            if at.any():
                steps[self.curves.step[(self.average[at] > 0).all(axis=0)]] = True
        return steps


def least_of(value: Array, first: Ints) -> tuple[Array, Ints]:
    """(least value, the option that has it) for each kind of table; the first option among equals.

    value  one per option, sorted by kind of table;  first  where the options of each kind begin
    """
    least = np.minimum.reduceat(value, first[:-1])
    group = np.repeat(np.arange(least.size), np.diff(first))
    at = np.flatnonzero(value == least[group])
    _, where = np.unique(group[at], return_index=True)
    return least, at[where]
