"""A lower bound on all plans: the relaxed problem, branched on which kinds of exchange a plan uses.

A kind of exchange in use costs the latency of its collectives once, however few bytes they carry. So its
curve of time against bytes jumps at 0, which a convex relaxation cannot represent. Instead the set of all
plans is split in two: plans that use a kind or not, that replicate at least so many equal tables or fewer,
that cache a table or none, that keep a table in HBM or below, that have a shard or an exchange above some
size or not. Both halves are solved and split again, until no part can hold a plan better than the best known.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from perfmodel.passes.schemes import Exchange, copied
from perfmodel.plan.bounding.at_once import AtOnce
from perfmodel.plan.bounding.mean_loads import MeanLoads
from perfmodel.plan.bounding.problem import Problem, Relaxation, Subspace
from perfmodel.plan.bounding.relaxation import relax
from perfmodel.plan.bounding.tangents import TO_US

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

RELAXATION = (
    "linear: shares of the schemes of each table, loads and memory spread evenly over the ranks but for the "
    "largest shard, convex hulls of the curves; branched on the kinds of exchange in use, the numbers of "
    "copies and the sizes of exchanges"
)
"""Assumptions of the bound, in words."""

LISTED = "plans of the listed schemes"
"""Plans that the bound covers, in words."""

LISTED_SCHEMES = (
    "row parts in powers of two, whole scale-up domains or all GPUs; column parts of 4 columns or more, "
    "equal ones or a power of two of them; hot rows that get 50, 75, 90 or 97 % of the look-ups, where they "
    "save time; each part on a GPU of its own"
)
"""Schemes that are listed (``options_of``), in words for an answer."""

OF_TORCHREC = "plans of TorchRec's shardings"
TORCHREC_SCHEMES = (
    "whole tables, equal column parts of a multiple of 4 columns, row parts over one scale-up domain or all "
    "GPUs, both over whole domains, and copies; each part on a GPU of its own"
)
"""Schemes that are listed for TorchRec (``runnable``), in words for an answer."""

_SHARE = 1e-6
_FIRST = 100  # parts; a split makes fewer
_WORTH = 1e-4  # of the bound: least gain of a split
_ROUGH = 0.05
_MANY = 150
_DIFFERENT = 50
"""Kinds of table above which bounds from mean loads come first: with fewer, other programs are as small."""
_SIZE_WORTH = 0.1  # of the excess time of the largest shard over its estimate: it may be cut further


class Bounding:
    """Computes lower bounds on the time of all plans; splits the part with the lowest bound first.

    found  is called with every solved part (``Subspace``) and its ``Relaxation``, which shows where good
           plans are; it returns the time of the best known plan [s]
    kinds  the kinds of exchange, the most promising first
    """

    def __init__(
        self,
        problem: Problem,
        found: Callable[[Subspace, Relaxation], float],
        tolerance: float,
        kinds: Sequence[int] = (),
    ) -> None:
        self.problem, self.found, self.tolerance = problem, found, tolerance
        self.best_s = problem.most_s
        whole = Subspace.whole(problem)
        self.first = by_kinds(whole, kinds)  # the first split of all plans
        self.open = [(problem.least_s(whole), 0, whole)]
        self.known: Ints = np.zeros(0, dtype=np.int64)
        self.closed_s = np.inf  # least bound of the parts that are not split further
        self.solving_s = np.inf  # bound of the part being solved, also when the search was stopped
        self.solved = 0
        self.first_prices: AtOnce | None = None
        self.means: MeanLoads | None = None

    @property
    def bound_s(self) -> float:
        """A time that no plan goes below, except possibly the best known plan [s]."""
        means_s = self.means.bound_us / TO_US if self.means else 0.0
        return min(self.best_s, max(self.parts_s, means_s))

    @property
    def parts_s(self) -> float:
        """The least bound of the parts that are not yet excluded [s]."""
        return min(self.closed_s, self.solving_s, self.open[0][0] if self.open else np.inf)

    def begin(self, first: AtOnce) -> None:
        """Use an immediate bound, and the options that are cheapest at its prices; called before ``run``."""
        above_s, number, whole = self.open[0]
        self.open[0] = max(above_s, first.bound_s), number, whole
        self.known = np.union1d(self.known, first.chosen)
        self.first_prices = first

    def run(self, until: Callable[[], bool]) -> None:
        """Split parts until none can hold a plan that is better than the best by more than the tolerance.

        With many different tables the faster ``MeanLoads`` runs first; with very many tables it is the only
        bound.
        until  returns whether to stop early
        """
        if self.first_prices is not None and self.problem.count.size >= _DIFFERENT:
            self._raise_means(self.first_prices, until)
            if self.problem.count.size > _MANY:
                return  # programs with a row per table take longer than can be gained
        while self.open and self.bound_s < self.best_s * (1 - self.tolerance) and not until():
            if self.open[0][0] > self.closed_s:
                break  # no split can raise the bound
            self.solving_s = self.open[0][0]
            above_s, number, part = heapq.heappop(self.open)
            self._solve(above_s, number, part, until)
            self.solving_s = np.inf

    def _raise_means(self, first: AtOnce, until: Callable[[], bool]) -> None:
        if until():
            return
        if self.means is None:
            self.means = MeanLoads(self.problem, first.mean, first.room)
        self.means.run(self.best_s * (1 - self.tolerance) * TO_US, until)

    def _solve(self, above_s: float, number: int, part: Subspace, until: Callable[[], bool]) -> None:
        tolerance = self.tolerance if self.problem.count.size > _MANY else self.tolerance / 4
        if number == 0 and len(self.first) > 1:
            tolerance = _ROUGH  # all plans together need a rough bound only: their parts are solved next
        stop_s = self.best_s * (1 - self.tolerance / 2)
        solve = partial(relax, self.problem, part, tolerance=tolerance, stop_s=stop_s, until=until)
        relaxed = solve(self.known, coarse=True)
        if relaxed is None:
            return
        self.solved += 1
        bound = max(above_s, relaxed.bound_s)
        if bound >= self.best_s:
            return
        self.solving_s = bound
        self.known = np.union1d(self.known, relaxed.chosen[relaxed.share > 0])
        self.best_s = min(self.best_s, self.found(part, relaxed))
        parts = [] if bound >= self.best_s else self._split(number, part, relaxed)
        if not parts and relaxed.finer and bound < self.best_s:  # nothing else can raise the bound
            relaxed = solve(self.known)
            bound = max(bound, relaxed.bound_s if relaxed else bound)
            parts = self._split(number, part, relaxed) if relaxed and bound < self.best_s else []
        if not parts:
            self.closed_s = min(self.closed_s, bound)
        for at, child in enumerate(parts):
            above_s = max(bound, self.problem.least_s(child))
            heapq.heappush(self.open, (above_s, 1 + _FIRST * self.solved + at, child))

    def _split(self, number: int, part: Subspace, relaxed: Relaxation) -> list[Subspace]:
        if number == 0 and len(self.first) > 1:
            return self.first
        return split(self.problem, part, relaxed)


def by_kinds(whole: Subspace, kinds: Sequence[int]) -> list[Subspace]:
    """Splits a part by kinds of exchange: the plans of each result use one kind and none
    of the kinds before it.
    """
    parts = []
    for kind in kinds:
        one = np.arange(whole.allowed.size) == kind
        if (whole.allowed & one).any():
            parts.append(replace(whole, forced=whole.forced | one))
            whole = replace(whole, allowed=whole.allowed & ~one)
    return [*parts, whole]


def split(problem: Problem, part: Subspace, relaxed: Relaxation) -> list[Subspace]:
    """Splits a part into parts that hold the same plans but exclude this relaxed optimum.

    Limits: the relaxed optimum is a plan itself, so that nothing is left to split -> empty
    """
    used = relaxed.share > _SHARE
    chosen, share = relaxed.chosen[used], relaxed.share[used]
    by_kind = _by_kind(problem, part, chosen, share)
    if by_kind:
        return by_kind
    tried = (
        _by_copies(problem, part, relaxed),
        _by_curve(problem, part, relaxed),
        _by_size(problem, part, relaxed, chosen),
    )
    worth, parts = max(tried, key=lambda found: found[0])
    return parts if worth > _WORTH * relaxed.bound_s else []


def _by_kind(problem: Problem, part: Subspace, chosen: Ints, share: Array) -> list[Subspace]:
    """Splits a part on the most-used kind of exchange whose latency the relaxation did not count.

    chosen  the options in the relaxed optimum;  share  the share of each
    """
    o = problem.options
    used = np.bincount(o.exchange[chosen], share * problem.count[o.group[chosen]], len(Exchange))
    used[part.forced | copied(np.arange(used.size))] = 0
    if not used.any():
        return []
    one = np.arange(used.size) == np.argmax(used)
    return [replace(part, forced=part.forced | one), replace(part, allowed=part.allowed & ~one)]


def _by_copies(problem: Problem, part: Subspace, relaxed: Relaxation) -> tuple[float, list[Subspace]]:
    """(gain of the bound [s], parts) of a split by the number of replicated tables of one kind.

    Limits: these numbers are whole already -> no parts
    """
    o = problem.options
    whole = o.copied[relaxed.chosen]
    at = relaxed.chosen[whole]
    tables = relaxed.share[whole] * problem.count[o.group[at]]
    odd = np.abs(tables - np.rint(tables))
    worth = np.where(odd > 1e-4, odd, 0) * o.everywhere_memory[at] / problem.limit_bytes * relaxed.room
    if not worth.any():
        return 0.0, []
    pick = int(np.argmax(worth))
    kind, count = o.group[at[pick]], problem.count[o.group[at[pick]]]
    one = np.arange(o.count.size) == kind
    more = np.where(one, np.ceil(tables[pick]) / count, part.fewest)
    fewer = np.where(one, np.floor(tables[pick]) / count, part.most)
    return float(worth[pick]), [replace(part, fewest=more), replace(part, most=fewer)]


def _by_size(
    problem: Problem, part: Subspace, relaxed: Relaxation, chosen: Ints
) -> tuple[float, list[Subspace]]:
    """(gain of the bound [s], parts) of a split by the largest shard: above or below a size.

    Limits: no shard in use exceeds the rank's load in the relaxed optimum -> no parts
    """
    curves, own = problem.curves, problem.own[chosen].max(axis=0, initial=0)
    place = np.searchsorted(curves.sizes, np.stack([relaxed.sizes, relaxed.everywhere + own]))
    place = np.minimum(place, curves.sizes.size - 1)
    more = curves.times[curves.step, place[1]] - curves.times[curves.step, place[0]]
    j = int(np.argmax(more))
    room = relaxed.sizes[j] - relaxed.everywhere[j]
    if more[j] <= 0 or own[j] <= room:
        return 0.0, []
    one = np.arange(own.size) == j
    middle = np.sqrt(max(room, own[j] * _SHARE) * own[j])
    small = replace(part, cap=np.where(one, middle, part.cap))
    large = replace(part, floor=np.where(one, np.maximum(part.floor, middle), part.floor))
    return float(more[j]) * _SIZE_WORTH, [small, large]


def _by_curve(problem: Problem, part: Subspace, relaxed: Relaxation) -> tuple[float, list[Subspace]]:
    """(gain of the bound [s], parts) of a split by the size of a step: above or below its present size.

    It takes the step whose time is furthest above the convex hull of its curve.
    """
    curves = problem.curves
    most = np.zeros(len(curves.times))
    np.maximum.at(most, curves.step, relaxed.sizes)
    place = np.clip(curves.at_most(most), part.first, part.last)
    more = np.where(place > 0, curves.times[np.arange(place.size), place] - relaxed.step_s, 0)
    inside = (place > np.maximum(part.first, 1)) & (place < part.last)
    more = np.where(inside, more, 0)
    p = int(np.argmax(more))
    if more[p] <= 0:
        return 0.0, []
    one = np.arange(place.size) == p
    small = replace(part, last=np.where(one, place, part.last))
    return float(more[p]), [small, replace(part, first=np.where(one, place + 1, part.first))]
