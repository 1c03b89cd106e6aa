"""The page of two: sentences follow the numbers, every choice has its answers, nonsense is refused."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import own_run
import pandas as pd
import pytest
from alpha_beta import AlphaBeta, one
from cli_calls import Outcome, is_an_error

from perfmodel.cli import run
from perfmodel.projections import project_one, project_row_wise
from perfmodel.report.figures import Block, Missing
from perfmodel.report.figures.compare import Pair, steps, times
from perfmodel.report.figures.registry import COMPARED
from perfmodel.report.figures.words import interval_end
from perfmodel.report.page.comparison_card import comparison_card, finding, step_table
from perfmodel.units import format_time

SLOW, FAST = AlphaBeta(alpha=200e-6), AlphaBeta(alpha=10e-6)
NCCL, NVSHMEM = "h200-sxm-ib/nccl-2.29.2-stream", "h200-sxm-ib/nvshmem-3.3.9-stream"
WORDS = ("--table-size", "10TB,1TB", "--batch", "1024,256", "--pooling", "32", "--dim", "32")
SIZES = [5e12, 10e12, 20e12, 40e12]
TIMES = ["time_s", "low_s", "high_s"]


def block(found: Block | Missing) -> Block:
    assert isinstance(found, Block), found
    return found


def pair(a: Any = SLOW, b: Any = FAST, **values: Any) -> Pair:
    asked = {"table_bytes": 10e12, **values}
    return Pair(one(a, **asked), one(b, **asked), "slow", "fast")


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return project_row_wise({"table_bytes": SIZES}, "h100-sxm-ib")


def scaled(frame: pd.DataFrame, *factors: float, spread: float = 1.01) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Twice the same answers with narrow bands, the second ones times these factors."""
    narrow = frame.assign(low_s=frame["time_s"] / spread, high_s=frame["time_s"] * spread)
    other = narrow.copy()
    other[TIMES] = narrow[TIMES].to_numpy() * np.array(factors)[:, None]
    return narrow, other


# Figures


def test_the_sentence_of_times_says_who_is_faster_where(frame: pd.DataFrame) -> None:
    both = pair()
    title = times(both, scaled(frame, 0.5, 0.5, 0.25, 0.25)).title
    assert (
        title
        == "B is 2.00× to 4.00× as fast as A from 5 TB to 40 TB; the interval excludes 1 at 4 of 4 sizes."
    )
    title = times(both, scaled(frame, 2, 2, 2, 2)).title
    assert title.startswith("A is 2.00× as fast as B from 5 TB to 40 TB; ")
    title = times(both, scaled(frame, 2, 2, 0.5, 0.5)).title
    assert title.startswith(
        "Which is faster depends on the size: A's time over B's is 0.500× to 2.00× from 5 TB"
    )
    title = times(both, scaled(frame, 0.5, 0.5, 0.9, 0.9, spread=1.2)).title
    assert title.endswith("; the interval excludes 1 at 2 of 4 sizes.")
    assert times(both, (frame, frame)).title == "A and B take the same time from 5 TB to 40 TB."


def test_marks_of_the_ratio_are_those_of_the_verdict(frame: pd.DataFrame) -> None:
    found = times(pair(), scaled(frame, 0.5, 2, 1.005, 0.5))
    marks = next(t for t in found.figure.data if t.name == "A over B")
    assert list(marks.x) == SIZES and marks.y == pytest.approx([2, 0.5, 1 / 1.005, 2])
    a, b, grey = marks.marker.color[1], marks.marker.color[0], marks.marker.color[2]
    assert list(marks.marker.color) == [b, a, grey, b] and len({a, b, grey}) == 3
    assert [words.split("<br>")[-1] for words in marks.hovertext[:3]] == [
        "B is faster",
        "A is faster",
        "cannot say",
    ]
    assert len(found.data) == 3 * len(SIZES)
    for row, y, up, down in zip(
        found.data[-4:], marks.y, marks.error_y.array, marks.error_y.arrayminus, strict=True
    ):
        assert (row["ratio_low"], row["ratio_high"]) == pytest.approx((y - down, y + up))


