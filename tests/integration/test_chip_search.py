"""Long searches for mappings: none that was made otherwise, and was tried with the same ids, is faster."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perfmodel.onechip.answer import COMPARED, answer_on
from perfmodel.onechip.mapping import mapping_of
from perfmodel.onechip.reasons import others
from perfmodel.onechip.search import _by
from perfmodel.plan.pricing.tables import PlanTables
from perfmodel.schema.chip import Chip, load_chip
from perfmodel.schema.distributions import zipf
from perfmodel.schema.workload import Table, TableSet

NEAR_THE_BOUND = 1.005 + 1e-6  # no more is sought


def tables_of(*shapes: tuple[int, int, float]) -> PlanTables:
    """Tables of (rows, dim, pooling)."""
    made = tuple(Table(f"t{at}", rows, dim, pooling) for at, (rows, dim, pooling) in enumerate(shapes))
    return PlanTables.of(TableSet("mine", made))


def small(name: str, cores: int) -> Chip:
    return load_chip(name).with_overrides({"cores": cores})


@pytest.mark.parametrize("seed", [2, 6, 12])
def test_no_mapping_made_for_other_ids_is_faster(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those made for each of the shipped distributions, and the robust one, tried with each of them."""
    monkeypatch.setattr("perfmodel.onechip.search._PATIENCE", 4)
    rng = np.random.default_rng(seed)
    tables = tables_of(*((int(10 ** rng.uniform(1, 5)), 32, float(rng.integers(1, 9))) for _ in range(3)))
    asked = (small("h100-sxm", 6), tables, 60)
    made = [answer_on(*asked, ids, effort="thorough") for ids in COMPARED]
    robust = answer_on(*asked, effort="thorough", robust=True)
    for answer in made:
        for other in (*made, robust):
            taken = {each.ids: each.time_s for each in other.sensed}[answer.ids]
            assert answer.time_s <= taken * NEAR_THE_BOUND


def test_a_mapping_is_tried_on_whole_batches_where_slices_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are spread wait once a slice: what is best is not what is best for the mapper."""
    monkeypatch.setattr("perfmodel.onechip.search._PATIENCE", 6)
    tables = tables_of((1000, 16, 1), (100_000, 32, 4), (50, 64, 10))
    made = answer_on(load_chip("h100-sxm"), tables, 512, zipf(1.05), effort="thorough")
    robust = answer_on(load_chip("h100-sxm"), tables, 512, zipf(1.05), effort="thorough", robust=True)
    assert made.time_s <= robust.sensed[0].time_s < 1.6e-6
    assert made.tried > 20


def test_no_next_best_way_is_faster() -> None:
    """What is told as the next best way was tried on a whole batch, and would have been taken."""
    tables = tables_of((1000, 32, 4), (1000, 32, 4), (10**6, 64, 3), (50, 16, 1), (20_000, 32, 2))
    answer = answer_on(small("h100-sxm", 8), tables, 512, zipf(1.05), effort="thorough")
    assert not answer.symmetric
    reasons = [group.reason for group in answer.groups]
    assert all(one is not None and one.whole and one.more_s >= 0 for one in reasons)
    found = replace(answer.cuts.choices, slicer=None)
    state = answer.state
    for table in range(5):
        for _, other in others(answer.cuts, state, table):
            batch = mapping_of(answer.cuts, _by(found, other)).batch(answer.cost)
            assert batch.seconds >= answer.owned_s * (1 - 2e-4)
