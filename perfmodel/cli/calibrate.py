"""``perfmodel calibrate``: starts ranks, shows progress, writes the files, chooses the exit code."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import typer

from calibrate.machine.identity import Host, describe_host
from calibrate.planning.durations import estimate_points_s
from calibrate.planning.measurement_plan import MeasurementPlan, Request, make_plan
from calibrate.providers import CLOCKS
from calibrate.ranks.launch import LeaderMissingError, detect_launcher
from calibrate.ranks.team import TeamRequest, open_team
from calibrate.running.interfaces import RunOptions, RunOutcome, Team
from calibrate.running.journal import Journal
from calibrate.running.session import calibrate as measure
from calibrate.running.session import list_open, name_folder
from calibrate.running.stack import make_header
from calibrate.running.stopping import Summary
from perfmodel.cli.options import check_name, count_values, size_values, split_values
from perfmodel.cli.output import CommandReply, emit, note, warn
from perfmodel.cli.typed_line import TypedLine
from perfmodel.effort import tell
from perfmodel.errors import BadInputError, NoCalibrationError, NoHardwareError, PerfmodelError, TooNoisyError
from perfmodel.question.measured import CalibrateOptions
from perfmodel.report.run_text import head_text, list_warnings, outcome_text, progress_text, state_words
from perfmodel.schema.calibration import Calibration, read_calibration, save_calibration
from perfmodel.schema.evidence import Clock
from perfmodel.schema.files import MACHINE_NAME, runs_folder, write_whole
from perfmodel.schema.gate import read_bounded
from perfmodel.schema.machine import Machine, list_machines, load_machine, read_machine
from perfmodel.schema.run_files import Run, read_run
from perfmodel.schema.runs import Point, RunHeader, Status

SPEAKS_FIRST_S = 2.0
"""Seconds that other ranks wait with their error: a launcher ends all ranks when one of them fails."""
_NOT_WELL = (Status.NOISY, Status.THROTTLED, Status.FAILED)


def calibrate(context: typer.Context, options: CalibrateOptions) -> CommandReply | None:
    """Measure this machine, fit and write; or show only the plan of the run.

    Ranks other than 0 measure until rank 0 ends, and have no answer.
    """
    with let_rank_zero_speak():
        request = read_request(options)
        host = describe_host(options.machine, device=options.device)
        ranks = max(request.ranks or (), default=None)
        backends = tuple(request.list_backends())
        team = open_team(TeamRequest(ranks, options.device, backends, request.oversubscribe), os.environ)
    if team is None:
        return None
    with contextlib.closing(team):
        cores = team.world().cores_per_node or host.cores
        host = replace(host, cores=cores)  # a launcher binds this rank to cores of its own
        run = Measurement(options, request, TypedLine.of(context), host)
        if options.plan_only:
            return run.show_plan(team)
        outcome = run.measure(team)
    return run.conclude(outcome)


@contextlib.contextmanager
def let_rank_zero_speak() -> Iterator[None]:
    """Context in which only rank 0 of a launcher's ranks prints an error; the others exit with its code.

    If rank 0 is missing, rank 1 prints its error.
    """
    try:
        yield
    except PerfmodelError as error:
        launcher = detect_launcher(os.environ)
        speaker = 1 if isinstance(error, LeaderMissingError) else 0
        if launcher is not None and launcher.rank > speaker:
            time.sleep(SPEAKS_FIRST_S)
            raise typer.Exit(error.exit_code) from None
        raise


def read_request(options: CalibrateOptions) -> Request:
    """The measurements that the options of ``perfmodel calibrate`` ask for, with typed texts as values."""
    check_name("--device", options.device, ("auto", "cpu", "cuda"))
    clocks = split_values(options.clock, "--clock") if options.clock else []
    for clock in clocks:
        check_name("--clock", clock, [*map(str, CLOCKS)])
    values = options.values(vars(options))
    return Request(
        preset="quick" if options.quick else "standard",
        only=split_values(options.only, "--only") if options.only else (),
        ranks=count_values(options.ranks, "--ranks") if options.ranks else None,
        sizes=size_values(options.sizes, "--sizes") if options.sizes else None,
        clocks=[Clock(clock) for clock in dict.fromkeys(clocks)],
        backends=split_values(options.backend, "--backend") if options.backend else None,
        oversubscribe=options.oversubscribe,
        noise=values["noise"],
        grid="" if options.grid is None else check_name("--grid", options.grid, ["paper"]),
    )


@dataclass
class Measurement:
    """A run of ``perfmodel calibrate``: it prints its own events. outcome  once the run has ended"""

    options: CalibrateOptions
    request: Request
    typed: TypedLine
    host: Host
    outcome: RunOutcome | None = None

    @property
    def folder(self) -> Path:
        """The folder of runs, with a subfolder for each machine and stack of libraries."""
        return runs_folder() if self.options.out is None else Path(self.options.out)

    @property
    def resuming(self) -> str:
        """The command that resumes this run, begun with the launcher that started it: ``mpirun … LINE``."""
        line = self.typed.text(["fresh", "plan_only"])
        launcher = detect_launcher(os.environ)
        return line if launcher is None else f"{launcher.name} … {line}"

    def started(self, plan: MeasurementPlan, header: RunHeader, done: int, left_s: float) -> None:
        """Print machine, libraries and plan, of which ``done`` points are measured already."""
        if not self.options.as_json:
            emit(head_text(self.host, header, plan, left_s, done))

    def progress(self, done: float, total: int, point: Point, summary: Summary | None, left_s: float) -> None:
        """Tell of the point that was just measured.

        done     of ``total`` points, an unfinished one by the share of its visits
        summary  its times; None: it failed;  left_s  time until the end, as estimated
        """
        tell(progress_text(done, total, point, summary, left_s))

    def warning(self, text: str) -> None:
        """Print a warning; the summary repeats it."""
        warn(text)

    def finished(self, outcome: RunOutcome) -> None:
        """Keep the outcome for messages of errors."""
        self.outcome = outcome

    def measure(self, team: Team) -> RunOutcome:
        """Measure with progress on the terminal. An error says what is kept, and how to resume."""
        limit_s = self.options.values(vars(self.options))["time_limit"]
        fresh = self.options.fresh
        options = RunOptions(self.request, self.host.machine, self.folder, time_limit_s=limit_s, fresh=fresh)
        try:
            return measure(options, team, self)
        except PerfmodelError as error:
            if (outcome := self.outcome) is not None:
                state = f"kept: {outcome.samples} ({state_words(outcome)})\nto resume:\n  {self.resuming}"
                error.next_step = f"{error.next_step}\n{state}".lstrip("\n")
            raise

    def conclude(self, outcome: RunOutcome) -> CommandReply:
        """Fit what was measured, write it, and say how the run ended."""
        if outcome.interrupted:
            note(f"All measured times are in {outcome.samples}: {state_words(outcome)}.")
            note(f"to resume:\n  {self.resuming}")
        calibrations, written = ([], []) if outcome.interrupted else self._fit(outcome)
        resume = self.resuming if outcome.stopped == "time limit" else ""
        files = [str(path) for path in written]
        return CommandReply(
            lambda: _build_record(outcome, calibrations, files),
            lambda: "" if outcome.interrupted else outcome_text(outcome, calibrations, files, resume),
            error=self._find_error(outcome),
        )

    def show_plan(self, team: Team) -> CommandReply:
        """The plan of the run, how much of it is measured already, and how long the rest takes."""
        world = team.world()
        plan = make_plan(self.request, world)
        header = make_header(world, machine=self.host.machine, seed=0)
        folder = name_folder(self.folder, header)
        left = list_open(plan, Journal.peek(folder, header).states, fresh=self.options.fresh)
        left_s = estimate_points_s(left, plan)
        done = len(plan.points) - len(left)
        record = {
            "plan_only": True,
            "machine": header.machine,
            "folder": str(folder),
            "functional_only": header.functional_only,
            "stack": dict(header.stack),
            "done": done,
            "remaining": len(left),
            "points": [point.model_dump(mode="json") for point in plan.points],
            "left_out": [vars(omission) for omission in plan.left_out],
            "noise": plan.target.relative,
            "estimate_s": left_s,
        }
        return CommandReply(lambda: record, lambda: head_text(self.host, header, plan, left_s, done))

    def _fit(self, outcome: RunOutcome) -> tuple[list[Calibration], list[Path]]:
        """(calibrations fitted to all samples of a run, the files that were written beside the samples).

        Limits: a run that only checks results -> nothing
        """
        from perfmodel.fit.run_fits import fit_run

        if outcome.header.functional_only:
            return [], []
        run = read_run(outcome.samples)
        machine, written = self._find_machine(outcome, run)
        try:
            fits = fit_run(run, machine, outcome.plan.points)
        except NoCalibrationError:
            return [], written
        calibrations = []
        for calibration in fits:
            path = outcome.folder / f"{calibration.calibration_id.rpartition('/')[2]}.json"
            calibrations.append(_keep_partial(calibration, path, outcome.plan))
            save_calibration(calibrations[-1], path)
            written.append(path)
        return calibrations, written

    def _find_machine(self, outcome: RunOutcome, run: Run) -> tuple[Machine, list[Path]]:
        """(the shipped or the user's machine, else one made from the run; the files written for it)."""
        from perfmodel.fit.host import machine_text

        path = outcome.folder / MACHINE_NAME
        if self.host.shipped:
            machine = load_machine(self.options.machine or self.host.machine)
            if machine.name in list_machines():
                return machine, []
            write_whole(path, read_bounded(Path(self.options.machine or ""), "machine file"), "machine file")
            return machine, [path]
        write_whole(path, machine_text(run, outcome.plan.world.memory_bytes), "machine file")
        return read_machine(path), [path]

    def _find_error(self, outcome: RunOutcome) -> BaseException | None:
        """The error of the exit code: 130 stopped, 4 nothing measured, 5 noisy points with ``--strict``."""
        failed = outcome.with_status(Status.FAILED)
        if outcome.interrupted:
            return KeyboardInterrupt()
        if len(failed) == outcome.total:
            step = "perfmodel calibrate --plan-only says what can be."
            return NoHardwareError(f"no point could be measured: {failed[0][1].reason}.", step)
        counts = {str(status): len(outcome.with_status(status)) for status in _NOT_WELL}
        counts["not reached"] = outcome.total - outcome.done
        words = [f"{word} {count}" for word, count in counts.items() if count]
        if not (self.options.strict and words):
            return None
        steps = [f"to resume:\n  {self.resuming}"] if counts.pop("not reached") else []
        if any(counts.values()):
            steps.append("stop other work on the machine and measure them again, with --fresh.")
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


def _build_record(
    outcome: RunOutcome, calibrations: Sequence[Calibration], written: Sequence[str]
) -> dict[str, object]:
    """The run for JSON: machine, stack, folder, counts, points, calibrations, warnings."""
    header = outcome.header
    world = outcome.plan.world
    states = outcome.states.values()
    sums = {name: sum(getattr(x, name) for x in states) for name in ("calls", "checked", "wrong")}
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
        **{name: getattr(outcome, name) for name in ("stopped", "complete", "done", "total", "seconds")},
        **sums,
        "points": [
            {**point.model_dump(mode="json"), **finish.model_dump(mode="json", exclude={"type", "key"})}
            for point, finish in outcome.finishes
        ],
        "calibrations": [calibration.model_dump(mode="json") for calibration in calibrations],
        "left_out": [vars(omission) for omission in outcome.plan.left_out],
        "warnings": list_warnings(outcome),
    }
