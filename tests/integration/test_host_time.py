"""What the host does in TorchRec's row-wise pass, on two ranks of CPUs: counted there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import forked_ranks
import pytest
from host_time import totals

from perfmodel.schema.constants import load_service_constants

pytest.importorskip("torchrec")
SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "host_time.py"
ROW_WISE, LOCAL = "row-wise, 8 tables", "data-parallel, 4 tables"


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """One run of the benchmark."""
    said = forked_ranks.said_by(SCRIPT, "--json", LOCAL, "row-wise, 1 table", ROW_WISE)
    answer: dict[str, Any] = json.loads(said.splitlines()[-1])
    return answer


def test_the_counts_that_are_shipped_are_those_of_the_module(found: dict[str, Any]) -> None:
    value = load_service_constants().value
    places = ("before_splits", "before_lengths", "before_ids", "before_bags", "after_bags")
    for case in ("row-wise, 1 table", ROW_WISE):
        parts = found[case]["parts"]
        assert [part["collective"] for part in parts] == [*["alltoall"] * 3, "reduce_scatter", ""]
        for part, place in zip(parts, places, strict=True):
            for name in ("operators", "launches"):
                assert part[name] == value(f"{name}_{place}"), (name, place)
            calls = pytest.approx(value(f"calls_{place}"), rel=0.15)  # Python 3.12 inlines comprehensions
            assert part["calls"] == calls, place
    counts = totals(found[LOCAL]["parts"])
    assert counts[1:] == (value("operators_local"), value("launches_local"), 0)
    assert counts[0] == pytest.approx(value("calls_local"), rel=0.15)
    row_wise = totals(found[ROW_WISE]["parts"])
    assert row_wise[0] / row_wise[1] == pytest.approx(value("calls_each"), rel=0.15)
