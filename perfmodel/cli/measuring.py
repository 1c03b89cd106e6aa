"""Measures a calibration: starts ranks, shows progress, writes the files, chooses the exit code."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from calibrate.machine.identity import Host, identify
from calibrate.planning.durations import estimate_points_s
from calibrate.planning.measurement_plan import Request, make_plan
from calibrate.ranks import team as ranks
from calibrate.ranks.launch import LeaderMissingError, detect_launcher
from calibrate.ranks.team import TeamRequest
from calibrate.running.interfaces import RunOptions, RunOutcome, Team
from calibrate.running.journal import Journal
from calibrate.running.session import calibrate as measure
from calibrate.running.session import list_open, name_folder
from calibrate.running.stack import make_header
from perfmodel.cli.codes import STOPPED
from perfmodel.cli.output import SaidError, emit, emit_json, note
from perfmodel.cli.typed_line import TypedLine
from perfmodel.cli.waiting_line import CalibrationProgress
from perfmodel.errors import BadInputError, NoCalibrationError, NoHardwareError, PerfmodelError, TooNoisyError
from perfmodel.report import run as pages
from perfmodel.report import run_result as results
from perfmodel.schema.calibration import Calibration, read_calibration, save_calibration
from perfmodel.schema.files import (
    MACHINE_NAME,
    invalid_fields,
    runs_folder,
    write_whole_bytes,
    write_whole_text,
)
from perfmodel.schema.gate import read_bounded
from perfmodel.schema.machine import Machine, list_machines, load_machine, read_machine
from perfmodel.schema.run_files import Run, read_run
from perfmodel.schema.runs import Status

_NOT_WELL = (Status.NOISY, Status.THROTTLED, Status.FAILED)
_OF_ONE_START = ("fresh", "plan_only")  # a resumed run does not start again
SPEAKS_FIRST_S = 2.0
"""Seconds that other ranks wait with their error: a launcher ends all ranks when one of them fails."""


@dataclass(frozen=True)
class Asked:
    """The options of ``perfmodel calibrate``.

    request  the measurements, and their noise target;  limit_s  of ``--time-limit`` [s]
    start    number of ranks to start on this machine; None: one per GPU or per core
    machine  a name or file; None: recognized by its hardware;  out  folder of runs; None: the default
    fresh    whether to begin anew
    """

    request: Request
    start: int | None
    device: str
    machine: str | None
    limit_s: float | None
    out: Path | None
    fresh: bool
    typed: TypedLine

    @property
    def folder(self) -> Path:
        """The folder of runs, with a subfolder for each machine and stack of libraries."""
        return runs_folder() if self.out is None else self.out

    def resuming(self) -> str:
        """The command that resumes this run, begun with the launcher that started it: ``mpirun … LINE``."""
        line = self.typed.text(_OF_ONE_START)
        launcher = detect_launcher(os.environ)
        return line if launcher is None else f"{launcher.name} … {line}"

    def team(self) -> TeamRequest:
        """How many ranks to start, on which device, and for which libraries."""
        backends = tuple(self.request.list_backends())
        return TeamRequest(self.start, self.device, backends, self.request.oversubscribe)


@contextlib.contextmanager
def rank_zero_speaks() -> Iterator[None]:
    """Context in which only rank 0 of a launcher's ranks prints an error; the others exit with its code.

    If rank 0 is missing, rank 1 prints its error.
    """
    try:
        yield
    except PerfmodelError as error:
        launcher = detect_launcher(os.environ)
        alone = isinstance(error, LeaderMissingError) and launcher is not None and launcher.rank == 1
        if launcher is not None and launcher.rank > 0 and not alone:
            time.sleep(SPEAKS_FIRST_S)
            raise SaidError(error.exit_code) from None
        raise


def run(asked: Asked, *, plan_only: bool, strict: bool, as_json: bool) -> None:
    """Measure, fit, write and print. Ranks other than 0 measure until rank 0 ends, and print nothing.

    plan_only  only print what would be measured;  strict  noisy points are an error
    """
    with rank_zero_speaks():
        host = identify(asked.machine, device=asked.device)
        team = open_team(asked.team())
    if team is None:
        return
    with contextlib.closing(team):
        world = team.world()
        host = replace(
            host, cores=world.cores_per_node or host.cores
        )  # a launcher binds this rank to cores of its own
        if plan_only:
            show_plan(asked, host, team, as_json=as_json)
            return
        outcome = _measured(asked, host, team, CalibrationProgress(host, quiet=as_json))
    deliver(asked, host, outcome, as_json=as_json)
    judge(asked, outcome, strict=strict)


def open_team(request: TeamRequest) -> Team | None:
    """Start ranks, or join a launcher's ranks; None on ranks other than 0. Tests replace this function."""
    return ranks.open_team(request, os.environ)


