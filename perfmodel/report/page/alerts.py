"""Alerts of a page: reasons to doubt its measurements, each with its effect and a command that helps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from perfmodel.answer import Answer
from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.engine.settings import BEST, Setting
from perfmodel.engine.steps import StepRow
from perfmodel.errors import NoCalibrationError
from perfmodel.report.figures.words import collective_name, library_name
from perfmodel.schema.calibration import (
    Calibration,
    list_calibrations,
    load_calibration,
)
from perfmodel.schema.evidence import Backend, Evidence
from perfmodel.schema.run_files import Run, calibrate_line, read_run
from perfmodel.schema.runs import Point, PointKind, Status
from perfmodel.units import counted, format_count, format_fraction
from perfmodel.validate.points import fitted_samples, is_behind, run_of

_MOST_NAMED = 4
_KERNEL_STEPS = {"gather_pool": "gather_pool", "bucketize": "bucketize", "partial_sum": "local_sum"}
"""Steps of a projection, by the kernel that was timed."""


def alerts(asked: Answer | None, calibration: str | Path | None = None) -> tuple[str, ...]:
    """Reasons to doubt the measurements behind an answer, as plain text; an indented line is a command.

    asked        None: nothing is said about steps, or about curves of another machine
    calibration  the user's own file, or the id of a shipped calibration, if one was named
    Reasons: points that are missing, noisy, throttled or failed; unchecked results; floors and rates that the
    samples do not determine; files that do not match; curves of another machine. The
    share of assumed time is in the headline instead.
    Limits: a shipped calibration of this machine that was not named -> none;  a named shipped calibration ->
    nothing about unchecked results, because public logs do not record checks
    """
    found = list(_transferred(asked))
    if calibration is None:
        return tuple(found)
    item, folder = load_calibration(calibration), run_of(calibration)
    run = read_run(folder) if folder is not None else None
    if run is not None and folder is not None:
        found += _of_a_run(asked, item, run, folder)
    elif not item.complete:
        found.append(f"Calibration {item.calibration_id} is incomplete: some planned points are missing.")
    if not item.checked and str(calibration) not in list_calibrations():
        found.append(_unchecked(item, folder))
    found += _unknown(asked, item, folder)
    return tuple(found)


def _of_a_run(asked: Answer | None, item: Calibration, run: Run, folder: Path) -> Iterator[str]:
    mine = [point for point in run.points.values() if is_behind(point, item)]
    open_ones = [point for point in mine if not run.ended(point.key)]
    if open_ones or not item.complete:
        many = f"{counted(len(open_ones), 'point')} of run {run.run_id} not done"
        first = many if open_ones else f"some planned points of run {run.run_id} were never begun"
        what = f" ({_names(open_ones)})" if open_ones else ""
        yield _text(
            f"Calibration {item.calibration_id} is incomplete: {first}{what}. Times are "
            f"interpolated or extrapolated from the others{_share(asked, open_ones)}. To resume:",
            calibrate_line(folder, *_only(open_ones)),
        )
    for status, words in _STATUS_WORDS.items():
        points = [p for p in mine if p.key in run.finishes and run.finishes[p.key].status is status]
        if points:
            yield _text(
                f"{_count_points(run, points)} {words}{_share(asked, points)}. To measure again:",
                calibrate_line(folder, *_only(points), "--rigorous", preset=""),
            )
    samples = fitted_samples(run, item)
    if samples is not None and samples != item.sample_count:
        yield _text(
            f"Stale: calibration {item.calibration_id} was fitted to {counted(item.sample_count, 'sample')}, "
            f"and its run has {format_count(samples)} now. To fit it again:",
            calibrate_line(folder),
        )


_STATUS_WORDS = {
    Status.NOISY: "stayed noisy: their times are used, with wider bands",
    Status.THROTTLED: "ran at a throttled frequency: their times are not used",
    Status.FAILED: "failed: their times are not used",
}


def _count_points(run: Run, points: Sequence[Point]) -> str:
    """How many of the run's ended points these are, by collective."""
    ended = sum(point.key in run.finishes for point in run.points.values())
    return f"{format_count(len(points))} of {counted(ended, 'point')} of run {run.run_id} ({_names(points)})"


