"""Alerts of the page: what is wrong with the measurements, what it touches, and the command that helps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from oracles import own_run

from perfmodel.answer import Answer, project_one
from perfmodel.report.page.alerts import alerts
from perfmodel.schema.files import MACHINE_NAME, SAMPLES_NAME
from perfmodel.schema.machine import Machine, load_machine, read_machine
from perfmodel.schema.runs import Finish, PointLine, Status, Visit

NAME = "mpi-5.0.11-eager.json"
PARTIAL = "Calibration four-cores/mpi-5.0.11-eager is incomplete:"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return own_run.write_run(tmp_path_factory.mktemp("runs") / "four-cores-01234567")


@pytest.fixture(scope="module")
def answer(folder: Path) -> Answer:
    machine = read_machine(folder / MACHINE_NAME)
    return project_one(
        table_bytes=27e9, batch=128, machine=machine, backend="mpi", calibration=str(folder / NAME)
    )


def changed(folder: Path, lines: Iterator[Any], **values: Any) -> Path:
    """A copy of the run with other lines and other values of its calibration."""
    from perfmodel.schema.calibration import read_calibration

    copy = folder.with_name(f"{folder.name}-{len(list(folder.parent.iterdir()))}")
    copy.mkdir()
    (copy / SAMPLES_NAME).write_text("".join(line.model_dump_json() + "\n" for line in lines))
    (copy / MACHINE_NAME).write_text((folder / MACHINE_NAME).read_text())
    item = read_calibration(folder / NAME).model_copy(update=values)
    (copy / NAME).write_text(item.to_json())
    return copy / NAME


def ended(status: Status, operation: str, **finish: Any) -> Iterator[Any]:
    """The run, with the points of one operation that ended in this way."""
    wanted: set[str] = set()
    for line in own_run.lines():
        if isinstance(line, PointLine) and line.point.operation == operation:
            wanted.add(line.key)
        if isinstance(line, Finish) and line.key in wanted:
            line = line.model_copy(update={"status": status, **finish})
        yield line


def without_ends(operation: str) -> Iterator[Any]:
    """The run, with the points of one operation that never ended, nor were visited."""
    wanted: set[str] = set()
    for line in own_run.lines():
        if isinstance(line, PointLine) and line.point.operation == operation:
            wanted.add(line.key)
        if not isinstance(line, (Finish, Visit)) or line.key not in wanted:
            yield line


def test_a_quiet_and_complete_run_is_not_doubted(folder: Path, answer: Answer) -> None:
    assert alerts(answer, folder / NAME) == ()


def test_noisy_points_are_counted_with_what_rests_on_them(folder: Path, answer: Answer) -> None:
    wide = {"low_s": 1e-6, "high_s": 5e-6, "median_s": 2e-6}
    path = changed(folder, ended(Status.NOISY, "all_to_all", **wide))
    (said,) = alerts(answer, path)
    assert said.startswith("42 of ") and "(all-to-all 42) stayed noisy" in said
    share = sum(step.share for step in answer.steps if step.collective == "all_to_all")
    assert f"{100 * share:.1f} % of the time here rests on such" in said
    assert "\n  perfmodel calibrate --only mpi:all_to_all --rigorous --out " in said


@pytest.mark.parametrize(
    ("status", "words"),
    [(Status.THROTTLED, "throttled frequency"), (Status.FAILED, "their times are not used")],
)
def test_points_that_do_not_count_are_told(folder: Path, answer: Answer, status: Status, words: str) -> None:
    said = alerts(answer, changed(folder, ended(status, "all_reduce")))
    assert any("(all-reduce 42" in text and words in text for text in said)
    assert not any("rests on such" in text for text in said)  # no step is an all-reduce
    assert any(
        text.startswith("Stale: calibration four-cores/mpi-5.0.11-eager was fitted to 168") for text in said
    )


def test_missing_points_are_told_with_the_line_that_goes_on(folder: Path, answer: Answer) -> None:
    path = changed(folder, without_ends("reduce_scatter"), complete=False, sample_count=112)
    (said,) = alerts(answer, path)
    assert said.startswith(f"{PARTIAL} 42 points of run four-cores-01234567 not done (reduce-scatter 42)")
    assert (
        "% of the time here rests on such" in said
        and "perfmodel calibrate --only mpi:reduce_scatter --quick" in said
    )
    never = changed(folder, own_run.lines(), complete=False)
    assert alerts(answer, never)[0].startswith(
        f"{PARTIAL} some planned points of run four-cores-01234567 were never"
    )
    alone = never.with_name("alone.json")
    never.rename(alone)
    (alone.parent / SAMPLES_NAME).unlink()
    assert alerts(answer, alone) == (
        "Calibration four-cores/mpi-5.0.11-eager is incomplete: some planned points are missing.",
    )


def test_results_that_nobody_checked_are_told(folder: Path, answer: Answer) -> None:
    (said,) = alerts(answer, changed(folder, own_run.lines(), checked=False))
    assert "were not checked" in said and "perfmodel calibrate --quick" in said


def test_a_floor_that_the_samples_do_not_tell_is_told_for_steps_that_need_it(
    folder: Path, answer: Answer
) -> None:
    from perfmodel.schema.calibration import read_calibration
    from perfmodel.schema.fields import Interval

    vague = Interval(value=2e-6, low=1e-9, high=9e-6)
    curves = [
        curve.model_copy(update={"alpha_s": vague})
        if curve.collective in ("reduce_scatter", "all_reduce")
        else curve
        for curve in read_calibration(folder / NAME).curves
    ]
    (said,) = alerts(answer, changed(folder, own_run.lines(), curves=curves))
    assert (
        said.startswith("The floor of reduce-scatter is unknown") and "reduce-scatter (bags) is rough" in said
    )
    assert "all-reduce" not in said and "perfmodel calibrate --only mpi" in said


def test_curves_of_another_machine_are_told() -> None:
    assert alerts(project_one(table_bytes=1e12)) == ()
    shipped = load_machine("h200-sxm-ib")
    mine = Machine.model_validate({**shipped.model_dump(), "name": "mine"})
    (said,) = alerts(project_one(table_bytes=10e12, machine=mine))
    assert said.startswith("NCCL was not measured on mine: its curves are those of h")
    assert "carried over" in said and said.endswith("\n  perfmodel calibrate --only nccl")
