"""What a bound knows of memory that pieces need while they work."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.onechip.bound import lower_bound
from perfmodel.onechip.choices import Choices
from perfmodel.onechip.packing import MappingState

CLOSE = 1 + 1e-5
CAPACITY = 100.0


def one_piece_or_spread(piece_s: list[float], spread_s: list[float], local: list[float]) -> Choices:
    """Two cores; each table spread, or whole on one of them."""
    tables = len(piece_s)
    both = np.column_stack([spread_s, np.zeros(tables)]).reshape(-1)
    return Choices(
        cores=2,
        capacity=CAPACITY,
        kind_of=np.arange(tables),
        count=np.ones(tables, dtype=np.int64),
        first=2 * np.arange(tables + 1),
        spread_s=both,
        shared_s=np.zeros((2 * tables, 1)),
        alone_s=np.zeros(2 * tables),
        hot_s=np.zeros((2 * tables, 1)),
        parts=np.repeat(np.arange(tables + 1), 2)[:-1],
        number=np.ones(tables, dtype=np.int64),
        core_s=np.array(piece_s),
        local=np.array(local),
        vector=np.zeros(tables),
        wait_s=np.zeros(2 * tables),
        chance_s2=np.zeros((2 * tables, 1)),
    )


def least_of_all(case: Choices) -> float:
    """Every table spread, or on either core, where all have room."""
    best = np.inf
    for where in product((-1, 0, 1), repeat=case.count.size):
        state = MappingState(case)
        for table, core in enumerate(where):
            state.put(table, 2 * table + (core >= 0), [np.array([core])] if core >= 0 else [])
        if np.all(state.local + state.vector <= case.capacity * CLOSE):
            best = min(best, state.time_s)
    return best


@given(st.integers(0, 10**9))
@settings(max_examples=12, deadline=None)
def test_a_bound_with_memory_for_work_is_never_too_high(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tables = int(rng.integers(1, 5))
    piece_s = rng.uniform(1, 10, tables)
    case = one_piece_or_spread(
        piece_s.tolist(), (piece_s * rng.uniform(1, 20, tables)).tolist(), rng.uniform(0, 60, tables).tolist()
    )
    case = replace(case, vector=rng.choice([0.0, 40.0, 90.0], tables))
    best = least_of_all(case)
    bound = lower_bound(case, best * 1.5)
    assert lower_bound(replace(case, vector=np.zeros(tables)), best * 1.5) <= bound * 1.002
    assert bound <= best * CLOSE


def test_pieces_that_work_all_the_time_leave_no_room_for_what_stays() -> None:
    """Two of 10 work in 60 of 100, two of 0.1 keep 60: both work on one core and one stays on the other."""
    case = one_piece_or_spread([10, 10, 0.1, 0.1], [40, 40, 12, 12], [0, 0, 60, 60])
    assert lower_bound(case, 50.0) == pytest.approx(10.1, rel=2e-3)
    working = replace(case, vector=np.array([60.0, 60.0, 0.0, 0.0]))
    assert least_of_all(working) == pytest.approx(20.0)
    assert 11.0 < lower_bound(working, 50.0) < 20.0
