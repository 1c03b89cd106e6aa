"""From tables and a chip to pieces on cores: every look-up is done once, buffers hold what they are given."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.engine.tables import PlanTables
from perfmodel.errors import BadInputError
from perfmodel.onechip.answer import ChipAnswer, answer_on, cost_on
from perfmodel.onechip.bound import lower_bound
from perfmodel.onechip.cost import ChipCost
from perfmodel.onechip.cuts import Cut, cuts_of
from perfmodel.onechip.mapper import Mapper
from perfmodel.onechip.mapping import mapping_of
from perfmodel.onechip.popular import popularities
from perfmodel.onechip.symmetric import best_symmetric, symmetric
from perfmodel.onechip.work import WAYS, Batch, CoreWork, Way
from perfmodel.report.onechip.mapping_text import mapping_text
from perfmodel.schema.chip import Chip, load_chip
from perfmodel.schema.distributions import ONE_ROW, UNIFORM, Distribution, parse_distribution, zipf
from perfmodel.schema.workload import Table, TableSet

CLOSE = 1 + 1e-6
NEAR_THE_BOUND = 1.005 + 1e-6  # no more is sought
CHIPS = ("ascend-910", "ascend-910b", "h100-sxm")


def tables_of(*shapes: tuple[int, int, float]) -> PlanTables:
    """Tables of (rows, dim, pooling)."""
    made = tuple(Table(f"t{at}", rows, dim, pooling) for at, (rows, dim, pooling) in enumerate(shapes))
    return PlanTables.of(TableSet("mine", made))


def small(name: str, cores: int = 4) -> Chip:
    return load_chip(name).with_overrides({"cores": cores})


def random_case(seed: int) -> tuple[Chip, PlanTables, int, Distribution]:
    rng = np.random.default_rng(seed)
    chip = small(str(rng.choice(CHIPS)), int(rng.integers(1, 9)))
    shapes = [
        (int(10 ** rng.uniform(0, 6)), int(rng.choice([8, 32, 100, 128])), float(rng.choice([1, 3, 20])))
        for _ in range(int(rng.integers(1, 6)))
    ]
    ids = [UNIFORM, zipf(1.05), ONE_ROW, parse_distribution("zipf:0.6")][int(rng.integers(4))]
    return chip, tables_of(*shapes), int(10 ** rng.uniform(0, 4)), ids


def found(seed: int) -> ChipAnswer:
    chip, tables, batch, ids = random_case(seed)
    return answer_on(chip, tables, batch, ids, effort="quick")


def check_every_look_up_is_done_once(answer: ChipAnswer, seed: int) -> None:
    rng = np.random.default_rng(seed)
    tables, pieces = answer.tables, answer.mapping.pieces
    for table in range(len(tables)):
        sides = (int(tables.rows[table]), int(tables.dim[table]), int(answer.cost.batch))
        mine = [piece for piece in pieces if piece.table == table]
        area = sum(
            (p.rows[1] - p.rows[0]) * (p.columns[1] - p.columns[0]) * (p.bags[1] - p.bags[0]) for p in mine
        )
        assert area == sides[0] * sides[1] * sides[2]
        for _ in range(20):
            at = [int(rng.integers(side)) for side in sides]
            holds = [
                all(a <= x < b for x, (a, b) in zip(at, (p.rows, p.columns, p.bags), strict=True))
                for p in mine
            ]
            assert sum(holds) == 1


def check_buffers(answer: ChipAnswer) -> None:
    chip, work, core = answer.cost.chip, answer.work, answer.mapping.core
    assert work.fits.all()
    if answer.symmetric or not chip.buffers.persist:
        return
    kept = np.bincount(core, work.local_bytes, chip.cores)
    working = np.zeros(chip.cores)
    if chip.buffers.shared:
        np.maximum.at(working, core, work.vector_bytes)
    assert np.all(kept + working <= chip.value("local_bytes") * CLOSE)


@given(st.integers(0, 10**9))
@settings(max_examples=6, deadline=None)
def test_a_mapping_is_whole_fits_and_is_no_worse_than_symmetric(seed: int) -> None:
    answer = found(seed)
    check_every_look_up_is_done_once(answer, seed)
    check_buffers(answer)
    assert answer.bound_s <= answer.time_s * CLOSE
    assert answer.time_s <= answer.best_symmetric.time_s * CLOSE
    assert answer.time_s <= answer.global_memory.time_s * CLOSE
    assert answer.time_s == min(answer.searched.seconds, answer.best_symmetric.time_s)


def one_table(cost: ChipCost, table: int, way: Way) -> tuple[Batch, CoreWork]:
    """A slice of the batch on every core, the piece of each core counted by itself."""
    rows, dim = cost.tables.rows[table], cost.tables.dim[table]
    work = cost.work(table, way, rows, dim, cost.bags_of_cores, lockstep=True)
    cores = np.arange(cost.chip.cores)
    return cost.batch_s(cores, np.full(cores.size, table), work), work


def test_a_symmetric_mapping_is_the_sum_of_its_tables() -> None:
    """Slices of 3, 3, 2 and 2 bags; the pieces of the mapping take as long together."""
    cost = cost_on(small("ascend-910"), tables_of((1000, 32, 1), (10**6, 64, 3)), 10, UNIFORM)
    assert cost.bags_of_cores.tolist() == [3, 3, 2, 2]
    found = symmetric(cost, np.array([Way.L1, Way.GM]))
    every = [one_table(cost, table, way)[0] for table, way in ((0, Way.L1), (1, Way.GM))]
    assert found.table_s.tolist() == [one.seconds for one in every]
    assert found.limits == tuple(one.limit for one in every)
    mapping = found.mapping(cost)
    whole = mapping.batch(cost, mapping.work(cost, lockstep=True))
    assert whole.seconds <= found.time_s == found.table_s.sum()
    assert whole.shared_s["memory"] == pytest.approx(sum(one.shared_s["memory"] for one in every))


@given(st.integers(0, 10**9))
@settings(max_examples=6, deadline=None)
def test_the_best_symmetric_mapping_is_the_best_of_all(seed: int) -> None:
    chip, tables, batch, ids = random_case(seed)
    cost = cost_on(chip, tables, batch, ids)
    time_s, local = np.full((len(tables), 4), np.inf), np.zeros((len(tables), 4))
    for table, way in product(range(len(tables)), WAYS):
        took, work = one_table(cost, table, way)
        if work.fits.all():
            time_s[table, way] = took.seconds
            local[table, way] = (work.local_bytes + chip.buffers.shared * work.vector_bytes).max()
    best = np.inf
    for ways in product(range(4), repeat=len(tables)):
        kept = sum(local[table, way] for table, way in enumerate(ways))
        if not chip.buffers.persist or kept <= chip.value("local_bytes"):
            best = min(best, sum(time_s[table, way] for table, way in enumerate(ways)))
    assert best_symmetric(cost).time_s == pytest.approx(best, rel=1e-4)


def test_costs_of_choices_are_those_of_their_pieces() -> None:
    """Pieces that are not spread: the cores' times are what the evaluation of the pieces says."""
    cost = cost_on(
        small("ascend-910", 8), tables_of((500, 64, 20), (900, 64, 20), (40, 64, 4)), 4096, UNIFORM
    )
    cuts = cuts_of(cost)
    state = Mapper(cuts.choices).run()
    mapping = mapping_of(cuts, state)
    batch = mapping.batch(cost)
    assert state.spread_s == 0
    assert batch.core_s == pytest.approx(state.core_s)
    assert batch.shared_s["memory"] == pytest.approx(state.shared_s[0])
    assert batch.seconds >= state.time_s / CLOSE
    assert batch.seconds == pytest.approx(state.time_s, rel=0.05)


