"""The page of two: sentences follow the numbers, every choice has its answers, nonsense is refused."""

from __future__ import annotations

import json
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
from perfmodel.project import project, project_one
from perfmodel.project.needs import Need, Remedy
from perfmodel.report.figures import Block, Missing
from perfmodel.report.figures.compare import Pair, slowdowns, times
from perfmodel.report.figures.compare_constants import constants, differing, needed
from perfmodel.report.figures.compare_curves import curve_blocks
from perfmodel.report.figures.compare_steps import step_differences, steps
from perfmodel.report.figures.names import COMPARED
from perfmodel.report.figures.words import interval_end
from perfmodel.report.page.comparison_card import comparison_card, finding
from perfmodel.schema.calibration import shipped_calibration
from perfmodel.schema.evidence import Evidence
from perfmodel.schema.machine import load_machine
from perfmodel.validate.points import curve_samples

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
    return project({"table_bytes": SIZES}, "h100-sxm-ib")


def scaled(frame: pd.DataFrame, *factors: float, spread: float = 1.01) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Twice the same answers with narrow bands, the second ones times these factors."""
    narrow = frame.assign(low_s=frame["time_s"] / spread, high_s=frame["time_s"] * spread)
    other = narrow.copy()
    other[TIMES] = narrow[TIMES].to_numpy() * np.array(factors)[:, None]
    return narrow, other


# Figures


def test_the_sentence_of_times_says_who_is_faster_where(frame: pd.DataFrame) -> None:
    both = pair()
    title = block(times(both, scaled(frame, 0.5, 0.5, 0.25, 0.25))).title
    assert title == "B is 2.00× to 4.00× as fast as A from 5 TB to 40 TB, significantly so at every size."
    title = block(times(both, scaled(frame, 2, 2, 0.5, 0.5))).title
    assert title == "A is faster below 20 TB, B above that, significantly so at every size."
    title = block(times(both, scaled(frame, 0.5, 2, 0.5, 2))).title
    assert title.startswith("The faster one changes 3 times from 5 TB to 40 TB; at 40 TB A is 2.00× as fast")
    title = block(times(both, scaled(frame, 0.5, 1.05, 0.9, 0.4, spread=1.2))).title
    assert title == (
        "B is significantly faster at 2 of 4 sizes from 5 TB to 40 TB, up to 2.50× as fast; at the "
        "others the interval includes 1."
    )
    title = block(times(both, scaled(frame, 0.5, 0.5, 0.9, 0.9, spread=1.2))).title
    assert title.endswith("; significantly so at 2 of 4 sizes.")
    title = block(times(both, scaled(frame, 0.9, 0.9, 0.9, 0.9, spread=1.2))).title
    assert "includes 1 at every size, so this is not certain" in title
    assert block(times(both, (frame, frame))).title == "A and B take the same time from 5 TB to 40 TB."


def test_marks_of_the_ratio_are_those_of_the_verdict(frame: pd.DataFrame) -> None:
    found = block(times(pair(), scaled(frame, 0.5, 2, 1.005, 0.5)))
    marks = {t.name: t for t in found.figure.data if t.mode == "markers"}
    assert list(marks["B is faster"].x) == [5e12, 40e12] and list(marks["A is faster"].x) == [10e12]
    assert list(marks["cannot say"].x) == [20e12]
    assert marks["A is faster"].y[0] == pytest.approx(0.5)
    colours = [trace.marker.color for trace in marks.values()]
    assert len(set(colours)) == 3 and len(found.data) == 2 * len(SIZES)


def test_lines_have_their_letters_at_their_ends(frame: pd.DataFrame) -> None:
    far = block(times(pair(), scaled(frame, 1, 1, 1, 0.1))).figure.layout.annotations
    assert [note.text for note in far] == ["<b>A</b>", "<b>B</b>"] and [note.yshift for note in far] == [0, 0]
    assert [10**note.x for note in far] == pytest.approx([40e12] * 2) and far[0].y - far[
        1
    ].y == pytest.approx(1)
    near = block(times(pair(), scaled(frame, 1, 1, 1, 1.1))).figure.layout.annotations
    assert near[0].yshift < 0 < near[1].yshift


def test_sizes_that_only_one_side_knows_leave_the_block_out(frame: pd.DataFrame) -> None:
    found = times(pair(), (frame.iloc[:2], frame.iloc[2:]))
    assert isinstance(found, Missing) and "--table-size" in found.why
    small = project({"table_bytes": [1e9]}, "h100-sxm-ib")
    assert isinstance(slowdowns(pair(), (small, small)), Missing)


def test_the_sentence_of_slowdowns_has_both(frame: pd.DataFrame) -> None:
    both = pair()
    title = block(slowdowns(both, (frame, frame))).title
    for answer in (both.a, both.b):
        assert f"{answer.slowdown:.3g}" in title
    assert title != block(slowdowns(pair(FAST, SLOW), (frame, frame))).title
    small = Pair(one(SLOW, table_bytes=1e9), one(FAST, table_bytes=1e9), "a", "b")
    assert block(slowdowns(small, (frame, frame))).title.startswith(
        "Tables of 1 GB fit on one GPU of A and of B"
    )
    mixed = Pair(one(SLOW, table_bytes=10e12), one(FAST, table_bytes=1e9), "a", "b")
    assert "not at all on B, where they fit on one GPU" in block(slowdowns(mixed, (frame, frame))).title


def test_bars_of_both_sides_stand_side_by_side() -> None:
    pairs = [pair(table_bytes=size) for size in (1e12, 10e12)]
    found = block(steps(pairs, pairs[1]))
    bars = {trace.name: trace for trace in found.figure.data}
    assert [len(trace.y) for trace in bars.values()] == [4] * len(bars)
    heights = np.sum([trace.y for trace in bars.values()], axis=0)
    assert heights[[0, 2]] == pytest.approx(100)  # A over itself
    assert heights[3] == pytest.approx(100 * pairs[1].b.time_s / pairs[1].a.time_s)
    own = np.sum(found.switches[2].traces["y"], axis=0)
    assert own == pytest.approx([100] * 4)
    longest = max(pairs[1].a.steps, key=lambda step: step.time_s)
    assert f"{100 * longest.share:.1f} % of A's time" in found.title
    assert isinstance(steps([pair(table_bytes=1e9)], pair(table_bytes=1e9)), Missing)


def test_the_sentence_of_differences_names_what_saves_most() -> None:
    found = block(step_differences(pair()))
    assert found.title.startswith("For 10 TB B saves ")
    assert "of it in the all-to-all (" in found.title and "are significant" in found.title
    assert "A saves" in block(step_differences(pair(FAST, SLOW))).title
    alike = block(step_differences(pair(AlphaBeta(alpha=10.5e-6), FAST)))
    assert alike.title.endswith("the interval of every step includes 0, so none of it is certain.")
    assert block(step_differences(pair(FAST, FAST))).title == (
        "For 10 TB every step takes the same time on A and B."
    )
    words = [note.text for note in found.figure.layout.annotations]
    assert words[-1].startswith("whole batch: A ") and not any("0 s" in text for text in words)
    lonely = Pair(one(SLOW, table_bytes=10e12), one(SLOW, table_bytes=1e9), "a", "b")
    told = [note.text for note in block(step_differences(lonely)).figure.layout.annotations]
    assert any(text.startswith("bucketize indices: A ") and text.endswith(" alone") for text in told), told
    batch = found.data[-1]
    assert batch["step"] == "batch" and batch["verdict"] == "B is faster"
    assert sum(row["difference_s"] for row in found.data[:-1]) == pytest.approx(batch["difference_s"])


def test_steps_that_are_faster_on_both_sides_are_told() -> None:
    """B has a lower floor and a lower rate: with large bags it saves in some steps and loses in others."""
    both = pair(SLOW, AlphaBeta(alpha=10e-6, beta=2e9), batch=65536)
    title = block(step_differences(both)).title
    assert "but 1 step is slower" in title or "steps are slower" in title


@pytest.fixture(scope="module")
def libraries() -> Pair:
    answers = [
        project_one(table_bytes=10e12, machine="h200-sxm-ib", backend=backend, calibration=name)
        for backend, name in (("nccl", NCCL), ("nvshmem", NVSHMEM))
    ]
    return Pair(answers[0], answers[1], NCCL, NVSHMEM)


def test_curves_of_both_and_where_each_is_faster(libraries: Pair) -> None:
    found = {one.name: one for one in curve_blocks(libraries)}
    curves = block(found["compare-all-to-all"])
    assert curves.title.startswith("All-to-all on 8 GPUs: A is faster at ")
    turned = Pair(libraries.b, libraries.a, NVSHMEM, NCCL)
    assert "B is faster at " in block(next(iter(curve_blocks(turned)))).title
    sure = [row for row in curves.data if row["verdict"] == "A is faster"]
    assert all(row["ratio_high"] < 1 for row in sure) and sure
    rest = [row for row in curves.data if row["verdict"] == "cannot say"]
    assert all(row["ratio_low"] <= 1 <= row["ratio_high"] for row in rest)


def test_marks_of_curves_are_medians_of_samples(libraries: Pair) -> None:
    """Not the times of the line, which never fall: A took less time for 64 KiB than for 16 KiB."""
    machine = load_machine("h100-sxm-ib")
    answers = [project_one(table_bytes=10e12, machine=name) for name in ("h100-sxm-ib", "h200-sxm-ib")]
    curves = block(next(iter(curve_blocks(Pair(answers[0], answers[1], "a", "b")))))
    marks = next(t for t in curves.figure.data if t.mode == "markers")
    rows = curve_samples(shipped_calibration(answers[0].calibrations[0]), machine)
    cell = rows[(rows["collective"] == "all_to_all") & (rows["gpus"] == 8) & (rows["domain_gpus"] == 8)]
    want = cell.groupby("payload_bytes")["time_s"].median()
    assert list(marks.x) == list(want.index) and list(marks.y) == pytest.approx(want.tolist())
    assert (np.diff(marks.y) < 0).any() and "medians of samples" in curves.how_to_read


def test_curves_that_one_side_lacks_are_left_out_with_what_to_measure() -> None:
    answers = [project_one(table_bytes=10e12, machine=name) for name in ("gh200-slingshot", "h100-sxm-ib")]
    found = {one.name: one for one in curve_blocks(Pair(answers[0], answers[1], "a", "b"))}
    left = found["compare-all-to-all"]
    assert isinstance(left, Missing) and "for A not at all, for B on " in left.why
    assert "on A's machine: perfmodel calibrate --only nccl:all_to_all --ranks 2,4" in left.why
    assert isinstance(found["compare-all-reduce"], Block) and "compare-all-gather" not in found


def test_constants_that_differ_and_the_farthest(libraries: Pair) -> None:
    machines = [
        project_one(table_bytes=10e12, machine="h100-sxm-ib", overrides=changed)
        for changed in ({}, {"nic_bytes_per_s": 200e9})
    ]
    found = block(constants(Pair(machines[0], machines[1], "a", "b")))
    assert found.title == (
        "A and B differ significantly in 1 value of the machines; the largest difference is nic_bytes_per_s, "
        "50 GB/s on A and 200 GB/s on B."
    )
    assert [row["b_over_a"] for row in found.data] == [4]
    texts = " ".join(str(trace.hovertext) for trace in found.figure.data)
    assert machines[0].setting.machine.quantity("nic_bytes_per_s").source[:20] in texts
    assert isinstance(constants(Pair(machines[0], machines[0], "a", "a")), Missing)
    curves = block(constants(libraries))
    assert (
        "; the largest difference is the rate of all-to-all on 8 GPUs, 378 GB/s on A and 44.1 GB/s"
        in curves.title
    )
    assert "rate of all-to-all on 8 GPUs<br>378 GB/s → 44.1 GB/s" in [
        note.text for note in curves.figure.layout.annotations
    ]
    fitted = [one for one in differing(libraries) if one.kind == "curve"]
    assert fitted and all(one.low is None or one.low < (one.ratio or 0) < (one.high or 0) for one in fitted)
    assert [one.sure for one in fitted] == sorted((one.sure for one in fitted), reverse=True)


def test_the_constant_of_the_title_is_the_longest_bar_that_is_sure() -> None:
    """The law's ll128_inside_ratio is 2.2 times apart, within its interval: drawn, but below those."""
    answers = [project_one(table_bytes=10e12, machine=name) for name in ("h100-sxm-ib", "h200-sxm-ib")]
    found = block(constants(Pair(answers[0], answers[1], "a", "b")))
    assert "the largest difference is hbm_bytes, 80 GB on A" in found.title
    assert found.data[0]["constant"] == "hbm_bytes" and found.figure.layout.annotations[0].text.startswith(
        "hbm_bytes"
    )
    sure = [row["low"] is None or not row["low"] <= 1 <= row["high"] for row in found.data]
    assert sure == sorted(sure, reverse=True) and not all(sure)
    reach = [max(row["b_over_a"], 1 / row["b_over_a"]) for row in found.data]
    assert reach[: sum(sure)] == sorted(reach[: sum(sure)], reverse=True)
    law = next(row for row in found.data if row["constant"].startswith("ll128_inside_ratio"))
    assert law["low"] < law["b_over_a"] < 1 < law["high"]


