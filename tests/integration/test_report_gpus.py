"""The page over numbers of GPUs: its answers are those of ``project``, its sentences those of its data."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cli_calls import Outcome, is_an_error

from perfmodel.answer import Answer, project_one
from perfmodel.answer.ranking import Ranking, answer_shardings, rank_shardings
from perfmodel.errors import BadInputError
from perfmodel.report.page import contents
from perfmodel.report.page.gpu_views import sharded
from perfmodel.report.page.question_card import question_card
from perfmodel.report.page.ranking_card import ranking_card
from perfmodel.units import format_ratio, format_time

pytestmark = pytest.mark.usefixtures("small_pages")
MODEL = "mlperf-dlrm-dcnv2"
ONE_WAY = ("--machine", "h100-sxm-ib", "--backend", "nccl", "--clock", "stream")
WORDS = ("--model", MODEL, "--batch", "1024", *ONE_WAY)


@cache
def best(gpus: int) -> Ranking:
    """Of the batch as it was asked for."""
    return rank_shardings(project_one(tables=MODEL, gpus=gpus, batch=1024))


@cache
def base(gpus: int, model: str = MODEL) -> Answer:
    return project_one(tables=model, gpus=gpus)


def content(path: Path) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(), re.S)
    assert found
    return dict(json.loads(found[1]))


def test_a_model_has_an_answer_for_every_number_of_gpus(cli: Callable[..., Outcome], tmp_path: Path) -> None:
    words = ("report", *WORDS, "--gpus", "64,8")
    assert cli(*words, "--out", str(tmp_path / "a.html")).code == 0
    data = content(tmp_path / "a.html")
    first, *others = data["selectors"]
    assert (first["name"], first["words"]) == ("gpus", ["8", "64"])
    assert first["start"] == 1  # the first that was typed
    assert [s["name"] for s in others] == ["batch", "machine", "backend", "clock", "sharding"]
    view = data["views"]["0|0|0|0|0"]
    whole = {8: False, 64: True}  # what would change it, of the question as it was asked alone
    assert view["heads"] == [vars(ranking_card(best(n), whole=asked)) for n, asked in whole.items()]
    assert data["views"]["0|0|0|0|2"]["heads"][1] == vars(
        question_card(project_one(tables=MODEL, gpus=64, reduction="sparse"))
    )
    assert [b["name"] for b in (*view["blocks"], *data["fixed"])] == ["over-gpus"]
    eight, many = view["titles"]["over-gpus"]
    assert eight.startswith("On 8 GPUs") and many.startswith("On 64 GPUs") and eight != many
    asked = f"{MODEL} (105 GB) on 64 GPUs of h100-sxm-ib, batch 1 024, sharded row-wise"
    assert data["question"] == f"{asked} where a figure names no other sharding"
    assert data["again"] == f"perfmodel report --model {MODEL}"


def test_the_table_has_a_row_for_each_number_of_gpus(cli: Callable[..., Outcome], tmp_path: Path) -> None:
    assert cli("report", *WORDS, "--gpus", "8..64", "--out", str(tmp_path / "a.md")).code == 0
    lines = (tmp_path / "a.md").read_text().partition("| GPUs |")[2].splitlines()
    table = [line.split(" | ") for line in lines if "| " in line]
    for gpus, row in zip((8, 16, 32, 64), table[2:], strict=False):
        one, way = best(gpus).answer, best(gpus).answer.sharding
        rate = gpus * 1024 / one.time_s / 1e6
        assert row[:2] == [f"| {gpus}", format_time(one.time_s)] and row[3] == format_ratio(one.slowdown)
        assert row[4].split() == [f"{rate:.1f}", "M"] and row[7] == way


def test_doublings_that_have_an_answer_can_be_chosen(cli: Callable[..., Outcome], tmp_path: Path) -> None:
    """Tables of 7812 rows cannot be cut for 8192 GPUs."""
    words = ("report", "--table-size", "1MB", "--gpus", "2048", "--batch", "64", "--pooling", "1", "--dim")
    assert cli(*words, "32", *ONE_WAY, "--out", str(tmp_path / "a.html")).code == 0
    assert content(tmp_path / "a.html")["selectors"][0]["texts"] == ["2048", "4096"]


def test_all_shardings_are_on_the_page_over_table_sizes(
    cli: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--table-size", "1TB", "--batch", "64", "--pooling", "1", "--dim", "32", *ONE_WAY)
    words = ("report", "--sharding", "all", *words)
    monkeypatch.setattr(contents, "STAYING", (contents.SHARDINGS,))
    assert cli(*words, "--out", str(tmp_path / "a.html")).code == 0
    assert [block["name"] for block in content(tmp_path / "a.html")["fixed"]] == ["shardings"]


def test_project_writes_this_page_of_a_sharding(cli: Callable[..., Outcome], tmp_path: Path) -> None:
    words = (*WORDS, "--gpus", "16", "--sharding", "grid")
    done = cli("project", *words, "--report", str(tmp_path / "beside.html"))
    assert done.code == 0 and "Wrote" in done.err
    assert cli("report", *words, "--out", str(tmp_path / "page.html")).code == 0
    assert (tmp_path / "beside.html").read_bytes() == (tmp_path / "page.html").read_bytes()
    data = content(tmp_path / "page.html")
    (answer,) = answer_shardings(base(16), ["grid"])
    assert answer is not None
    head, *more = data["views"]["0|0|0|0|0"]["heads"]
    assert len(more) == 3  # 32, 64 and 128 GPUs: 16 nodes
    assert head["sentence"].startswith(f"{format_ratio(answer.slowdown)} slower sharded grid over 16 GPUs")
    assert "8 row parts" in head["gpus"] and data["question"].endswith("sharded grid")
    last = data["selectors"][-1]
    assert (last["option"], last["texts"], last["words"]) == ("--sharding", ["grid"], ["grid"])
    lines = {trace["name"] for trace in data["views"]["0|0|0|0|0"]["blocks"][0]["figure"]["data"]}
    assert lines == {"NCCL grid", "NCCL row-wise", "no slowdown"}
    page = (tmp_path / "page.html").read_text()
    assert "GPU 0, the busiest" in page or "on every GPU" in page  # steps are explained as those of a plan


def test_equal_tables_without_a_size_fill_the_fewest_gpus(
    cli: Callable[..., Outcome], tmp_path: Path
) -> None:
    words = ("--gpus", "16,8", "--batch", "64", "--pooling", "1", "--dim", "32", *ONE_WAY)
    assert cli("report", *words, "--out", str(tmp_path / "x.html")).code == 0
    data = content(tmp_path / "x.html")
    heads = data["views"]["0|0|0|0|0|0|0"]["heads"]
    for n, head in zip((8, 16), heads, strict=True):
        takes = head["findings"][0]
        assert takes["title"].startswith(
            f"What it takes: 578 GB over {n} GPUs as given (the rows alone need 8), "
        )
        assert not any("too much" in row[5] for row in takes["rows"])


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--model", MODEL, "--table-size", "1TB"), ("--model and --table-size",)),
        (("--model", MODEL, "--pooling", "8"), ("--model and --pooling",)),
        (("--gpus", "8", "--table-size", "1TB,2TB"), ("2 table sizes", "give one --table-size")),
        (("--gpus", "8,64", "--table-size", "10TB"), ("the rows alone need 139 GPUs",)),
        (("--gpus", "0"), ("--gpus",)),
        (("--gpus", "8,2000000"), ("--gpus 2000000", "at most 1048576")),
        (("--sharding", "grid"), ("which tables",)),
        (("--sharding", "nothing", "--gpus", "8"), ("nothing", "grid")),
        (("--sharding", "grid", "--gpus", "8"), ("grid is not possible on 8 GPUs", "--gpus")),
        (("--sharding", "grid", "--gpus", "16,8"), ("grid is not possible on 8 GPUs", "--gpus")),
        (("--sharding", "all", "--gpus", "8"), ("of one sharding", "project --sharding all")),
    ],
)
def test_what_no_page_can_be_of(
    cli: Callable[..., Outcome], tmp_path: Path, words: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    is_an_error(cli("report", *words, "--out", str(tmp_path / "x.html")), 2, *parts)
    assert not list(tmp_path.iterdir())


def test_a_sharding_that_is_not_possible_says_why() -> None:
    with pytest.raises(
        BadInputError, match="grid is not possible on 8 GPUs: all 8 GPUs are in one scale-up domain"
    ):
        sharded(base(8), "grid")
    assert sharded(base(8), None) is base(8)


def test_large_numbers_of_gpus_are_written_in_digits() -> None:
    assert "14 218  →  14 224" in str(project_one(table_bytes=1e15).gpu_count).replace("\u202f", " ")
