"""Alerts of a page: reasons to doubt its measurements, each with a command that helps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from perfmodel.answer import Answer
from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.engine.settings import BEST
from perfmodel.errors import NoCalibrationError
from perfmodel.report.figures.words import collective_name, library_name
from perfmodel.schema.calibration import Calibration, list_calibrations, load_calibration
from perfmodel.schema.evidence import Backend, Evidence
from perfmodel.schema.run_files import calibrate_line, read_run
from perfmodel.schema.runs import Point, Status
from perfmodel.units import counted, format_count, format_fraction

_STATUS_WORDS = {
    Status.NOISY: "stayed noisy: their times are used, with wider bands",
    Status.THROTTLED: "ran at a throttled frequency: their times are not used",
    Status.FAILED: "failed: their times are not used",
}


def alerts(answer: Answer | None, calibration: str | Path | None = None) -> tuple[str, ...]:
    """Reasons to doubt the measurements behind an answer, as plain text; an indented line is a command.

    answer       None: nothing is said about curves of another machine
    calibration  the user's own file, or the id of a shipped calibration, if one was named
    Reasons: curves of another machine; points that are missing, noisy, throttled or failed; unchecked
    results. The share of assumed time is in the headline instead.
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
        tests = "nccl-tests checks them with -c 1, " if fitted.backend is Backend.NCCL else ""
        texts.append(f"{_UNCHECKED} {tests}perfmodel calibrate checks every one.")
    return tuple(texts)


_UNCHECKED = "The results of what was timed were not checked: it may have timed nothing."


def _describe_run(fitted: Calibration, folder: Path) -> Iterator[str]:
    from perfmodel.validate.points import is_behind

    run = read_run(folder)
    mine = [point for point in run.points.values() if is_behind(point, fitted)]
    left = [point for point in mine if not run.ended(point.key)]
    if left or not fitted.complete:
        points_words = f"{counted(len(left), 'point')} of run {run.run_id} not done{_name_points(left)}"
        words = f"Calibration {fitted.calibration_id} is incomplete: {points_words}. To resume:"
        yield f"{words}\n  {calibrate_line(folder)}"
    ended = sum(point.key in run.finishes for point in run.points.values())
    for status, words in _STATUS_WORDS.items():
        points = [p for p in mine if p.key in run.finishes and run.finishes[p.key].status is status]
        if points:
            points_words = f"{format_count(len(points))} of {counted(ended, 'point')} of run {run.run_id}"
            line = calibrate_line(folder, "--noise", "1%", preset="")
            yield f"{points_words}{_name_points(points)} {words}. To measure again:\n  {line}"
    if not fitted.checked:
        yield f"{_UNCHECKED} To measure again:\n  {calibrate_line(folder)}"


def _name_points(points: Iterable[Point]) -> str:
    """How many points there are of each collective: `` (all-to-all 26, reduce-scatter 23)``."""
    counts = Counter(collective_name(point.operation) for point in points).most_common()
    return f" ({', '.join(f'{name} {count}' for name, count in counts)})" if counts else ""


def _describe_transfer(answer: Answer) -> Iterator[str]:
    """An alert that the collectives' curves were measured on another machine; none if they were not."""
    setting = answer.setting
    library = str(Backend.NCCL) if setting.backend == BEST else setting.backend
    try:
        model = CollectiveModel.load(setting.machine, library, setting.clock, setting.calibration)
    except NoCalibrationError:
        return
    if model.borrowed:
        origin, share = model.calibration, answer.evidence_shares().get(Evidence.TRANSFERRED, 0.0)
        share_words = f"; {format_fraction(share)} of the time is carried over" if share else ""
        yield (
            f"{library_name(str(origin.backend))} was not measured on {setting.machine.name}: its curves are "
            f"those of {origin.machine} ({origin.calibration_id}), carried over to its links{share_words}. "
            f"To measure it there:\n  perfmodel calibrate --only {origin.backend}"
        )
