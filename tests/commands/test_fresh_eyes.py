"""What a newcomer types: messages that name what is wrong, and answers that say what they leave out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from cli_calls import is_an_error


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("project", "--table-size", "10"), ("10 B is less than one row", "without a unit is bytes", "10TB")),
        (("sweep", "--gpus", "8..2"), ("--gpus 8..2 runs downwards", "--gpus 2..8")),
        (("sweep", "--table-size", "1TB.."), ("a range has two ends", "last value", "--table-size 1TB..…")),
        (("sweep", "--table-size", "1..64TB"), ("1 has no unit", "--table-size 1TB..64TB")),
        (("sweep", "--table-size", "1TB...64TB"), ("has two dots", "--table-size 1TB..64TB")),
        (("sweep", "--gpus", "..8"), ("a range has two ends", "first value", "--gpus …..8")),
        (("project", "--gpus", "16", "--explain", "all-to-all-idz"), ("is not a step", "all-to-all-ids")),
        (("sweep", "--model", "criteo-kaggle", "--gpus", "8..2"), ("runs downwards", "--gpus 2..8")),
    ],
)  # fmt: skip
def test_messages_name_what_is_wrong(cli: Any, words: tuple[str, ...], parts: tuple[str, ...]) -> None:
    is_an_error(cli(*words), 2, *parts)


def test_a_grid_that_loses_an_axis_says_so(cli: Any) -> None:
    done = cli("sweep", "--grid", "paper-1", "--table-size", "1TB", "--json")
    assert len(json.loads(done.out)["rows"]) == 48  # of 192
    said = " ".join(done.err.split())
    assert "4 numbers of GPUs of paper-1 are left out" in said and "--gpus 1,2,4,8" in said
    assert "left out" not in cli("sweep", "--grid", "paper-1", "--json").err


def test_the_answer_itself_says_how_uneven_skewed_ids_are(cli: Any) -> None:
    """Row-wise, its screen and its document; unique rows are asked for once, so none is hottest."""
    words = ("project", "--table-size", "10TB", "--distribution", "zipf:1.05")
    done = cli(*words, "--sharding", "row-wise")
    (line,) = [line for line in done.out.splitlines() if "hottest row" in line]
    said = json.loads(cli(*words, "--sharding", "row-wise", "--json").out)
    assert f"gets {said['fullest_part']:.1f}× the ids of the mean GPU" in line
    assert "hottest" not in done.err and any("hottest" in note for note in said["notes"])
    assert json.loads(cli(*words, "--sharding", "ub", "--json").out)["fullest_part"] == 1
    leads = cli(*words).out  # row-wise
    assert len([line for line in leads.splitlines() if "hottest row gets" in line]) == 1


def test_the_next_experiment_is_not_what_was_just_done(cli: Any, tmp_path: Path) -> None:
    """Two nodes were imported at 1 to 64 MiB: more nodes, or other sizes of the same, are missing."""
    log, out = tmp_path / "two.csv", tmp_path / "mine.json"
    rows = [
        f"{op},{gpus},{size},{(30e-6 if gpus > 8 else 15e-6) + size / (30e9 if gpus > 8 else 200e9)}"
        for op in ("all_to_all", "reduce_scatter")
        for gpus in (8, 16)
        for size in (2**20, 2**22, 2**24, 2**26)
    ]
    log.write_text("\n".join(["collective,gpus,payload_bytes,time_s", *rows]) + "\n", encoding="utf-8")
    words = ("--machine", "h100-sxm-ib", "--set", "gpus_per_node=8", "--out", str(out))
    assert cli("import", str(log), *words).code == 0
    asked = ("project", "--calibration", str(out), "--batch", "256", "--sharding", "row-wise")
    far = cli(*asked, "--table-size", "10TB", "-v")
    text = " ".join(far.out.split())
    assert "more than the 2 nodes that were measured, 18 if you can, messages of" in text
    document = json.loads(cli(*asked, "--table-size", "10TB", "--json").out)["next_experiment"]
    assert document["nodes"] == 3 and 0 < document["least_bytes"] < document["most_bytes"]
    near = " ".join(cli(*asked, "--gpus", "16", "-v").out.split())
    assert "these 16 GPUs, at sizes that were not measured, messages of 384 B" in near
    assert re.search(r"perfmodel calibrate --only nccl:\S+ --sizes 256B\.\.\S+", near)


MANY = "name,rows,dim,pooling\n" + "".join(f"user_{at},{1000 + at},16,1\n" for at in range(80))
TWICE = "name,rows,dim,pooling\na,1000,32,4\na,2000,32,4\n"


@pytest.mark.parametrize(
    ("files", "words", "parts"),
    [
        ({"t.csv": TWICE}, ("project", "--model", "t.csv", "--gpus", "4"), ("two tables of the name 'a'",)),
        ({"t.csv": TWICE}, ("plan", "--model", "t.csv", "--gpus", "4"), ("two tables of the name 'a'",)),
        (
            {"t.csv": MANY},
            ("plan", "--model", "t.csv", "--gpus", "4", "--only", "user42=row-wise"),
            ("table 'user42' is not known", "the nearest of 80: user_42, "),
        ),
    ],
)  # fmt: skip
def test_messages_about_files_name_what_is_wrong(
    cli: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: dict[str, str],
    words: tuple[str, ...],
    parts: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in files.items():
        Path(name).write_text(text)
    done = cli(*words)
    is_an_error(done, 2, *parts)
    assert "user_7," not in done.err


@pytest.mark.parametrize(
    "words",
    [
        ("plan", "--model", "criteo-kaggle", "--gpus", "4", "--out", "/proc/page.html"),
        ("plan", "--model", "criteo-kaggle", "--gpus", "4", "--out", "/proc/plan.json"),
        ("report", "--out", "/proc/page.html"),
    ],
)
def test_a_place_where_nothing_can_be_written_is_refused_before_the_work(
    cli: Any, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr("perfmodel.plan.question.PlanQuestion.answer", None)
    monkeypatch.setattr("perfmodel.cli.report.make_page", None)
    is_an_error(cli(*words), 2, "/proc/", "cannot be written", "check the folder and its permissions")


@pytest.mark.parametrize(("words", "key"), [
    (("plan", "--model", "criteo-kaggle", "--gpus", "4", "--effort", "quick"), "time_s"),
    (("project", "--table-size", "1TB"), "time_s"),
])  # fmt: skip
def test_whose_kernels_may_be_said(cli: Any, words: tuple[str, ...], key: str) -> None:
    own, torch = (
        json.loads(cli(*words, "--set", f"kernels={name}", "--json").out)[key] for name in ("fbgemm", "torch")
    )
    assert torch > own
    is_an_error(cli(*words, "--set", "kernels=nobody"), 2, "kernels 'nobody' is not known")
