"""``perfmodel project``: its screen, its document, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_calls import is_an_error

from perfmodel.resources import data_path


def test_project_json_is_one_document_and_adds_up(cli: Any) -> None:
    answer = json.loads(cli("project", "--table-size", "10TB", "--json").out)
    assert (answer["schema_version"], answer["command"], answer["gpus"]) == (4, "project", 144)
    assert sum(step["time_s"] for step in answer["steps"]) == pytest.approx(answer["time_s"])
    assert answer["slowdown"] == pytest.approx(answer["time_s"] / answer["baseline_time_s"])
    assert answer["changes"] and answer["next_experiment"]["share"] > 0


@pytest.mark.parametrize(
    ("words", "has_others"), [(["1"], False), (["2"], True), (["2", "--sharding", "ub"], False)]
)
def test_other_shardings_are_in_the_document_where_there_are_any(
    cli: Any, words: list[str], has_others: bool
) -> None:
    answer = json.loads(cli("project", "--table-size", "1GB", "--gpus", *words, "--json").out)
    others = {"as_good", "leads_among", "uniform", "unique_rows", "left_out", "row_wise"}
    assert answer.keys() & others == (others if has_others else set())


def test_what_ifs_change_the_numbers_and_show_as_assumed(cli: Any) -> None:
    plain_answer = json.loads(cli("project", "--table-size", "10TB", "--json").out)
    words = ("project", "--table-size", "10TB", "--set", "nic_bytes_per_s=200GB/s")
    faster = json.loads(cli(*words, "--json").out)
    assert faster["slowdown"] < plain_answer["slowdown"]
    assert faster["evidence"] == "assumed"
    assert "assumed: nic_bytes_per_s = 200 GB/s" in cli(*words).out
    state = cli("project", "--table-size", "1TB", "--set", "optimizer=adam").out
    assert "forward pass, the state of adam in memory" in state


SHIPPED = "h200-sxm-ib/nccl-2.29.2-stream"


def own(path: Path, **changes: Any) -> str:
    """A calibration file with some fields changed."""
    document = json.loads(data_path("calibrations", SHIPPED + ".json").read_text(encoding="utf-8"))
    path.write_text(json.dumps(document | changes))
    return str(path)


def test_project_json_carries_the_whole_question(cli: Any) -> None:
    words = ("--batch", "2048", "--tables", "64", "--pooling", "8", "--dim", "64", "--set", "dtype=fp16")
    more = ("--set", "id_dtype=int32", "--sharding", "row-wise", "--set", "nic_bytes_per_s=100GB/s")
    answer = json.loads(cli("project", "--table-size", "10TB", *words, *more, "--json").out)
    expected = {
        "table_bytes": 1e13, "batch": 2048, "tables": 64, "pooling": 8, "dim": 64, "dtype": "fp16",
        "id_dtype": "int32", "overrides": {"nic_bytes_per_s": 1e11}, "model": None,
        "backend": "nccl", "machine": "h100-sxm-ib",
    }  # fmt: skip
    assert {name: answer[name] for name in expected} == expected
    model = json.loads(cli("project", "--model", "mlperf-dlrm-dcnv2", "--gpus", "16", "--json").out)
    assert (model["model"], model["tables"], model["dim"]) == ("mlperf-dlrm-dcnv2", 26, None)


def test_a_calibration_of_ones_own_is_named_and_brings_its_machine(cli: Any, tmp_path: Path) -> None:
    path = own(tmp_path / "mine.json")
    words = ("project", "--table-size", "10TB", "--calibration", path)
    answer = json.loads(cli(*words, "--json").out)
    assert (answer["machine"], answer["calibration_file"]) == ("h200-sxm-ib", path)
    text = " ".join(cli(*words).out.split())
    assert f"times calibration {path}, clock stream" in text
    asked = ("collective", "--op", "all_gather", "--size", "1MiB", "--gpus", "8", "--calibration", path)
    assert f"{path} ({SHIPPED})" in " ".join(cli(*asked).out.split())
    assert json.loads(cli(*asked, "--json").out)["machine"] == "h200-sxm-ib"
    unknown = cli("project", "--table-size", "1TB", "--calibration", own(tmp_path / "x.json", machine="mine"))
    assert unknown.code == 2 and "--machine PATH" in unknown.err
    partial = cli("project", "--table-size", "1TB", "--calibration", own(tmp_path / "p.json", complete=False))
    assert partial.code == 0 and " ".join(partial.err.split()).count("is partial") == 1


def test_a_library_without_a_calibration_names_what_there_is(cli: Any) -> None:
    for words in (("--set", "clock=device"), ("--backend", "nvshmem")):
        outcome = cli("project", "--table-size", "100GB", "--machine", "l40s-pcie", *words)
        is_an_error(outcome, 3, "calibrations: l40s-pcie/nccl")


def test_the_answer_itself_says_how_uneven_skewed_ids_are(cli: Any) -> None:
    """Row-wise, its screen and its document; unique rows are asked for once, so none is hottest."""
    words = ("project", "--table-size", "10TB", "--distribution", "zipf:1.05")
    done = cli(*words, "--sharding", "row-wise")
    (line,) = [line for line in done.out.splitlines() if "hottest row" in line]
    said = json.loads(cli(*words, "--sharding", "row-wise", "--json").out)
    assert f"the one with the hottest row gets {said['fullest_part']:.1f}× as many ids" in line
    assert "hottest" not in done.err and any("hottest" in note for note in said["notes"])
    assert json.loads(cli(*words, "--sharding", "ub", "--json").out)["fullest_part"] == 1
    leads = cli(*words).out  # row-wise
    assert len([line for line in leads.splitlines() if "hottest row gets" in line]) == 1


@pytest.mark.parametrize("words", [("plan", "--model", "criteo-kaggle", "--gpus", "4"), ("report",)])
def test_a_place_where_nothing_can_be_written_is_refused_before_the_work(
    cli: Any, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr("perfmodel.plan.question.PlanQuestion.search", None)
    monkeypatch.setattr("perfmodel.cli.report.find_subject", None)
    refused = cli(*words, "--out", "/proc/page.html")
    is_an_error(refused, 2, "/proc/", "cannot be written", "check the folder and its permissions")
