"""What the host does in TorchRec's row-wise pass, on two ranks of CPUs: counted and timed there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from host_time import FITTED, operator_time, totals

from perfmodel.model.issuing import host_time
from perfmodel.schema.constants import load_service_constants

pytest.importorskip("torchrec")
SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "host_time.py"
ROW_WISE = "row-wise, 8 tables"


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """One run of the benchmark."""
    words = [sys.executable, str(SCRIPT), "--json", FITTED, "row-wise, 1 table", ROW_WISE]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_the_counts_that_are_shipped_are_those_of_the_module(found: dict[str, Any]) -> None:
    value = load_service_constants().value
    places = ("before_splits", "before_lengths", "before_ids", "before_bags", "after_bags")
    for case in ("row-wise, 1 table", ROW_WISE):
        parts = found[case]["parts"]
        assert [part["collective"] for part in parts] == [*["alltoall"] * 3, "reduce_scatter", ""]
        for part, place in zip(parts, places, strict=True):
            assert part["operators"] == value(f"operators_{place}"), place
            assert part["launches"] == value(f"launches_{place}"), place


def test_the_host_of_a_pass_is_predicted_from_another_pass(found: dict[str, Any]) -> None:
    each = operator_time(found[FITTED], found["launch_s"], found["collective_s"])
    assert each > found["launch_s"]  # Python is dearer than the operator that it calls
    operators, launches, collectives = totals(found[ROW_WISE]["parts"])
    predicted = host_time(operators, launches, collectives, (each, found["launch_s"], found["collective_s"]))
    assert float(predicted) == pytest.approx(found[ROW_WISE]["time_s"], rel=0.5)
