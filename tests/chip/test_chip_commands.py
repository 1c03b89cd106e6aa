"""perfmodel chip plan and chips: what they print, their documents, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

TABLES = "name,rows,dim,pooling\nsmall,100,16,1\nmiddle,3000,16,1\nlarge,20000,16,2\n"


@pytest.fixture
def own(tmp_path: Path) -> str:
    path = tmp_path / "tables.csv"
    path.write_text(TABLES)
    return str(path)


def test_a_plan_fits_a_screen(cli: Any) -> None:
    words = ("--chip", "ascend-910", "--model", "criteo-kaggle", "--distribution", "zipf:1.05")
    lines = cli("chip", "plan", *words).out.splitlines()
    assert len(lines) <= 25 and max(map(len, lines)) <= 100
    text = " ".join(" ".join(lines).split())
    said = ("zipf:1.05", "ascend-910", "L1-UB+GM", "symmetric", "no mapping", "the busiest core")
    assert all(words in text for words in said), text


def test_the_plan_as_data_is_that_of_the_screen(cli: Any, own: str) -> None:
    words = ("chip", "plan", "--chip", "ascend-910", "--model", own, "--batch", "256")
    found = json.loads(cli(*words, "--json").out)
    (first,) = found["chips"]
    assert first["chip"] == "ascend-910" and len(first["core_s"]) == first["cores"] == 32
    assert first["speedup"] == pytest.approx(first["baseline_s"] / first["time_s"])
    assert max(*first["core_s"], first["memory_s"], first["cache_s"]) == pytest.approx(first["time_s"])
    assert len(first["tables"]) == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--chip", "ascend"], "did you mean ascend-910? known: a100-sxm, ascend-910, h100-sxm, h200-sxm"),
        (["--chip", "ascend-910", "--set", "cores=0"], "must be more than 0"),
        (["--chip", "ascend-910", "--set", "kores=4"], "did you mean cores"),
        (["--chip", "ascend-910", "--model", "mlperf-dlrm-dcnv2"], "72.5 GB more than the 32 GB"),
        (["--chip", "ascend-910", "--batch", "0"], "--batch"),
        (["--chip", "nothing.toml"], "nothing.toml cannot be read"),
    ],
)
def test_a_plan_refuses(cli: Any, own: str, words: list[str], said: str) -> None:
    model = [] if "--model" in words else ["--model", own]
    outcome = cli("chip", "plan", *words, *model)
    assert outcome.code == 2 and said in " ".join(outcome.err.split()), outcome.err
    assert "--model" in cli("chip", "plan", "--chip", "ascend-910").err
