"""Alerts of the page: what is wrong with the measurements, what it touches, and the command that helps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from oracles import own_run

from perfmodel.answer import Answer, project_one
from perfmodel.report.page.alerts import list_alerts
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
    assert list_alerts(answer, folder / NAME) == ()


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (Status.NOISY, "stayed noisy: their times are used"),
        (Status.THROTTLED, "throttled frequency"),
        (Status.FAILED, "their times are not used"),
    ],
)
def test_points_that_ended_badly_are_counted(
    folder: Path, answer: Answer, status: Status, words: str
) -> None:
    (text,) = list_alerts(answer, changed(folder, ended(status, "all_reduce")))
    assert text.startswith("42 points of run four-cores-01234567 ") and words in text
    assert "\n  perfmodel calibrate --noise 1% --out " in text


def test_missing_points_are_told_with_the_line_that_goes_on(folder: Path, answer: Answer) -> None:
    path = changed(folder, without_ends("reduce_scatter"), complete=False)
    (text,) = list_alerts(answer, path)
    assert text.startswith(f"{PARTIAL} 42 points not done. To resume:")
    assert "\n  perfmodel calibrate --quick --out " in text
    alone = path.with_name("alone.json")
    path.rename(alone)
    (alone.parent / SAMPLES_NAME).unlink()
    assert list_alerts(answer, alone) == (f"{PARTIAL} some planned points are missing.",)


def test_results_that_nobody_checked_are_told(folder: Path, answer: Answer) -> None:
    (text,) = list_alerts(answer, changed(folder, own_run.lines(), checked=False))
    assert "were not checked" in text and "perfmodel calibrate --quick" in text


def test_curves_of_another_machine_are_told() -> None:
    assert list_alerts(project_one(table_bytes=1e12)) == ()
    shipped = load_machine("h200-sxm-ib")
    mine = Machine.model_validate({**shipped.model_dump(), "name": "mine"})
    (text,) = list_alerts(project_one(table_bytes=10e12, machine=mine))
    assert text.startswith("NCCL was not measured on mine: its curves are those of h")
    assert "carried over" in text and text.endswith("\n  perfmodel calibrate --only nccl")
