"""The GPU benchmark of gather and pool, rehearsed on a CPU: its logic, and that all give the same bags."""

from __future__ import annotations

import csv
import importlib.util
import sys
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import gather_cells
import pytest

torch = pytest.importorskip("torch")

from gather_kernels import PLAIN  # noqa: E402

from calibrate.cuda import gather_variants  # noqa: E402
from calibrate.cuda.gather_layout import RowAccess  # noqa: E402
from calibrate.cuda.kernel import Kernel  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]


def kernels() -> list[Kernel]:
    """Every variant for rows of 32 columns, and the kernels of the other rows and samples."""
    narrow, wide = RowAccess(8, 1, 16), RowAccess(32, 1, 16)
    made = [PLAIN.kernel(narrow, "fp32", variant) for variant in gather_variants.VARIANTS]
    return sorted({*made, PLAIN.kernel(wide, "fp32")})


pytestmark = pytest.mark.usefixtures("built")


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("gather_benchmark", ROOT / "benchmarks" / "gather.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "gather_benchmark", made)
    spec.loader.exec_module(made)
    for name, value in {"DEVICE": "cpu", "COPY_BYTES": 2**16, "LEAST_S": 1e-5, "REPLAYS": 3}.items():
        monkeypatch.setattr(made, name, value)
    grid = {"SET_BYTES": 2**12, "BATCHES": (8,), "POOLINGS": (1, 4), "ALPHAS": (0.0, 1.15)}
    for name, value in grid.items():
        monkeypatch.setattr(gather_cells, name, value)

    def graph_of(_: Any, call: Any, sets: int, rounds: int) -> Any:
        return lambda: [call(turn % sets) for turn in range(min(rounds * sets, 4))]

    turns = count(1)

    def replayed_s(_: Any, graph: Any) -> float:
        """Made up: no two are the same."""
        graph()
        return 1e-5 * next(turns)

    monkeypatch.setattr(made, "graph_of", graph_of)
    monkeypatch.setattr(made, "replayed_s", replayed_s)
    monkeypatch.setattr(made, "_fbgemm", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a CPU that stands in")
    monkeypatch.setenv("PERFMODEL_HOME", str(tmp_path))
    return made


def test_every_cell_is_measured_and_compared(
    benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "gather.csv"
    monkeypatch.setattr(sys, "argv", ["gather.py", "--rows", "500", "--out", str(out)])
    benchmark.main()
    text = capsys.readouterr().out
    with out.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * 2 * 2  # D, alpha, L, implementation
    assert {row["wrong"] for row in rows} == {"0"}
    assert "WRONG" not in text and "beside torch: geometric mean" in text
    one = next(row for row in rows if row["dim"] == "32" and row["pooling"] == "4")
    assert int(one["bytes"]) == 32 * (128 + 8) + 9 * 8 + 8 * 128


def test_every_variant_is_timed_for_the_launcher(
    benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / gather_variants.TABLE_NAME
    for name, value in {"POOLINGS": (4,), "DIMS": (32,)}.items():
        monkeypatch.setattr(gather_cells, name, value)
    monkeypatch.setattr(sys, "argv", ["gather.py", "--rows", "500", "--variants", str(path)])
    benchmark.main()
    assert "WRONG" not in capsys.readouterr().out
    timed = gather_variants.read_table(path)
    want = {(alpha, one.name) for alpha in (0.0, 1.15) for one in gather_variants.VARIANTS}
    assert {(one.alpha, one.variant) for one in timed} == want and len(timed) == len(want)
    shape = gather_variants.GatherShape("fp32", 8, 128, 500 * 128, 8, 4.0)
    uniform = [one for one in timed if one.alpha == 0]
    fastest = min(uniform, key=lambda one: one.time_s).variant
    assert gather_variants.best_variant("a CPU that stands in", shape, uniform).name == fastest


def test_wrong_bags_are_shown_and_fail(
    benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        benchmark, "GOALS", {**benchmark.GOALS, "floor": 1e9, "geometric mean": 0.0, "slowest cell": 0.0}
    )
    monkeypatch.setattr(sys, "argv", ["gather.py", "--rows", "500"])
    assert benchmark.main() == 0
    capsys.readouterr()
    real = torch.nn.functional.embedding_bag
    monkeypatch.setattr(torch.nn.functional, "embedding_bag", lambda *a, **k: real(*a, **k) + 1)
    assert benchmark.main() == 1
    assert "WRONG" in capsys.readouterr().out


def test_without_a_gpu_nothing_is_claimed(
    benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["gather.py"])
    assert benchmark.main() == 4
    assert "nothing was measured" in capsys.readouterr().err


def test_a_cut_leaves_a_part_of_every_table(
    benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each cell takes a second of a made-up clock; there is time for half of them."""
    clock = [0.0]
    monkeypatch.setattr(benchmark.time, "monotonic", lambda: clock[0])
    real = benchmark.measure

    def slow(*args: Any, **more: Any) -> Any:
        clock[0] += 1
        return real(*args, **more)

    monkeypatch.setattr(benchmark, "measure", slow)
    out = tmp_path / "gather.csv"
    words = ["gather.py", "--rows", "500", "--report", "--minutes", f"{4 / 60}", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", words)
    assert benchmark.main() == 0
    assert "4 of 8 cells left out" in capsys.readouterr().err
    with out.open(encoding="utf-8") as file:
        assert {row["dim"] for row in csv.DictReader(file)} == {"32", "128"}


def test_the_grid_reaches_a_shard_of_80_gb_and_both_row_types() -> None:
    every = [cell for of_table in gather_cells.cells(gather_cells.ROWS, more=True) for cell in of_table]
    assert len(every) == len(set(every))
    assert {cell.dim for cell in every} == {32, 64, 128, 256}
    assert {cell.pooling for cell in every} == {1, 4, 16, 64}
    assert {cell.dtype for cell in every} == {"fp32", "fp16"}
    assert max(cell.table_bytes for cell in every) == 51_200_000_000
    assert sum(map(len, gather_cells.cells(gather_cells.ROWS))) == 108  # cuEmbed's
    small = gather_cells.cells(gather_cells.ROWS, more=True, scale=10**5)
    assert max(cell.table_bytes for of_table in small for cell in of_table) < 10**6
