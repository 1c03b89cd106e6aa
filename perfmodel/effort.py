"""Counted work: how much a search may do before it ends, whatever a clock says.

A search that ended by a clock would give another answer on a busy machine. So each unit of work (a row of
loads that is scored, a plan that is packed, a scheme that is listed) counts as the nanoseconds that it took
on one core when its constant was written, and a search ends when their sum reaches its effort. The counts
depend on the question alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

EFFORTS: Mapping[str, float] = {"quick": 0.3, "normal": 2.0, "thorough": 30.0}
"""Names of efforts, and their counted work [s]."""

DEFAULT_EFFORT = "normal"

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

_NS = 1_000_000_000
T = TypeVar("T")
listeners: list[Callable[[str], None]] = []
"""Functions that are called with the progress of a long work, in words: the line on a terminal."""


def tell(words: str) -> None:
    """Call every function of ``listeners`` with these words."""
    for listener in listeners:
        listener(words)


def each_of(items: Sequence[T], what: str) -> Iterator[T]:
    """Yield the items in order; before each, tell ``3 of 40 claims``. what  their plural noun"""
    for done, item in enumerate(items):
        tell(f"{done} of {len(items)} {what}")
        yield item


class Work:
    """The sum of the work that was done, in whole nanoseconds, so that the order of adding has no effect."""

    ns = 0

    @property
    def seconds(self) -> float:
        """The sum of the work [s]."""
        return self.ns / _NS

    def add(self, unit_ns: float, count: float = 1.0) -> None:
        """Add ``count`` units of work of ``unit_ns`` [ns] each; a fraction of a nanosecond is dropped."""
        self.ns += int(unit_ns * count)


class Budget:
    """The limit of a search, and how much of it is used."""

    def __init__(self, work: Work, effort_s: float) -> None:
        """work      the sum to which the search adds its units of work
        effort_s  counted work after which the search ends [s]
        """
        self.work = work
        self.effort_s = effort_s
        self.began_s = work.seconds

    @property
    def spent_s(self) -> float:
        """Work counted since this budget was made [s]."""
        return self.work.seconds - self.began_s

    @property
    def share(self) -> float:
        """The share of ``effort_s`` that is spent, at most 1 [-]."""
        return min(self.spent_s / self.effort_s, 1.0) if self.effort_s else 1.0

    def over(self, share: float = 1.0) -> bool:
        """Whether this share of ``effort_s`` is spent. Limits: an effort of 0 -> True at once"""
        return self.spent_s >= share * self.effort_s
