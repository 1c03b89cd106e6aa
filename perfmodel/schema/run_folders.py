"""The folder of a run: its calibrations, its machine file, and the meaning of ``latest``."""

from __future__ import annotations

import shlex
from pathlib import Path

from perfmodel.errors import BadInputError, NoCalibrationError, PerfmodelError
from perfmodel.schema.calibration import Calibration, read_calibration
from perfmodel.schema.evidence import Backend, Clock
from perfmodel.schema.home import LATEST, MACHINE_NAME, SAMPLES_NAME, runs_by_age, runs_folder
from perfmodel.schema.machine import list_machines
from perfmodel.schema.run_files import read_header
from perfmodel.schema.runs import functional_reason
from perfmodel.units import counted

CLOCK_ORDER = (Clock.STREAM, Clock.GRAPH, Clock.EAGER, Clock.DEVICE)
"""Default order of clocks in a projection: the clock of the shipped calibrations first."""

_SUFFIX = ".json"
_MOST_NAMED = 5
_MADE_UP = ("cpu-", "gpu-")
"""Beginning of the generated names of hosts that the user does not name."""
_PASS = ("all_to_all", "reduce_scatter")
_PASS_OF_NVSHMEM = ("all_to_all",)  # it has no reduce-scatter: bags are exchanged and summed


def run_folder(text: str) -> Path | None:
    """The folder of a run, from ``latest``, its path, or the path of its samples; None for anything else.

    Limits: ``latest`` without a run that holds a calibration -> NoCalibrationError
    """
    if text == LATEST:
        return latest_run()
    path = Path(text)
    folder = path.parent if path.name == SAMPLES_NAME else path
    try:
        return folder if folder.is_dir() else None
    except (OSError, ValueError):
        return None


def latest_run() -> Path:
    """The last written run below ``runs_folder`` that holds a calibration.

    Functional checks (``--oversubscribe``) do not count, whatever their folders hold.
    Limits: no such run -> NoCalibrationError; a calibration that cannot be read -> BadInputError
    """
    runs = runs_by_age()
    for run in runs:
        if calibrations_of(run) and not read_header(run).functional_only:
            return run
    why = "nothing was measured yet: no run"
    if runs:
        why = "no run holds a calibration (no collective at its end yet, or a functional check only)"
    raise NoCalibrationError(
        f"{why} in {runs_folder()}.", "measure this machine:\n  perfmodel calibrate --quick"
    )


def calibrations_of(folder: Path) -> dict[Path, Calibration]:
    """Calibrations in the folder of a run, by file; first the one that a projection uses by default.

    Limits: a file that is no calibration -> BadInputError; in a run, with the command that rewrites it
    """
    found = {}
    for path in sorted(folder.glob(f"*{_SUFFIX}")):
        try:
            found[path] = read_calibration(path)
        except BadInputError as error:
            if (folder / SAMPLES_NAME).is_file():
                step = f"the samples beside it are kept; to write it again:\n  {calibrate_line(folder)}"
                raise BadInputError(error.message, step) from None
            raise
    return dict(sorted(found.items(), key=lambda item: preference(item[1])))


def calibrate_line(folder: Path, *words: str, preset: str = "--quick") -> str:
    """The command that measures what the run in ``folder`` lacks: in the same place, for the same machine.

    words   options such as ``--only gloo``; none: measure all that a projection uses
    preset  ``--quick``; "" for the standard preset, with more sizes and less noise
    Limits: if the stack has changed since, the new measurements go to another folder beside it
    """
    more = [] if _same(folder.parent, runs_folder()) else ["--out", str(folder.parent)]
    try:
        machine = read_header(folder).machine
    except PerfmodelError:
        machine = ""
    if machine and not machine.startswith(_MADE_UP) and machine not in list_machines():
        more += ["--machine", machine]
    return shlex.join(["perfmodel", "calibrate", *words, *([preset] if preset else []), *more])


def _same(one: Path, other: Path) -> bool:
    try:
        return one.resolve() == other.resolve()
    except OSError:
        return False


