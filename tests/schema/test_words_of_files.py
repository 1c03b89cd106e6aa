"""What is said of logs, calibrations and tables that cannot be read as they are, or only in part."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from oracles.made_logs import line, write

from perfmodel.schema.files import cell

HEAD = "gpu,collective,payload_bytes,gpus,gpus_per_node,time_s"
BOX = ("--machine", "h200-sxm-ib")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", "bytes,n,seconds\n1024,8,1e-5\n", "no column collective, payload_bytes, gpus, time_s"),
        ("a.csv", "collective,size,gpus,time_s\nall_gather,1024,8,1e-5\n", "no column payload_bytes;"),
        ("a.log", "collective,size,gpus,time_s\n", "no column payload_bytes; it has collective, size"),
    ],
)
def test_a_csv_of_other_columns_says_what_it_has_and_what_it_needs(
    cli: Any, tmp_path: Path, name: str, text: str, said: str
) -> None:
    refused = cli("import", str(write(tmp_path, name, text)), *BOX)
    words = " ".join(refused.err.split())
    assert refused.code == 2 and f"{name}: {said}" in words
    assert "CSV with the columns collective, payload_bytes, gpus and time_s" in words


def test_one_reason_of_many_lines_is_said_once(cli: Any, tmp_path: Path) -> None:
    rows = [line(2**k, 20.0, op="alltoall") for k in range(12, 19)]
    log = write(tmp_path, "x.log", "\n".join(rows))
    refused = cli("import", str(log), *BOX)
    words = " ".join(refused.err.split())
    assert refused.code == 2 and words.count("which collective it is") == 1, refused.err
    assert "7 lines, x.log:1 the first: the log does not say which collective it is" in words


def test_every_reason_for_not_fitting_a_sample_has_its_number(cli: Any, tmp_path: Path) -> None:
    """Out of place, in place, once more, and of another variant, which reaches less: on lines of the page."""
    head = f"{HEAD},in_place,variant,library_version"
    rows = [
        f"NVIDIA H200,all_gather,{2**k},8,8,{1e-5 + 2**k / 3e11},{{}},{{}},2.29.7-long-name"
        for k in range(12, 25)
    ]
    lines = [row.format(where, "default") for where in ("false", "true") for row in rows]
    lines += [rows[0].format("false", "default")] + [row.format("false", "warp") for row in rows[:5]]
    outcome = cli("import", str(write(tmp_path, "ag.csv", "\n".join([head, *lines]))), *BOX)
    assert outcome.code == 0, outcome.err
    first = " ".join(outcome.out.split("\n\n")[0].split())
    assert first.startswith("32 samples of nccl")
    assert first.endswith("13 fitted, 13 in place, 1 duplicate, 5 of another variant, type or collective")
    assert max(map(len, outcome.out.splitlines())) <= 100


@pytest.mark.parametrize("command", ["project", "plan"])
def test_a_file_of_tables_is_a_model(cli: Any, tmp_path: Path, command: str) -> None:
    path = write(tmp_path, "mine.csv", "rows,dim,pooling\n1000,64,2\n")
    refused = cli(command, "--tables", str(path), "--gpus", "8")
    assert refused.code == 2 and "--model" in refused.err


def test_names_that_a_spreadsheet_would_run(cli: Any, tmp_path: Path) -> None:
    names = ["=cmd|' /C calc'!A0", "@SUM(A1)", "+1+cmd|x", "-2+3", "-A1", "plain", "x-1"]
    assert [cell(name) for name in names] == [f"'{name}" for name in names[:5]] + names[5:]
    tables = json.dumps({"tables": [{"rows": 1000, "dim": 8, "pooling": 1}]})
    file, out = write(tmp_path, "=1+1.json", tables), tmp_path / "s.csv"
    assert cli("sweep", "--model", str(file), "--gpus", "2", "--out", str(out)).code == 0
    assert next(csv.DictReader(out.read_text().splitlines()))["model"].startswith("'=1+1")
    numbers = ("-12.5", "+3 %", "-1e-05", "+4.5 µs", "-∞ s", "-3 GB/s", "-", "+1.5×")
    assert [cell(text) for text in numbers] == [text if text != "-" else "'-" for text in numbers]
