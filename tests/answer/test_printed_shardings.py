"""Each sharding that a command prints is accepted by ``--sharding``, and is then the same answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cli_calls import called, is_an_error

from perfmodel.engine.schemes import WAYS

TABLES = ("--table-size", "2TB")
SET = ("--model", "mlperf-dlrm-dcnv2", "--gpus", "16")
QUESTIONS = [
    (*TABLES, "--objective", "training"),
    (*SET, "--distribution", "zipf:1.05"),
]
NAMES = [" ".join(question) for question in QUESTIONS]


def answer(*words: str) -> dict[str, Any]:
    done = called(*words, "--json")
    assert done.code == 0, (words, done.err)
    found: dict[str, Any] = json.loads(done.out)
    return found


def time_of(*words: str) -> float:
    return float(answer("project", *words)["time_s"])


@pytest.mark.parametrize("question", QUESTIONS, ids=NAMES)
def test_shardings_that_project_compares(question: tuple[str, ...]) -> None:
    """The fastest, the slowest, and those that are not possible."""
    comparison = answer("project", *question, "--sharding", "all")
    rows = sorted(comparison["shardings"], key=lambda row: row["time_s"] or 0)
    assert {row["sharding"] for row in rows} == set(WAYS)
    possible = [row for row in rows if row["time_s"]]
    on = (*question, "--gpus", str(comparison["gpus"]))
    for row in (possible[0], possible[-1]):
        assert time_of(*on, "--sharding", row["sharding"]) == pytest.approx(row["time_s"])
    for name in {row["sharding"] for row in rows if not row["time_s"]}:
        is_an_error(called("project", *on, "--sharding", name), 2, f"{name} is not possible: ")
