"""``report --compare A B --model NAME --gpus NS``: both on the same GPUs, names before files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_calls import is_an_error

from perfmodel.project import project_one

A, B, MODEL = "h100-sxm-ib", "h200-sxm-ib", "mlperf-dlrm-dcnv2"
WORDS = ("report", "--compare", A, B, "--model", MODEL, "--batch", "512")


def test_both_have_the_same_tables_on_the_same_gpus(cli: Any, tmp_path: Path) -> None:
    made = cli(*WORDS, "--gpus", "64,8", "--json", "--out", str(tmp_path / "a.html"))
    assert made.code == 0, made.err
    document = json.loads(made.out)
    for letter, machine in (("a", A), ("b", B)):
        one = project_one(machine=machine, tables=MODEL, gpus=64, batch=512)  # the first that was typed
        assert document[letter]["gpus"] == 64
        assert document[letter]["time_s"] == pytest.approx(one.time_s)
        assert document[letter]["slowdown"] == pytest.approx(one.slowdown)
    assert "for 105 GB on 64 GPUs" in document["finding"]
    titles = {block["name"]: block.get("title", "") for block in document["blocks"]}
    assert "from 2 to 256 GPUs" in titles["compare-time"] and "on 64 GPUs" in titles["compare-steps"]


def test_the_lines_are_projections(cli: Any, tmp_path: Path) -> None:
    out = tmp_path / "lines.csv"
    words = ("figure", "compare-time", "--compare", A, B, "--model", MODEL, "--gpus", "8", "--batch", "512")
    assert cli(*words, "--out", str(out)).code == 0
    names, *rows = [line.split(",") for line in out.read_text().splitlines()]
    found = [dict(zip(names, row, strict=True)) for row in rows]
    assert {int(float(row["gpus"])) for row in found} == {2, 4, 8, 16, 32}
    for row in found[::3]:
        machine = {"A": A, "B": B}[row["side"]]
        one = project_one(machine=machine, tables=MODEL, gpus=int(float(row["gpus"])), batch=512)
        assert float(row["time_s"]) == pytest.approx(one.time_s, rel=1e-4)


def test_without_numbers_whole_nodes_of_both(cli: Any, tmp_path: Path) -> None:
    document = json.loads(cli(*WORDS, "--json", "--out", str(tmp_path / "a.html")).out)
    assert (document["a"]["gpus"], document["b"]["gpus"]) == (8, 8)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--gpus", "1"), ("--gpus 1: the tables need 2 GPUs on A or on B",)),
        (("--table-size", "1TB"), ("--model and --table-size cannot be combined",)),
        (("--sharding", "grid"), ("--sharding and --compare cannot be combined",)),
        (("--machine", A), ("--compare and --machine cannot be combined",)),
    ],
)
def test_what_cannot_be_compared(cli: Any, tmp_path: Path, more: tuple[str, ...], words: Any) -> None:
    is_an_error(cli(*WORDS, *more, "--out", str(tmp_path / "a.html")), 2, *words)


def test_numbers_of_gpus_need_a_model(cli: Any) -> None:
    is_an_error(cli("report", "--compare", A, B, "--gpus", "8"), 2, "needs tables", "--model")


def test_names_are_checked_before_files(cli: Any, tmp_path: Path) -> None:
    """A file that exists, or no folder: the name that is wrong is what is said."""
    (tmp_path / "a.html").write_text("")
    for out in (tmp_path / "a.html", tmp_path / "nowhere" / "a.html"):
        refused = cli("report", "--compare", A, "h20", "--out", str(out))
        is_an_error(refused, 2, "'h20' is not known", "did you mean h200-sxm-ib")
