"""Interfaces of a run: its options, the team that measures, the listener, and the outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from calibrate.operations import RankTimes
from calibrate.planning.measurement_plan import MeasurementPlan, Request
from calibrate.planning.world import World
from calibrate.running.journal import PointState
from calibrate.running.stopping import Summary
from perfmodel.errors import PerfmodelError
from perfmodel.schema.files import SAMPLES_NAME
from perfmodel.schema.runs import Finish, Point, RunHeader, Status


@dataclass(frozen=True)
class RunOptions:
    """The measurements of a run, the place where it is stored, and how long it may take.

    request       what to measure;  machine  name of the machine, part of the folder's name
    runs_folder   folder with one folder per machine and stack
    seed          seed of the random order; None: the run's own, or a new one
    time_limit_s  time after which the run ends, once the current visit is done
    fresh         whether to measure every point of the plan again, ignoring an earlier start's visits
    """

    request: Request
    machine: str
    runs_folder: Path
    seed: int | None = None
    time_limit_s: float | None = None
    fresh: bool = False


class Team(Protocol):
    """The ranks that measure: real ranks in ``calibrate.ranks.team``, simulated ranks in tests."""

    def world(self) -> World:
        """The ranks, and what they can run."""

    def visit(
        self, point: Point, ranks: Sequence[int], *, calls: int, salt: int, deadline_s: float
    ) -> list[RankTimes]:
        """Time ``calls`` calls of a point on these ranks and check the results: one RankTimes per rank.

        Raises RankLostError for a rank that died or missed ``deadline_s``: the run ends. Any other
        PerfmodelError (the library refuses, memory runs out) fails the point, and the run goes on.
        """

    def close(self) -> None:
        """End all ranks. Never hangs; may be called twice."""


class Listener(Protocol):
    """Receives the events of a run, in the coordinator's thread, for example to print them."""

    def started(self, plan: MeasurementPlan, header: RunHeader, done: int, left_s: float) -> None:
        """The run begins, or resumes with ``done`` points already done; the rest takes about ``left_s``."""

    def progress(self, done: float, total: int, point: Point, summary: Summary | None, left_s: float) -> None:
        """A visit of ``point`` ended; about ``left_s`` seconds are left for the whole plan.

        done     points that have ended, of ``total``; an unfinished point counts as a fraction
        summary  time of the point so far; None after too few visits
        """

    def warning(self, text: str) -> None:
        """A warning for the user. The same text is reported only once."""

    def finished(self, outcome: RunOutcome) -> None:
        """The run ended, for any reason."""


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended, and the results so far.

    plan, header, folder  what was to be measured, the first line of the run's file, where it is
    states    by key: each point of the plan that was begun, in this start or an earlier one
    stopped   "" if the plan is done, else "interrupted", "time limit" or "error";  error  that ended it
    seconds   duration of this start;  warnings  texts for the user
    """

    plan: MeasurementPlan
    header: RunHeader
    folder: Path
    states: Mapping[str, PointState]
    stopped: str = ""
    error: PerfmodelError | None = None
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()

    @property
    def samples(self) -> Path:
        """The file with every sample."""
        return self.folder / SAMPLES_NAME

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C or a termination signal stopped the run."""
        return self.stopped == "interrupted"

    @property
    def finishes(self) -> list[tuple[Point, Finish]]:
        """Points that have ended, in the plan's order."""
        states = [(point, self.states.get(key)) for key, point in self.plan.by_key.items()]
        return [(point, state.finish) for point, state in states if state and state.finish]

    def with_status(self, status: Status) -> list[tuple[Point, Finish]]:
        """Points that ended with this status, in the plan's order."""
        return [(point, finish) for point, finish in self.finishes if finish.status is status]

    @property
    def total(self) -> int:
        """Number of points of the plan."""
        return len(self.plan.points)

    @property
    def done(self) -> int:
        """Number of points that have ended, with any status."""
        return len(self.finishes)

    @property
    def complete(self) -> bool:
        """Whether every point ended."""
        return self.done == self.total
