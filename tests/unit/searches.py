"""Searches for plans in tests: what is asked again and again is searched once, on a clock of one's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from perfmodel.plan.searching.search import Search


def counted_clock(patch: pytest.MonkeyPatch) -> None:
    """A look at the clock takes 5 ms, whatever the machine: a search does the same work on all of them."""
    looks = count()
    clock = SimpleNamespace(monotonic=lambda: 0.005 * next(looks))
    for module in ("plan.searching.search", "plan.searching.tiered_search"):
        patch.setattr(f"perfmodel.{module}.time", clock)


@contextmanager
def searched_once() -> Iterator[None]:
    """A second search of the same question, with the same seed and time, gives the plan of the first one."""
    found: dict[Any, Any] = {}
    run = Search.run

    def known(search: Search) -> Any:
        question = _question(search)
        if question not in found:
            answer = run(search)
            assert search.best is not None
            found[question] = answer, search.best.copy()
        answer, best = found[question]
        search.best = best.copy()
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Search, "run", known)
        yield


def _question(search: Search) -> tuple[Any, ...]:
    """All that a search depends on: what there is to choose, what loads take, and how it looks."""
    o, tables = search.options, search.evaluator.tables
    arrays = [value for _, value in sorted(vars(o).items()) if isinstance(value, np.ndarray)]
    loads = 10.0 ** np.arange(0, 13, 3)[:, np.newaxis] * np.ones(o.average.shape[1])
    return (
        *(value.tobytes() for value in (*arrays, search.evaluator.step_times(loads))),
        (tables.names, o.gpus, o.domain, search.evaluator.setting.machine.name),
        (search.limit_bytes, round(search.deadline - search.began, 6), search.restricted),
        (str(search.random.bit_generator.state), Search._near),
    )
