"""The page over numbers of GPUs: its answers are those of ``project``, its sentences those of its data."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cli_calls import Outcome, is_an_error

from perfmodel.errors import BadInputError
from perfmodel.plan.as_projection import compared, winner
from perfmodel.project import Projection, project_one
from perfmodel.report import picture_files
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.names import on_more_gpus
from perfmodel.report.figures.planned import per_table
from perfmodel.report.page import gpu_contents, gpu_views
from perfmodel.report.page.gpu_views import FixedTables, bar_numbers, numbers_of_gpus, sharded
from perfmodel.report.page.question_card import question_card
from perfmodel.schema.machine import load_machine
from perfmodel.units import format_ratio

MODEL = "mlperf-dlrm-dcnv2"
ONE_WAY = ("--machine", "h100-sxm-ib", "--backend", "nccl", "--clock", "stream")
WORDS = ("--model", MODEL, "--batch", "1024", *ONE_WAY)


@pytest.fixture(scope="module", autouse=True)
def _quick() -> Iterator[None]:
    """Few bars, and few of the blocks of evidence, which have their own tests."""
    with pytest.MonkeyPatch.context() as patch:
        kept = {name: gpu_contents.EVIDENCE[name] for name in ("links", "changes")}
        patch.setattr(gpu_contents, "EVIDENCE", kept)
        patch.setattr(gpu_views, "_BARS", (1,))
        yield


@cache
def base(gpus: int, model: str = MODEL) -> Projection:
    return project_one(tables=model, gpus=gpus)


def content(path: Path) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(), re.S)
    assert found
    return dict(json.loads(found[1]))


def test_a_model_has_an_answer_for_every_number_of_gpus(cli: Callable[..., Outcome], tmp_path: Path) -> None:
    words = ("report", *WORDS, "--gpus", "64,8", "--reduction", "auto,sparse")
    assert cli(*words, "--out", str(tmp_path / "a.html")).code == 0
    data = content(tmp_path / "a.html")
    first, *others = data["selectors"]
    assert (first["name"], first["words"]) == ("gpus", ["8", "64"])
    assert first["start"] == 1  # the first that was typed
    assert [s["name"] for s in others] == ["batch", "machine", "backend", "clock", "reduction"]
    view = data["views"]["0|0|0|0|0"]
    assert view["heads"] == [vars(question_card(base(n))) for n in (8, 64)]
    assert data["views"]["0|0|0|0|1"]["heads"][1] == vars(
        question_card(project_one(tables=MODEL, gpus=64, reduction="sparse"))
    )
    names = [b["name"] for b in (*view["blocks"], *data["fixed"])]
    assert names == ["over-gpus", "breakdown", "links", "changes", "shardings", "per-table", "plan-scaling"]
    assert names == [name for name in on_more_gpus(model=True) if name in names]
    eight, many = view["titles"]["over-gpus"]
    assert eight.startswith("On 8 GPUs") and many.startswith("On 64 GPUs") and eight != many
    assert data["question"] == f"{MODEL} (105 GB) on 64 GPUs of h100-sxm-ib, batch 1 024"
    assert data["again"] == f"perfmodel report --model {MODEL}"


def test_project_writes_this_page_of_a_sharding(cli: Callable[..., Outcome], tmp_path: Path) -> None:
    words = (*WORDS, "--gpus", "16", "--sharding", "grid")
    done = cli("project", *words, "--report", str(tmp_path / "beside.html"))
    assert done.code == 0 and "Wrote" in done.err
    assert cli("report", *words, "--out", str(tmp_path / "page.html")).code == 0
    assert (tmp_path / "beside.html").read_bytes() == (tmp_path / "page.html").read_bytes()
    data = content(tmp_path / "page.html")
    answer = next(compared(base(16), ["grid"])).answer
    assert answer is not None
    (head,) = data["views"]["0|0|0|0|0"]["heads"]
    assert head["sentence"].startswith(f"{format_ratio(answer.slowdown)} slower sharded grid over 16 GPUs")
    assert "8 row parts" in head["gpus"] and data["question"].endswith("sharded grid")
    left_out = {b["name"]: b["missing"] for b in data["fixed"] if "missing" in b}
    assert "row-wise" in left_out["changes"] and "shardings" not in left_out
    last = data["selectors"][-1]
    assert (last["option"], last["texts"], last["words"]) == ("--sharding", ["grid"], ["grid"])
    lines = {trace["name"] for trace in data["views"]["0|0|0|0|0"]["blocks"][0]["figure"]["data"]}
    assert {"NCCL grid", "NCCL row-wise", "no slowdown"} <= lines
    page = (tmp_path / "page.html").read_text()
    assert "bytes of the busiest GPU in this step" in page  # steps are explained as those of a plan


def test_one_figure_of_it(cli: Callable[..., Outcome], tmp_path: Path) -> None:
    words = (*WORDS, "--gpus", "16", "--sharding", "grid")
    assert cli("figure", "over-gpus", *words, "--out", str(tmp_path / "alone.html")).code == 0
    data = content(tmp_path / "alone.html")
    (view,) = data["views"].values()
    assert [block["name"] for block in view["blocks"]] == ["over-gpus"] and data["fixed"] == []
    answer = next(compared(base(16), ["grid"])).answer
    assert answer is not None
    assert view["heads"][0]["sentence"].startswith(f"{format_ratio(answer.slowdown)} slower sharded grid")
    is_an_error(cli("figure", "per-table", "--gpus", "16"), 2, "figure per-table --model")


def test_a_picture_of_each(
    cli: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(wanted: Any, scale: float = 2) -> None:
        for figure, path in wanted:
            path.write_text(figure.layout.title.text)

    monkeypatch.setattr(picture_files, "write_pictures", write)
    monkeypatch.setattr("perfmodel.cli.pictures.check_kaleido", lambda: None)
    words = (*WORDS, "--gpus", "16", "--sharding", "grid", "--format", "svg", "--out", str(tmp_path / "a"))
    done = cli("report", *words)
    assert done.code == 0 and "changes is left out: it is drawn for row-wise sharding only" in done.err
    drawn = {"over-gpus", "breakdown", "links", "shardings", "per-table", "plan-scaling"}
    assert {path.name for path in (tmp_path / "a").iterdir()} == {f"{name}.svg" for name in drawn}
    is_an_error(cli("report", *words), 2, "over-gpus.svg exists already")


def test_equal_tables_without_a_size_fill_the_fewest_gpus(
    cli: Callable[..., Outcome], tmp_path: Path
) -> None:
    words = ("--gpus", "16,8", "--batch", "64", "--pooling", "1", "--dim", "32", *ONE_WAY)
    assert cli("report", *words, "--reduction", "auto", "--out", str(tmp_path / "x.html")).code == 0
    data = content(tmp_path / "x.html")
    heads = data["views"]["0|0|0|0|0|0|0"]["heads"]
    for n, head in zip((8, 16), heads, strict=True):
        assert head["gpus"].startswith(f"544 GB over {n} GPUs as given (at least 8 needed); ")
    assert not any("does not fit" in head["gpus"] for head in heads)
    assert "per-table" not in {b["name"] for b in data["fixed"]}  # of a model alone


def test_numbers_of_gpus_that_are_not_possible_are_left_out(
    cli: Callable[..., Outcome], tmp_path: Path
) -> None:
    """A grid needs two domains: 8 GPUs are one."""
    words = (*WORDS, "--gpus", "8,16", "--sharding", "grid")
    done = cli("report", *words, "--out", str(tmp_path / "a.html"))
    assert done.code == 0 and "8 GPUs left out: grid is not possible on 8 GPUs" in " ".join(done.err.split())
    page = (tmp_path / "a.html").read_text()
    assert "8 GPUs left out: grid" in page
    none = cli("report", "--gpus", "4,8", "--sharding", "grid", "--out", str(tmp_path / "b.html"))
    is_an_error(none, 2, "grid is not possible on 4 GPUs")


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--model", MODEL, "--table-size", "1TB"), ("--model and --table-size",)),
        (("--model", MODEL, "--pooling", "8"), ("--model and --pooling",)),
        (("--gpus", "8", "--table-size", "1TB,2TB"), ("2 table sizes", "give one --table-size")),
        (("--gpus", "8,64", "--table-size", "10TB"), ("at least 148 GPUs",)),
        (("--gpus", "0"), ("--gpus",)),
        (("--gpus", "8,2000000"), ("--gpus 2 000 000", "at most 1 048 576")),
        (("--sharding", "grid"), ("which tables",)),
        (("--sharding", "nothing", "--gpus", "8"), ("nothing", "grid")),
        (("--sharding", "grid", "--gpus", "8"), ("grid is not possible on 8 GPUs", "--gpus")),
        (
            ("--sharding", "grid", "--gpus", "16", "--reduction", "sparse"),
            ("--sharding grid and --reduction",),
        ),
        (("--gpus", "8", "--compare", "h100-sxm-ib", "h200-sxm-ib"), ("--compare with numbers of GPUs",)),
    ],
)
def test_what_no_page_can_be_of(
    cli: Callable[..., Outcome], tmp_path: Path, words: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    is_an_error(cli("report", *words, "--out", str(tmp_path / "x.html")), 2, *parts)
    assert not list(tmp_path.iterdir())


def test_numbers_of_gpus_are_whole_nodes_above_one() -> None:
    assert numbers_of_gpus(2, 8, [12]) == [2, 4, 8, 12, 16, 32, 64, 128]
    assert numbers_of_gpus(3, 6, [6]) == [3, 4, 6, 8, 16, 32, 64]
    assert numbers_of_gpus(125, 8, [128]) == [128, 256, 512, 1024]
    assert numbers_of_gpus(1, 8, [1, 8], most=20) == [1, 2, 4, 8, 16]
    assert bar_numbers(125, 8, [130]) == [128, 130]
    assert bar_numbers(1, 8, [4, 8], most=5) == [4, 8]
    assert FixedTables(801e9).least(load_machine("h100-sxm-ib"), 0.5) == 21


def test_a_sharding_that_is_not_possible_says_why() -> None:
    with pytest.raises(
        BadInputError, match="grid is not possible on 8 GPUs: all 8 GPUs are in one NVLink domain"
    ):
        sharded(base(8), "grid")
    assert sharded(base(8), None) is base(8)


def test_tables_of_their_own_shardings_are_compared_with_all_alike() -> None:
    best = winner(compared(base(16)))
    block = per_table(base(16), best, "perfmodel plan --again")
    assert isinstance(block, Block) and best.answer is not None
    assert f"as fast as {best.way} for all" in block.title and "on 16 GPUs" in block.title
    assert block.how_to_read.endswith("to search further: perfmodel plan --again")
    assert len(block.data) == 26
    slow = per_table(base(16), sooner(best, 1e-6), "perfmodel plan --again")
    assert isinstance(slow, Block) and "more than the 1.00 µs" in slow.title
    small = winner(compared(base(8, "criteo-kaggle")))
    same = per_table(base(8, "criteo-kaggle"), small, "")
    assert isinstance(same, Block) and "no faster than data-parallel for all" in same.title
    assert isinstance(per_table(project_one(table_bytes=1e12), best, ""), Missing)


def sooner(found: Any, time_s: float) -> Any:
    from dataclasses import replace

    answer = replace(found.answer, totals={**found.answer.totals, "time_s": time_s})
    return replace(found, answer=answer)


def test_large_numbers_of_gpus_are_written_in_digits() -> None:
    assert "15 148  →  15 152" in str(project_one(table_bytes=1e15).gpu_count).replace("\u202f", " ")
