"""``benchmarks/one_core.py``: its plans are what the shipped model costs; without a GPU it exits with 4."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from calibrate.cuda.one_core_plan import WAYS, Item, TableShape, fitted
from perfmodel.errors import BadInputError
from perfmodel.onechip.layout import layout
from perfmodel.onechip.work import Way
from perfmodel.schema.chip import load_chip
from perfmodel.schema.distributions import ONE_ROW

_SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "one_core.py"
_SPEC = importlib.util.spec_from_file_location("benchmark_one_core", _SCRIPT)
assert _SPEC is not None and _SPEC.loader is not None
one_core = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(one_core)

SHAPES = [
    TableShape(300, 32, 4, 3.0),
    TableShape(40, 64, 4, 1.0),
    TableShape(5000, 16, 4, 2.0),
    TableShape(300, 32, 4, 3.0),
]
CHIP = load_chip("h200-sxm").with_overrides({"cores": 6})
ROOM = int(CHIP.value("local_bytes")) - one_core.KERNEL_BYTES


def test_the_model_counts_the_rows_and_passes_of_the_kernel() -> None:
    whole = one_core.Predicted(CHIP, SHAPES, 512, ROOM).whole
    kept = 0
    for shape in SHAPES:
        for way in WAYS:
            for bags in (7, 700, 5000):
                try:
                    item = fitted(shape, Item(0, way, 0, bags, 0, shape.dim), ROOM, whole)
                except BadInputError:
                    continue
                at = Way[way.replace("-", "_")]
                row = shape.dim * shape.element_bytes
                lay = layout(CHIP, at, shape.rows, row, shape.dim, bags, shape.pooling, ROOM)
                assert int(lay.resident) == item.resident_rows
                assert (max(item.passes, 1), item.chunk_rows) == (int(lay.passes), int(lay.chunk_rows))
                assert int(lay.local_bytes + lay.vector_bytes) == item.shared_bytes(shape.element_bytes)
                kept += way == "L1-UB" and item.chunk_rows == 0
    assert kept


def test_a_plan_takes_as_long_as_its_busiest_core_or_longer() -> None:
    predicted = one_core.Predicted(CHIP, SHAPES, 512, ROOM)
    made = one_core.plans(SHAPES, 512, CHIP.cores, ROOM, predicted)
    assert list(made) == [*WAYS, "cheapest way", one_core.OWNED]
    batches = {name: predicted.plan(plan, in_order=name != one_core.OWNED) for name, plan in made.items()}
    for name, plan in made.items():
        assert batches[name].seconds >= batches[name].core_s.max() * (1 - 1e-9)
        assert batches[name].core_s.shape == (CHIP.cores,)
        assert sum(item.bags * item.columns for own in plan.cores for item in own) == 512 * (
            32 + 64 + 16 + 32
        )
    loads = made[one_core.OWNED].loads(SHAPES, predicted.item_s)
    assert batches[one_core.OWNED].core_s == pytest.approx(loads)
    assert batches[one_core.OWNED].seconds < batches["GM"].seconds


def test_one_row_is_another_prediction_than_uniform_ids() -> None:
    item = Item(2, "GM", 0, 512, 0, 16)
    hot, even = (
        one_core.Predicted(CHIP, SHAPES, 512, ROOM, *ids).item_s(SHAPES[2], item) for ids in ((ONE_ROW,), ())
    )
    assert np.isfinite([hot, even]).all() and hot != even


def test_without_a_gpu_nothing_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    torch = ModuleType("torch")
    torch.cuda = SimpleNamespace(is_available=lambda: False)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(sys, "argv", ["one_core.py", "--most-rows", "40", "--batch", "256"])
    assert one_core.main() == 4
    said = capsys.readouterr()
    assert "NOTHING WAS MEASURED" in said.err
    assert "predicted for the 132 cores of h200-sxm" in said.out and "perfmodel chips h200-sxm" in said.out
    assert [line.split()[0] for line in said.out.splitlines()[4:8]] == list(WAYS)