@pytest.mark.parametrize(
    ("end", "words"),
    [(1.0048, "1.005×"), (1.00004, "1.00004×"), (0.99996, "0.99996×"), (1.0, "1.00×"), (1.78, "1.78×")],
)
def test_an_end_of_an_interval_says_on_which_side_of_one_it_is(end: float, words: str) -> None:
    assert interval_end(end) == words


def test_what_the_slower_one_would_need() -> None:
    both = pair()
    enough = Need("nic_bytes_per_s", 50e9, 120e9, 1e-5, Evidence.DATASHEET)
    never = Need("pcie_bytes_per_s", 64e9, None, 1e-3, Evidence.DATASHEET)
    found = block(needed(both, [enough, never], [Remedy("two-level", 100e-6)]))
    assert (
        "the evidence of every value is datasheet" in found.how_to_read and "colours" not in found.how_to_read
    )
    assert "cross at the end" in found.how_to_read
    assert "cross" not in block(needed(both, [enough], [])).how_to_read
    title = found.title
    assert title == (
        "One value alone would make A as fast as B: network line rate per GPU, one direction, 120 GB/s "
        "instead of 50 GB/s; with its two-level exchange of bags it takes 100 µs."
    )
    other = block(needed(pair(FAST, SLOW), [never], [])).title
    assert other.startswith("Improving a single value of its machine, even 64 times, does not make B as fast")
    assert isinstance(needed(pair(FAST, FAST), [], []), Missing)
    assert "no single value of A's machine" in str(needed(both, [], []))


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
        f"all GPUs together: A {152 * 1024 / machines[0].time_s / 1e6:.1f} M samples/s" in note
        for note in head.notes
    )
    assert not any("other clocks" in note for note in comparison_card(libraries).notes)


