"""Measures a calibration: starts ranks, shows progress, writes the files, chooses the exit code."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from calibrate.machine.identity import Host, describe_host
from calibrate.planning.durations import estimate_points_s
from calibrate.planning.measurement_plan import MeasurementPlan, Request, make_plan
from calibrate.ranks import team as ranks
from calibrate.ranks.launch import LeaderMissingError, detect_launcher
from calibrate.ranks.team import TeamRequest
from calibrate.running.interfaces import RunOptions, RunOutcome, Team
from calibrate.running.journal import Journal
from calibrate.running.session import calibrate as measure
from calibrate.running.session import list_open, name_folder
from calibrate.running.stack import make_header
from perfmodel.cli.output import CommandReply, SaidError, note
from perfmodel.cli.signals import STOPPED
from perfmodel.cli.typed_line import TypedLine
from perfmodel.cli.waiting_line import CalibrationProgress
from perfmodel.errors import BadInputError, NoCalibrationError, NoHardwareError, PerfmodelError, TooNoisyError
from perfmodel.question.measured import CalibrateOptions
from perfmodel.report.run import head_text
from perfmodel.report.run_result import list_warnings, outcome_text, state_words
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


@contextlib.contextmanager
def let_rank_zero_speak() -> Iterator[None]:
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


def open_team(request: TeamRequest) -> Team | None:
    """Start ranks, or join a launcher's ranks; None on ranks other than 0. Tests replace this function."""
    return ranks.open_team(request, os.environ)


@dataclass(frozen=True)
class Measurement:
    """A run of ``perfmodel calibrate``. limit_s  of ``--time-limit`` [s]"""

    options: CalibrateOptions
    request: Request
    limit_s: float | None
    typed: TypedLine

    @property
    def folder(self) -> Path:
        """The folder of runs, with a subfolder for each machine and stack of libraries."""
        return runs_folder() if self.options.out is None else Path(self.options.out)

    @property
    def resuming(self) -> str:
        """The command that resumes this run, begun with the launcher that started it: ``mpirun … LINE``."""
        line, launcher = self.typed.text(_OF_ONE_START), detect_launcher(os.environ)
        return line if launcher is None else f"{launcher.name} … {line}"

    def measure(self) -> CommandReply | None:
        """Measure, fit and write. Ranks other than 0 measure until rank 0 ends, and have no answer."""
        request = self.request
        with let_rank_zero_speak():
            host = describe_host(self.options.machine, device=self.options.device)
            backends = tuple(request.list_backends())
            ranks_count = max(request.ranks or (), default=None)
            team = open_team(TeamRequest(ranks_count, self.options.device, backends, request.oversubscribe))
        if team is None:
            return None
        with contextlib.closing(team):
            cores = team.world().cores_per_node or host.cores
            host = replace(host, cores=cores)  # a launcher binds this rank to cores of its own
            if self.options.plan_only:
                return self._show_plan(host, team)
            outcome = self._run(host, team)
        calibrations, written = ([], []) if outcome.interrupted else self._fit(host, outcome)
        if outcome.interrupted:
            note(
                f"stopped. Every time that was measured is kept in {outcome.samples}: {state_words(outcome)}."
            )
            note(f"to resume:\n  {self.resuming}")
        resume = self.resuming if outcome.stopped == "time limit" else ""
        files = [str(path) for path in written]
        return CommandReply(
            lambda: _build_record(outcome, calibrations, files),
            lambda: "" if outcome.interrupted else outcome_text(outcome, calibrations, files, resume),
            error=self._find_error(outcome),
        )

    def _run(self, host: Host, team: Team) -> RunOutcome:
        progress = CalibrationProgress(host, quiet=self.options.as_json)
        options = RunOptions(
            request=self.request,
            machine=host.machine,
            runs_folder=self.folder,
            time_limit_s=self.limit_s,
            fresh=self.options.fresh,
        )
        try:
            return measure(options, team, progress)
        except PerfmodelError as error:
            progress.clear()
            if (outcome := progress.outcome) is not None:
                state = f"kept: {outcome.samples} ({state_words(outcome)})\nto resume:\n  {self.resuming}"
                error.next_step = f"{error.next_step}\n{state}".lstrip("\n")
            raise

    def _show_plan(self, host: Host, team: Team) -> CommandReply:
        """The plan of the run, how much of it is measured already, and how long the rest takes."""
        world = team.world()
        plan, header = make_plan(self.request, world), make_header(world, machine=host.machine, seed=0)
        folder = name_folder(self.folder, header)
        left = list_open(plan, Journal.peek(folder, header).states, fresh=self.options.fresh)
        left_s, done = estimate_points_s(left, plan), len(plan.points) - len(left)
        record = {
            "plan_only": True,
            "machine": host.machine,
            "folder": str(folder),
            "functional_only": header.functional_only,
            "stack": dict(header.stack),
            "done": done,
            "remaining": len(left),
            "points": [point.model_dump(mode="json") for point in plan.points],
            "left_out": _list_left_out(plan),
            "noise": plan.target.relative,
            "estimate_s": left_s,
        }
        return CommandReply(lambda: record, lambda: head_text(host, header, plan, left_s, done))

    def _fit(self, host: Host, outcome: RunOutcome) -> tuple[list[Calibration], list[Path]]:
        """(calibrations fitted to all samples of a run, the files that were written beside the samples).

        Limits: a run that only checks results -> nothing
        """
        from pydantic import ValidationError

        from perfmodel.fit.runs import calibration_file_name, fit_run

        if outcome.header.functional_only:
            return [], []
        run = read_run(outcome.samples)
        machine, written = self._find_machine(host, outcome, run)
        try:
            fits = fit_run(run, machine, outcome.plan.points)
        except NoCalibrationError:
            return [], written
        except ValidationError as error:
            raise BadInputError(
                f"no curve or law fits this run: {invalid_fields(error, 'fit', 'of it').message}",
                f"the samples are kept: {outcome.samples}; look for impossible times.",
            ) from None
        calibrations = []
        for calibration in fits:
            path = outcome.folder / calibration_file_name(calibration)
            calibrations.append(_keep_partial(calibration, path, outcome.plan))
            save_calibration(calibrations[-1], path)
            written.append(path)
        return calibrations, written

    def _find_machine(self, host: Host, outcome: RunOutcome, run: Run) -> tuple[Machine, list[Path]]:
        """(the shipped or the user's machine, else one made from the run; the files written for it)."""
        from perfmodel.fit.host import machine_text

        path, name = outcome.folder / MACHINE_NAME, self.options.machine
        if host.shipped:
            machine = load_machine(name or host.machine)
            if machine.name in list_machines():
                return machine, []
            write_whole_bytes(path, read_bounded(Path(name or ""), "machine file"), "machine file")
            return machine, [path]
        write_whole_text(path, machine_text(run, outcome.plan.world.memory_bytes), "machine file")
        return read_machine(path), [path]

    def _find_error(self, outcome: RunOutcome) -> Exception | None:
        """The error of the exit code: 130 stopped, 4 nothing measured, 5 noisy points with ``--strict``."""
        failed = outcome.with_status(Status.FAILED)
        if outcome.interrupted:
            return SaidError(STOPPED)
        if failed and len(failed) == outcome.done == outcome.total:
            return NoHardwareError(
                f"no point could be measured: {failed[0][1].reason}.",
                "perfmodel calibrate --plan-only says what can be.",
            )
        counts = {str(status): len(outcome.with_status(status)) for status in _NOT_WELL}
        counts["not reached"] = outcome.total - outcome.done
        words = [f"{word} {count}" for word, count in counts.items() if count]
        if not (self.options.strict and words):
            return None
        steps = [f"to resume:\n  {self.resuming}"] if counts.pop("not reached") else []
        if any(counts.values()):
            steps.append(f"stop other work on the machine and measure them again:\n  {self.resuming} --fresh")
        return TooNoisyError(f"--strict: {', '.join(words)}, of {outcome.total} points.", "\n".join(steps))