def test_the_example_by_hand_of_the_docs() -> None:
    cost = cost_on(load_chip("h100-sxm"), tables_of((100_000, 32, 4)), 1, UNIFORM)
    _, ids, rows, bags = cost.work(0, Way.GM, 100_000, 32, 1).steps
    found = [float(step.wait_s + step.busy_s) for step in (ids, rows, bags)]
    latency = 374e-9 + 128 / (3.35e12 / 80) + 128 / (6.69e12 / 96)
    hand = [374e-9 + 40 / 112.3e9, latency + 3 * 128 / 112.3e9, 128 / 112.3e9]
    assert found == pytest.approx(hand, rel=1e-4)
    assert sum(hand) == pytest.approx(757.8e-9, rel=1e-4)


def test_equal_tables_are_one_kind_and_other_ids_another() -> None:
    tables = tables_of((100, 8, 1), (100, 8, 1), (200, 8, 1))
    cost = cost_on(small("ascend-910"), tables, 10, UNIFORM)
    assert cost.kind_of.tolist() == [0, 0, 1]
    assert (cost.sample.tolist(), cost.count.tolist()) == ([0, 2], [2, 1])


def test_rows_that_are_never_asked_for_are_the_last_ones() -> None:
    one, even, skewed = popularities([ONE_ROW, UNIFORM, zipf(1.0)], [10, 10, 10])
    assert (one.p.tolist(), one.rows.tolist()) == ([1, 0], [1, 9])
    assert (even.p.tolist(), even.rows.tolist()) == ([0.1], [10])
    assert np.sum(skewed.p * skewed.rows) == pytest.approx(1)
    assert popularities([ONE_ROW], [1])[0].rows.tolist() == [1]


