"""Sets of many different tables: the same sums as table by table, for little work more."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from perfmodel.answer import prepare, project_one, project_row_wise
from perfmodel.answer.ranking import answer_question
from perfmodel.answer.what_would_help import list_helping
from perfmodel.engine import grid
from perfmodel.engine.grid import build_times, choose_exchanges, cost_locally, count_loads, cut_tables
from perfmodel.engine.loads import sum_even_loads
from perfmodel.schema.workload import Table, TableSet


def set_of(count: int) -> TableSet:
    """Tables that all differ: a few rows to many, four widths, one to a hundred rows of a bag; two types."""
    draw = np.random.default_rng(7)
    rows = (10 + np.exp(draw.normal(10, 3, count))).astype(int) + np.arange(count)
    dims, poolings = draw.choice([16, 33, 64, 128], count), draw.integers(1, 100, count)
    each = enumerate(zip(rows, dims, poolings, strict=True))
    dtype = "fp16", "fp32"
    many = (Table(f"t{n}", int(r), int(d), float(p), dtype[n % 2]) for n, (r, d, p) in each)
    return TableSet("many", tuple(many))


@pytest.mark.parametrize("options", [{}, {"distribution": "zipf:1.05"}])
def test_tables_side_by_side_are_the_sum_of_each(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    monkeypatch.setattr(grid, "STACK", 32)  # a few tables at a time
    basis, work = prepare(None, "h100-sxm-ib", tables=set_of(30), gpus=[8, 64, 128], **options)
    kinds = choose_exchanges(basis, work)
    cuts = [cut_tables(basis, work, kinds, slice(n, n + 1)) for n in range(30)]
    alone = [sum_even_loads(*cut) for cut in cuts]
    loads, times = count_loads(basis, work, kinds), build_times(basis, work)
    assert loads == pytest.approx(np.sum(alone, axis=0))
    launches = (loads[:, times.groups] > 0).sum(axis=1)  # of two types, from 64 GPUs on also copies of one
    assert launches.tolist() == [2, 3, 3] and loads.shape[1] == times.groups.stop
    (alone_s,) = {step.timing.floor_s.max() for step in cost_locally(basis, work).steps}
    assert alone_s == 2 * basis.numbers["launch_floor_s"]


def test_each_configuration_has_its_own_evidence() -> None:
    """Of 4, 8 and 16 GPUs the reduce-scatter, most of the time, is transferred, measured and extrapolated."""
    gpus = [4, 8, 16]
    long = {"batch": 262144, "pooling": 0.01, "dim": 1024}
    together = project_row_wise({"table_bytes": [1e9] * 3}, gpus=gpus, **long)["main_evidence"].tolist()
    alone = [project_row_wise({"table_bytes": [1e9]}, gpus=[count], **long) for count in gpus]
    assert together == [frame["main_evidence"].item() for frame in alone] and len(set(together)) == 3


def calls_of(tables: TableSet) -> int:
    """Python functions that everything calls which ``project`` prints."""
    calls = 0

    def saw(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(saw)
    assert list_helping(project_one(tables=tables, gpus=128).pinned, answer_question)
    sys.setprofile(None)
    return calls


def test_a_table_more_is_little_work() -> None:
    """Most is done for all tables at once: about 90 calls for one more, and 45 000 for one alone."""
    project_row_wise(tables=set_of(10), gpus=128)  # curves are read once
    few, many = calls_of(set_of(1000)), calls_of(set_of(2000))
    assert few < many < few + 120 * 1000
