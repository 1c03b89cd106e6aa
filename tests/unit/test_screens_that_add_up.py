"""What a reader can check on a screen: what is paid, what was chosen, which batch, what is impossible."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from perfmodel.plan.leading import on_fewest
from perfmodel.plan.other_ways.alternatives import BEST, GB200, ROW_WISE, alternatives, held_otherwise, priced
from perfmodel.projections import project_one
from perfmodel.report.alternatives_text import _beyond, headlines, side_by_side
from perfmodel.schema.prices import HourPrice, Prices

MANY = {"table_bytes": 10e12, "table_count": 300, "dim": 128, "pooling": 20, "machine": "h200-sxm-ib"}


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return {each.name: each for each in alternatives(MANY)}


def test_alternatives_and_project_have_the_same_batch(found: dict[str, Any]) -> None:
    answer = on_fewest(MANY)
    best = found[BEST]
    assert (best.gpus, best.batch, best.samples) == (answer.gpus, 1024, 1024 * answer.gpus)
    assert found[ROW_WISE].gpus == project_one(**MANY, batch=939).gpus
    assert all(each.batch == -(-each.samples // each.gpus) for each in found.values() if each.answer)
    assert "batch/GPU" in side_by_side(list(found.values()), "")
    (held,) = [line for line in headlines(list(found.values())) if line.startswith("Held alike")]
    assert "90 112 samples (1 024 per GPU in HBM)" in held and "fullest GPU, which sets the time" in held


def test_a_plan_is_not_priced_row_wise_with_the_other_batch(found: dict[str, Any]) -> None:
    other = {each.name: each for each in held_otherwise(list(found.values()))}
    assert other[BEST].time_s == found[BEST].time_s and other[BEST].batch == 1024
    assert other[ROW_WISE].batch == 1024


def test_a_price_of_racks_pays_racks(found: dict[str, Any]) -> None:
    rack = HourPrice(1260.0, 72)
    mine = priced(found[GB200], Prices("EUR", {"gb200-nvl72": rack}, {}))
    assert found[GB200].gpus_paid == 52 and mine.gpus_paid == 72
    assert mine.gpu_hours == pytest.approx(found[GB200].gpu_hours * 72 / 52)
    assert mine.cost == pytest.approx(mine.gpu_hours / 72 * 1260)
    assert re.search(r"GB200 \(NVL72\) +52 +72 ", side_by_side([mine], "EUR"))


def test_what_no_bandwidth_reaches_is_said() -> None:
    step: Any = SimpleNamespace(time_s=10.0, floor_s=2.0)
    assert _beyond([step], 5.0) == ""
    assert _beyond([step, step], 5.1).startswith(", which no bandwidth reaches: their latency alone is 4")
