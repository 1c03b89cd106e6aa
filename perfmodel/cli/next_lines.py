"""Commands to suggest before and after a calibration; each has been checked to have an answer."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from calibrate.planning.measurement_plan import Request, make_plan
from calibrate.planning.world import World
from calibrate.ranks.external import detect_launcher
from perfmodel.cli.suggest import after_calibration
from perfmodel.errors import PerfmodelError
from perfmodel.schema.home import LATEST, runs_by_age
from perfmodel.schema.run_files import read_header, read_run
from perfmodel.schema.run_folders import calibrations_of
from perfmodel.schema.runs import PointKind, RunHeader, Status

if TYPE_CHECKING:
    from calibrate.running.interfaces import RunOutcome
    from perfmodel.cli.typed_line import TypedLine

QUICK = ("--quick",)
_OF_ONE_START = ("fresh", "plan_only", "drop_damaged")  # a resumed run does not start again
_OF_THE_AIM = (*_OF_ONE_START, "only", "quick", "rigorous", "noise")
_OF_THE_PLAN = (*_OF_THE_AIM, "sizes", "backend", "clock", "time_limit", "strict", "as_json")
_MOST_CHANGES = 4


def again(typed: TypedLine) -> str:
    """The command that resumes this run, begun with the launcher that started it."""
    return launched(typed.text(_OF_ONE_START))


def without_damage(typed: TypedLine) -> str:
    """The command that resumes a run without its damaged lines."""
    return launched(typed.text(_OF_ONE_START, ["--drop-damaged"]))


def retry(typed: TypedLine, only: str, *, rigorous: bool) -> str:
    """The command that measures a part of the plan again.

    only      the part, ``mpi:all_to_all``;  rigorous  with the lowest noise target
    """
    if rigorous:
        return launched(typed.text(_OF_THE_AIM, ["--only", only, "--rigorous"]))
    return launched(typed.text((*_OF_ONE_START, "only"), ["--only", only]))


def for_a_calibration(typed: TypedLine, world: World, only: Sequence[str] = ()) -> str:
    """The command that makes a calibration of these ranks; "" if no collective can be measured on them.

    only   libraries whose collectives are measured; empty: the libraries of the preset
    """
    try:
        plan = make_plan(Request("quick", only=only), world)
    except PerfmodelError:
        return ""
    if not any(point.kind is PointKind.COLLECTIVE for point in plan.points):
        return ""
    words = [word for name in only for word in ("--only", name)]
    return launched(typed.text(_OF_THE_PLAN, [*words, *QUICK]))


def launched(line: str) -> str:
    """The command ``line``, begun with the launcher that started this process (``mpirun … LINE``)."""
    launcher = detect_launcher(os.environ)
    return line if launcher is None else f"{launcher.name} … {line}"


def next_commands(
    typed: TypedLine, outcome: RunOutcome, written: Sequence[Path], own_place: bool
) -> list[str]:
    """Commands that go on with a run, or use its calibration.

    written     files that the run wrote
    own_place   whether --out was given, so that ``latest`` does not mean this run
    """
    commands = [again(typed)] if outcome.stopped == "time limit" else []
    world = outcome.plan.world
    if outcome.header.functional_only:
        return commands
    if not any(path.suffix == ".json" for path in written):
        line = for_a_calibration(typed, world) if outcome.done else ""
        return commands + ([line] if line and line not in commands else [])
    where = str(outcome.folder) if own_place else LATEST
    many = world.device == "cuda"
    commands.append(after_calibration(str(outcome.folder), where, 10e12 if many else 1e9, many))
    if any(point.held_out and finish.status is not Status.FAILED for point, finish in outcome.finishes):
        commands += _validation(typed, outcome.folder, where, world)
    return commands


def _validation(typed: TypedLine, folder: Path, where: str, world: World) -> list[str]:
    """The command that compares the run's passes with predictions; or the command for a calibration.

    folder  of the run;  where  its name in the command
    """
    from perfmodel.validate.own import compare_run

    try:
        compare_run(folder)
    except PerfmodelError:
        passes = set(read_run(folder).composed_samples()["backend"])
        known = {str(one.backend) for one in calibrations_of(folder).values()}
        line = for_a_calibration(typed, world, sorted(passes - known)) if passes - known else ""
        return [line] if line else []
    return [shlex.join(["perfmodel", "validate", "--run", where])]


def changed_stack(header: RunHeader, folder: Path, line: str) -> str:
    """A note that the libraries have changed since the last calibration, so that a new run begins.

    folder  of the new run;  line  the command that makes a calibration here; "" if there is none
    Limits: this run has a calibration, or no earlier run has one -> ""
    """
    if list(folder.glob("*.json")):
        return ""
    for run in runs_by_age(folder.parent):
        older = _calibrated(run) if run != folder else None
        if older is not None and older.machine == header.machine:
            changes = _changes(_settings(older), _settings(header))
            then = f" It makes no calibration by itself; for one:\n  {line}" if line else ""
            return f"the stack changed since {run.name} ({changes}): this is a new run.{then}"
    return ""


def _calibrated(run: Path) -> RunHeader | None:
    """The header of the run in a folder, if it holds a calibration; else None."""
    try:
        header = read_header(run)
        return header if not header.functional_only and list(run.glob("*.json")) else None
    except PerfmodelError:
        return None


def _settings(header: RunHeader) -> Mapping[str, str]:
    return {**header.stack, **header.environment}


def _changes(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """Libraries and settings that differ: ``torch none → 2.13.0, gloo none → torch 2.13.0``."""
    names = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
    shown = [f"{name} {old.get(name, 'none')} → {new.get(name, 'none')}" for name in names[:_MOST_CHANGES]]
    return ", ".join(shown + ([f"and {len(names) - _MOST_CHANGES} more"] if names[_MOST_CHANGES:] else []))
