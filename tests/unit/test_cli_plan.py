"""``perfmodel plan``: what it prints, what it writes, what it refuses."""

from __future__ import annotations

import contextlib
import csv
import io
import json
from pathlib import Path

import pytest

from perfmodel.cli import run
from perfmodel.plan import PlanTables, read_plan
from perfmodel.plan.search import Search

TABLES = "rows,dim,pooling,name\n1000000,64,10,big\n1000,64,2,small\n1000000,64,5,other\n"


def asked(*words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of ``perfmodel plan``."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(["plan", *words])
    return code, out.getvalue(), err.getvalue()


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "mine.csv"
    path.write_text(TABLES, encoding="utf-8")
    return str(path)


def test_the_page_says_time_gap_placements_and_limits(model: str) -> None:
    code, out, err = asked("--model", model, "--gpus", "16", "--max-hbm", "300MB")
    assert (code, err) == (0, "")
    assert max(len(line) for line in out.splitlines()) <= 100
    for words in (
        *("per batch of 1 024 samples", "as fast as row-wise", "No plan is faster than", "Memory", "big"),
        *("small", "gather + pool", "Limits", "Bound by relaxation", "--out plan.json"),
    ):
        assert words in out, words


def test_the_document_holds_the_plan_that_the_file_holds(model: str, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    code, out, err = asked(
        "--model", model, "--gpus", "16", "--max-hbm", "300MB", "--json", "--out", str(file)
    )
    document = json.loads(out)
    assert code == 0
    assert f"wrote {file}" in err
    assert (document["schema_version"], document["command"]) == (1, "plan")
    assert document["plan"] == json.loads(file.read_text(encoding="utf-8"))
    assert (
        document["bound_s"]
        <= document["time_s"]
        == pytest.approx(sum(s["time_s"] for s in document["steps"]))
    )
    assert document["low_s"] <= document["time_s"] <= document["high_s"]
    assert max(document["memory_bytes"]) <= 300e6
    assert {name for group in document["groups"] for name in group["tables"]} == {"big", "small", "other"}
    plan = read_plan(file, PlanTables.load(model))
    assert [p["table"] for p in document["plan"]["placements"]] == list(plan.tables.names)


def test_csv_has_one_line_a_table(model: str) -> None:
    code, out, _ = asked("--model", model, "--gpus", "8", "--csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert code == 0
    assert [row["table"] for row in rows] == ["big", "small", "other"]
    assert {row["exchange"] for row in rows} == {"dp"}


def test_training_takes_longer_than_a_forward_pass(model: str) -> None:
    times = []
    for objective in ("latency", "throughput"):
        code, out, _ = asked("--model", model, "--gpus", "8", "--objective", objective, "--json")
        assert code == 0
        times.append(json.loads(out)["time_s"])
    assert times[0] < times[1]


def test_ctrl_c_prints_the_best_so_far(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(search: Search, *_: object) -> float:
        raise KeyboardInterrupt

    monkeypatch.setattr(Search, "_near", stop)
    code, out, err = asked("--model", model, "--gpus", "16", "--max-hbm", "300MB")
    assert code == 130
    assert "(it was stopped)" in out
    assert "stopped." in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--gpus", "8"), "which tables?"),
        (("--model", "mlperf-dlrm-dcnv2"), "how many GPUs?"),
        (("--model", "mlperf", "--gpus", "8"), "table set 'mlperf' is not known"),
        (("--model", "mlperf-dlrm-dcnv2", "--gpus", "0"), "--gpus"),
        (("--model", "mlperf-dlrm-dcnv2", "--gpus", "8", "--batch", "-1"), "--batch"),
        (("--model", "mlperf-dlrm-dcnv2", "--gpus", "8", "--objective", "cost"), "--objective 'cost'"),
        (("--model", "mlperf-dlrm-dcnv2", "--gpus", "8", "--optimizer", "lion"), "optimizer 'lion'"),
        (("--model", "mlperf-dlrm-dcnv2", "--gpus", "8", "--payload", "fp12"), "dtype 'fp12'"),
        (("--model", "mlperf-dlrm-dcnv2", "--gpus", "8", "--max-hbm", "90GB"), "more than the 80 GB"),
        (("--model", "mlperf-dlrm-dcnv2", "--gpus", "8", "--alpha", "-1"), "--alpha"),
        (("--model", "mlperf-dlrm-dcnv2", "--gpus", "8", "--time-limit", "10"), "--time-limit"),
        (("--model", "mlperf-dlrm-dcnv2", "--gpus", "8", "--out", "plan.csv"), "a plan is a .json file"),
        (("--model", "embark-t7", "--gpus", "8"), "need 1.78 TB, 1.14 TB more than the 640 GB of 8 GPUs"),
    ],
)
def test_bad_input_is_refused_in_words(words: tuple[str, ...], message: str) -> None:
    code, out, err = asked(*words)
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())


def test_negative_pooling_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(TABLES.replace(",10,", ",-10,"), encoding="utf-8")
    code, _, err = asked("--model", str(path), "--gpus", "8")
    assert code == 2
    assert "line 2" in err
    assert "pooling" in err