def test_first_rows_are_kept_where_ids_are_skewed() -> None:
    """A table of 5 GB, a quarter of a percent of which has room: with skewed ids that is worth while."""
    tables = tables_of((10**7, 128, 10))
    chip = load_chip("ascend-910")
    skewed = answer_on(chip, tables, 4096, zipf(1.1))
    cut = skewed.groups[0].cut
    assert cut is not None
    assert 0 < cut.head < 10**7
    assert skewed.groups[0].ways[0] == Way.GM
    even = answer_on(chip, tables, 4096, UNIFORM)
    assert even.global_memory.time_s / even.time_s < skewed.global_memory.time_s / skewed.time_s


def test_the_document_has_cores_as_columns_and_tables_as_blocks() -> None:
    tables = tables_of((1000, 32, 4), (1000, 32, 4), (10**6, 64, 3))
    answer = answer_on(small("ascend-910"), tables, 512, zipf(1.05), effort="quick")
    document = json.loads(json.dumps(answer.to_dict()))
    assert len(document["after"]) == document["cores"] == 4
    for column in document["after"]:
        assert column["time_s"] == pytest.approx(sum(block["time_s"] for block in column["blocks"]))
        assert column["held_bytes"] == pytest.approx(sum(block["held_bytes"] for block in column["blocks"]))
    assert [block["table"] for block in document["before"]] == ["t0", "t1", "t2"]
    assert sum(block["time_s"] for block in document["before"]) == pytest.approx(document["global_memory_s"])
    assert document["speedup"] == pytest.approx(document["global_memory_s"] / document["time_s"])
    assert sorted(name for group in document["groups"] for name in group["tables"]) == ["t0", "t1", "t2"]


def test_rows_larger_than_a_buffer_are_gathered() -> None:
    """4 MiB a row, on one core and on many; a core's rate and not its latency counts."""
    tables = tables_of((10, 2**20, 1), (1, 1, 1), (5, 7, 0.5))
    for chip in (small("ascend-910", 1), load_chip("ascend-910")):
        chip = chip.with_overrides({"local_bytes": 64})
        answer = answer_on(chip, tables, 1024, UNIFORM, effort="quick")
        check_every_look_up_is_done_once(answer, 0)
        assert answer.bound_s <= answer.searched.seconds
        assert answer.groups[0].ways == (Way.GM,)


def test_too_many_tables_are_refused() -> None:
    with pytest.raises(BadInputError, match="5001 tables: too many for one chip"):
        answer_on(load_chip("ascend-910"), tables_of(*([(10, 8, 1)] * 5001)), 10, UNIFORM)


