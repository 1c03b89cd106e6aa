"""A time that no plan beats: the relaxed problem, branched on which kinds of exchange a plan uses.

A kind in use costs the latency of its collectives once, however little it carries, so its curve starts with a
step that a convex relaxation would not see. Every plan either uses a kind or does not: both are solved, until
what is left cannot be below a plan that is known.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.model.exchanges import Exchange
from perfmodel.plan.relaxation import Problem, Relaxed, relax

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

RELAXATION = (
    "linear: shares of the schemes of each table, loads and memory spread evenly over the ranks but for the "
    "largest shard, convex hulls of the curves; branched on the kinds of exchange in use"
)
"""What the bound assumes, in words."""


@dataclass(frozen=True, order=True)
class Branch:
    """Plans that use the kinds ``forced``, perhaps others of ``allowed``, and take ``bound_s`` or more."""

    bound_s: float
    depth: int
    allowed: tuple[bool, ...]
    forced: tuple[bool, ...]


class Bounding:
    """Lower bounds of all plans, best first; each branch also shows where good plans are.

    found(branch, relaxed) -> s  is called with every branch that is solved, and says how long the best plan
    known takes now
    """

    def __init__(self, problem: Problem, found: Callable[[Mask, Relaxed], float], tolerance: float) -> None:
        self.problem, self.found, self.tolerance = problem, found, tolerance
        self.best_s = problem.most_s
        kinds = len(Exchange)
        used = np.zeros(kinds, dtype=bool)
        used[np.unique(problem.options.exchange)] = True
        self.open = [Branch(0.0, 0, tuple(used), (False,) * kinds)]
        self.known: Ints = np.zeros(0, dtype=np.int64)
        self.closed_s = np.inf  # least bound of the branches that are not split further
        self.solved = 0

    @property
    def bound_s(self) -> float:
        """No plan takes less [s], unless it is the one that is known."""
        return min(self.best_s, self.closed_s, self.open[0].bound_s if self.open else np.inf)

    def run(self, until: Callable[[], bool]) -> None:
        """Split branches until none can hold a plan that is better by more than the tolerance."""
        while self.open and self.open[0].bound_s < self.best_s * (1 - self.tolerance) and not until():
            self._solve(heapq.heappop(self.open), until)

    def _solve(self, branch: Branch, until: Callable[[], bool]) -> None:
        allowed, forced = np.array(branch.allowed), np.array(branch.forced)
        relaxed = relax(
            self.problem, allowed, forced, self.known,
            tolerance=self.tolerance, stop_s=self.best_s, until=until,
        )  # fmt: skip
        if relaxed is None:
            return
        self.solved += 1
        bound = max(branch.bound_s, relaxed.bound_s)
        self.known = np.union1d(self.known, relaxed.chosen[relaxed.share > 0])
        self.best_s = min(self.best_s, self.found(allowed, relaxed))
        undecided = self._undecided(branch, relaxed)
        if bound >= self.best_s or undecided is None:
            self.closed_s = min(self.closed_s, bound)
            return
        for forced_in in (True, False):
            kinds = list(branch.forced), list(branch.allowed)
            kinds[0 if forced_in else 1][undecided] = forced_in
            heapq.heappush(self.open, Branch(bound, branch.depth + 1, tuple(kinds[1]), tuple(kinds[0])))

    def _undecided(self, branch: Branch, relaxed: Relaxed) -> int | None:
        """The kind that the relaxed optimum uses most without having paid for it."""
        o = self.problem.options
        used = np.bincount(
            o.exchange[relaxed.chosen],
            relaxed.share * self.problem.count[o.group[relaxed.chosen]],
            len(Exchange),
        )
        used[np.array(branch.forced) | ~np.array(branch.allowed)] = 0
        used[Exchange.DP] = 0
        return int(np.argmax(used)) if used.max() > 1e-9 else None