def preference(item: Calibration) -> tuple[bool, bool, int, int, int]:
    """Sort key among the calibrations of one run, best first.

    In this order: all collectives of a pass are known, by law or by measurement on one group of ranks; the
    calibration is complete; laws cover all collectives, or else most groups were measured; library; clock.
    """
    groups, by_law = measured_groups(item), all(item.law(name) for name in _collectives(item))
    return (
        not (by_law or groups),
        not item.complete,
        -(10**6 if by_law else len(groups)),
        list(Backend).index(item.backend),
        CLOCK_ORDER.index(item.clock),
    )


def measured_groups(item: Calibration, collectives: tuple[str, ...] = ()) -> list[int]:
    """Numbers of ranks on which all of these collectives were measured.

    collectives  default: the collectives of a whole pass
    """
    needed = collectives or _collectives(item)
    cells = {(curve.collective, curve.gpus, min(curve.gpus, curve.domain_gpus)) for curve in item.curves}
    groups = {cell[1:] for cell in cells}
    known = [group for group in groups if all((name, *group) in cells for name in needed)]
    return sorted({gpus for gpus, _ in known})


def _collectives(item: Calibration) -> tuple[str, ...]:
    return _PASS_OF_NVSHMEM if item.backend is Backend.NVSHMEM else _PASS


def calibration_in(folder: Path, backend: str | None = None, clock: str | None = None) -> Path:
    """The calibration of a run for a library and clock; by default the first of ``calibrations_of``.

    Limits: no calibration in the folder, or none for that library and clock, or a functional check
    -> NoCalibrationError; a folder that is no run -> BadInputError
    """
    _refuse_no_run(folder)
    found = calibrations_of(folder)
    if not found:
        raise NoCalibrationError(
            f"run {folder.name} holds no calibration: no collective was measured to its end.",
            f"measure them:\n  {calibrate_line(folder)}",
        )
    for path, one in found.items():
        if backend in (None, str(one.backend)) and clock in (None, str(one.clock)):
            return path
    asked = " at clock ".join(part for part in (backend, clock) if part)
    there = ", ".join(f"--backend {one.backend} --clock {one.clock}" for one in found.values())
    raise NoCalibrationError(f"run {folder.name} has nothing of {asked}.", f"it has {there}.")


def _refuse_no_run(folder: Path) -> None:
    """Raise an error for a folder that is no run, or a run without a calibration."""
    if (folder / SAMPLES_NAME).is_file():
        header = read_header(folder)
        if header.functional_only:
            raise NoCalibrationError(
                f"run {folder.name} is a functional check ({functional_reason(header)}): "
                "there is no calibration of it.",
                f"measure this machine:\n  {calibrate_line(folder)}",
            )
        return
    try:
        if calibrations_of(folder):
            return
    except BadInputError:
        pass  # files of other kinds
    runs = runs_by_age(folder)
    lines = [shlex.quote(str(run)) for run in runs[:_MOST_NAMED]]
    if runs:
        raise BadInputError(
            f"{folder} is not a run, but holds {counted(len(runs), 'run')}.",
            "name one of them, the newest first:\n" + "\n".join(f"  {line}" for line in lines),
        )
    raise BadInputError(
        f"{folder} is not a run: it holds no {SAMPLES_NAME} and no calibration.",
        "give the folder that perfmodel calibrate names under Wrote, a calibration file, or latest.",
    )


def no_machine_file(what: str, machine: str, folder: Path, more: str = "") -> BadInputError:
    """The error for a run or calibration of a machine whose values are unknown."""
    return BadInputError(
        f"{what} is of {machine}, which is not a shipped machine, and {folder / MACHINE_NAME} is not there.",
        f"put it there: perfmodel calibrate wrote it beside the samples of the run{more}.",
    )


def machine_file_beside(calibration: str) -> Path | None:
    """The machine file in the folder of a calibration's file; None if there is none."""
    path = Path(calibration)
    try:
        beside = path.with_name(MACHINE_NAME)
        return beside if path.suffix == _SUFFIX and beside.is_file() else None
    except (OSError, ValueError):
        return None