def _keep_partial(calibration: Calibration, path: Path, plan: MeasurementPlan) -> Calibration:
    """The calibration, marked as partial if its file at ``path`` is, and this run planned nothing for it."""
    planned = {(point.backend, point.clock) for point in plan.points}
    if (str(calibration.backend), calibration.clock) in planned:
        return calibration
    with contextlib.suppress(BadInputError):  # no calibration yet, or a truncated file
        if not read_calibration(path).complete:
            return calibration.model_copy(update={"complete": False})
    return calibration


def _list_left_out(plan: MeasurementPlan) -> list[dict[str, str]]:
    return [
        {"what": omission.what, "why": omission.why, "install": omission.install}
        for omission in plan.left_out
    ]


def _build_record(
    outcome: RunOutcome, calibrations: Sequence[Calibration], written: Sequence[str]
) -> dict[str, Any]:
    """The run for JSON: machine, stack, folder, counts, points, calibrations, warnings."""
    header, world = outcome.header, outcome.plan.world
    counts = ("stopped", "complete", "done", "total", "seconds", "calls", "checked", "wrong")
    return {
        "machine": header.machine,
        "fingerprint": header.fingerprint,
        "stack": dict(header.stack),
        "environment": dict(header.environment),
        "functional_only": header.functional_only,
        "ranks": world.ranks,
        "nodes": world.nodes,
        "folder": str(outcome.folder),
        "samples": str(outcome.samples),
        "written": list(written),
        **{name: getattr(outcome, name) for name in counts},
        "points": [
            {**point.model_dump(mode="json"), **finish.model_dump(mode="json", exclude={"type", "key"})}
            for point, finish in outcome.finishes
        ],
        "calibrations": [calibration.model_dump(mode="json") for calibration in calibrations],
        "left_out": _list_left_out(outcome.plan),
        "warnings": list_warnings(outcome),
    }
