"""What a GPU holds, and the fewest GPUs that hold the tables."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dealt_plan import uniform_plan
from oracles.alpha_beta import AlphaBeta, one

from perfmodel.answer import Answer, prepare, project_one
from perfmodel.answer.ranking import (
    RUN,
    answer_question,
    answer_shardings,
    find_enough,
    find_fastest,
    plan_shardings,
    rank,
)
from perfmodel.answer.uniform_plans import UniformPlans
from perfmodel.answer.what_would_help import list_helping
from perfmodel.engine import basis
from perfmodel.engine.cost import Evaluator
from perfmodel.engine.grid import count_memory
from perfmodel.engine.schemes import Exchange
from perfmodel.engine.tables import PlanTables
from perfmodel.model import capacity
from perfmodel.model.capacity import gpus_needed, list_allowed_gpus
from perfmodel.schema.machine import load_machine

TABLES = str(Path(__file__).parents[1] / "cases" / "400-tables.csv")
H200 = load_machine("h200-sxm-ib").with_overrides({"hbm_bytes": 141e9})


def asked(**options: Any) -> Answer:
    return project_one(machine=H200, tables=TABLES, **options)


@pytest.mark.parametrize("options", [{}, {"payload": "fp16"}])
@pytest.mark.parametrize("gpus", [1, 24, 40, 64])
def test_a_projection_holds_what_the_plan_of_it_holds(gpus: int, options: dict[str, Any]) -> None:
    """Row-wise as a plan, counted rank by rank by the planner: within a row of each table."""
    p = asked(gpus=max(gpus, 27), batch=4096, reserve=0, **options)
    tables = PlanTables.load(TABLES)
    evaluator = Evaluator.on(H200, tables, 4096, p.gpus, **options)
    memory = evaluator.cost(uniform_plan(tables, "row-wise", p.gpus, evaluator.domain)).memory
    assert p.gpu_count.rows_bytes == pytest.approx(float(memory.rows_bytes.max()), rel=1e-5)
    assert p.gpu_count.buffer_bytes == pytest.approx(float(memory.buffer_bytes.max()), rel=1e-9)


@pytest.mark.parametrize("batch", [256, 4096, 8192])
def test_the_default_number_of_gpus_is_the_fewest_whole_nodes_that_fit(batch: int) -> None:
    basis, work = prepare(None, H200, tables=TABLES, batch=batch)
    counts, names = np.arange(8.0, 1024.0, 8.0), ("table_bytes", "batch", "id_bytes")
    each = {name: np.repeat(getattr(work, name), counts.size) for name in names}
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


MANY = {"table_bytes": 10e12, "table_count": 300, "dim": 128, "pooling": 20, "machine": "h200-sxm-ib"}
ASKED: tuple[dict[str, Any], ...] = (
    MANY,
    MANY | {"batch": 8192},
    {"table_bytes": 4e12, "table_count": 40, "batch": 16384, "dim": 64},  # parts in powers of two leave gaps
    {"table_bytes": 300e9, "table_count": 9, "batch": 20_000, "dim": 256},  # inside a node
    {"table_bytes": 3e12, "table_count": 150, "dim": 64, "machine": "gb200-nvl72", "batch": 60_000},
    {"tables": TABLES, "machine": "h200-sxm-ib", "batch": 8192},
    {"tables": "mlperf-dlrm-dcnv2", "batch": 300_000},
)


def fits(base: Answer, ways: tuple[str, ...] = RUN) -> bool:
    return any(each.fits for each in answer_shardings(base, ways))


def brute_force(asked: dict[str, Any], base: Answer, ways: tuple[str, ...] = RUN) -> int | None:
    """The smallest number that one of the ways fits, of all that one can have up to four times as many."""
    count = base.gpu_count
    least = int(gpus_needed(count.table_bytes, count.usable_bytes, 0.0))
    for gpus in list_allowed_gpus(least, 4 * base.gpus, count.gpus_per_node):
        if fits(project_one(**asked, gpus=gpus), ways):
            return gpus
    return None


@pytest.mark.parametrize("asked", ASKED)
def test_the_best_way_is_on_the_fewest_gpus(asked: dict[str, Any]) -> None:
    base = project_one(**asked)
    found = rank(base).base
    assert found.gpus == brute_force(asked, base)
    assert found.gpu_count.needed <= found.gpus and found.totals["gpus_needed"] <= found.gpus
    given = rank(project_one(**asked, gpus=found.gpus))
    assert given.best and given.answer.gpu_count.needed <= found.gpus


@pytest.mark.parametrize("reserve", [0.15, 0.0])
@pytest.mark.parametrize(
    ("table_bytes", "batch"), [(560e9, 64), (620e9, 1024), (560e9, 4_000_000), (400e9, 2**25), (577e9, 2**18)]
)
def test_what_would_fit_fits(table_bytes: float, batch: int, reserve: float) -> None:
    """On 8 GPUs of 80 GB: memory in reserve, GPUs, and the largest batch, each only where it helps."""
    asked: dict[str, Any] = {"table_bytes": table_bytes, "batch": batch, "gpus": 8, "reserve": reserve}
    answer = project_one(**asked)
    (said,) = [note for note in answer.notes if "does not fit" in note] or [""]
    assert bool(said) != answer.fits
    assert ("--set reserve=0" in said) == (not answer.fits and project_one(**asked | {"reserve": 0.0}).fits)
    if match := re.search(r"(\d+) GPUs or more", said):
        assert project_one(**asked | {"gpus": int(match[1])}).fits
    smaller = re.search(r"a batch of at most (\d[\d ]*)", said)
    assert bool(smaller) == (not answer.fits and project_one(**asked | {"batch": 1}).fits)
    if smaller:
        most = int(smaller[1].replace(" ", ""))
        assert project_one(**asked | {"batch": most}).fits and most < batch
        assert not project_one(**asked | {"batch": most + max(most // 100, 1)}).fits


@pytest.mark.parametrize("way", ["column-wise", "row-wise", "grid", "table-row-wise"])
@pytest.mark.parametrize("asked", ASKED[1:5])
def test_a_way_that_is_asked_for_is_on_the_fewest_gpus(asked: dict[str, Any], way: str) -> None:
    base = project_one(**asked)
    found, good = find_enough((base, fits(base, (way,))), partial(fits, ways=(way,)), bool)
    assert (found.gpus if good else None) == brute_force(asked, base, (way,))


@pytest.mark.parametrize("asked", ASKED)
def test_what_is_passed_over_fits_nothing(asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """No sharding without a bound fits where every scheme is packed."""
    base = project_one(**asked)
    count = base.gpu_count
    gpus = list_allowed_gpus(count.for_rows, 2 * base.gpus, count.gpus_per_node)[:8]
    bases = [project_one(**asked, gpus=number) for number in gpus]
    bounded = [plan_shardings(more).bound_times(RUN)[0] for more in bases]
    assert any(len(bounds) < len(RUN) for bounds in bounded)
    monkeypatch.setattr(UniformPlans, "_select_fitting", lambda self, schemes: list(schemes))
    for more, bounds in zip(bases, bounded, strict=True):
        assert not fits(more, tuple(way for way in RUN if way not in bounds)), (more.gpus, bounds)
