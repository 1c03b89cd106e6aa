"""perfmodel chips: what it prints, its documents, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfmodel.schema.chip import load_chip

TABLES = "name,rows,dim,pooling\nsmall,100,16,1\nlarge,20000,16,2\n"


@pytest.fixture
def own(tmp_path: Path) -> str:
    path = tmp_path / "tables.csv"
    path.write_text(TABLES)
    return str(path)


def document(cli: Any, *words: str) -> dict[str, Any]:
    found = json.loads(cli(*words, "--json").out)
    assert found["command"] == "chips"
    return dict(found)


def test_chips_are_listed_and_shown(cli: Any) -> None:
    text = cli("chips").out
    assert "ascend-910 " in text and "h100-sxm" in text and "perfmodel chips NAME" in text
    assert "1 MiB" in text and max(map(len, text.splitlines())) <= 100
    one = cli("chips", "ascend-910").out
    assert "row_latency_s" in one and "assumed" in one and "ddr_rate" in one
    indents = {len(text) - len(text.lstrip()) for text in one.split("\n\n")}
    assert indents == {0, 1}  # the name, and all that is said of it below each other
    chips = document(cli, "chips")["chips"]
    assert chips[0]["values"]["cores"]["source"]
    what_if = document(cli, "chips", "ascend-910", "--set", "cores=8")["chips"][0]
    assert what_if["values"]["cores"]["value"] == 8 and what_if["values"]["cores"]["evidence"] == "assumed"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["chips", "ascend"], "did you mean ascend-910"),
        (["chips", "--set", "cores=4"], "--set needs one chip"),
        (["chips", "ascend-910", "--set", "cores=0"], "must be more than 0"),
        (["chips", "nothing.toml"], "nothing.toml cannot be read"),
        (["chips", "--toml"], "of one shipped chip"),
        (["chips", "ascend-910", "--toml", "--set", "cores=4"], "of one shipped chip"),
        (["chips", "ascend", "--toml"], "did you mean ascend-910"),
    ],
)
def test_chips_refuses(cli: Any, words: list[str], said: str) -> None:
    outcome = cli(*words)
    assert outcome.code == 2 and said in outcome.err


def test_a_shipped_file_is_a_start_for_ones_own(cli: Any, tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(cli("chips", "h100-sxm", "--toml").out, encoding="utf-8")
    assert load_chip(mine) == load_chip("h100-sxm")
    mine.write_text('name = "mine"\n', encoding="utf-8")
    assert "perfmodel chips ascend-910 --toml" in cli("chips", str(mine)).err


# ---- simulate ---------------------------------------------------------------------------------------------


def test_a_seed_below_nought_is_refused(cli: Any, own: str) -> None:
    outcome = cli("chip", "plan", "--chip", "ascend-910", "--model", own, "--seed", "-1")
    assert outcome.code == 2 and "it must be at least 0" in " ".join(outcome.err.split())
