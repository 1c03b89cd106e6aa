"""Counted work: what a search may do before it ends, whatever a clock says.

A search that ended by a clock would give another answer on a busy machine. So each unit of work (a row of
loads that is scored, a plan that is packed, a scheme that is listed, an iteration of a linear program) counts
as many nanoseconds as it took on one core when its constant was written, and a search ends when these add up
to its effort. The counts depend on the question alone. A time limit may only cut a search short, and then
``Budget.cut`` says so.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

EFFORTS: Mapping[str, float] = {"quick": 0.3, "normal": 2.0, "thorough": 30.0}
"""Names of efforts, and their counted work [s]."""

DEFAULT_EFFORT = "normal"

_NS = 1_000_000_000


T = TypeVar("T")
listeners: list[Callable[[str], None]] = []
"""Told how much of a long work is done, in words: the line on a terminal."""


def each_of(items: Sequence[T], what: str) -> Iterator[T]:
    """The items, in order; each of ``listeners`` gets ``3 of 40 claims`` when three are done."""
    for done, item in enumerate(items):
        for tell in listeners:
            tell(f"{done} of {len(items)} {what}")
        yield item


class Work:
    """Work that was done, counted in whole nanoseconds: sums are exact, whatever order they come in."""

    def __init__(self) -> None:
        self.ns = 0

    @property
    def seconds(self) -> float:
        """All of it [s]."""
        return self.ns / _NS

    def add(self, unit_ns: float, count: float = 1.0) -> None:
        """So many units more, each of ``unit_ns`` [ns]; a part of a nanosecond is left out."""
        self.ns += int(unit_ns * count)


class Budget:
    """How much more work a search may do.

    work    what counts it;  effort_s  counted work from now on [s]
    cap_s   time by the clock from now on, after which the search is cut short [s]; None: no cap
    stop    whether somebody wants it to end now
    cut     whether the cap, or ``stop``, was found to be reached: then another run may give another answer
    """

    def __init__(
        self,
        work: Work,
        effort_s: float,
        cap_s: float | None = None,
        stop: Callable[[], bool] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.work, self.effort_s, self.stop, self.clock = work, effort_s, stop, clock
        self.began_s = work.seconds
        self.ends_s = math.inf if cap_s is None else clock() + cap_s
        self.cut = False

    @property
    def spent_s(self) -> float:
        """Counted work since it began [s]."""
        return self.work.seconds - self.began_s

    @property
    def left_s(self) -> float:
        """Counted work that is left [s]; none after the cap."""
        return 0.0 if self.cut_short() else max(self.effort_s - self.spent_s, 0.0)

    @property
    def share(self) -> float:
        """Share of the work that is done, at most 1 [-]."""
        return min(self.spent_s / self.effort_s, 1.0) if self.effort_s > 0 else 1.0

    def cut_short(self) -> bool:
        """Whether the cap is reached, or ``stop`` says so; it stays reached."""
        if not self.cut:
            late = self.ends_s < math.inf and self.clock() >= self.ends_s
            self.cut = late or (self.stop is not None and self.stop())
        return self.cut

    def over(self, share: float = 1.0, more_s: float = 0.0) -> bool:
        """Whether a share of the work is done, after ``more_s`` more, or the search is cut short.

        Limits: an effort of 0 -> at once
        """
        return self.spent_s + more_s >= share * self.effort_s or self.cut_short()


class Deadline:
    """A moment by the clock until which several searches share what time is left; None: there is none."""

    def __init__(self, limit_s: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.ends_s = clock, None if limit_s is None else clock() + limit_s

    def share(self, of: int = 1) -> float | None:
        """Seconds for each search, where ``of`` searches are left; 0 where time is up."""
        return None if self.ends_s is None else max(self.ends_s - self.clock(), 0.0) / max(of, 1)

    @property
    def over(self) -> bool:
        """Whether time is up."""
        return self.share() == 0
