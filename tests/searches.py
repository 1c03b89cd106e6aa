"""Searches for plans in tests: what is asked again and again is searched once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from typing import Any

import numpy as np
import pytest

from perfmodel.answer.question import Question
from perfmodel.effort import EFFORTS
from perfmodel.engine.tables import PlanTables
from perfmodel.plan.choices.constraints import parse_rules
from perfmodel.plan.question import PlanQuestion
from perfmodel.plan.searching.search import Search
from perfmodel.schema.table_files import load_tables
from perfmodel.schema.workload import Table, TableSet

_OF_PLAN = ("most_bytes", "for_torchrec", "sets", "effort_s")


def ask_plan(tables: Any, gpus: int, machine: Any = "h100-sxm-ib", **options: Any) -> PlanQuestion:
    """A question to the planner with little effort. options  of it, of ``Question``, and ``only``"""
    of_plan = {"effort_s": 0.1} | {name: options.pop(name) for name in _OF_PLAN if name in options}
    rules, total = parse_rules(options.pop("only", ())), options.pop("total", None)
    question = Question.of(load_tables(tables), machine, gpus=gpus, **{"batch": 1024, **options})
    return PlanQuestion(question=replace(question, total=total), rules=rules, **of_plan)


@contextmanager
def searched_once(kept: dict[Any, Any]) -> Iterator[None]:
    """A second search of the same question, with the same seed and effort, gives the first one's plan; a
    search of the command line has little effort.

    kept  the answers so far
    """
    run = Search.run

    def known(search: Search, *watch: Any) -> Any:
        question = _question(search)
        if question not in kept:
            answer = run(search, *watch)
            assert search.best is not None
            kept[question] = answer, search.best.copy()
        answer, best = kept[question]
        search.best = best.copy()
        return answer

    with pytest.MonkeyPatch.context() as patch:
        for name in ("quick", "normal"):  # the plan need not be the best
            patch.setitem(EFFORTS, name, 0.15)  # type: ignore[misc]
        patch.setattr(Search, "run", known)
        yield


def _question(search: Search) -> str:
    """Of all that a search depends on: what there is to choose, what loads take, and how it looks."""
    o, tables = search.options, search.evaluator.tables
    arrays = [value for _, value in sorted(vars(o).items()) if isinstance(value, np.ndarray)]
    loads = 10.0 ** np.arange(0, 13, 3)[:, np.newaxis] * np.ones(o.average.shape[1])
    settings = (
        (tables.names, o.gpus, o.domain, search.evaluator.setting.machine.name),
        (search.limit_bytes, search.budget.effort_s),
        str(search.random.bit_generator.state),
    )
    digest = sha256(repr(settings).encode())  # arrays of many options would fill the memory of a worker
    for array in (*arrays, search.evaluator.estimate_times(loads)):
        digest.update(f"{array.shape}{array.dtype}".encode() + array.tobytes())
    return digest.hexdigest()


def tables_of(*shapes: tuple[int, int, float]) -> PlanTables:
    """Tables of (rows, dim, pooling), named t0, t1 ..."""
    return PlanTables.of(TableSet("mine", tuple(Table(f"t{i}", *shape) for i, shape in enumerate(shapes))))


def equal_tables(*shapes: tuple[int, int, int, float]) -> PlanTables:
    """So many tables of each shape: (count, rows, dim, pooling)."""
    return tables_of(*(shape for count, *shape in shapes for _ in range(count)))  # type: ignore[arg-type]


def draw_tables(
    count: int, seed: int = 0, equal: int = 1, rows_log10: tuple[float, float] = (3, 6.5)
) -> PlanTables:
    """Tables of rows, widths and pooling drawn at random; ``equal`` of each."""
    random = np.random.default_rng(seed)
    rows = np.rint(10 ** random.uniform(*rows_log10, count)).astype(int)
    dim, pooling = random.choice([16, 32, 64, 128], count), np.round(10 ** random.uniform(0, 1.7, count), 2)
    shapes = [(int(E), int(D), float(L)) for E, D, L in zip(rows, dim, pooling, strict=True)]
    return tables_of(*(shape for shape in shapes for _ in range(equal)))