def test_lines_have_their_letters_at_their_ends(frame: pd.DataFrame) -> None:
    notes = times(pair(), scaled(frame, 1, 1, 1, 0.1)).figure.layout.annotations
    assert [note.text for note in notes] == ["A", "B"]
    assert [10**note.x for note in notes] == pytest.approx([40e12] * 2)
    assert notes[0].y - notes[1].y == pytest.approx(1)


def test_bars_of_both_sides_stand_side_by_side() -> None:
    both = pair()
    found = block(steps(both))
    bars = {trace.name: trace for trace in found.figure.data}
    assert [len(trace.y) for trace in bars.values()] == [2] * len(bars)
    heights = np.sum([trace.y for trace in bars.values()], axis=0)
    assert heights[0] / heights[1] == pytest.approx(both.a.time_s / both.b.time_s)
    assert [switch.label for switch in found.switches] == ["ms", "%"]
    assert np.sum(found.switches[1].traces["y"], axis=0) == pytest.approx([100, 100])
    longest = max(both.b.steps, key=lambda step: step.time_s)
    assert f"({100 * longest.share:.1f} % of its time)." in found.title
    assert isinstance(steps(pair(table_bytes=1e9)), Missing)
    one_gpu = Pair(one(SLOW, table_bytes=10e12), one(FAST, table_bytes=1e9), "a", "b")
    assert sum(bool(trace.y[1]) for trace in block(steps(one_gpu)).figure.data) == 1  # nothing is exchanged


def test_the_table_has_every_step_and_the_batch() -> None:
    both = pair()
    head, *rows = step_table(both)
    assert head[:4] == ("step", "A", "B", "A − B")
    last = rows[-1]
    assert last[:3] == ("whole batch", format_time(both.a.time_s), format_time(both.b.time_s))
    assert last[3] == format_time(both.a.time_s - both.b.time_s) and last[5] == "B is faster"
    turned = step_table(pair(FAST, SLOW))[-1]
    assert turned[3] == f"−{last[3]}" and turned[5] == "A is faster"
    assert " to " in turned[4] and turned[4].count("−") == 2
    gather = next(row for row in rows if row[0] == "gather + pool")
    assert gather[1] == gather[2] and gather[3:] == ("", "", "the same")
    lonely = Pair(one(SLOW, table_bytes=10e12), one(SLOW, table_bytes=1e9), "a", "b")
    assert next(row for row in step_table(lonely) if row[0] == "bucketize")[2] == "–"


@pytest.fixture(scope="module")
def libraries() -> Pair:
    answers = [
        project_one(table_bytes=10e12, machine="h200-sxm-ib", backend=backend, calibration=name)
        for backend, name in (("nccl", NCCL), ("nvshmem", NVSHMEM))
    ]
    return Pair(answers[0], answers[1], NCCL, NVSHMEM)


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (1.0048, "1.005×"),
        (1.00004, "1.00004×"),
        (0.99996, "0.99996×"),
        (1.0, "1.00×"),
        (1.78, "1.78×"),
        (math.nextafter(1.0, 2.0), "1.0000000000000002×"),
        (math.nextafter(1.0, 0.0), "0.9999999999999999×"),
    ],
)
def test_an_end_of_an_interval_says_on_which_side_of_one_it_is(end: float, words: str) -> None:
    assert interval_end(end) == words


# The card


def test_the_finding_says_who_is_faster_and_why() -> None:
    both = pair()
    said = finding(both)
    ratio = both.a.time_s / both.b.time_s
    assert said.startswith(f"B is {ratio:.3g}× as fast as A for 10 TB: ") and "all-to-all" in said
    assert finding(pair(FAST, SLOW)).startswith(f"A is {ratio:.3g}× as fast as B")
    assert finding(pair(AlphaBeta(alpha=12e-6), FAST)).startswith("Cannot say which is faster for 10 TB: ")
    assert finding(pair(FAST, FAST)).startswith("A and B take the same time for 10 TB: ")


def test_the_card_tells_other_numbers_of_gpus_and_of_clocks(libraries: Pair) -> None:
    machines = [project_one(table_bytes=10e12, machine=name) for name in ("h100-sxm-ib", "h200-sxm-ib")]
    head = comparison_card(Pair(machines[0], machines[1], "h100-sxm-ib", "h200-sxm-ib"))
    assert "A 10 TB ÷ 68 GB" in head.gpus and "→  88" in head.gpus
    assert any(
        f"all GPUs together: A {152 * 1024 / machines[0].time_s / 1e6:.3g} M samples/s" in note
        for note in head.notes
    )
    assert not any("other clocks" in note for note in comparison_card(libraries).notes)