# The page


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "compare.html"
    assert run(["report", "--compare", "h100-sxm-ib", "h200-sxm-ib", *WORDS, "--out", str(path)]) == 0
    return path


def content(path: Path) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(), re.S)
    assert found
    return dict(json.loads(found[1]))


def test_its_figures_have_their_names_in_the_list(page: Path) -> None:
    data = content(page)
    names = [block["name"] for block in (*data["views"]["0|0|0|0"]["blocks"], *data["fixed"])]
    assert names == [name for name in COMPARED.figures if name in names]


def test_the_page_has_a_view_for_every_choice(page: Path) -> None:
    data = content(page)
    assert [s["name"] for s in data["selectors"]] == ["compared", "batch", "pooling", "dim", "table-bytes"]
    assert data["question"].startswith(
        "10 TB on 152 GPUs of h100-sxm-ib (A) and on 88 GPUs of h200-sxm-ib (B), "
    )
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
            last = dict(zip(view["blocks"][3]["columns"], view["blocks"][3]["rows"][-1], strict=True))
            assert last["a_s"] == pytest.approx(answers[0].time_s, rel=1e-5)
            titles = " ".join(block["title"] for block in view["blocks"][1:])
            assert titles.count("10 TB" if size == 10e12 else "1 TB") == 3