def _measured(asked: Asked, host: Host, team: Team, progress: CalibrationProgress) -> RunOutcome:
    options = RunOptions(
        request=asked.request,
        machine=host.machine,
        runs_folder=asked.folder,
        time_limit_s=asked.limit_s,
        fresh=asked.fresh,
    )
    try:
        return measure(options, team, progress)
    except PerfmodelError as error:
        progress.clear()
        if progress.outcome is not None:
            kept = f"{progress.outcome.samples} ({results.state_words(progress.outcome)})"
            error.next_step = f"{error.next_step}\nkept: {kept}\nto resume:\n  {asked.resuming()}".lstrip(
                "\n"
            )
        raise


def show_plan(asked: Asked, host: Host, team: Team, *, as_json: bool) -> None:
    """Print the plan of the run, how much of it is measured already, and how long the rest takes."""
    world = team.world()
    plan = make_plan(asked.request, world)
    header = make_header(world, machine=host.machine, seed=0)
    folder = name_folder(asked.folder, header)
    held = Journal.peek(folder, header).states
    left = list_open(plan, held, fresh=asked.fresh)
    seconds, done = estimate_points_s(left, plan), len(plan.points) - len(left)
    if as_json:
        emit_json(
            "calibrate",
            plan_only=True,
            machine=host.machine,
            folder=str(folder),
            functional_only=header.functional_only,
            stack=dict(header.stack),
            done=done,
            remaining=len(left),
            points=[point.model_dump(mode="json") for point in plan.points],
            left_out=[{"what": i.what, "why": i.why, "install": i.install} for i in plan.left_out],
            noise=plan.target.relative,
            estimate_s=seconds,
        )
        return
    emit(pages.head_text(host, header, plan, seconds, done))


def deliver(asked: Asked, host: Host, outcome: RunOutcome, *, as_json: bool) -> None:
    """Fit the run, write the calibrations, print the result. A run that Ctrl-C stopped is not fitted."""
    made = FittedRun() if outcome.interrupted else fitted(asked, host, outcome)
    calibrations, written = made.calibrations, made.written
    if as_json:
        emit_json("calibrate", **record(outcome, calibrations, written))
    elif not outcome.interrupted:
        files = [str(path) for path in written]
        resume = asked.resuming() if outcome.stopped == "time limit" else ""
        emit(f"\n{results.outcome_text(outcome, calibrations, files, resume)}")


@dataclass(frozen=True)
class FittedRun:
    """Calibrations of a run, and files written for it."""

    calibrations: list[Calibration] = field(default_factory=list)
    written: list[Path] = field(default_factory=list)


def fitted(asked: Asked, host: Host, outcome: RunOutcome) -> FittedRun:
    """Fit calibrations to all samples of a run, and write them beside the samples.

    Limits: a run that only checks results -> nothing
    """
    from pydantic import ValidationError

    from perfmodel.fit.runs import calibration_file_name, fit_run

    if outcome.header.functional_only:
        return FittedRun()
    found: Run = read_run(outcome.samples)
    machine, written = _machine(asked, host, outcome, found)
    try:
        fits = fit_run(found, machine, outcome.plan.points)
    except NoCalibrationError:
        return FittedRun(written=written)
    except ValidationError as error:
        raise BadInputError(
            f"no curve or law fits this run: {invalid_fields(error, 'fit', 'of it').message}",
            f"the samples are kept: {outcome.samples}; look for impossible times.",
        ) from None
    calibrations = []
    for item in fits:
        path = outcome.folder / calibration_file_name(item)
        calibrations.append(_still_partial(item, path, outcome))
        save_calibration(calibrations[-1], path)
        written.append(path)
    return FittedRun(calibrations, written)