def _names(points: Iterable[Point]) -> str:
    """How many points there are of each collective: ``all-to-all 26, reduce-scatter 23, …``."""
    found = Counter(collective_name(point.operation) for point in points).most_common()
    words = [f"{name} {count}" for name, count in found[:_MOST_NAMED]]
    more = sum(count for _, count in found[_MOST_NAMED:])
    return ", ".join([*words, *([f"{more} more"] if more else [])])


def _share(asked: Answer | None, points: Iterable[Point]) -> str:
    """How much of the answer's time depends on these points: ``; 12 % of the time here rests on …``."""
    names = {point.operation for point in points}
    steps = {_KERNEL_STEPS.get(name, "") for name in names}
    share = sum(s.share for s in _steps(asked) if s.collective in names or s.name in steps)
    return f"; {format_fraction(share)} of the time here rests on such points" if share else ""


def _steps(asked: Answer | None) -> tuple[StepRow, ...]:
    return asked.steps if asked is not None else ()


def _only(points: Sequence[Point]) -> tuple[str, ...]:
    """The words ``--only gloo:all_to_all`` that measure these points; for many collectives the library.

    Limits: some points are not of collectives -> ()
    """
    if any(point.kind is not PointKind.COLLECTIVE for point in points) or not points:
        return ()
    names = sorted({f"{point.backend}:{point.operation}" for point in points})
    return ("--only", ",".join(names) if len(names) <= _MOST_NAMED // 2 else points[0].backend)


def _unchecked(item: Calibration, folder: Path | None) -> str:
    what = f"The results of what calibration {item.calibration_id} timed were not checked"
    first = f"{what}: it may have timed nothing."
    if folder is None:
        tests = "nccl-tests checks them with -c 1, " if item.backend is Backend.NCCL else ""
        return f"{first} {tests}perfmodel calibrate checks every one."
    return _text(f"{first} To measure it again:", calibrate_line(folder))


def _unknown(asked: Answer | None, item: Calibration, folder: Path | None) -> Iterator[str]:
    """Alerts for floors and rates of collectives in the answer that the samples do not determine.

    folder  of the run to measure more in; None: not a run
    """
    used = {step.collective for step in _steps(asked)}
    for word, name in (("floor", "alpha_s"), ("rate", "beta_bytes_per_s")):
        vague = [c for c in item.curves if c.collective in used and not getattr(c, name).known]
        if not vague:
            continue
        names = ", ".join(dict.fromkeys(collective_name(c.collective) for c in vague))
        steps = [s for s in _steps(asked) if s.collective in {c.collective for c in vague}]
        labels = ", ".join(step.label for step in steps)
        size = "smaller" if word == "floor" else "larger"
        text = (
            f"The {word} of {names} is unknown (half its interval is more than the value): {labels} "
            f"{'is' if len(steps) == 1 else 'are'} rough at {size} sizes than those measured."
        )
        if folder is None:
            yield f"{text} Logs with more sizes determine it: perfmodel import."
        else:
            line = calibrate_line(folder, "--only", str(item.backend), preset="")
            yield _text(f"{text} To measure more sizes with less noise:", line)


def _transferred(asked: Answer | None) -> Iterator[str]:
    """An alert that the collectives' curves were measured on another machine; none if they were not."""
    model = _model_of(asked.setting) if asked is not None else None
    if asked is None or model is None or not model.borrowed:
        return
    machine, own = asked.setting.machine.name, model.calibration
    share = asked.evidence_shares().get(Evidence.TRANSFERRED, 0.0)
    rest = f"; {format_fraction(share)} of the time is carried over" if share else ""
    yield _text(
        f"{library_name(str(own.backend))} was not measured on {machine}: its curves are those of "
        f"{own.machine} ({own.calibration_id}), carried over to its links{rest}. To measure it there:",
        f"perfmodel calibrate --only {own.backend}",
    )


def _model_of(setting: Setting) -> CollectiveModel | None:
    """The model of the answer's collectives (NCCL's if two libraries). Limits: no calibration -> None"""
    library = str(Backend.NCCL) if setting.backend == BEST else setting.backend
    try:
        return CollectiveModel.load(setting.machine, library, setting.clock, setting.calibration)
    except NoCalibrationError:
        return None


def _text(words: str, command: str) -> str:
    return f"{words}\n  {command}"
