"""Measures a plan: random rounds over the unfinished points, until each is precise enough.

Nothing here prints, sleeps or knows a library: a ``Team`` times calls, a ``Listener`` is notified.
"""

from __future__ import annotations

import contextlib
import math
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from calibrate.planning.durations import PILOT_CALLS, estimate_points_s, guess_call_s
from calibrate.planning.measurement_plan import MeasurementPlan, make_plan
from calibrate.planning.world import group_ranks
from calibrate.running import stack
from calibrate.running.fold import combine_times, compute_median_s, find_problem
from calibrate.running.interfaces import Listener, RunOptions, RunOutcome, Team
from calibrate.running.journal import Journal, PointState
from calibrate.running.stopping import Summary, Target, choose_calls, estimate_median, judge
from perfmodel.errors import PerfmodelError, RankLostError
from perfmodel.schema.runs import Finish, Point, RunHeader, Status, Visit, functional_reason

MOST_DROPPED = 3
"""Visits of one point that a jumping clock may spoil before the point fails."""

_DEADLINE_S = 60.0
_DEADLINE_FACTOR = 20
"""A visit may take this long plus so many times its calls' expected time; then its ranks hang."""

_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


def calibrate(
    options: RunOptions, team: Team, listener: Listener, clock: Callable[[], float] = time.monotonic
) -> RunOutcome:
    """Measure the unfinished points; returns the outcome. The caller closes the team.

    options  what to measure, and where to keep it;  team  the ranks;  listener  gets every event
    clock    seconds of a monotonic clock
    Ctrl-C, SIGTERM and SIGHUP end the run after the current visit. A lost rank or a full disk ends it with
    the error, after ``listener.finished``; written lines stay, and the next start resumes from there.
    Limits: everything done already -> no visit; another run in the folder -> BadInputError
    """
    world = team.world()
    plan = make_plan(options.request, world)
    header = stack.make_header(
        world,
        machine=options.machine,
        seed=random.SystemRandom().randrange(2**31) if options.seed is None else options.seed,
    )
    with Journal.open(name_folder(options.runs_folder, header), header) as journal:
        return _Session(options, plan, team, listener, journal, clock).run()


def name_folder(runs_folder: Path, header: RunHeader) -> Path:
    """Folder of a run: the machine's name, ``-``, and 8 digits of the fingerprint, in ``runs_folder``."""
    return runs_folder / f"{header.machine}-{header.fingerprint[:8]}"


def list_open(plan: MeasurementPlan, states: Mapping[str, PointState], *, fresh: bool = False) -> list[Point]:
    """Points that a start would measure, in the plan's order.

    states   states of the run's points;  fresh  whether to ignore them
    Limits: no states, or ``fresh`` -> all points; a point that failed, or reached only a coarser precision
    than the plan's, is measured too
    """
    return [
        point
        for key, point in plan.by_key.items()
        if fresh or (state := states.get(key)) is None or not _is_done(state, plan.target)
    ]


def _is_done(state: PointState, target: Target) -> bool:
    """Whether an earlier start ended the point at a target as strict as this, or with such a precision."""
    finish = state.finish
    if finish is None or state.failed:
        return False
    if finish.target is not None and finish.target <= target.relative:
        return True
    if finish.status is not Status.OK or not (finish.median_s and finish.high_s):
        return False
    return finish.high_s / finish.median_s - 1 <= target.relative


@dataclass
class _Progress:
    """Facts of this start about an unfinished point, to schedule its further visits."""

    wanted_visits: float  # in all, by the present interval
    spent_s: float = 0.0  # time of its visits in this start
    visit_s: float = 0.0  # time of the last visit, as a whole
    call_s: float = 0.0  # time of a call of the pilot
    dropped: int = 0  # visits that a jumping clock spoiled


