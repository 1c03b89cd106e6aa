"""Costs of pieces on one chip against the simulator of a chip, row by row."""

from __future__ import annotations

import numpy as np
import pytest
from chip_tables import tables

from perfmodel.onechip.cost import ChipCost
from perfmodel.onechip.popular import popularities
from perfmodel.onechip.programs import simulate_pieces, symmetric_pieces
from perfmodel.onechip.traces import draw
from perfmodel.onechip.work import WAYS, TablePiece, Way
from perfmodel.schema.chip import load_chip
from perfmodel.schema.distributions import parse_distribution

CASES = [
    (name, ids, rows, dim, pooling, batch)
    for name in ("ascend-910", "a100-sxm")
    for ids in ("uniform", "zipf:1.05", "one-row")
    for rows, dim, pooling, batch in ((200, 16, 1, 1024), (3000, 64, 4, 512), (200_000, 128, 1, 512))
]


@pytest.mark.parametrize("place", ["every core", "one core"])
def test_closed_forms_are_those_of_the_simulator(place: str) -> None:
    """A part of benchmarks/one_chip.py: median error of each way, and which way is chosen."""
    errors: dict[Way, list[float]] = {way: [] for way in WAYS}
    near = []
    for number, (name, ids, rows, dim, pooling, batch) in enumerate(CASES):
        on, t = load_chip(name), tables(rows, dim, pooling)
        popular = popularities([parse_distribution(ids)], t.rows)
        c = ChipCost(on, t, batch, popular)
        trace = draw(t, batch, popular, seed=number)
        times = {}
        for way in WAYS:
            if way != Way.GM and rows * dim > 200_000:
                continue
            every = symmetric_pieces(on, t, batch, [way])
            lists = (
                every if place == "every core" else [[TablePiece(0, way, (0, rows), (0, dim), (0, batch))]]
            )
            bags = np.array([piece.bags[1] - piece.bags[0] for core in lists for piece in core], dtype=float)
            work = c.work(0, way, rows, dim, bags, lockstep=place == "every core")
            if work.fits.all():
                said = c.batch_s(np.arange(bags.size), np.zeros(bags.size), work).seconds
                times[way] = said, simulate_pieces(on, t, trace, lists, seed=number).seconds
                errors[way].append(abs(times[way][0] / times[way][1] - 1))
        if len(times) > 1:
            chosen = min(times.values())[1]
            near.append(chosen <= 1.05 * min(seen for _, seen in times.values()))
    for way, found in errors.items():
        assert np.median(found) < 0.06, way
        assert max(found) < 0.30, way
    assert np.mean(near) >= 0.9


def test_tables_that_cores_own_are_those_of_the_simulator() -> None:
    random = np.random.default_rng(5)
    t = tables(np.round(10 ** random.uniform(1, 5, 40)), dim=32, pooling=2.0)
    on = load_chip("ascend-910")
    popular = popularities([parse_distribution("zipf:1.05")] * 40, t.rows)
    c = ChipCost(on, t, 256, popular)
    core, table = random.integers(0, 32, 40), np.arange(40)
    way = np.where(t.rows < 500, Way.L1, Way.GM)
    work = c.work(table, way, t.rows, 32, 256)
    lists: list[list[TablePiece]] = [[] for _ in range(32)]
    for at in range(40):
        lists[core[at]].append(TablePiece(at, Way(way[at]), (0, int(t.rows[at])), (0, 32), (0, 256)))
    said = c.batch_s(core, table, work).seconds
    assert said == pytest.approx(simulate_pieces(on, t, draw(t, 256, popular, 5), lists).seconds, rel=0.06)