def test_lines_stand_upright_where_a_gpu_or_a_node_is_full(page: Path) -> None:
    """The first GPU (68, 120 GB of 80, 141) and the first node of both: points are within 0.5 % of it."""
    data = content(page)["views"]["0|0|0|0"]["blocks"][0]
    rows = [dict(zip(data["columns"], row, strict=True)) for row in data["rows"]]
    for side, gpu in (("A", 68e9), ("B", 0.85 * 141e9)):
        gpus = {row["table_bytes"]: row["gpus"] for row in rows if row["side"] == side}
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
    assert [block["name"] for block in told["blocks"]][:4] == [
        "compare-time", "compare-slowdown", "compare-steps", "compare-differences",
    ]  # fmt: skip
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
    is_an_error(again, 3, "G = 2, 4", "both have an answer for --set hbm_bytes=")
    line = re.search(
        r"both have an answer for (.*?) \((\d) GPUs of A, (\d) GPUs? of B\)", " ".join(again.err.split())
    )
    assert line and int(line[2]) > 1 and int(line[3]) > 1
    more = cli(*words, *line[1].split(), "--json", "--out", str(tmp_path / "y.html"))
    assert more.code == 0, more.err
    assert [json.loads(more.out)[side]["gpus"] for side in "ab"] == [int(line[2]), int(line[3])]
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
    assert text.startswith("# Cannot say which is faster for 10 TB") and text.count("\n## ") >= 6
    assert f"    perfmodel report --compare {NCCL} {NVSHMEM}" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("h100-sxm-ib", NCCL), ("is a machine and", f"--compare h100-sxm-ib/nccl-2.29.2-stream {NCCL}")),
        ((NCCL, "h100-sxm-ib"), ("is a machine and", f"--compare {NCCL} h100-sxm-ib/nccl-2.29.2-stream")),
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