# The page


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "compare.html"
    assert run(["report", "--compare", "h100-sxm-ib", "h200-sxm-ib", *WORDS, "--out", str(path)]) == 0
    return path


def test_its_sentence_fits_the_terminal(
    cli: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    done = cli("report", "--compare", "h100-sxm-ib", "h200-sxm-ib", *WORDS)
    assert done.code == 0 and max(map(len, done.out.splitlines())) <= 80


def content(path: Path) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(), re.S)
    assert found
    return dict(json.loads(found[1]))


def test_its_figures_have_their_names_in_the_list(page: Path) -> None:
    data = content(page)
    blocks = (*data["views"]["0|0|0|0"]["blocks"], *data["fixed"])
    assert [block["name"] for block in blocks] == list(COMPARED.shows)


def test_the_page_has_a_view_for_every_choice(page: Path) -> None:
    data = content(page)
    assert [s["name"] for s in data["selectors"]] == ["compared", "batch", "pooling", "dim", "table-bytes"]
    assert set(data["views"]) == {f"{batch}|0|0|{size}" for batch in (0, 1) for size in (0, 1)}
    for batch_at, batch in enumerate((256, 1024)):
        for size_at, size in enumerate((1e12, 10e12)):
            view = data["views"][f"{batch_at}|0|0|{size_at}"]
            answers = [
                project_one(table_bytes=size, batch=batch, machine=name)
                for name in ("h100-sxm-ib", "h200-sxm-ib")
            ]
            both = Pair(answers[0], answers[1], "h100-sxm-ib", "h200-sxm-ib")
            assert view["heads"] == [vars(comparison_card(both))]
            assert view["table"] == [list(row) for row in step_table(both)]
            titles = [block["title"] for block in view["blocks"]]
            assert titles[1].startswith("For 10 TB " if size == 10e12 else "For 1 TB ")


def test_lines_stand_upright_where_a_gpu_or_a_node_is_full(page: Path) -> None:
    """The first GPU (68, 120 GB of 80, 141) and the first node of both: points are within 0.5 % of it."""
    data = content(page)["views"]["0|0|0|0"]["blocks"][0]
    rows = [dict(zip(data["columns"], row, strict=True)) for row in data["rows"]]
    for side, gpu in (("A", 68e9), ("B", 0.85 * 141e9)):
        gpus = {row["table_bytes"]: row["gpus"] for row in rows if row["line"].startswith(f"{side} h")}
        points = [gpus[float(f"{share * gpu:.6g}")] for share in (1, 1.005, 8 * 0.995, 8 * 1.005)]
        assert points == [1, 2, 8, 16]


def test_the_same_command_writes_the_same_bytes(page: Path, tmp_path: Path) -> None:
    words = ("report", "--compare", "h100-sxm-ib", "h200-sxm-ib", *WORDS)
    assert run([*words, "--out", str(tmp_path / "again.html")]) == 0
    assert (tmp_path / "again.html").read_bytes() == page.read_bytes()
    assert content(page)["command"] == " ".join(("perfmodel", *words))
    assert "Equation of" in page.read_text() and "h3>B: h200-sxm-ib" in page.read_text()


def test_json_has_the_finding_in_numbers(cli: Callable[..., Outcome], tmp_path: Path) -> None:
    words = ("--table-size", "10TB", "--batch", "64", "--pooling", "32", "--dim", "32", "--json")
    done = cli("report", "--compare", NCCL, NVSHMEM, *words, "--out", str(tmp_path / "c.html"))
    told = json.loads(done.out)
    first = project_one(table_bytes=10e12, batch=64, machine="h200-sxm-ib", calibration=NCCL)
    assert told["a"]["time_s"] == first.time_s and told["b"]["calibrations"] == [NVSHMEM]
    assert told["ratio"] == pytest.approx(told["a"]["time_s"] / told["b"]["time_s"])
    assert told["ratio_low"] < told["ratio"] < told["ratio_high"]
    assert [block["name"] for block in told["blocks"]] == list(COMPARED.shows)
    assert told["finding"].startswith("Cannot say") and told["verdict"] == "cannot say"


