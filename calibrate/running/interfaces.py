"""What a run is asked, who measures for it, who is told, and how it ended."""

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
from perfmodel.schema.home import SAMPLES_NAME
from perfmodel.schema.runs import Finish, Point, RunHeader, Status


@dataclass(frozen=True)
class RunOptions:
    """What to measure, where the run is kept, and how long it may take.

    machine       name of the machine, part of the folder's name
    runs_folder   holds one folder for each machine and stack
    stack         versions and topology; None: those of this machine and of the team
    environment   variables to look at; None: the process's own
    seed          of the random order; None: the run's own, or a new one
    time_limit_s  ends the run after the visit that passes it
    deadline_s    time that a visit may take beyond twenty times what its calls should, then its ranks hang
    fresh         measure every point of the plan again; what an earlier start has of it no longer counts
    drop_damaged  go on without lines of the run that cannot be used; the file as it was is kept beside it
    """

    request: Request
    machine: str
    runs_folder: Path
    stack: Mapping[str, str] | None = None
    environment: Mapping[str, str] | None = None
    seed: int | None = None
    time_limit_s: float | None = None
    deadline_s: float = 60.0
    keep_hostnames: bool = False
    fresh: bool = False
    drop_damaged: bool = False


class Team(Protocol):
    """The ranks that measure: real ones in ``calibrate.ranks.start``, simulated ones in tests."""

    def world(self) -> World:
        """Who is there, and what can run."""

    def visit(
        self, point: Point, ranks: Sequence[int], *, calls: int, round: int, salt: int, deadline_s: float
    ) -> list[RankTimes]:
        """Time ``calls`` calls of a point on these ranks and check the results: one RankTimes for each rank.

        Raises RankLostError for a rank that died or missed ``deadline_s``: the run ends. Any other
        PerfmodelError (the library refuses, memory runs out) fails the point, and the run goes on.
        """

    def close(self) -> None:
        """End all ranks. Never hangs; may be called twice."""


class Listener(Protocol):
    """Is told what happens, in the coordinator's thread."""

    def started(
        self, plan: MeasurementPlan, header: RunHeader, folder: Path, done: int, left_s: float
    ) -> None:
        """The run begins, or goes on with ``done`` points already done; the rest takes about ``left_s``."""

    def progress(self, done: float, total: int, point: Point, summary: Summary | None, left_s: float) -> None:
        """A visit of ``point`` ended; about ``left_s`` seconds are left.

        done   of ``total`` points; one under way counts by its visits, of those that it will want
        """

    def warning(self, text: str) -> None:
        """Something that the reader should know; each text once."""

    def finished(self, outcome: RunOutcome) -> None:
        """The run ended, in whichever way."""


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended, and what it has of its plan.

    stopped   "" when the plan is done, else "interrupted", "time limit" or "error"
    states    points of the plan that were begun, earlier starts included, by key
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
        """Whether Ctrl-C (or a polite request to end) stopped it."""
        return self.stopped == "interrupted"

    @property
    def finishes(self) -> list[tuple[Point, Finish]]:
        """Points that are done, in the plan's order."""
        states = [(point, self.states.get(key)) for key, point in self.plan.by_key.items()]
        return [(point, state.finish) for point, state in states if state and state.finish]

    def with_status(self, status: Status) -> list[tuple[Point, Finish]]:
        """Points that ended so, in the plan's order."""
        return [(point, finish) for point, finish in self.finishes if finish.status is status]

    @property
    def total(self) -> int:
        """Points of the plan."""
        return len(self.plan.points)

    @property
    def done(self) -> int:
        """Points that ended, in whichever way."""
        return len(self.finishes)

    @property
    def complete(self) -> bool:
        """Whether every point ended."""
        return self.done == self.total

    @property
    def calls(self) -> int:
        """Timed calls of all visits."""
        return sum(state.calls for state in self.states.values())

    @property
    def checked(self) -> int:
        """Elements of results that were compared with what they must be."""
        return sum(state.checked for state in self.states.values())

    @property
    def wrong(self) -> int:
        """Elements that were not what they must be."""
        return sum(state.wrong for state in self.states.values())
