"""Turns of random changes: mostly with the exchanges that a plan has, now and then with all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_plan_starts import MACHINE, distinct

from perfmodel.engine.schemes import Exchange
from perfmodel.plan import Evaluator
from perfmodel.plan.bounding.curves import StepCurves
from perfmodel.plan.choices.options import options_of
from perfmodel.plan.searching import search
from perfmodel.plan.searching.packing import Packing, pack
from perfmodel.plan.searching.search import Changing, list_exchanges


def whole_tables(count: int = 20, gpus: int = 16) -> Packing:
    """Each table on a GPU of its own, or two on one."""
    evaluator = Evaluator.on(MACHINE, distinct(count), 1024, gpus)
    o = options_of(evaluator, 80e9)
    whole = np.flatnonzero((o.exchange == Exchange.RB) & (o.r == 1) & (o.c == 1) & (o.hot == 0))
    state = pack(evaluator, o, whole[o.kind_of], 80e9)
    assert state is not None
    return state


def test_one_turn_of_three_tries_exchanges_that_the_plan_does_not_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state, tried, plans = whole_tables(), [], [0.0]
    plans[0] = state.time_s

    class Spied(search.Annealing):
        def __init__(self, of: Packing, curves: StepCurves, random: Any, mask: Any, **how: Any) -> None:
            tried.append((bool(mask.all()), np.array_equal(mask, list_exchanges(of))))
            super().__init__(of, curves, random, mask, **how)

    monkeypatch.setattr(search, "Annealing", Spied)
    curves, random = StepCurves.of(state.evaluator), np.random.default_rng(0)
    turns = Changing(curves, random, lambda of: plans.append(of.time_s), lambda: len(tried) > 6, cool=True)
    turns.run([state])
    every, own = zip(*tried, strict=True)
    assert every[:6] == (False, False, True) * 2
    assert own[:6] == (True, True, False) * 2
    assert plans[-1] < plans[0]
    assert plans == sorted(plans, reverse=True)


def test_exchanges_of_a_plan_are_those_of_its_tables_and_copies() -> None:
    state = whole_tables()
    allowed = list_exchanges(state)
    kinds = state.options.exchange
    assert set(kinds[allowed]) == {Exchange.DP, Exchange.RB}
    assert not np.isin(kinds[~allowed], [Exchange.DP, Exchange.RB]).any()
