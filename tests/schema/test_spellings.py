"""What looks right and means something else: it is refused, and the message says what was found."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from oracles.made_logs import HEADER_NEW, line, new_log, write

from calibrate.importers import import_logs
from calibrate.machine.identity import shipped_with
from perfmodel.errors import BadInputError
from perfmodel.schema.files import cell

SIZES = [2**k for k in range(12, 24)]


def unnamed(op: str) -> str:
    """A log whose first lines are lost: it does not say which collective it is of."""
    rows = [line(size, 20 + size / 3e5, op=op) for size in SIZES]
    ranks = [text for text in new_log(rows, op=op).splitlines() if "Rank" in text]
    return "\n".join([*ranks, HEADER_NEW, *rows])


@pytest.mark.parametrize(("log", "op"), [("alltoall", "reduce_scatter"), ("reduce_scatter", "alltoall")])
def test_a_log_of_another_collective(tmp_path: Path, log: str, op: str) -> None:
    path = write(tmp_path, "x.log", unnamed(log))
    with pytest.raises(BadInputError, match="wrong collective"):
        import_logs([path], op=op)
    assert len(import_logs([path], op=log).samples) == 2 * len(SIZES)


@pytest.mark.parametrize("gpu", ["NVIDIA H800", "NVIDIA X900", "NVIDIA H100 PCIe"])
def test_an_unknown_gpu_is_not_an_h100(cli: Any, tmp_path: Path, gpu: str) -> None:
    assert shipped_with(gpu) == []
    own = gpu.removeprefix("NVIDIA ")
    rows = [line(size, 20 + size / 3e5) for size in SIZES]
    path = write(tmp_path, "ag.log", new_log(rows).replace("NVIDIA H200", gpu))
    refused = cli("import", str(path), "--machine", "h100-sxm-ib")
    assert refused.code == 2 and own in refused.err and "--force" in refused.err
    assert cli("import", str(path)).code == 2
    forced = cli("import", str(path), "--machine", "h100-sxm-ib", "--force")
    assert forced.code == 0 and f"warning: the logs are of {own}" in forced.err


def test_a_csv_with_semicolons(cli: Any, tmp_path: Path) -> None:
    log = write(tmp_path, "ag.csv", "collective;payload_bytes;gpus;time_s\nall_gather;1024;8;1e-5\n")
    refused = cli("import", str(log), "--machine", "h200-sxm-ib")
    assert refused.code == 2 and "semicolons between its fields" in refused.err


def test_names_that_a_spreadsheet_would_run(cli: Any, tmp_path: Path) -> None:
    names = ["=cmd|' /C calc'!A0", "@SUM(A1)", "+1+cmd|x", "-2+3", "-A1", "plain", "x-1"]
    document = {"tables": [{"name": name, "rows": 1000, "dim": 8, "pooling": 1} for name in names]}
    path = write(tmp_path, "t.json", json.dumps(document))
    made = cli("plan", "--model", str(path), "--gpus", "2", "--effort", "quick", "--csv")
    found = [row["table"] for row in csv.DictReader(io.StringIO(made.out))]
    assert found == [f"'{name}" for name in names[:5]] + names[5:]
    numbers = ("-12.5", "+3 %", "-1e-05", "+4.5 µs", "-∞ s", "-3 GB/s", "-", "+1.5×")
    assert [cell(text) for text in numbers] == [text if text != "-" else "'-" for text in numbers]
