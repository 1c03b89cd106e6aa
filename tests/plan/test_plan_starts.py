"""What a search of many tables begins with: schemes chosen at prices, loads made even."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from perfmodel.engine.cost import Evaluator
from perfmodel.engine.placement import Scheme
from perfmodel.engine.schemes import Exchange
from perfmodel.engine.tables import PlanTables
from perfmodel.plan.choices.options import Options, options_of
from perfmodel.plan.searching.choosing import Choosing
from perfmodel.plan.searching.evening import Evening
from perfmodel.plan.searching.packing import Packing, in_domains, pack
from perfmodel.plan.searching.starts import Starts
from perfmodel.schema.workload import Table, TableSet

MACHINE = "h100-sxm-ib"


def distinct(
    count: int, seed: int = 0, equal: int = 1, rows_log10: tuple[float, float] = (3, 6.5)
) -> PlanTables:
    """Tables of rows, widths and pooling drawn at random; ``equal`` of each."""
    random = np.random.default_rng(seed)
    rows = np.rint(10 ** random.uniform(*rows_log10, count)).astype(int)
    dim, pooling = random.choice([16, 32, 64, 128], count), np.round(10 ** random.uniform(0, 1.7, count), 2)
    shapes = [shape for shape in zip(rows, dim, pooling, strict=True) for _ in range(equal)]
    drawn = (Table(f"t{i}", int(E), int(D), float(L)) for i, (E, D, L) in enumerate(shapes))
    return PlanTables.of(TableSet("drawn", tuple(drawn)))


def spread_evenly(evaluator: Evaluator, o: Options, option: np.ndarray) -> tuple[float, float]:
    """Time and memory of a rank if shards are spread evenly."""
    loads = o.average[option].sum(axis=0)
    buffers = evaluator.times.count_buffers(loads[:, np.newaxis])[0]
    return float(evaluator.estimate_times(loads)), float(o.average_memory[option].sum() + buffers)


@pytest.mark.parametrize("share", [0.15, 0.3, 0.6])
def test_a_choice_is_close_to_the_best_of_all_copies_and_whole_tables(share: float) -> None:
    """Brute force: 2^12 ways to copy some of twelve tables, none of which is most of the memory."""
    tables = distinct(12, rows_log10=(5.5, 6))
    evaluator = Evaluator.on(MACHINE, tables, 1024, 16)
    room = share * tables.total_bytes
    o = options_of(evaluator, 80e9)
    found = [[o.find(t, scheme) for scheme in (Scheme(Exchange.DP), Scheme(Exchange.RB))] for t in range(12)]
    ways = [[at for at in way if at is not None] for way in found]
    best = np.inf
    for plan in product(*ways):
        time_s, needs = spread_evenly(evaluator, o, np.array(plan))
        best = min(best, time_s if needs <= room else np.inf)
    mask = np.zeros(o.group.size, dtype=bool)
    mask[[at for way in ways for at in way]] = True
    choice = Choosing(evaluator, o, mask).run(room, np.inf, None, lambda: False)
    assert choice is not None
    time_s, needs = spread_evenly(evaluator, o, choice.option)
    assert needs <= room * 1.001
    assert best * (1 - 1e-9) <= time_s <= best * 1.04


def test_equal_tables_are_chosen_apart_where_memory_has_room_for_some_copies() -> None:
    tables = distinct(3, equal=40)
    evaluator = Evaluator.on(MACHINE, tables, 1024, 16)
    o = options_of(evaluator, 80e9)
    choice = Choosing(evaluator, o, np.ones(o.group.size, dtype=bool)).run(
        0.3 * tables.total_bytes, np.inf, None, lambda: False
    )
    assert choice is not None
    np.testing.assert_array_equal(o.group[choice.option], o.kind_of)
    assert spread_evenly(evaluator, o, choice.option)[1] == pytest.approx(0.3 * tables.total_bytes, rel=0.05)
    of_kind = [np.unique(choice.option[o.kind_of == q]).size for q in range(3)]
    assert max(of_kind) == 2


def heaped(kind: Exchange, ranks: int) -> Packing:
    """Tables of one scheme, all of them on the first ranks; in NVLink domains of 4."""
    tables = distinct(24, seed=1)
    evaluator = Evaluator.on(MACHINE, tables, 1024, 16, gpus_per_node=4)
    o = options_of(evaluator, 80e9)
    state = Packing(evaluator, o, 80e9)
    for t in range(24):
        option = o.find(t, Scheme(kind, ranks, 1))
        assert option is not None
        state.choose([t], np.array([option]))
        at = in_domains(np.arange(1), o, option) if kind == Exchange.TWO_LEVEL else np.arange(ranks)
        state.put(t, at)
    return state


@pytest.mark.parametrize(("kind", "ranks"), [(Exchange.RB, 1), (Exchange.RB, 2), (Exchange.TWO_LEVEL, 4)])
def test_heaped_shards_are_spread_as_well_as_packing_does(kind: Exchange, ranks: int) -> None:
    state = heaped(kind, ranks)
    option, before = state.option.copy(), state.time_s
    packed = pack(state.evaluator, state.options, option, 80e9)
    assert packed is not None
    assert Evening(state, np.random.default_rng(0)).run(lambda: False)
    np.testing.assert_array_equal(state.option, option)
    assert state.time_s < before and state.time_s < packed.time_s * 1.05
    loads = state.evaluator.loads(state.plan())
    np.testing.assert_allclose((state.base + state.held).T, loads.values, rtol=1e-9, atol=1e-3)


def test_a_state_that_cannot_be_made_more_even_stays_as_it_was() -> None:
    evaluator = Evaluator.on(MACHINE, distinct(1, equal=16), 1024, 16)
    o = options_of(evaluator, 80e9)
    option = o.find(0, Scheme(Exchange.RB))
    assert option is not None
    state = pack(evaluator, o, np.full(16, option), 80e9)
    assert state is not None
    ranks, time_s = [None if x is None else x.tolist() for x in state.ranks], state.time_s
    assert not Evening(state, np.random.default_rng(0)).run(lambda: False)
    assert [None if x is None else x.tolist() for x in state.ranks] == ranks
    assert state.time_s == time_s


def test_plans_to_begin_with_fit_and_every_kind_of_exchange_was_tried() -> None:
    tables = distinct(40)
    evaluator = Evaluator.on(MACHINE, tables, 1024, 16)
    limit = 0.3 * tables.total_bytes
    o = options_of(evaluator, limit)
    found: list[float] = []

    def keep(state: Packing) -> None:
        assert state.fits
        found.append(state.time_s)

    starts = Starts(evaluator, o, limit, keep, lambda: False)
    starts.run()
    assert starts.tried >= len(starts.found) > 5
    alone = {of[0]: time_s for time_s, of, _ in sorted(starts.found, reverse=True) if len(of) == 1}
    assert min(alone, key=lambda kind: alone[kind]) in (Exchange.RB, Exchange.SPARSE, Exchange.TWO_LEVEL)
    assert min(found) <= min(alone.values())