def test_a_run_that_knows_some_sizes_says_so_for_the_others(
    cli: Callable[..., Outcome], tmp_path: Path
) -> None:
    folder, out = own_run.write_run(tmp_path / "four-cores-01234567"), tmp_path / "own.html"
    words = ("report", "--compare", str(folder), NCCL, "--batch", "128", "--dim", "32", "--pooling", "8")
    done = cli(*words, "--table-size", "27GB,80GB", "--out", str(out), "--json")
    assert done.code == 0, done.err
    views = content(out)["views"]
    heads = {key: view["heads"][0]["sentence"] for key, view in views.items()}
    assert "as fast as" in heads["0|0|0|0"] and heads["0|0|0|1"].startswith("Cannot say for 80 GB")
    assert "G = 2, 4" in views["0|0|0|1"]["heads"][0]["times"]
    assert {"missing"} <= set(views["0|0|0|1"]["blocks"][0])
    again = cli(*words, "--table-size", "80GB", "--out", str(tmp_path / "x.html"))
    is_an_error(again, 3, "error: A, ", "G = 2, 4")
    assert not (tmp_path / "x.html").exists()


def test_markdown_has_the_sentences(cli: Callable[..., Outcome], tmp_path: Path) -> None:
    words = (
        "--table-size",
        "10TB",
        "--batch",
        "64",
        "--pooling",
        "32",
        "--dim",
        "32",
        "--format",
        "markdown",
    )
    assert cli("report", "--compare", NCCL, NVSHMEM, *words, "--out", str(tmp_path / "c.md")).code == 0
    text = (tmp_path / "c.md").read_text()
    assert (
        text.startswith("# Cannot say which is faster for 10 TB")
        and text.count("\n## ") == 2
        and "| whole batch | " in text
    )
    assert f"    perfmodel report --compare {NCCL} {NVSHMEM}" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("h100-sxm-ib", NCCL), (f"h100-sxm-ib is a machine and {NCCL} a calibration",)),
        ((NCCL, "h100-sxm-ib"), (f"h100-sxm-ib is a machine and {NCCL} a calibration",)),
        (("h100-sxm-ib", "h200-sxm-ib", "--gpus", "8"), ("--gpus and --compare", "report --machine A,B")),
        (("h100-sxm-ib", "h200-sxm-ib", "--model", "criteo-1tb"), ("--model and --compare",)),
        (("h100-sxm-ib", "h200-sxm-ib", "--sharding", "grid"), ("--sharding and --compare",)),
        (("h100-sxm-ib", "h20"), ("'h20' is not known", "did you mean h200-sxm-ib")),
        (("h100-sxm-ib", "h100-sxm-ib"), ("both are the same",)),
        (("h100-sxm-ib", "nonsense"), ("'nonsense'", "h200-sxm-ib", "latest")),
        (("h100-sxm-ib", "h200-sxm-ib", "--machine", "l40s-pcie"), ("--compare and --machine",)),
        ((NCCL, NVSHMEM, "--calibration", NCCL), ("--compare and --calibration",)),
        (
            ("h100-sxm-ib", "h200-sxm-ib", "--backend", "nccl,nvshmem"),
            ("several of --backend", "--backend nccl"),
        ),
        (("h100-sxm-ib", "h200-sxm-ib", "--format", "svg", "--out", "x.html"), ("svg",)),
        ((NCCL, NVSHMEM, "--batch", "1..4096", "--dim", "1..64"), ("fewer values",)),
        ((NCCL, "nothing.json"), ("nothing.json",)),
    ],
)
def test_what_cannot_be_compared_is_refused(
    cli: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: Any, said: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    is_an_error(cli("report", "--compare", *words), 2, *said)
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_there_stays(cli: Callable[..., Outcome], page: Path) -> None:
    before = page.read_bytes()
    again = cli("report", "--compare", "h100-sxm-ib", "h200-sxm-ib", "--out", str(page))
    is_an_error(again, 2, "exists already", "--force")
    assert page.read_bytes() == before
