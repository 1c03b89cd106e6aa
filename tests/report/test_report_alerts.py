"""Alerts of the page: what is wrong with the measurements, and the command that helps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from oracles import own_run

from perfmodel.answer import project_one
from perfmodel.report.page.alerts import list_alerts
from perfmodel.schema.calibration import read_calibration
from perfmodel.schema.files import SAMPLES_NAME
from perfmodel.schema.machine import Machine, load_machine

NAME = "mpi-5.0.11-eager.json"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, []),
        ({"complete": False}, ["Calibration four-cores/mpi-5.0.11-eager is incomplete"]),
        ({"checked": False}, ["The results of what was timed were not checked"]),
        ({"complete": False, "checked": False}, ["Calibration four-cores", "The results"]),
    ],
)
def test_what_is_missing_is_told_with_the_command(tmp_path: Path, values: Any, words: list[str]) -> None:
    folder = own_run.write_run(tmp_path / "four-cores-01234567")
    path = folder / NAME
    path.write_text(read_calibration(path).model_copy(update=values).to_json())
    alerts = list_alerts(None, path)
    assert [text.startswith(start) for text, start in zip(alerts, words, strict=True)] == [True] * len(words)
    assert all("\n  perfmodel calibrate --quick --out " in text for text in alerts)
    (folder / SAMPLES_NAME).unlink()
    assert not any("\n" in text for text in list_alerts(None, path))


def test_curves_of_another_machine_are_told() -> None:
    assert list_alerts(project_one(table_bytes=1e12)) == ()
    mine = Machine.model_validate({**load_machine("h200-sxm-ib").model_dump(), "name": "mine"})
    (text,) = list_alerts(project_one(table_bytes=10e12, machine=mine))
    assert text.startswith("NCCL was not measured on mine: its curves are those of h")
    assert "carried over" in text and text.endswith("\n  perfmodel calibrate --only nccl")
