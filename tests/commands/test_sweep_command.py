"""``perfmodel sweep``: files, a summary, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from cli_calls import WIDTH, is_an_error

from perfmodel.answer import project_one
from perfmodel.answer import sweep as grids
from perfmodel.cli import sweep


@pytest.mark.parametrize(("grid", "points"), [("paper-1", 192), ("paper-2", 168)])
def test_the_papers_grids(cli: Any, grid: str, points: int, tmp_path: Path) -> None:
    out = tmp_path / "grid.csv"
    outcome = cli("sweep", "--grid", grid, "--sharding", "row-wise", "--out", str(out))
    assert (outcome.code, outcome.out) == (0, "")
    frame = pd.read_csv(out)
    assert len(frame) == points
    assert (frame.loc[frame["gpus"] == 1, "slowdown"] == 1).all()
    is_an_error(cli("sweep", "--grid", grid, "--out", str(out)), 2, "exists already")
    assert list(tmp_path.iterdir()) == [out]


def test_sweep_writes_parquet_and_prints_a_summary(cli: Any, tmp_path: Path) -> None:
    out = tmp_path / "s.parquet"
    words = ("sweep", "--table-size", "1TB..4TB", "--batch", "128,1024", "--pooling", "4..16", "--dim", "32")
    assert cli(*words, "--out", str(out)).code == 0
    assert len(pd.read_parquet(out)) == 3 * 2 * 3
    text = cli(*words).out
    first = "18 configurations, each with the fastest sharding of TorchRec's that fits: slowdown "
    assert text.startswith(first)
    assert max(len(line) for line in text.splitlines()) <= WIDTH
    rows = json.loads(cli(*words, "--json").out)["rows"]
    assert len(rows) == 18 and rows[0]["evidence"]


def test_a_sweep_over_sets_of_tables_is_that_of_projections(cli: Any) -> None:
    words = ("sweep", "--model", "mlperf-dlrm-dcnv2,criteo-kaggle", "--gpus", "1..16", "--batch", "64,256")
    words += ("--sharding", "row-wise")
    found = cli(*words, "--json")
    rows = json.loads(found.out)["rows"]
    assert "2 of 20 configurations left out" in found.err  # 105 GB fit no single GPU
    assert len(rows) == 18 and {row["model"] for row in rows} == {"mlperf-dlrm-dcnv2", "criteo-kaggle"}
    for row in rows[::5]:
        one = project_one(tables=row["model"], gpus=row["gpus"], batch=row["batch"])
        assert row["time_s"] == pytest.approx(one.time_s) and row["slowdown"] == pytest.approx(one.slowdown)
    machines = "h100-sxm-ib", "gb200-nvl72"
    words = ("--model", "criteo-kaggle", "--machine", ",".join(machines), "--by", "time", "--batch", "512")
    sides = cli("sweep", *words, "--json")
    assert {row["machine"] for row in json.loads(sides.out)["rows"]} == set(machines)
    rows = json.loads(sides.out)["rows"]
    assert [row["samples"] for row in rows] == [row["gpus"] * row["batch"] for row in rows]
    (alone,) = json.loads(cli("sweep", "--model", "criteo-kaggle", "--json").out)["rows"]
    assert (alone["gpus"], alone["batch"]) == (project_one(tables="criteo-kaggle").gpus, 1024)


@pytest.mark.parametrize("kind", ["csv", "parquet", "CSV"])
def test_sweeps_carry_what_is_constant_and_count_in_whole_numbers(
    cli: Any, tmp_path: Path, kind: str
) -> None:
    out = tmp_path / f"s.{kind}"
    words = ["--machine", "h100-sxm-ib,gb200-nvl72"]
    words += ["--set", "nic_bytes_per_s=100GB/s", "--set", "dtype=fp32,fp16"]
    assert cli("sweep", "--gpus", "8,16", "--batch", "128,1024", *words, "--out", str(out)).code == 0
    frame = pd.read_parquet(out) if kind == "parquet" else pd.read_csv(out)
    assert len(frame) == 16
    assert set(frame["machine"]) == {"h100-sxm-ib", "gb200-nvl72"} and set(frame["dtype"]) == {"fp32", "fp16"}
    same = {"backend": "nccl", "clock": "stream", "overrides": "nic_bytes_per_s=100000000000"}
    assert all(set(frame[name]) == {value} for name, value in same.items())
    assert frame["calibration"].str.startswith("h100-sxm-ib/").sum() == 8
    assert all(
        frame[name].dtype.kind == "i" for name in ("gpus", "gpus_needed", "batch", "table_count", "dim")
    )
    if kind == "csv":
        assert '"' not in out.read_text()


def test_as_many_configurations_as_the_limits_are_swept(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four on two machines."""
    words = ("sweep", "--table-size", "1TB,2TB", "--batch", "128,256", "--machine", "h100-sxm-ib,h200-sxm-ib")
    for limit, where, more in (("MOST_COMPARED", grids, ()), ("_MOST", sweep, ("--sharding", "row-wise"))):
        monkeypatch.setattr(where, limit, 8)
        assert cli(*words, *more).code == 0
        monkeypatch.setattr(where, limit, 7)
        is_an_error(cli(*words, *more), 2, "and these are 8" if not more else "8 configurations are too many")
        monkeypatch.undo()
