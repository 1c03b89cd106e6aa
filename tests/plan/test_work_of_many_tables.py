"""How much work many tables are: counted, for seconds depend on the machine."""

from __future__ import annotations

import numpy as np
import pytest
from test_plan_many_tables import equal
from test_plan_starts import distinct

from perfmodel.engine.cost import Evaluator
from perfmodel.engine.placement import Scheme
from perfmodel.engine.schemes import Exchange
from perfmodel.engine.steps import TOGETHER
from perfmodel.plan.choices import options as listed
from perfmodel.plan.choices.options import options_of

MACHINE, LIMIT = "h100-sxm-ib", 68e9


@pytest.mark.parametrize("training", [False, True])
def test_options_are_the_same_however_many_are_priced_at_a_time(
    training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluator = Evaluator.on(MACHINE, distinct(12), 1024, 16, training=training)
    whole = options_of(evaluator, LIMIT)
    monkeypatch.setattr(listed, "_AT_ONCE", 100)
    parts = options_of(evaluator, LIMIT)
    for name in ("own", "everywhere", "average", "memory", "average_memory"):
        np.testing.assert_array_equal(getattr(parts, name), getattr(whole, name), name)


def test_one_scheme_is_found_for_all_kinds_of_table_at_once() -> None:
    o = options_of(Evaluator.on(MACHINE, equal((3, 10**4, 64, 4), (2, 5, 32, 1)), 1024, 8), LIMIT)
    found = o.of_each(Scheme(Exchange.RB))
    assert found is not None
    assert found[o.kind_of].tolist() == [o.find(t, Scheme(Exchange.RB)) for t in range(5)]
    assert o.of_each(Scheme(Exchange.RB, 8)) is None  # 5 rows have no 8 parts


@pytest.mark.parametrize("training", [False, True])
def test_buffers_are_those_of_the_largest_collective(training: bool) -> None:
    evaluator = Evaluator.on(MACHINE, distinct(6), 1024, 16, training=training)
    values = np.random.default_rng(0).uniform(1, 1e9, (TOGETHER, 16))
    times, largest = evaluator.times, np.zeros(16)
    for step in times.steps:
        if step.collective and not step.splits and not step.in_place:
            sent = values[step.resources[0]]
            one = len(step.resources) == 1
            received = sent / times.group(step)[0] if one else values[step.resources[1]]
            largest = np.maximum(largest, sent + received)
    np.testing.assert_array_equal(times.count_buffers(values), largest)
