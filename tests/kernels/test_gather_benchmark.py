"""The GPU benchmark of gather and pool, rehearsed on a CPU: its logic, and that all give the same bags."""

from __future__ import annotations

import csv
import sys
from itertools import count
from pathlib import Path
from typing import Any

import gather
import pytest

torch = pytest.importorskip("torch")

from calibrate.cuda.cache import Kernel  # noqa: E402
from calibrate.cuda.gather_layout import RowAccess  # noqa: E402
from calibrate.cuda.gather_pool import gather_kernel  # noqa: E402

SMALL = {"DEVICE": "cpu", "LEAST_S": 1e-5, "REPLAYS": 3, "SET_BYTES": 2**12}
SMALL |= {"ROWS": (500,), "BATCHES": (8,), "POOLINGS": (1, 4), "ALPHAS": (0.0, 1.15)}


def kernels() -> list[Kernel]:
    """For rows of 32 and of 128 columns."""
    shapes = RowAccess(8, 1, 16), RowAccess(32, 1, 16)
    return sorted(gather_kernel(shape, "fp32", long=long) for shape in shapes for long in (False, True))


@pytest.mark.usefixtures("built")
def test_every_cell_is_measured_and_compared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """8 cells, on a CPU whose replays take made-up times, no two the same."""
    turns = count(1)

    def graph_of(_: Any, call: Any, sets: int, rounds: int) -> Any:
        return lambda: [call(turn % sets) for turn in range(min(rounds * sets, 4))]

    changes = {**SMALL, "graph_of": graph_of, "replayed_s": lambda _, graph: (graph(), 1e-5 * next(turns))[1]}
    for name, value in {**changes, "make_fbgemm": lambda *_: None}.items():
        monkeypatch.setattr(gather, name, value)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a CPU that stands in")
    monkeypatch.setattr(sys, "argv", ["gather.py", "--out", str(tmp_path / "gather.csv")])
    gather.main()
    text = capsys.readouterr().out
    rows = list(csv.DictReader((tmp_path / "gather.csv").read_text(encoding="utf-8").splitlines()))
    assert len(rows) == 2 * 2 * 2 * 2  # D, alpha, L, implementation
    assert {row["wrong"] for row in rows} == {"0"}
    assert "WRONG" not in text and "beside torch: geometric mean" in text
    cell = next(row for row in rows if row["dim"] == "32" and row["pooling"] == "4")
    assert int(cell["bytes"]) == 32 * (128 + 8) + 9 * 8 + 8 * 128
