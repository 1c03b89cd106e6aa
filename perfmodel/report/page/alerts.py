"""Alerts of a page: reasons to doubt its measurements, each with a command that helps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from perfmodel.answer import Answer
from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.engine.settings import BEST
from perfmodel.errors import NoCalibrationError
from perfmodel.report.figures.chart import name_library
from perfmodel.schema.calibration import Calibration, list_calibrations, load_calibration
from perfmodel.schema.evidence import Backend
from perfmodel.schema.run_files import calibrate_line, read_run
from perfmodel.schema.runs import Status
from perfmodel.units import counted

_STATUS_WORDS = {
    Status.NOISY: "stayed noisy: their times are used, with wider bands",
    Status.THROTTLED: "ran at a throttled frequency: their times are not used",
    Status.FAILED: "failed: their times are not used",
}
_UNCHECKED = "The results of what was timed were not checked: it may have timed nothing."


def list_alerts(answer: Answer | None, calibration: str | Path | None = None) -> tuple[str, ...]:
    """Reasons to doubt the measurements behind an answer, as plain text; an indented line is a command.

    answer       None: nothing is said about curves of another machine
    calibration  the user's own file, or the id of a shipped calibration, if one was named
    Limits: a shipped calibration of this machine -> none
    """
    texts = list(_describe_transfer(answer)) if answer is not None else []
    if calibration is None or str(calibration) in list_calibrations():
        return tuple(texts)
    from perfmodel.validate.points import run_of  # it imports what fits, which takes a second

    fitted, folder = load_calibration(calibration), run_of(calibration)
    if folder is not None:
        return (*texts, *_describe_run(fitted, folder))
    if not fitted.complete:
        texts.append(f"Calibration {fitted.calibration_id} is incomplete: some planned points are missing.")
    if not fitted.checked:
        texts.append(f"{_UNCHECKED} perfmodel calibrate checks every one.")
    return tuple(texts)


def _describe_run(fitted: Calibration, folder: Path) -> Iterator[str]:
    from perfmodel.validate.points import is_behind

    run = read_run(folder)
    keys = [point.key for point in run.points.values() if is_behind(point, fitted)]
    left = sum(not run.ended(key) for key in keys)
    if left or not fitted.complete:
        words = f"Calibration {fitted.calibration_id} is incomplete: {counted(left, 'point')} not done"
        yield f"{words}. To resume:\n  {calibrate_line(folder)}"
    for status, words in _STATUS_WORDS.items():
        count = sum(key in run.finishes and run.finishes[key].status is status for key in keys)
        if count:
            line = calibrate_line(folder, "--noise", "1%", preset="")
            yield f"{counted(count, 'point')} of run {run.run_id} {words}. To measure again:\n  {line}"
    if not fitted.checked:
        yield f"{_UNCHECKED} To measure again:\n  {calibrate_line(folder)}"


def _describe_transfer(answer: Answer) -> Iterator[str]:
    """An alert that the collectives' curves were measured on another machine; none if they were not."""
    setting = answer.setting
    library = str(Backend.NCCL) if setting.backend == BEST else setting.backend
    with suppress(NoCalibrationError):
        model = CollectiveModel.load(setting.machine, library, setting.clock, setting.calibration)
        if model.borrowed:
            origin = model.calibration
            yield (
                f"{name_library(str(origin.backend))} was not measured on {setting.machine.name}: its curves "
                f"are those of {origin.machine} ({origin.calibration_id}), carried over to its links. "
                f"To measure it there:\n  perfmodel calibrate --only {origin.backend}"
            )
