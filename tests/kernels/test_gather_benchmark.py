"""The GPU benchmark of gather and pool, rehearsed on a CPU: its logic, and that all give the same bags."""

from __future__ import annotations

import csv
import sys
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import gather
import pytest

torch = pytest.importorskip("torch")

from calibrate.cuda.cache import Kernel  # noqa: E402
from calibrate.cuda.gather_layout import RowAccess  # noqa: E402
from calibrate.cuda.gather_pool import gather_kernel  # noqa: E402


def kernels() -> list[Kernel]:
    """For rows of 32 and of 128 columns."""
    shapes = RowAccess(8, 1, 16), RowAccess(32, 1, 16)
    return sorted(gather_kernel(shape, "fp32", long=long) for shape in shapes for long in (False, True))


pytestmark = pytest.mark.usefixtures("built")


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A grid of 8 cells, on a CPU whose replays take made-up times, no two the same."""
    small = {"DEVICE": "cpu", "COPY_BYTES": 2**16, "LEAST_S": 1e-5, "REPLAYS": 3, "SET_BYTES": 2**12}
    small |= {"ROWS": (500,), "BATCHES": (8,), "POOLINGS": (1, 4), "ALPHAS": (0.0, 1.15)}
    for name, value in small.items():
        monkeypatch.setattr(gather, name, value)
    turns = count(1)

    def graph_of(_: Any, call: Any, sets: int, rounds: int) -> Any:
        return lambda: [call(turn % sets) for turn in range(min(rounds * sets, 4))]

    def replayed_s(_: Any, graph: Any) -> float:
        graph()
        return 1e-5 * next(turns)

    monkeypatch.setattr(gather, "graph_of", graph_of)
    monkeypatch.setattr(gather, "replayed_s", replayed_s)
    monkeypatch.setattr(gather, "make_fbgemm", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a CPU that stands in")
    return gather


def test_every_cell_is_measured_and_compared(
    benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "gather.csv"
    monkeypatch.setattr(sys, "argv", ["gather.py", "--out", str(out)])
    benchmark.main()
    text = capsys.readouterr().out
    rows = list(csv.DictReader(out.read_text(encoding="utf-8").splitlines()))
    assert len(rows) == 2 * 2 * 2 * 2  # D, alpha, L, implementation
    assert {row["wrong"] for row in rows} == {"0"}
    assert "WRONG" not in text and "beside torch: geometric mean" in text
    cell = next(row for row in rows if row["dim"] == "32" and row["pooling"] == "4")
    assert int(cell["bytes"]) == 32 * (128 + 8) + 9 * 8 + 8 * 128


def test_a_cut_leaves_a_part_of_every_table(
    benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each cell takes a second of a made-up clock; there is time for half of them."""
    clock = [0.0]
    monkeypatch.setattr(benchmark.time, "monotonic", lambda: clock[0])
    real = benchmark.measure

    def measure_slowly(*args: Any) -> Any:
        clock[0] += 1
        return real(*args)

    monkeypatch.setattr(benchmark, "measure", measure_slowly)
    out = tmp_path / "gather.csv"
    monkeypatch.setattr(sys, "argv", ["gather.py", "--report", "--minutes", f"{4 / 60}", "--out", str(out)])
    assert benchmark.main() == 0
    assert "4 cells left out" in capsys.readouterr().err
    rows = csv.DictReader(out.read_text(encoding="utf-8").splitlines())
    assert {row["dim"] for row in rows} == {"32", "128"}


def test_the_grid_is_cuembeds_and_without_a_gpu_nothing_is_claimed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = [cell for of_table in gather.list_cells() for cell in of_table]
    assert len(cells) == len(set(cells)) == 108
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["gather.py"])
    assert gather.main() == 4
    assert "nothing was measured" in capsys.readouterr().err