def _still_partial(item: Calibration, path: Path, outcome: RunOutcome) -> Calibration:
    """The calibration, marked as partial if its file at ``path`` is, and this run planned nothing for it."""
    if any((point.backend, point.clock) == (str(item.backend), item.clock) for point in outcome.plan.points):
        return item
    try:
        return item if read_calibration(path).complete else item.model_copy(update={"complete": False})
    except BadInputError:  # no calibration yet, or a truncated file
        return item


def _machine(asked: Asked, host: Host, outcome: RunOutcome, found: Any) -> tuple[Machine, list[Path]]:
    """The shipped or the user's machine, else a machine made from the run; and the files written for it."""
    from perfmodel.fit.host import machine_text

    path = outcome.folder / MACHINE_NAME
    if host.shipped:
        given = load_machine(asked.machine or host.machine)
        if given.name in list_machines():
            return given, []
        write_whole_bytes(path, read_bounded(Path(asked.machine or ""), "machine file"), "machine file")
        return given, [path]
    memory_bytes = outcome.plan.world.memory_bytes
    write_whole_text(path, machine_text(found, memory_bytes), "machine file")
    return read_machine(path), [path]


def judge(asked: Asked, outcome: RunOutcome, *, strict: bool) -> None:
    """Raise the error of the exit code: 130 stopped, 4 nothing measured, 5 noisy points with ``strict``."""
    failed = outcome.with_status(Status.FAILED)
    if outcome.interrupted:
        state = results.state_words(outcome)
        note(f"stopped. Every time that was measured is kept in {outcome.samples}: {state}.")
        note(f"to resume:\n  {asked.resuming()}")
        raise SaidError(STOPPED)
    if failed and len(failed) == outcome.done == outcome.total:
        raise NoHardwareError(
            f"no point could be measured: {failed[0][1].reason}.",
            "perfmodel calibrate --plan-only says what can be.",
        )
    if strict:
        _judge_strictly(asked, outcome)


def _judge_strictly(asked: Asked, outcome: RunOutcome) -> None:
    """Raise TooNoisyError with a command, if some point was noisy, throttled, failed or not reached."""
    counts = {str(status): len(outcome.with_status(status)) for status in _NOT_WELL}
    not_reached = outcome.total - outcome.done
    steps = [f"to resume:\n  {asked.resuming()}"] if not_reached else []
    if any(counts.values()):
        steps.append(f"stop other work on the machine and measure them again:\n  {asked.resuming()} --fresh")
    words = [f"{word} {count}" for word, count in (counts | {"not reached": not_reached}).items() if count]
    if words:
        raise TooNoisyError(f"--strict: {', '.join(words)}, of {outcome.total} points.", "\n".join(steps))


def record(
    outcome: RunOutcome, calibrations: Sequence[Calibration], written: Sequence[Path]
) -> dict[str, Any]:
    """The run for JSON: machine, stack, folder, counts, points, calibrations, warnings."""
    header = outcome.header
    return {
        "machine": header.machine,
        "fingerprint": header.fingerprint,
        "stack": dict(header.stack),
        "environment": dict(header.environment),
        "functional_only": header.functional_only,
        "ranks": outcome.plan.world.ranks,
        "nodes": outcome.plan.world.nodes,
        "folder": str(outcome.folder),
        "samples": str(outcome.samples),
        "written": [str(path) for path in written],
        "stopped": outcome.stopped,
        "complete": outcome.complete,
        "done": outcome.done,
        "total": outcome.total,
        "seconds": outcome.seconds,
        "calls": outcome.calls,
        "checked": outcome.checked,
        "wrong": outcome.wrong,
        "points": [
            {**point.model_dump(mode="json"), **finish.model_dump(mode="json", exclude={"type", "key"})}
            for point, finish in outcome.finishes
        ],
        "calibrations": [item.model_dump(mode="json") for item in calibrations],
        "left_out": [{"what": i.what, "why": i.why, "install": i.install} for i in outcome.plan.left_out],
        "warnings": results.outcome_warnings(outcome),
    }
