"""The page of tables below the HBM: its card and its figures are of the tier, also on one GPU."""

from __future__ import annotations

from typing import Any

import pytest

from perfmodel.projections import Projection, project_one
from perfmodel.projections.sensitivity import swings
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.breakdown import breakdown
from perfmodel.report.figures.what_if import heat_map, plane, tornado
from perfmodel.report.page.contents import every_sharding, not_compared
from perfmodel.report.page.question_card import question_card

TB = 1e12


def one(tier: str, **more: Any) -> Projection:
    return project_one(**{"table_bytes": TB, "tier": tier, **more})


def test_the_card_says_where_the_rows_are_on_one_gpu_and_on_more() -> None:
    answer = one("uvm")
    card = question_card(answer)
    assert "slower with all rows in host memory beside one GPU" in card.sentence
    assert "instead of" in card.times and "95 % band" in card.sure
    more = question_card(one("ssd:1%", gpus=8))
    assert "slower with all rows in SSDs over 8 GPUs" in more.sentence


def test_bars_over_table_sizes_have_the_steps_of_the_tier() -> None:
    block = breakdown([one("uvm-caching:1%", table_bytes=size) for size in (TB, 4 * TB)])
    assert isinstance(block, Block)
    steps = {(row["gpus"], row["step"]) for row in block.data}
    assert {(1, "fetch_rows"), (1, "cache_lookup"), (24, "fetch_rows"), (24, "reduce_scatter_bags")} <= steps


def test_other_shapes_and_halved_rates_keep_the_tier() -> None:
    answer = one("uvm-caching:1%")
    frame = plane(answer, "batch", "pooling")
    at = frame[(frame["batch"] == 1024) & (frame["pooling"] == 32)]
    assert at["slowdown"].item() == pytest.approx(answer.slowdown)
    assert isinstance(heat_map(answer), Block)
    moved = {swing.key: swing for swing in swings(answer)}
    assert moved["host_link_bytes_per_s"].halved > answer.slowdown > moved["host_link_bytes_per_s"].doubled
    assert isinstance(tornado(answer), Block)
    assert swings(project_one(table_bytes=1e10, gpus=1)) == ()


def test_shardings_are_not_compared_below_the_hbm() -> None:
    found = every_sharding(one("uvm"), {})
    assert isinstance(found, Missing) and "leave --tier out" in found.why
    assert not not_compared(project_one(table_bytes=TB), {})


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--sharding", "table-wise"), "--sharding table-wise and --tier cannot be combined"),
        (("--gpus", "8"), "--tier uvm needs the size of the tables"),
        (("--table-size", "10TB", "--gpus", "8"), "need 6 nodes of 1.70 TB of host memory"),
        (("--table-size", "1TB", "--machine", "l40s-pcie"), "does not say its host_bytes"),
    ],
)
def test_pages_that_cannot_be(cli: Any, tmp_path: Any, words: tuple[str, ...], part: str) -> None:
    done = cli("report", "--tier", "uvm", *words, "--out", str(tmp_path / "page.html"))
    assert done.code == 2 and part in " ".join(done.err.split())