@dataclass
class _Session:
    """One start of a run: from opening its folder until the plan is done or the run is stopped.

    open           points that have not ended, by key
    failed_before  points that may lose ranks again: they come last
    warned         texts of which the listener was told;  salt  number of the visit (patterns.py)
    done           points that have ended, unfinished ones by their share; never decreasing
    """

    options: RunOptions
    plan: MeasurementPlan
    team: Team
    listener: Listener
    journal: Journal
    clock: Callable[[], float]
    open: dict[str, Point] = field(default_factory=dict)
    failed_before: set[str] = field(default_factory=set)
    progress: dict[str, _Progress] = field(default_factory=dict)
    warned: dict[str, None] = field(default_factory=dict)
    salt: int = 0
    done: float = 0.0
    interrupted: bool = False

    def run(self) -> RunOutcome:
        """Run all rounds; returns the outcome, or raises an error once the listener knows it."""
        self.started_s = self.clock()
        self._find_open()
        done = len(self.plan.points) - len(self.open)
        left_s = estimate_points_s(self.open.values(), self.plan)
        self.listener.started(self.plan, self.journal.header, done, left_s)
        for text in self.journal.notes:
            self._warn(text)
        if self.journal.header.functional_only:
            self._warn(f"functional check only, not a calibration: {functional_reason(self.journal.header)}.")
        stopped = ""
        error: PerfmodelError | None = None
        try:
            with self._handle_signals():
                stopped = self._measure_rounds()
        except KeyboardInterrupt:
            stopped = "interrupted"
        except PerfmodelError as problem:
            stopped = "error"
            error = problem
        outcome = RunOutcome(
            plan=self.plan,
            header=self.journal.header,
            folder=self.journal.folder,
            states={k: s for k, s in self.journal.states.items() if k in self.plan.by_key},
            stopped=stopped,
            error=error,
            seconds=self._count_seconds(),
            warnings=tuple(self.warned),
        )
        self.listener.finished(outcome)
        if error is not None:
            raise error
        return outcome

    def _find_open(self) -> None:
        """Determine the points to measure. Points that failed in an earlier start are restarted last."""
        for point in list_open(self.plan, self.journal.states, fresh=self.options.fresh):
            state = self.journal.states.get(point.key)
            if state is not None and (self.options.fresh or state.failed):
                if state.failed:
                    self.failed_before.add(point.key)
                if self.options.fresh or not state.lost_a_rank:
                    self.journal.begin(point)
            self.open[point.key] = point

    def _measure_rounds(self) -> str:
        """Visit open points in a new random order each round; returns why it stopped, or ""."""
        while self.open:
            number = self.journal.last_round + 1
            order = sorted(set(self.open) - self.failed_before) or sorted(self.open)
            random.Random(f"{self.journal.header.seed}:{number}").shuffle(order)
            for key in order:
                if self.interrupted:
                    return "interrupted"
                limit_s = self.options.time_limit_s
                if limit_s is not None and self._count_seconds() >= limit_s:
                    return "time limit"
                if not self._finish_late(self.open[key]):
                    self._measure_point(self.open[key], number)
            self.journal.last_round = number
        return ""

    def _finish_late(self, point: Point) -> bool:
        """End the point, noisy or not, if the preset's total time is used up; returns whether it did."""
        total_s = self.plan.preset.total_s
        state = self.journal.states.get(point.key)
        if total_s is None or self._count_seconds() < total_s or state is None:
            return False
        summary = estimate_median(state.medians_s)
        status = judge(summary, math.inf, state.visits, self.plan.target)
        if status is not None:
            self._finish_well(point, status, summary)
        return status is not None

    def _measure_point(self, point: Point, number: int) -> None:
        """Make one visit: time calls, combine the ranks' times, write them, decide if the point ends."""
        if point.key not in self.journal.states:
            self.journal.begin(point)
        progress = self.progress.setdefault(point.key, _Progress(1.5 * self.plan.target.min_visits))
        try:
            visit = self._make_visit(point, number, progress)
        except RankLostError as error:
            self._finish(point, Status.FAILED, error.message.rstrip("."), rank_lost=True)
            raise
        except PerfmodelError as error:
            self._finish(point, Status.FAILED, error.message.rstrip("."))
            return
        progress.spent_s += progress.visit_s
        self.journal.add(visit)
        self._judge(point, visit, progress)

    def _make_visit(self, point: Point, number: int, progress: _Progress) -> Visit:
        """Make a visit whose number of calls follows from the time of a call in earlier visits.

        If there was none, a short pilot visit measures that time first, and also makes buffers and
        connections. The pilot is not stored unless its result is wrong.
        """
        medians_s = self.journal.states[point.key].medians_s
        call_s = medians_s[-1] if medians_s else progress.call_s
        if call_s:
            return self._time_calls(point, number, call_s, choose_calls(self.plan.target, call_s), progress)
        guess_s = guess_call_s(point, self.plan.world.device)
        calls = min(choose_calls(self.plan.target, guess_s), PILOT_CALLS)
        pilot = self._time_calls(point, number, guess_s, calls, progress)
        if find_problem(point, pilot):
            return pilot
        progress.call_s = compute_median_s(pilot) or guess_s
        calls = choose_calls(self.plan.target, progress.call_s)
        return self._time_calls(point, number, progress.call_s, calls, progress)

    def _time_calls(self, point: Point, number: int, call_s: float, calls: int, progress: _Progress) -> Visit:
        """One batch of ``calls`` calls of about ``call_s`` each, on the ranks of the point."""
        ranks = group_ranks(point, self.plan.world)
        self.salt += 1
        began_s = self.clock()
        began_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        by_rank = self.team.visit(
            point,
            ranks,
            calls=calls,
            salt=self.salt,
            deadline_s=_DEADLINE_S + _DEADLINE_FACTOR * calls * call_s,
        )
        progress.visit_s = max(self.clock() - began_s, 0.0)
        return combine_times(point, ranks, by_rank, round=number, at=began_at, elapsed_s=progress.visit_s)

    def _judge(self, point: Point, visit: Visit, progress: _Progress) -> None:
        """End the point if it is wrong, cannot be timed, is precise enough, or has used up its time."""
        state = self.journal.states[point.key]
        summary = estimate_median(state.medians_s)
        progress.dropped += bool(visit.note)
        if summary is not None:  # an interval narrows with the root of the visits
            narrower = summary.relative_halfwidth / self.plan.target.relative
            progress.wanted_visits = summary.visits * narrower**2
        if state.problem:
            self._finish(point, Status.FAILED, state.problem)
        elif progress.dropped >= MOST_DROPPED:
            self._finish(point, Status.FAILED, f"{progress.dropped} visits {visit.note}")
        else:
            status = judge(summary, progress.spent_s, state.visits, self.plan.target)
            if status is not None:
                self._finish_well(point, status, summary)
        done, left_s = self._estimate()
        self.done = max(self.done, done)
        self.listener.progress(self.done, len(self.plan.points), point, summary, left_s)

    def _finish_well(self, point: Point, status: Status, summary: Summary | None) -> None:
        """End a point that did not fail with ``status``, or as throttled if half of its visits were."""
        state = self.journal.states[point.key]
        if 2 * state.throttled >= state.visits:
            self._finish(point, Status.THROTTLED, ", ".join(sorted(state.reasons)), summary)
        elif status is Status.NOISY and summary is not None:
            reason = f"±{100 * summary.relative_halfwidth:.1f} % after {summary.visits} visits"
            self._finish(point, status, reason, summary)
        else:
            self._finish(point, status, "", summary)

    def _finish(
        self,
        point: Point,
        status: Status,
        reason: str,
        summary: Summary | None = None,
        *,
        rank_lost: bool = False,
    ) -> None:
        """Record that a point ended: why (``reason``), and its time (``summary``); a failure is a warning."""
        state = self.journal.states[point.key]
        finish = Finish(
            key=point.key,
            status=status,
            reason=reason,
            rank_lost=rank_lost,
            median_s=summary.median_s if summary else None,
            low_s=summary.low_s if summary else None,
            high_s=summary.high_s if summary else None,
            visits=state.visits,
            calls=state.calls,
            target=self.plan.target.relative,
        )
        self.journal.add(finish)
        self.open.pop(point.key, None)
        if status is Status.FAILED:
            name = ":".join(word for word in (point.backend or point.implementation, point.operation) if word)
            self._warn(f"{name} failed: {reason}.")

    def _warn(self, text: str) -> None:
        """Tell the listener ``text``, once."""
        if text not in self.warned:
            self.warned[text] = None
            self.listener.warning(text)

    def _count_seconds(self) -> float:
        """Time since this start began [s]."""
        return self.clock() - self.started_s

    def _estimate(self) -> tuple[float, float]:
        """(points done, where an unfinished one counts as visits made / visits expected; seconds left)."""
        done = float(len(self.plan.points) - len(self.open))
        left_s = estimate_points_s((p for key, p in self.open.items() if key not in self.progress), self.plan)
        for key in self.open.keys() & self.progress.keys():
            visits = self.journal.states[key].visits
            progress = self.progress[key]
            wanted = max(progress.wanted_visits, visits + 1.0)
            budget_s = max(self.plan.target.max_time_s - progress.spent_s, progress.visit_s)
            done += visits / wanted
            left_s += min((wanted - visits) * progress.visit_s, budget_s)
        if self.options.time_limit_s is not None:
            left_s = min(left_s, max(self.options.time_limit_s - self._count_seconds(), 0.0))
        return done, left_s

    @contextlib.contextmanager
    def _handle_signals(self) -> Iterator[None]:
        """Context in which the first signal sets ``interrupted``, and the second raises KeyboardInterrupt.

        Signals that are ignored (``nohup``) stay ignored. Limits: outside the main thread it does nothing
        """

        def request(number: int, frame: FrameType | None) -> None:
            """What Python calls for a signal: ask for the end after this visit; the second time, end now."""
            if self.interrupted:
                raise KeyboardInterrupt
            self.interrupted = True

        before = {}
        if threading.current_thread() is threading.main_thread():
            numbers = [getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)]
            heeded = [number for number in numbers if signal.getsignal(number) not in (signal.SIG_IGN, None)]
            before = {number: signal.signal(number, request) for number in heeded}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
