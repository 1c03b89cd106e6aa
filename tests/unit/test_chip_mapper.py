"""The mapper against all mappings of small cases, and its bound against both."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.mappings import exact

from perfmodel.errors import BadInputError
from perfmodel.onechip.answer import cost_on
from perfmodel.onechip.bound import feasible, lower_bound, relaxed
from perfmodel.onechip.choices import Choices, worst_of
from perfmodel.onechip.cuts import cuts_of
from perfmodel.onechip.mapper import Mapper
from perfmodel.onechip.packing import MappingState, pack, place
from perfmodel.onechip.slicing import Ints, Slicing, numbers
from perfmodel.onechip.working import kept_for_work, pack_together
from perfmodel.plan.pricing.tables import PlanTables
from perfmodel.schema.chip import load_chip
from perfmodel.schema.distributions import UNIFORM

CLOSE = 1 + 1e-5


def choices(
    cores: int,
    capacity: float,
    kinds: list[list[tuple[float, float, list[tuple[int, float, float]]]]],
    count: list[int] | None = None,
    hot: float = 0.0,
    vector: float = 0.0,
) -> Choices:
    """Each kind a list of (time spread, time shared, [(pieces, time of one, bytes of one)])."""
    listed = [choice for kind in kinds for choice in kind]
    parts = [part for _, _, pieces in listed for part in pieces]
    number, core_s, local = (np.array([part[k] for part in parts], dtype=float) for k in range(3))
    many = np.array(count or [1] * len(kinds))
    spread = np.array([choice[0] for choice in listed], dtype=float)
    return Choices(
        cores=cores,
        capacity=capacity,
        kind_of=np.repeat(np.arange(len(kinds)), many),
        count=many,
        first=np.cumsum([0, *map(len, kinds)]),
        spread_s=spread,
        shared_s=np.array([[choice[1]] for choice in listed], dtype=float),
        alone_s=np.zeros(len(listed)),
        hot_s=np.where(spread > 0, hot, 0.0)[:, np.newaxis],
        parts=np.cumsum([0, *(len(pieces) for _, _, pieces in listed)]),
        number=number.astype(np.int64),
        core_s=core_s,
        local=local,
        vector=np.full(number.size, vector),
        wait_s=np.zeros(len(listed)),
        chance_s2=np.zeros((len(listed), 1)),
    )


def random_choices(seed: int) -> Choices:
    """Up to 5 tables, 4 cores: global memory, whole tables that stay or stream, first rows that stay."""
    rng = np.random.default_rng(seed)
    cores, capacity = int(rng.integers(1, 5)), float(rng.choice([0, 300, 1000, np.inf]))
    kinds = []
    for _ in range(int(rng.integers(1, 6))):
        n, rows = float(rng.integers(10, 1000)), float(rng.integers(20, 3000))
        ways: list[tuple[float, float, list[tuple[int, float, float]]]] = [(n, n * rng.random() / cores, [])]
        for k in (1, 2):
            if k <= cores and rows <= capacity:
                ways.append((0.0, n * 0.05 / cores, [(k, 0.2 * n / k, rows)]))
            if k <= cores:
                ways.append((0.0, rows / cores * 0.1, [(k, 0.1 * rows + 0.1 * n / k, 0.0)]))
        if rows > 100 and capacity > 0:
            ways.append((0.4 * n, 0.4 * n / cores, [(1, 0.12 * n, min(rows / 4, capacity))]))
        kinds.append(ways)
    return choices(cores, capacity, kinds, hot=float(rng.choice([0, 50])))


@given(st.integers(0, 10**9))
@settings(max_examples=12, deadline=None)
def test_bound_exact_and_mapper_come_in_this_order(seed: int) -> None:
    case = random_choices(seed)
    best = exact(case)
    found = Mapper(case).run()
    assert lower_bound(case, found.time_s) <= best * CLOSE
    assert best <= found.time_s * CLOSE
    assert found.time_s <= best * 1.03
    assert np.all(found.local <= case.capacity * CLOSE)


def sliced(seed: int) -> Choices:
    """The same in which each slice of what is spread waits, what is shared waits too, and chance counts."""
    rng = np.random.default_rng(seed)
    case = random_choices(seed)
    few = [case.first[k] + min(2, int(n)) for k, n in enumerate(np.diff(case.first))]
    kept = np.concatenate([np.arange(a, b) for a, b in zip(case.first[:3], few[:3], strict=False)])
    case = chosen(case, kept, int(min(3, case.count.size)))
    bags = np.arange(1, int(rng.integers(2, 5)) + 1)
    wait = rng.uniform(0, 200, kept.size)
    slice_s = wait[:, np.newaxis] + np.outer(case.spread_s / bags[-1], bags)
    slice_s = np.maximum.accumulate(slice_s + rng.uniform(0, 30, slice_s.shape), axis=1)
    slice_s = np.where(case.spread_s[:, np.newaxis] > 0, slice_s, 0)
    return replace(
        case,
        spread_s=np.min(slice_s / bags, axis=1) * bags[-1],
        alone_s=slice_s[:, 0],
        wait_s=rng.uniform(0, 100, kept.size),
        chance_s2=rng.uniform(0, 300, (kept.size, 1)) ** 2,
        slicer=lambda: Slicing(bags, slice_s, np.arange(kept.size)),
    )


def chosen(c: Choices, kept: Ints, kinds: int) -> Choices:
    """Some choices of the first kinds, one table each."""
    parts = [at for choice in kept for at in c.parts_of(int(choice))]
    of_choice = {name: getattr(c, name)[kept] for name in ("spread_s", "shared_s", "alone_s", "hot_s")}
    of_choice |= {name: getattr(c, name)[kept] for name in ("wait_s", "chance_s2")}
    of_part = {name: getattr(c, name)[parts] for name in ("number", "core_s", "local", "vector")}
    sizes = [len(c.parts_of(int(choice))) for choice in kept]
    slicing, many = c.slicing, np.bincount(c.kind[kept], minlength=kinds)[:kinds]
    return replace(
        c,
        kind_of=np.arange(kinds),
        count=np.ones(kinds, dtype=np.int64),
        first=np.cumsum([0, *many]),
        parts=np.cumsum([0, *sizes]),
        slicer=None if slicing is None else lambda: replace(slicing, of=slicing.of[kept]),
        **of_choice,
        **of_part,
    )


def least_of_all(case: Choices) -> float:
    """Every choice of every table with every other: the best cores by ``exact``, and chance beside it."""
    best = np.inf
    for picked in product(*(range(case.of(t).start, case.of(t).stop) for t in range(case.kind_of.size))):
        kept = np.array(picked)
        try:
            seconds = exact(chosen(case, kept, kept.size))
        except BadInputError:
            continue
        shared = case.shared_s[kept].sum(axis=0) + np.sqrt(case.chance_s2[kept].sum(axis=0))
        best = min(best, max(seconds, float(case.wait_s[kept].max() + shared.max())))
    return best


@given(st.integers(0, 10**9))
@settings(max_examples=5, deadline=None)
def test_slices_waits_and_chance_make_the_bound_tighter_and_never_too_high(seed: int) -> None:
    case = sliced(seed)
    best = least_of_all(case)
    upper = best if np.isfinite(best) else 1e4
    bound, before = lower_bound(case, upper * 1.5), lower_bound(case.fluid(), upper * 1.5)
    assert before <= bound * 1.002  # both are sought within 0.1 %
    assert bound <= best * CLOSE


def test_slices_that_wait_by_hand() -> None:
    """Two tables of 4 bags on three cores, a slice waits 10 and takes 1 a bag: two cores take 14 each.

    Shares would take 2 x 14 / 3. Done within less than 14, both tables have two slices, and a core has room
    for one: there are four, and three cores.
    """
    case = choices(3, 0, [[(14.0, 0.0, [])], [(14.0, 0.0, [])]])
    cut = Slicing(np.arange(1, 5), np.tile(10.0 + np.arange(1, 5), (2, 1)), np.arange(2))
    total, pieces = cut.within(13.0)
    assert (total.tolist(), pieces.tolist()) == ([24.0, 24.0], [2.0, 2.0])
    assert [each.tolist() for each in cut.within(14.0)] == [[14.0, 14.0], [1.0, 1.0]]
    assert np.isinf(cut.within(10.5)[0]).all()
    whole = replace(case, slicer=lambda: cut)
    assert lower_bound(case, 20.0) == pytest.approx(28 / 3)
    assert lower_bound(whole, 20.0) == pytest.approx(14.0, rel=2e-3)
    assert exact(whole) == pytest.approx(14.0)


def test_numbers_of_bags_that_are_not_looked_at_leave_a_bound() -> None:
    """Of 1 to 1000 bags some are looked at; g is below f at all others."""
    some, every = numbers(1000), np.arange(1, 1001)
    f = 5 + np.sqrt(every) + 0.01 * every * (1 + (every > 500))
    rough = Slicing(some, f[some - 1][np.newaxis], np.zeros(1, dtype=np.int64))
    fine = Slicing(every, f[np.newaxis], np.zeros(1, dtype=np.int64))
    assert some.size < 200 and (some[0], some[-1]) == (1, 1000)
    for time_s in (6.5, 10, 25, 40, 60, np.inf):
        for low, high in zip(rough.within(time_s), fine.within(time_s), strict=True):
            assert 0.9 * high <= low <= high * CLOSE


def test_waits_and_chance_of_what_is_shared_by_hand() -> None:
    """Shared 4 + 5, chance 3 and 4 together 5, waits 1 and 2: 2 + 9 + 5."""
    case = choices(2, 0, [[(1.0, 4.0, [])], [(1.0, 5.0, [])]])
    case = replace(case, wait_s=np.array([1.0, 2.0]), chance_s2=np.array([[9.0], [16.0]]))
    assert relaxed(case, np.ones(2, dtype=bool)).bound_s == pytest.approx(16.0)
    assert lower_bound(case, 100.0) == pytest.approx(16.0)
    assert exact(case) == pytest.approx(11.0)


def test_the_mapper_is_near_the_best_on_the_mean() -> None:
    cases = [random_choices(seed) for seed in range(15)]
    ratio = [Mapper(case).run().time_s / exact(case) for case in cases]
    assert np.mean(ratio) < 1.003


def test_two_tables_that_both_fit_nowhere_together() -> None:
    """Each takes 8 spread or 1 on a core where it stays; two cores with room for one: both stay."""
    ways = [(8.0, 0.0, []), (0.0, 0.0, [(1, 1.0, 100.0)])]
    assert Mapper(choices(2, 100, [ways, ways])).run().time_s == 1.0
    # one core has room for one of them: 1 + 8
    assert Mapper(choices(1, 100, [ways, ways])).run().time_s == 9.0
    assert exact(choices(1, 100, [ways, ways])) == pytest.approx(9.0)


def test_what_is_spread_fills_the_idle_cores() -> None:
    """A piece of 3 on one of three cores, 6 spread: (3 + 6) / 3 each."""
    case = choices(3, 100, [[(0.0, 0.0, [(1, 3.0, 0.0)])], [(6.0, 0.0, [])]])
    found = Mapper(case).run()
    assert found.time_s == lower_bound(case, 3.0) == 3.0
    longer = choices(3, 100, [[(0.0, 0.0, [(1, 5.0, 0.0)])], [(6.0, 0.0, [])]])
    assert Mapper(longer).run().time_s == 5.0


def test_the_hottest_row_counts_once_whatever_the_tables() -> None:
    """Shared 1 + 2, and 4 more of the hottest row of one of them: 7, not 11."""
    case = choices(4, 100, [[(1.0, 1.0, [])], [(1.0, 2.0, [])]], hot=4.0)
    found = Mapper(case).run()
    assert found.time_s == 7.0
    assert relaxed(case, np.ones(2, dtype=bool)).bound_s == pytest.approx(7.0)
    assert exact(case) == pytest.approx(7.0)


def test_the_bound_leaves_out_choices_with_longer_pieces() -> None:
    """One table, 2 cores: one piece of 10, or two of 9. Half of the first choice would be 5 a core."""
    case = choices(2, 100, [[(0.0, 0.0, [(1, 10.0, 0.0)]), (0.0, 0.0, [(2, 9.0, 0.0)])]])
    assert relaxed(case, np.ones(2, dtype=bool)).bound_s == pytest.approx(5.0)
    assert lower_bound(case, 9.0) == pytest.approx(9.0)


def test_multipliers_of_hottest_rows_are_no_more_than_that_of_what_they_share() -> None:
    """0.6 + 0.4 of a resource that has 0.5: half of each."""
    weight = feasible(np.array([0.5, 0.5, 0.6, 0.4]), [(0, 0), (1, 0)], 2)
    assert weight.tolist() == [0.5, 0.5, 0.3, 0.2]


def test_equal_tables_are_rounded_to_whole_ones() -> None:
    """Five equal tables with room for 3: 3 stay, 2 x 8 are spread over 3 cores: (3 + 16) / 3."""
    ways = [(8.0, 0.0, []), (0.0, 0.0, [(1, 1.0, 100.0)])]
    assert Mapper(choices(3, 100, [ways], count=[5])).run().time_s == pytest.approx(19 / 3)


def test_a_piece_that_works_needs_room_beside_those_that_stay() -> None:
    """One core with 100: what stays takes 60, a piece at work 50; two at work take turns."""
    stays = [(9.0, 0.0, []), (0.0, 0.0, [(1, 1.0, 60.0)])]
    case = choices(1, 100, [stays, stays], vector=50.0)
    state = MappingState(case)
    assert place(state, 1, 1.0) is None
    working = choices(1, 100, [[(0.0, 0.0, [(1, 1.0, 0.0)])]] * 2, vector=60.0)
    both = pack(working, [[0], [1]], 2.0)
    assert both is not None
    assert both.vector.tolist() == [60.0]
    both.clear(0)
    assert both.vector.tolist() == [60.0]
    both.clear(1)
    assert both.vector.tolist() == [0.0]


def test_half_a_way_down_is_better_than_none() -> None:
    """Two tables, each 10 on one core or 5 on two of four: cutting one is no faster, but half the way."""
    case = choices(4, 100, [[(0.0, 0.0, [(1, 10.0, 0.0)]), (0.0, 0.0, [(2, 5.0, 0.0)])]], count=[2])
    whole, half = (pack(case, [[0], [second]], 10.0) for second in (0, 1))
    assert whole is not None
    assert half is not None
    assert whole.time_s == half.time_s == 10.0
    assert half.score < whole.score
    assert Mapper(case).run().time_s == 5.0


def test_the_worst_of_two_is_no_less_than_either() -> None:
    """A table stays in 1 or is spread in 8 with some ids, in 6 or 2 with others: at most 6 or 8."""
    one, other = (
        choices(1, 100, [[(spread, 0.0, []), (0.0, 0.0, [(1, stays, 100.0)])]])
        for spread, stays in ((8.0, 1.0), (2.0, 6.0))
    )
    both = worst_of([one, other])
    assert (both.spread_s.tolist(), both.core_s.tolist()) == ([8.0, 0.0], [6.0])
    assert [Mapper(case).run().time_s for case in (one, other, both)] == [1.0, 2.0, 6.0]


def test_the_same_seed_gives_the_same_mapping() -> None:
    case = random_choices(12)
    one, two = (Mapper(case, seed=5).run() for _ in range(2))
    assert one.time_s == two.time_s
    assert one.choice.tolist() == two.choice.tolist()


def test_no_room_at_all_is_said() -> None:
    only = [(0.0, 0.0, [(1, 1.0, 200.0)])]
    with pytest.raises(BadInputError, match="no mapping has room"):
        Mapper(choices(2, 100, [only])).run()
    with pytest.raises(BadInputError, match="no best mapping"):
        exact(choices(2, 100, [only]))


def test_a_large_case_is_refused_by_name() -> None:
    ways = [(8.0, 0.0, [])] + [(0.0, 0.0, [(1, 1.0, 1.0)])] * 50
    with pytest.raises(BadInputError, match="unknowns are too many"):
        exact(choices(100, 100, [ways], count=[10]))


def test_hundreds_of_tables_are_mapped_near_the_bound() -> None:
    rng = np.random.default_rng(3)
    kinds = []
    for _ in range(200):
        n, rows = rng.integers(10, 1000), rng.integers(20, 3000)
        ways = [(float(n), 0.0, [])]
        ways += [(0.0, 0.0, [(k, 0.2 * n / k, float(rows))]) for k in (1, 2, 4, 8) if rows < 1000]
        kinds.append(ways)
    case = choices(64, 1000, kinds)
    time_s = Mapper(case).run().time_s
    assert time_s < 1.03 * lower_bound(case, time_s)


def test_pieces_that_keep_nothing_go_where_least_is_done_however_full_cores_are() -> None:
    """Two of three cores are full of rows and work for 1: four pieces of 1 make it 2 on each."""
    stays, passes = [(0.0, 0.0, [(1, 1.0, 100.0)])], [(0.0, 0.0, [(1, 1.0, 0.0)])]
    state = pack(choices(3, 100, [stays, passes], [2, 4]), [[0]] * 2 + [[1]] * 4, 2.0)
    assert state is not None
    assert state.core_s.tolist() == [2.0, 2.0, 2.0]


def test_pieces_that_need_memory_to_work_leave_cores_for_rows_that_stay() -> None:
    """Eight pieces of 1 that work in 60 of 100: two on each of four cores leave room for 16 tables of 10."""
    stays, works = [(9.0, 0.0, []), (0.0, 0.0, [(1, 0.0, 10.0)])], [(0.0, 0.0, [(1, 1.0, 0.0)])]
    case = replace(choices(4, 100, [stays, works], [20, 8]), vector=np.array([0.0, 60.0]))
    options = [[1, 0]] * 20 + [[2]] * 8
    apart, together = pack(case, options, 4.0), pack_together(case, options, 4.0)
    assert apart is not None
    assert together is not None
    assert (apart.spread_s, together.spread_s) == (4 * 9.0, 0.0)
    assert sorted(together.core_s) == [0.0, 0.0, 4.0, 4.0]


def test_memory_for_work_is_kept_for_as_long_as_a_piece_works() -> None:
    """Half the target: half of 60; all of it and more: 60."""
    case = choices(4, 100, [[(0.0, 0.0, [(1, 1.0, 5.0)])], [(0.0, 0.0, [(1, 3.0, 0.0)])]], vector=60.0)
    assert kept_for_work(case, 2.0).local.tolist() == [35.0, 60.0]


def test_a_first_mapping_is_near_the_bound_where_rows_share_their_memory_with_work() -> None:
    """Slow copies make streams long: packed as rows that stay are, a mapping took 2.6 times the bound."""
    chip = load_chip("ascend-910b").with_overrides({"dma_bytes_per_s": 57.6e9, "core_bytes_per_s": 57.6e9})
    tables = PlanTables.load("distemb-medium", UNIFORM)
    case = cuts_of(cost_on(chip, tables, 1024, UNIFORM)).choices.fluid()
    time_s = Mapper(case).run().time_s
    assert time_s <= 1.05 * lower_bound(case, time_s)
