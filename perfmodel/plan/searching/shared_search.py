"""A search with helpers: other processes raise its bounds and change plans while it does the same.

The search does all that it would do alone, but for bounds that a helper has raised further already: then it
changes plans meanwhile. So helpers that are slow, or lost, do little harm.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, cast

from perfmodel.plan.searching import time_shares as shares
from perfmodel.plan.searching.found import Found
from perfmodel.plan.searching.helping import known
from perfmodel.plan.searching.messages import HelperQuestion, HelperTask, Line, News
from perfmodel.plan.searching.packing import Packing
from perfmodel.plan.searching.search import Search

_PROGRAM = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); "
    "from perfmodel.plan.searching.helping import main; main()"
)
_LEAST_S = 2.5  # that a search must have left: a process takes about half a second to start
_MANY = 200_000  # options: each process has its own
_LOOK_S = 0.01  # between two looks for news, where there is nothing else to do
_GRACE_S = 0.3  # for the last news
_HIGHER = 1e-3  # of a bound: what a helper's must be above that of the search to take its place


@dataclass(frozen=True, eq=False)
class _Helper:
    process: subprocess.Popen[bytes]
    line: Line

    @property
    def lost(self) -> bool:
        """Whether it has ended without saying so."""
        return not self.line.open and not self.line.done


class SharedSearch(Search):
    """As ``Search``, in so many ``processes``, this one counted.

    Limits: one process, less than 2.5 s left, more than 200 000 options -> as ``Search``
    """

    def __init__(self, *args: Any, processes: int, seed: int = 0, **options: Any) -> None:
        super().__init__(*args, seed=seed, **options)
        self.processes, self.seed = processes, seed
        self.helpers: list[_Helper] = []
        self.told_s = 0.0  # time of the best plan that helpers were told of
        self.came = self.lost = 0  # better plans that helpers found, and helpers that were lost

    def _rest(self) -> None:
        left_s = self.deadline - self.clock()
        alone = self.processes < 2 or self.options.group.size > _MANY or left_s < _LEAST_S
        if alone or self.best is None or not self._open():
            return super()._rest()
        try:
            self._start_helpers(left_s)
            self.changed_enough = self._soon(0.0, shares.HELPERS)
            self._anneal()  # until helpers have begun
            super()._rest()
            while not self._enough():  # nothing improves here: the rest is for helpers
                time.sleep(_LOOK_S)
        finally:
            self._end_helpers()

    def _answer(self, stopped: str) -> Found:
        return replace(super()._answer(stopped), processes=1 + len(self.helpers) - self.lost)

    def _anneal(self) -> None:
        """As alone, and again from a better plan that a helper found."""
        enough, came = self.changed_enough, -1
        while came < self.came:
            came = self.came
            self.changed_enough = self._or_better(enough, came)
            super()._anneal()
        self.changed_enough = enough

    def _or_better(self, enough: Callable[[], bool], came: int) -> Callable[[], bool]:
        return lambda: enough() or self.came > came

    def _bound(self, share: float, least: float) -> None:
        assert self.bounds is not None
        if self.bounds.told_s <= self.bounds.listed.bound_s * (1 + _HIGHER):
            super()._bound(share, least)

    def _widen(self, share: float) -> None:
        assert self.bounds is not None
        every_s = 0.0 if self.bounds.every is None else self.bounds.every.bound_s
        if self.bounds.told_every_s <= every_s * (1 + _HIGHER):
            super()._widen(share)
        elif not self._open():  # as long as the search took, for helpers
            self.deadline = min(self.deadline, 2 * self.clock() - self.began)

    def late(self) -> bool:
        """Whether the time is up; what helpers say is taken in."""
        self._hear()
        return super().late()

    def _after(self, share: float) -> Callable[[], bool]:
        return self._hearing(super()._after(share))

    def _soon(self, share: float, least: float) -> Callable[[], bool]:
        return self._hearing(super()._soon(share, least))

    def _hearing(self, until: Callable[[], bool]) -> Callable[[], bool]:
        """The same, that takes in what helpers say."""

        def heard() -> bool:
            self._hear()
            return until()

        return heard

    def _enough(self) -> bool:
        """Whether helpers have nothing more to do, or the time is up."""
        if self.late() or not any(helper.line.open for helper in self.helpers):
            return True
        assert self.bounds is not None
        return not self._open() and self.bounds.closed

    def _start_helpers(self, left_s: float) -> None:
        self.told_s = self.best_s
        for number, task in enumerate(tasks(self.processes - 1, every=not self.listed), 1):
            question = HelperQuestion(
                *(task, self.evaluator, self.options, self.limit_bytes),
                every=not self.listed and task == HelperTask.EVERY,
                allowed=self.allowed,
                kinds=self.kinds,
                seed=self.seed + number,
                seconds=left_s,
                clock=self.clock,
                best=known(self.best, self.best_s),
            )
            try:
                self.helpers.append(_started(question))
            except OSError:
                return  # no room for another process

    def _end_helpers(self) -> None:
        """Take in what comes last, and end all."""
        while self.clock is not time.monotonic and any(helper.line.open for helper in self.helpers):
            self._hear()  # each has its own time, whenever this one's is over
            time.sleep(_LOOK_S)
        self.lost = sum(helper.lost for helper in self.helpers)
        ends = time.monotonic() + _GRACE_S
        for helper in self.helpers:
            helper.line.tell(News(done=True))
        for helper in self.helpers:
            helper.line.ended(max(ends - time.monotonic(), 0.0))
        self._hear()
        for helper in self.helpers:
            helper.process.kill()
            helper.process.wait()

    def _hear(self) -> None:
        """Take in better plans and bounds, and tell of the best plan."""
        for helper in self.helpers:
            for news in helper.line.news():
                self._take(news)
        if self.helpers and self.best_s < self.told_s:
            self.told_s = self.best_s
            for helper in self.helpers:
                helper.line.tell(News(known(self.best, self.best_s)))

    def _take(self, news: News) -> None:
        assert self.bounds is not None
        self.bounds.heard(news.bound_s, news.every_s)
        if news.best is not None and news.best.time_s < self.best_s:
            self.came += 1
            here = self.evaluator, self.options, self.limit_bytes
            self._keep(Packing.placed(*here, news.best.option, news.best.ranks))
        self.watch(self.best_s, self.bounds.bound_s)


def _started(question: HelperQuestion) -> _Helper:
    """A helper that is asked. Limits: there is no room for another process -> OSError"""
    command = [sys.executable, "-P", "-c", _PROGRAM]
    with _ctrl_c_later():
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    line = Line(cast("BinaryIO", process.stdout), cast("BinaryIO", process.stdin))
    line.tell(sys.path)
    line.tell(question)
    return _Helper(process, line)


@contextmanager
def _ctrl_c_later() -> Iterator[None]:
    """Processes that start meanwhile never see Ctrl-C; this one sees it afterwards."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def tasks(others: int, *, every: bool) -> tuple[HelperTask, ...]:
    """What so many helpers do; every  whether a bound over every plan is wanted."""
    if others == 1:
        return (HelperTask.LISTED,)
    listed = (HelperTask.LISTED,) if others - every < 2 else (HelperTask.WHOLE, HelperTask.ROOMS)
    bounds = (*listed, *([HelperTask.EVERY] * every))
    return (*bounds, *([HelperTask.PLANS] * (others - len(bounds))))
