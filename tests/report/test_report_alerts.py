"""Alerts of the page: what is wrong with the measurements, what it touches, and the command that helps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from oracles import own_run

from perfmodel.answer import project_one
from perfmodel.report.page.alerts import list_alerts
from perfmodel.schema.calibration import read_calibration
from perfmodel.schema.files import MACHINE_NAME, SAMPLES_NAME
from perfmodel.schema.machine import Machine, load_machine
from perfmodel.schema.runs import Finish, PointLine, Status, Visit

NAME = "mpi-5.0.11-eager.json"
PARTIAL = "Calibration four-cores/mpi-5.0.11-eager is incomplete:"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return own_run.write_run(tmp_path_factory.mktemp("runs") / "four-cores-01234567")


def change_run(folder: Path, copy: Path, operation: str, status: Status | None, **values: Any) -> Path:
    """The calibration of a copy, whose points of one operation ended so (None: never began)."""

    def list_lines() -> Iterator[Any]:
        keys: set[str] = set()
        for line in own_run.lines():
            if isinstance(line, PointLine) and line.point.operation == operation:
                keys.add(line.key)
            if isinstance(line, Finish | Visit) and line.key in keys and status is None:
                continue
            if isinstance(line, Finish) and line.key in keys:
                line = line.model_copy(update={"status": status})
            yield line

    (copy / SAMPLES_NAME).write_text("".join(line.model_dump_json() + "\n" for line in list_lines()))
    (copy / MACHINE_NAME).write_text((folder / MACHINE_NAME).read_text())
    (copy / NAME).write_text(read_calibration(folder / NAME).model_copy(update=values).to_json())
    return copy / NAME


def test_a_quiet_and_complete_run_is_not_doubted(folder: Path) -> None:
    assert list_alerts(None, folder / NAME) == ()


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (Status.NOISY, "stayed noisy: their times are used"),
        (Status.THROTTLED, "throttled frequency"),
        (Status.FAILED, "their times are not used"),
    ],
)
def test_points_that_ended_badly_are_counted(
    folder: Path, tmp_path: Path, status: Status, words: str
) -> None:
    (text,) = list_alerts(None, change_run(folder, tmp_path, "all_reduce", status))
    assert text.startswith("14 points of run four-cores-01234567 ") and words in text
    assert "\n  perfmodel calibrate --noise 1% --out " in text


def test_missing_points_are_told_with_the_line_that_goes_on(folder: Path, tmp_path: Path) -> None:
    path = change_run(folder, tmp_path, "reduce_scatter", None, complete=False)
    (text,) = list_alerts(None, path)
    assert text.startswith(f"{PARTIAL} 14 points not done. To resume:\n  perfmodel calibrate --quick --out ")
    (tmp_path / SAMPLES_NAME).unlink()
    assert list_alerts(None, path) == (f"{PARTIAL} some planned points are missing.",)


def test_results_that_nobody_checked_are_told(folder: Path, tmp_path: Path) -> None:
    (text,) = list_alerts(None, change_run(folder, tmp_path, "", None, checked=False))
    assert "were not checked" in text and "perfmodel calibrate --quick" in text


def test_curves_of_another_machine_are_told() -> None:
    assert list_alerts(project_one(table_bytes=1e12)) == ()
    mine = Machine.model_validate({**load_machine("h200-sxm-ib").model_dump(), "name": "mine"})
    (text,) = list_alerts(project_one(table_bytes=10e12, machine=mine))
    assert text.startswith("NCCL was not measured on mine: its curves are those of h")
    assert "carried over" in text and text.endswith("\n  perfmodel calibrate --only nccl")
