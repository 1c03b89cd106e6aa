"""A search in several processes: plans are changed here, others raise the bounds or change plans, too."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import current_process, get_context, resource_tracker
from multiprocessing.process import BaseProcess
from typing import Any

from perfmodel.plan.searching.helping import help_with, known
from perfmodel.plan.searching.messages import HelperQuestion, HelperTask, Line, News
from perfmodel.plan.searching.packing import Packing
from perfmodel.plan.searching.search import Search

_LEAST_S = 2.5  # that a search must have left: a process takes about half a second to start
_MANY = 200_000  # options: each process has its own
_LOOK_S = 0.01  # between two looks for news, where there is nothing else to do
_GRACE_S = 0.3  # for the last news


@dataclass(frozen=True, eq=False)
class _Helper:
    process: BaseProcess
    line: Line

    @property
    def lost(self) -> bool:
        """Whether it has ended without saying so."""
        return not self.line.open and not self.line.done


class SharedSearch(Search):
    """As ``Search``, in so many ``processes``, this one counted.

    Limits: one process, less than 2.5 s left, more than 200 000 options, or a process that may have no
            children -> as ``Search``;  a process is lost -> the search goes on alone
    """

    def __init__(self, *args: Any, processes: int, seed: int = 0, **options: Any) -> None:
        super().__init__(*args, seed=seed, **options)
        self.processes, self.seed = processes, seed
        self.helpers: list[_Helper] = []
        self.told_s = 0.0  # time of the best plan that helpers were told of
        self.came = 0  # better plans that they found

    def _rest(self) -> None:
        if not self._shared():
            super()._rest()

    def _shared(self) -> bool:
        """Change plans while others raise the bounds; whether they did, until all was done."""
        left_s = self.deadline - self.clock()
        alone = self.processes < 2 or current_process().daemon or self.options.group.size > _MANY
        if alone or left_s < _LEAST_S or self.best is None or not self._open():
            return False
        try:
            self._start_helpers(tasks(self.processes - 1, every=not self.listed), left_s)
            while not self._done():
                self.changed_enough = self._unless_better()
                self._anneal()
                while not self.changed_enough():
                    time.sleep(_LOOK_S)
            return not any(helper.lost for helper in self.helpers)
        finally:
            self._end_helpers()

    def _start_helpers(self, those: Sequence[HelperTask], left_s: float) -> None:
        context, self.told_s = get_context("spawn"), self.best_s
        for number, task in enumerate(those, 1):
            ours, theirs = context.Pipe()
            process = context.Process(target=help_with, args=(theirs,), daemon=True)
            with _ctrl_c_later():
                process.start()
            theirs.close()
            question = HelperQuestion(
                *(task, self.evaluator, self.options, self.limit_bytes),
                every=not self.listed and task in (HelperTask.EVERY, HelperTask.BOUNDS),
                allowed=self.allowed,
                kinds=self.kinds,
                seed=self.seed + number,
                seconds=left_s,
                clock=self.clock,
                best=known(self.best, self.best_s),
            )
            self.helpers.append(_Helper(process, Line(ours)))
            self.helpers[-1].line.tell(question)

    def _end_helpers(self) -> None:
        """Take in what comes last, and end all."""
        while self.clock is not time.monotonic and any(helper.line.open for helper in self.helpers):
            self._hear()  # each has its own time, whenever this one's is over
            time.sleep(_LOOK_S)
        ends = time.monotonic() + _GRACE_S
        for helper in self.helpers:
            helper.line.tell(News(done=True))
        for helper in self.helpers:
            helper.line.ended(max(ends - time.monotonic(), 0.0))
        self._hear()
        for helper in self.helpers:
            helper.process.kill()
            helper.process.join()

    def _hear(self) -> None:
        """Take in better plans and bounds, and tell of the best plan."""
        assert self.bounds is not None
        for helper in self.helpers:
            for news in helper.line.news():
                self.bounds.heard(news.bound_s, news.every_s)
                if news.best is not None and news.best.time_s < self.best_s:
                    self.came += 1
                    known_here = self.evaluator, self.options, self.limit_bytes
                    self._keep(Packing.placed(*known_here, news.best.option, news.best.ranks))
                self.watch(self.best_s, self.bounds.bound_s)
        if self.best_s < self.told_s:
            self.told_s = self.best_s
            for helper in self.helpers:
                helper.line.tell(News(known(self.best, self.best_s)))

    def _done(self) -> bool:
        """Whether all is done: the time is up, or helpers have nothing more to do, or are lost.

        Where the gap is closed, the bound over every plan is raised for as long as it took.
        """
        self._hear()
        assert self.bounds is not None
        if self.late() or any(helper.lost for helper in self.helpers):
            return True
        if not self._open():
            self.deadline = min(self.deadline, 2 * self.clock() - self.began)
            if self.bounds.closed:
                return True
        return not any(helper.line.open for helper in self.helpers)

    def _unless_better(self) -> Callable[[], bool]:
        """Whether plans were changed enough: all is done, or there is a better one from elsewhere."""
        came = self.came
        return lambda: self._done() or self.came > came or not self._open()


@contextmanager
def _ctrl_c_later() -> Iterator[None]:
    """Processes that start meanwhile never see Ctrl-C; this one sees it afterwards."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # the first process would start it, and unblock signals then
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def tasks(others: int, *, every: bool) -> tuple[HelperTask, ...]:
    """What so many helpers do; every  whether a bound over every plan is wanted."""
    if others == 1:
        return (HelperTask.BOUNDS,) if every else (HelperTask.LISTED,)
    listed = (HelperTask.LISTED,) if others - every < 2 else (HelperTask.WHOLE, HelperTask.ROOMS)
    bounds = (*listed, *([HelperTask.EVERY] * every))
    return (*bounds, *([HelperTask.PLANS] * (others - len(bounds))))