def test_no_bound_is_above_the_answer() -> None:
    """Tables with cores of their own may all be slower than the symmetric mapping that is given."""
    answer = answer_on(small("h100-sxm", 1), tables_of((1000, 16, 1)), 64, UNIFORM)
    slow = replace(answer.searched, bound_s=2 * answer.time_s, seconds=3 * answer.time_s)
    answer = replace(answer, symmetric=True, searched=slow)
    assert (answer.bound_s, answer.gap) == (answer.time_s, 0.0)
    assert "; no mapping of these cuts is faster." in " ".join(mapping_text(answer).split())
    answer = replace(answer, searched=replace(slow, bound_s=0.5 * answer.time_s))
    assert "; with any mapping, a batch takes" in " ".join(mapping_text(answer).split())


def cuts_of_one(chip: str, batch: int, *shapes: tuple[int, int, float]) -> tuple[Cut, ...]:
    """Those of the first table."""
    cuts = cuts_of(cost_on(load_chip(chip), tables_of(*shapes), batch, UNIFORM))
    return tuple(cuts.cuts[at] for at in range(cuts.choices.of(0).start, cuts.choices.of(0).stop))


@pytest.mark.parametrize("dim", [1, 3])
def test_narrow_tables_have_every_way(dim: int) -> None:
    assert {cut.way for cut in cuts_of_one("ascend-910", 1024, (1000, dim, 1))} == set(WAYS)
    answer = answer_on(load_chip("ascend-910"), tables_of((1000, dim, 1)), 1024, UNIFORM)
    assert answer.searched.seconds <= answer.best_symmetric.time_s * CLOSE


def test_a_buffer_holds_rows_as_they_are_read() -> None:
    """Rows of 16 bytes are read as 128: 192 KiB hold 1 536 of them, and 20 000 need 14 cores."""
    cuts = cuts_of_one("ascend-910b", 1024, *[(20_000, 4, 1)] * 8)
    stay = [cut for cut in cuts if cut.way == Way.L1]
    assert max(cut.rows for cut in stay) == 1536
    assert min(cut.row_parts for cut in stay if cut.head >= 20_000) == 14


def test_all_cores_can_share_tables_alike() -> None:
    """48 cores for 8 tables are 6 for each: parts of the rows by slices of the batch."""
    for dim in (3, 4, 5, 16):
        cuts = cuts_of_one("ascend-910b", 1024, *[(20_000, dim, 1)] * 8)
        for way in (Way.GM_UB, Way.L1_UB):
            found = {(cut.row_parts, cut.slices) for cut in cuts if cut.way == way and cut.head >= 20_000}
            assert {(2, 3), (3, 2), (6, 1)} <= found


def test_a_table_that_has_room_is_cut_into_parts_of_its_rows_as_well() -> None:
    cuts = cuts_of_one("ascend-910", 1024, *[(20_000, 8, 4)] * 8)
    found = {(cut.row_parts, cut.slices) for cut in cuts if cut.way == Way.L1_UB and cut.head >= 20_000}
    assert {(1, 4), (2, 2), (4, 1)} <= found


@pytest.mark.parametrize("dim", [4, 32])
def test_idle_cores_share_small_tables(dim: int) -> None:
    """Eight tables on 32 cores: none of them alone on four cores would help, all of them do."""
    cuts = cuts_of(cost_on(load_chip("ascend-910"), tables_of(*[(20_000, dim, 4)] * 8), 1024, UNIFORM))
    found = Mapper(cuts.choices).run()
    assert found.time_s <= lower_bound(cuts.choices, found.time_s) * 1.003
    assert np.all(found.core_s > 0)


def test_the_limit_is_what_takes_longest_by_itself() -> None:
    """Cores that queue a moment for one row at a slice are limited by themselves, not by the slice."""
    tables = PlanTables.load("mlperf-dlrm-dcnv2", ONE_ROW)
    answer = answer_on(load_chip("h100-sxm"), tables, 4096, ONE_ROW, effort="quick")
    assert answer.time_s > answer.core_s.max()  # they do queue
    assert answer.core_s.max() > max(answer.shared_s.values()) > answer.shared_s["slice"]
    assert answer.limit == "core"
