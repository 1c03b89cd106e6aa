"""perfmodel chips, chip ways and chip simulate: what they print, their documents, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfmodel.onechip.ways import ways_map
from perfmodel.onechip.work import Way
from perfmodel.schema.chip import load_chip

TABLES = "name,rows,dim,pooling\nsmall,100,16,1\nlarge,20000,16,2\n"


@pytest.fixture
def own(tmp_path: Path) -> str:
    path = tmp_path / "tables.csv"
    path.write_text(TABLES)
    return str(path)


def document(cli: Any, *words: str) -> dict[str, Any]:
    found = json.loads(cli(*words, "--json").out)
    assert found["command"] in ("chips", "simulate")
    return dict(found)


# ---- chips ------------------------------------------------------------------------------------------------


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


def test_where_each_way_wins(cli: Any) -> None:
    text = cli("chip", "ways", "--chip", "ascend-910", "--dim", "32").out
    assert "32 columns of 4 bytes" in text and "L1-UB" in text
    assert max(map(len, text.splitlines())) <= 100
    found = document(
        cli, "chip", "ways", "--chip", "h100-sxm", "--dtype", "fp16", "--distribution", "one-row"
    )
    assert np.shape(found["seconds"]["GM"]) == (len(found["rows"]), len(found["look_ups"]))
    assert found["distribution"] == "one-row" and found["seconds"]["L1"][-1][0] is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["chips", "ascend"], "did you mean ascend-910"),
        (["chips", "--set", "cores=4"], "--set needs one chip"),
        (["chip", "ways", "--chip", "ascend-910", "--dim", "0"], "0"),
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


@pytest.mark.parametrize("columns", [60, 100])
@pytest.mark.parametrize("words", [("chips",), ("chips", "h100-sxm"), ("chip", "ways", "--chip", "h100-sxm")])
def test_lines_fit(cli: Any, monkeypatch: pytest.MonkeyPatch, columns: int, words: tuple[str, ...]) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert max(map(len, cli(*words).out.splitlines())) <= columns


def test_a_narrow_map_leaves_columns_out_and_breaks_no_word(
    cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    lines = cli("chip", "ways", "--chip", "h100-sxm").out.splitlines()
    head = next(line for line in lines if line.startswith(" rows "))
    assert head.replace("  ", "|").split("|")[-2:] == ["1 000", "100 000"]
    assert "--batch 1000 " in " ".join(lines), "the cell that is explained is on the screen"
    monkeypatch.setenv("COLUMNS", "60")
    lines = cli("chip", "ways", "--chip", "h100-sxm").out.splitlines()
    head = next(line for line in lines if line.startswith(" rows "))
    assert head.count("000") == 5 and " 1 000  10 000  100 000  1 000 000" in head
    assert lines[lines.index(head) + 1].split() == ["10", "GM-UB", "GM-UB", *["GM"] * 4]


def test_the_map_is_of_whole_bags() -> None:
    """A cell is what ``explain`` says of as many bags: ten look-ups of bags of eight are one bag."""
    from perfmodel.onechip.explain import explain_way

    found = ways_map(load_chip("h100-sxm"), pooling=8, rows=[1000], look_ups=[10, 32, 1000])
    assert found.look_ups.tolist() == [8, 32, 1000]
    few = ways_map(load_chip("h100-sxm"), pooling=100, rows=[1000], look_ups=[10, 32, 100, 316])
    assert few.look_ups.tolist() == [100, 300] and few.seconds.shape == (4, 1, 2)
    shape = {"rows": 1000, "dim": 64, "element_bytes": 4.0, "batch": 1, "pooling": 8}
    said = explain_way(load_chip("h100-sxm"), Way.GM, **shape)  # type: ignore[arg-type]
    assert said.time_s == pytest.approx(found.seconds[Way.GM, 0, 0], rel=1e-9)


# ---- simulate ---------------------------------------------------------------------------------------------


def test_mappings_are_simulated(cli: Any, own: str) -> None:
    words = ("chip", "simulate", "--chip", "ascend-910", "--model", own, "--batch", "256", "--alpha", "1.1")
    words = (*words, "--effort", "quick")
    found = document(cli, *words)
    assert [one["what"] for one in found["results"]][:2] == ["every core, GM", "every core, best ways"]
    assert found["distribution"] == "zipf:1.1" and found["batch"] == 256
    for one in found["results"]:
        assert one["error"] == pytest.approx(one["predicted_s"] / one["simulated_s"] - 1)
        assert abs(one["error"]) < 0.2
    by_time = [
        min(found["results"], key=lambda one: one[key])["what"] for key in ("predicted_s", "simulated_s")
    ]
    assert by_time == ["cores own tables"] * 2
    text = cli(*words).out
    assert "simulated" in text and "as fast predicted" in text


def test_a_search_for_mappings_that_was_cut_short_says_so(cli: Any, own: str) -> None:
    words = ("chip", "simulate", "--chip", "ascend-910", "--model", own, "--batch", "256")
    words = (*words, "--time-limit", "1ns")
    assert document(cli, *words)["stopped"] == "time-limit"
    said = " ".join(cli(*words).out.split())
    assert "Search: stopped by --time-limit after" in said and "another run may find another plan" in said


def test_why_something_is_not_simulated_is_said(cli: Any, own: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfmodel.onechip.replay.replay_mappings.__kwdefaults__", {"seed": 0, "most": 2.0})
    words = ("chip", "simulate", "--chip", "ascend-910", "--model", own, "--batch", "4", "--effort", "quick")
    told = " ".join(cli(*words).out.split())
    assert "not simulated" in told and "Not simulated: more than 1 000 000 requests would be needed" in told


def test_a_seed_below_nought_is_refused(cli: Any, own: str) -> None:
    for words in (("chip", "simulate", "--chip", "ascend-910"), ("chip", "plan", "--chip", "ascend-910")):
        outcome = cli(*words, "--model", own, "--seed", "-1")
        assert outcome.code == 2 and "it must be at least 0" in " ".join(outcome.err.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--chip", "nope", "--model", "OWN"], "chip 'nope' is not known"),
        (["--chip", "ascend-910", "--model", "OWN", "--time-limit", "3"], "a time needs a unit"),
        (["--chip", "ascend-910", "--model", "OWN", "--batch", "10000000"], "a smaller batch"),
    ],
)
def test_simulate_refuses(cli: Any, own: str, words: list[str], said: str) -> None:
    outcome = cli("chip", "simulate", *(own if word == "OWN" else word for word in words))
    assert outcome.code == 2 and said in outcome.err
