"""Alerts of a page: reasons to doubt its measurements, each with a command that helps."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from perfmodel.answer import Answer
from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.engine.settings import BEST
from perfmodel.errors import NoCalibrationError
from perfmodel.report.figures.chart import name_library
from perfmodel.schema.calibration import list_calibrations, load_calibration
from perfmodel.schema.evidence import Backend
from perfmodel.schema.run_files import calibrate_line, run_of


def list_alerts(answer: Answer | None, calibration: str | Path | None = None) -> tuple[str, ...]:
    """Reasons to doubt the measurements behind an answer, as plain text; an indented line is a command.

    answer       None: nothing is said about curves of another machine
    calibration  the user's own file, or the id of a shipped calibration, if one was named
    Limits: a shipped calibration of this machine -> none
    """
    texts = [_describe_transfer(answer)] if answer is not None else []
    if calibration is not None and str(calibration) not in list_calibrations():
        fitted, folder = load_calibration(calibration), run_of(calibration)
        again = f" To measure on:\n  {calibrate_line(folder)}" if folder else ""
        if not fitted.complete:
            texts.append(f"Calibration {fitted.calibration_id} is incomplete: points are missing.{again}")
        if not fitted.checked:
            what = "The results of what was timed were not checked: it may have timed nothing."
            texts.append(what + (again or " perfmodel calibrate checks every one."))
    return tuple(filter(None, texts))


def _describe_transfer(answer: Answer) -> str:
    """An alert that the collectives' curves were measured on another machine; "" if they were not."""
    setting = answer.setting
    library = str(Backend.NCCL) if setting.backend == BEST else setting.backend
    with suppress(NoCalibrationError):
        model = CollectiveModel.load(setting.machine, library, setting.clock, setting.calibration)
        if model.borrowed:
            origin = model.calibration
            return (
                f"{name_library(str(origin.backend))} was not measured on {setting.machine.name}: its curves "
                f"are those of {origin.machine} ({origin.calibration_id}), carried over to its links. "
                f"To measure it there:\n  perfmodel calibrate --only {origin.backend}"
            )
    return ""
