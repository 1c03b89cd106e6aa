"""A process that helps a search: it raises bounds, or changes plans, and tells of what it finds."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time
from collections.abc import Callable

from perfmodel.plan.searching import time_shares as shares
from perfmodel.plan.searching.messages import HelperQuestion, HelperTask, KnownPlan, Line, News
from perfmodel.plan.searching.packing import Packing
from perfmodel.plan.searching.search import Search

_EVERY_S = 0.05  # between two times that bounds are told
_RISE = 1e-4  # of a bound, that is worth telling


def main() -> None:
    """Do what the first message asks, until the time is up or the search that asked has ended.

    Messages come and go through standard input and output; what else is printed goes to standard error.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the search: it ends its helpers
    writer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        question: HelperQuestion = pickle.load(sys.stdin.buffer)
    except (EOFError, pickle.UnpicklingError):
        return  # the search has ended
    line = Line(sys.stdin.buffer, writer)
    Helping(question, line).help(question.task)
    line.end()
    os._exit(0)  # a thread still waits for messages


class Helping(Search):
    """The search of a helper. Its clock starts with the process, as that of the search goes on meanwhile."""

    def __init__(self, asked: HelperQuestion, line: Line) -> None:
        super().__init__(
            asked.evaluator,
            asked.limit_bytes,
            seed=asked.seed,
            options=asked.options,
            listed=not asked.every,
            allowed=asked.allowed,
        )
        self.line, self.kinds = line, list(asked.kinds)
        self.clock = asked.clock
        self.began = self.clock() - time.process_time()
        self.deadline = self.began + asked.seconds
        self.told_at, self.told = -_EVERY_S, (0.0, 0.0)
        self._hear(asked.best)
        self.bounds, self.bounds_began = self._bounds(), self.clock()

    def help(self, task: HelperTask) -> None:
        """Do one task until the time is up; where a bound rises no more, change plans."""
        assert self.best is not None and self.bounds is not None
        if task != HelperTask.PLANS:
            self.bounds.begin(self.evaluator.loads(self.best.plan()).most, self.deadline - self.clock())
        if task in (HelperTask.ROOMS, HelperTask.LISTED):
            self._raise_listed(whole=task == HelperTask.LISTED)
        elif task == HelperTask.WHOLE:
            self._with_whole_tables(self.deadline - self.clock(), self.late)
        elif task == HelperTask.EVERY:
            self._widen(1.0)
        while not self.late() and self._open():
            self.changed_enough = self._or_better()
            self._anneal()
        self._tell(0.0)

    def _raise_listed(self, *, whole: bool) -> None:
        """By parts, perhaps with whole tables, then by rooms, while it rises."""
        rooms = self._takes_rooms()
        self._by_parts(self._soon(shares.PARTS_FIRST, 0.0) if rooms else self.late)
        if rooms and whole and self._open():
            self._with_whole_tables(self.deadline - self.clock(), self._soon(shares.BOUNDING, 0.0))
        if rooms and self._open():
            self._by_rooms(self.late)

    def late(self) -> bool:
        """Whether the time is up, or the search has ended."""
        return self._poll() or super().late()

    def _after(self, share: float) -> Callable[[], bool]:
        until = super()._after(share)
        return lambda: self._poll() or until()

    def _soon(self, share: float, least: float) -> Callable[[], bool]:
        until = super()._soon(share, least)
        return lambda: self._poll() or until()

    def _or_better(self) -> Callable[[], bool]:
        """Whether the time is up, or a better plan came."""
        best = self.best
        return lambda: self.late() or self.best is not best

    def _poll(self) -> bool:
        """Hear and tell what there is; whether the search has ended."""
        for news in self.line.news():
            if news.best is not None:
                self._hear(news.best)
        if time.monotonic() >= self.told_at + _EVERY_S:
            self._tell(_RISE)
        return not self.line.open

    def _tell(self, rise: float) -> None:
        """Tell of the bounds where they rose by so much."""
        self.told_at = time.monotonic()
        if self.bounds is None:
            return
        now = self.bounds.bound_s, self.bounds.all_plans_s or 0.0
        if any(a > b * (1 + rise) for a, b in zip(now, self.told, strict=True)):
            self.told = now
            self.line.tell(News(None, *now))

    def _hear(self, plan: KnownPlan) -> None:
        if plan.time_s < self.best_s:
            placed = self.evaluator, self.options, self.limit_bytes, plan.option, plan.ranks
            super()._keep(Packing.placed(*placed))

    def _keep(self, state: Packing) -> None:
        before = self.best_s
        super()._keep(state)
        if self.best_s < before:
            self.line.tell(News(known(self.best, self.best_s)))


def known(state: Packing | None, time_s: float) -> KnownPlan:
    """A plan as it is told."""
    assert state is not None
    return KnownPlan(state.option, [ranks for ranks in state.ranks if ranks is not None], time_s)
