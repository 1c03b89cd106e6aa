"""The mapper against all mappings of small cases, and its bound against both."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.mappings import exact

from perfmodel.engine.tables import PlanTables
from perfmodel.errors import BadInputError
from perfmodel.onechip.answer import cost_on
from perfmodel.onechip.bound import lower_bound, relaxed
from perfmodel.onechip.choices import Choices
from perfmodel.onechip.cuts import cuts_of
from perfmodel.onechip.mapper import Mapper
from perfmodel.onechip.packing import MappingState, pack, place
from perfmodel.onechip.working import kept_for_work, pack_together
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
    assert relaxed(case, np.ones(2, dtype=bool)).bound_s == pytest.approx(3.0)
    assert exact(case) == pytest.approx(7.0)


def test_the_bound_leaves_out_choices_with_longer_pieces() -> None:
    """One table, 2 cores: one piece of 10, or two of 9. Half of the first choice would be 5 a core."""
    case = choices(2, 100, [[(0.0, 0.0, [(1, 10.0, 0.0)]), (0.0, 0.0, [(2, 9.0, 0.0)])]])
    assert relaxed(case, np.ones(2, dtype=bool)).bound_s == pytest.approx(5.0)
    assert lower_bound(case, 9.0) == pytest.approx(9.0)


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
    case = cuts_of(cost_on(chip, tables, 1024, UNIFORM)).choices
    time_s = Mapper(case).run().time_s
    assert time_s <= 1.05 * lower_bound(case, time_s)
