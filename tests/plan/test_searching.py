"""Parts of a search: schemes chosen at prices, shards packed and evened out, tables recut, annealing."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from searches import draw_tables, equal_tables, tables_of

from perfmodel.engine.cost import Evaluator
from perfmodel.engine.placement import Scheme
from perfmodel.engine.schemes import Exchange
from perfmodel.engine.steps import Resource
from perfmodel.plan.bounding import StepCurves
from perfmodel.plan.choices.scheme_options import Options, list_options
from perfmodel.plan.searching import packing
from perfmodel.plan.searching.annealing import Annealing
from perfmodel.plan.searching.choosing import Choosing
from perfmodel.plan.searching.coordinate_descent import Descent
from perfmodel.plan.searching.evening import Evening
from perfmodel.plan.searching.local_search import improve
from perfmodel.plan.searching.packing import Packing, list_ranks, pack

Mask = NDArray[np.bool_]
MACHINE = "h100-sxm-ib"


def packed(gpus: int = 8) -> Packing:
    """Ten tables of three shapes, cut in several ways."""
    tables = tables_of(*[(10**5, 64, 10)] * 4, *[(10**5, 32, 3)] * 4, (10**6, 16, 40), (500, 16, 2))
    evaluator = Evaluator.on(MACHINE, tables, 512, gpus, gpus_per_node=4)
    o = list_options(evaluator, 80e9)
    schemes = [Scheme(Exchange.RB)] * 5 + [Scheme(Exchange.SPARSE, 2, 1)] * 3
    schemes += [Scheme(Exchange.TWO_LEVEL, 4, 2), Scheme(Exchange.DP)]
    option = np.array([o.find(t, scheme) for t, scheme in enumerate(schemes)])
    state = pack(evaluator, o, option, 80e9)
    assert state is not None
    return state


def assert_books_are_right(state: Packing) -> None:
    """Loads and memory that are kept up to date are those of the plan, rounded as a search has them."""
    plan = state.build_plan()
    loads = state.evaluator.loads(plan)
    np.testing.assert_allclose((state.base + state.held).T, loads, rtol=1e-9, atol=1)
    needs = state.evaluator.cost(plan).memory.total_bytes
    np.testing.assert_allclose(state.needs, needs, rtol=1e-9)


def test_an_improved_plan_is_no_slower_and_keeps_its_books() -> None:
    state = packed()
    before_s = state.time_s
    improve(state, lambda: False)
    assert state.time_s < before_s
    assert_books_are_right(state)
    state.clear(8)
    state.choose([8], np.array([state.options.find(8, Scheme(Exchange.UB, 8, 1))]))
    assert_books_are_right(state)


def annealed(
    state: Packing, mask: Mask, rounds: int = 400, heat: float = 1e-3, *, domains: bool = False
) -> bool:
    random, curves = np.random.default_rng(0), StepCurves.build(state.evaluator)
    annealing = Annealing(state, curves, random, mask, domains=domains)
    return annealing.run(rounds, lambda: False, heat)


def pack_alike(pooling: Sequence[float], gpus: int, scheme: Scheme) -> tuple[Packing, Mask]:
    """Tables in one scheme, in domains of at most four GPUs, as packed; and the mask of that scheme alone."""
    tables = tables_of(*[(10**5, 64, L) for L in pooling])
    evaluator = Evaluator.on(MACHINE, tables, 4096, gpus, gpus_per_node=min(gpus, 4))
    o = list_options(evaluator, 80e9)
    option = np.array([o.find(t, scheme) for t in range(len(pooling))])
    state = pack(evaluator, o, option, 80e9)
    assert state is not None
    return state, np.isin(np.arange(o.group.size), option)


@pytest.mark.parametrize("scheme", [Scheme(Exchange.RB), Scheme(Exchange.TWO_LEVEL, 4)])
def test_annealing_finds_the_even_halves_that_the_largest_first_do_not(scheme: Scheme) -> None:
    """Loads 30, 30, 20, 20, 20 on two ranks, or in two domains of four: the largest first make 70 and 50.

    Parts of a two-level exchange move by whole domains.
    """
    domains = scheme.parts > 1
    gpus = 2 * scheme.parts
    state, mask = pack_alike((30, 30, 20, 20, 20), gpus, scheme)
    ids = state.held[:, Resource.IDS_RECEIVED].reshape(2, -1)
    assert ids.max() / ids.min() == pytest.approx(70 / 50)
    assert not domains or not annealed(state.copy(), mask)
    assert annealed(state, mask, domains=domains)
    ids = state.held[:, Resource.IDS_RECEIVED].reshape(2, -1)
    assert ids.max() / ids.min() == pytest.approx(1)
    assert_books_are_right(state)


def test_annealing_swaps_tables_where_memory_is_full() -> None:
    """Two tables with 50 look-ups on one rank, two with 10 on the other: no rank holds three."""
    state, mask = pack_alike((50, 10, 50, 10), 2, Scheme(Exchange.RB))
    for table, rank in enumerate((0, 1, 0, 1)):
        option = int(state.option[table])
        state.clear(table)
        state.put_back(table, option, np.array([rank]))
    state.limit_bytes = float(state.needs.max())
    before_s = state.time_s
    assert state.fits and pack(state.evaluator, state.options, state.option, state.limit_bytes)
    assert annealed(state, mask) and state.time_s < before_s and state.fits
    ids = state.held[:, Resource.IDS_RECEIVED]
    assert ids.max() == pytest.approx(ids.min())


def test_annealing_cuts_tables_otherwise_where_that_is_faster() -> None:
    state, mask = pack_alike([100], 8, Scheme(Exchange.RB))
    assert not annealed(state.copy(), mask)
    every = np.ones(state.options.group.size, dtype=bool)
    before = state.time_s
    assert annealed(state, every)
    assert state.time_s < before
    assert state.option[0] != state.options.find(0, Scheme(Exchange.RB))
    assert_books_are_right(state)


@pytest.mark.parametrize("share", [0.1, 0.2, 0.3])
def test_no_change_of_a_single_table_helps_after_a_descent(share: float) -> None:
    """Brute force: every option of every table, with room for a share of all tables on each rank."""
    tables = draw_tables(6, rows_log10=(5.5, 6))
    evaluator = Evaluator.on(MACHINE, tables, 1024, 16, gpus_per_node=4)
    o = list_options(evaluator, 80e9)
    descent, ranges = Descent(evaluator, o, share * tables.total_bytes), [o.find_range(t) for t in range(6)]
    for seed in range(4):
        random = np.random.default_rng(seed)
        start = np.array([random.integers(span.start, span.stop) for span in ranges])
        option = descent.run(start, np.ones(o.group.size, dtype=bool), lambda: False)
        changes = [(t, other) for t, span in enumerate(ranges) for other in range(span.start, span.stop)]
        best = min(descent.rate(np.where(np.arange(6) == t, other, option)) for t, other in changes)
        assert best >= 0.99 * descent.rate(option)
        assert descent.rate(option) < descent.rate(start)


@pytest.mark.parametrize("domains", [False, True])
@pytest.mark.parametrize("heat", [0.0, 1e-3, 0.1])
def test_annealing_keeps_its_books_and_never_makes_a_plan_slower(heat: float, domains: bool) -> None:
    state = packed()
    before = state.copy()
    helped = annealed(state, np.ones(state.options.group.size, dtype=bool), 150, heat, domains=domains)
    assert_books_are_right(state)
    if helped:
        assert state.time_s < before.time_s
    else:
        np.testing.assert_array_equal(state.option, before.option)
    assert state.fits


def spread_evenly(evaluator: Evaluator, o: Options, option: np.ndarray) -> tuple[float, float]:
    """Time and memory of a rank if shards are spread evenly."""
    loads = o.average[option].sum(axis=0)
    buffers = evaluator.times.count_buffers(loads[:, np.newaxis])[0]
    return float(evaluator.estimate_times(loads)), float(o.average_memory[option].sum() + buffers)


@pytest.mark.parametrize("share", [0.15, 0.3, 0.6])
def test_a_choice_is_close_to_the_best_of_all_copies_and_whole_tables(share: float) -> None:
    """Brute force: 2^12 ways to copy some of twelve tables, none of which is most of the memory."""
    tables = draw_tables(12, rows_log10=(5.5, 6))
    evaluator = Evaluator.on(MACHINE, tables, 1024, 16)
    room = share * tables.total_bytes
    o = list_options(evaluator, 80e9)
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


def heaped(kind: Exchange, ranks: int) -> Packing:
    """Tables of one scheme, all of them on the first ranks; in NVLink domains of 4."""
    tables = draw_tables(24, seed=1)
    evaluator = Evaluator.on(MACHINE, tables, 1024, 16, gpus_per_node=4)
    o = list_options(evaluator, 80e9)
    state = Packing(evaluator, o, 80e9)
    for t in range(24):
        option = o.find(t, Scheme(kind, ranks, 1))
        assert option is not None
        state.choose([t], np.array([option]))
        at = list_ranks(o, option, np.arange(1)) if kind == Exchange.TWO_LEVEL else np.arange(ranks)
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
    assert_books_are_right(state)


@pytest.mark.parametrize(
    "scheme", [Scheme(Exchange.RB), Scheme(Exchange.RB, 3), Scheme(Exchange.TWO_LEVEL, 4, 2)]
)
def test_equal_tables_are_placed_together_as_evenly_as_one_by_one(
    scheme: Scheme, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = equal_tables((5, 10**6, 64, 40), (400, 10**4, 32, 5), (303, 10**4, 64, 10))
    evaluator = Evaluator.on(MACHINE, tables, 512, 12, gpus_per_node=4)
    o = list_options(evaluator, 80e9, [{scheme}] * 3)
    option = np.array([o.find(t, scheme) for t in range(len(tables))])
    dealt = pack(evaluator, o, option, 80e9)
    monkeypatch.setattr(packing, "_AT_ONCE", 10**9)
    single = pack(evaluator, o, option, 80e9)
    assert dealt is not None and single is not None
    assert dealt.time_s <= single.time_s * 1.01
    assert_books_are_right(dealt)
    assert len({id(placement) for placement in dealt.build_plan().placements}) < len(tables)
