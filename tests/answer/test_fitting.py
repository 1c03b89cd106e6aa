"""What a GPU holds: rows and buffers as a plan counts them; what does not fit is marked and not advised."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracles.alpha_beta import AlphaBeta, one

from perfmodel.answer import Answer, prepare, project_one
from perfmodel.answer.ranking import answer_question, answer_shardings, find_fastest
from perfmodel.answer.what_would_help import list_helping
from perfmodel.engine import basis
from perfmodel.engine.cost import Evaluator
from perfmodel.engine.grid import count_memory
from perfmodel.engine.placement import uniform_plan
from perfmodel.engine.schemes import Exchange
from perfmodel.engine.tables import PlanTables
from perfmodel.model import capacity
from perfmodel.schema.machine import load_machine

TABLES = Path(__file__).parents[1] / "cases" / "400-tables.csv"
H200 = load_machine("h200-sxm-ib").with_overrides({"hbm_bytes": 141e9})


def asked(**options: Any) -> Answer:
    return project_one(machine=H200, tables=str(TABLES), **options)


@pytest.mark.parametrize("options", [{}, {"payload": "fp16"}])
@pytest.mark.parametrize("gpus", [1, 24, 40, 64])
def test_a_projection_holds_what_the_plan_of_it_holds(gpus: int, options: dict[str, Any]) -> None:
    """Row-wise as a plan, counted rank by rank by the planner: within a row of each table."""
    p = asked(gpus=max(gpus, 27), batch=4096, reserve=0, **options)
    box = H200
    tables = PlanTables.load(str(TABLES))
    evaluator = Evaluator.on(box, tables, 4096, p.gpus, **options)
    memory = evaluator.memory(uniform_plan(tables, "row-wise", p.gpus, evaluator.domain))
    assert p.gpu_count.rows_bytes == pytest.approx(float(memory.rows_bytes.max()), rel=1e-5)
    assert p.gpu_count.buffer_bytes == pytest.approx(float(memory.buffer_bytes.max()), rel=1e-9)


@pytest.mark.parametrize("batch", [256, 4096, 8192])
def test_the_default_number_of_gpus_is_the_fewest_whole_nodes_that_fit(batch: int) -> None:
    basis, work = prepare(None, H200, tables=str(TABLES), batch=batch)
    counts = np.arange(8.0, 1024.0, 8.0)
    each = {
        name: np.repeat(getattr(work, name), counts.size) for name in ("table_bytes", "batch", "id_bytes")
    }
    held = count_memory(basis, replace(work, gpus=counts, needed=counts, **each))
    good = counts[held.total_bytes <= 0.85 * 141e9]
    if good.size:
        assert work.gpus[0] == good[0]
    else:  # as many as the rows need, and said
        assert work.gpus[0] == 32
        assert any("does not fit" in note for note in asked(batch=batch).notes)


@pytest.mark.parametrize(("kind", "largest"), [(Exchange.RS, 25_963), (Exchange.RB, 13_116)])
def test_the_fewest_gpus_are_those_of_a_brute_force_up_to_the_largest_batch(
    kind: Exchange, largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the largest batch buffers and rows just fit; a sample more, and they fit no number of GPUs."""
    shape = {"table_bytes": 3.37227268e12, "pooling": 94, "dim": 32, "table_count": 115}
    counts = np.arange(48.0, 4000.0, 8.0)
    monkeypatch.setattr(basis, "list_exchanges", lambda backend: (kind,))
    for batch in (largest - 500, largest, largest + 1):
        _, work = prepare(None, "h100-sxm-ib", **shape, batch=batch)
        known = {**shape, "batch": np.full(counts.size, batch), "gpus": counts}
        held = count_memory(*prepare(None, "h100-sxm-ib", **known))
        good = counts[capacity.check_fits(held.total_bytes, work.usable_bytes)]
        assert good.size == 0 if batch > largest else good[0] >= 80
        assert work.gpus[0] == (good[0] if good.size else 48)


def test_what_does_not_fit_says_by_how_much_and_what_would() -> None:
    p = asked(gpus=64, batch=65536)
    assert p.gpu_count.memory_bytes == pytest.approx(710e9, rel=0.01)
    assert not p.gpu_count.fits and p.to_dict()["fits"] is False
    (said,) = [note for note in p.notes if "does not fit" in note]
    assert "a batch of at most 6 938" in said
    assert asked(gpus=64, batch=6938).gpu_count.fits and not asked(gpus=64, batch=6939).gpu_count.fits
    few = asked(gpus=24, batch=4096)
    (said,) = [note for note in few.notes if "does not fit" in note]
    assert f"{few.gpu_count.needed} GPUs or more" in said
    assert asked(gpus=few.gpu_count.needed, batch=4096).gpu_count.fits
    assert not asked(gpus=few.gpu_count.needed - 1, batch=4096).gpu_count.fits


def test_nothing_that_does_not_fit_is_advised() -> None:
    few = asked(gpus=24, batch=4096)
    assert not any(way.fits for way in answer_shardings(few))
    slow = AlphaBeta(alpha=1e-3, beta=1e15)  # latency rules: four times the batch is four times the samples
    tight, loose = (
        one(slow, gpus=16, table_bytes=16 * size, batch=10_000, reserve=0.15) for size in (67.95e9, 60e9)
    )
    assert tight.gpu_count.fits and loose.gpu_count.fits
    assert not any("--batch" in change.option for change in list_helping(tight.pinned, answer_question))
    assert any("--batch" in change.option for change in list_helping(loose.pinned, answer_question))
    assert find_fastest(answer_shardings(asked(gpus=64, batch=4096))).fits


def test_tables_that_fill_the_memory_leave_room_for_the_buffers() -> None:
    """Of 4, 2, 1 and half as many bytes as the buffers: 3 and 1; where none are left, all of it."""
    asked = {"gpus": 8, "batch": 4096, "reserve": 0}
    buffers = float(count_memory(*prepare(None, H200, **asked)).buffer_bytes[0])
    for memory, held in ((4, 3), (2, 1), (1, 1), (0.5, 0.5)):
        _, work = prepare(None, H200, overrides={"hbm_bytes": memory * buffers}, **asked)
        assert work.table_bytes[0] == pytest.approx(8 * held * buffers)
