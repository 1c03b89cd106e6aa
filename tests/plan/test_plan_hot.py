"""Tables whose hot rows are on every rank: loads by hand, limits, files, and what a search makes of them."""

from __future__ import annotations

import io
import json
import re
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pytest
from oracles.plans import exact

from perfmodel.cli import run
from perfmodel.engine.cost import Evaluator
from perfmodel.engine.placement import Placement, Plan, Scheme
from perfmodel.engine.schemes import Exchange
from perfmodel.engine.steps import Resource
from perfmodel.engine.tables import PlanTables
from perfmodel.engine.training import CostedPlan, Dense
from perfmodel.errors import BadInputError
from perfmodel.plan.choices.options import options_of
from perfmodel.plan.files import write_plan
from perfmodel.plan.for_torchrec import runnable as torchrec
from perfmodel.plan.searching.search import Search
from perfmodel.schema.workload import ONE_ROW, UNIFORM, Distribution, Table, TableSet, zipf

MACHINE = "h100-sxm-ib"
HALVES = Distribution("histogram:mine", 0.0, ((0.1, 0.5), (0.9, 0.5)))
"""A tenth of the rows has half of the look-ups."""
B, G, D, L = 10, 2, 8, 4.0


def evaluator(ids: Distribution, rows: int = 100, pooling: float = L, **options: object) -> Evaluator:
    tables = PlanTables.of(TableSet("mine", (Table("t", rows, D, pooling),)), ids)
    return Evaluator.on(MACHINE, tables, B, G, **options)  # type: ignore[arg-type]


def loads(e: Evaluator, scheme: Scheme) -> dict[Resource, list[float]]:
    plan = Plan(e.tables, (Placement.of(scheme, range(scheme.parts)),), G, e.domain)
    found = e.loads(plan)
    return {resource: found.of(resource).tolist() for resource in list(Resource)[: len(found.values)]}


def test_half_of_the_ids_stay_where_they_are() -> None:
    """40 look-ups of a rank, 20 of them hot; the table on rank 0 but for its 10 hottest rows."""
    found = loads(evaluator(HALVES), Scheme(Exchange.RB, hot_rows=10))
    assert found[Resource.IDS_SENT] == [20 * 8] * 2
    assert found[Resource.IDS_RECEIVED] == [2 * 20 * 8, 0]
    assert found[Resource.LENGTHS_SENT] == [10 * 8] * 2
    assert found[Resource.BUCKETIZE] == [10 * 8 + 40 * 8] * 2  # all are looked at
    assert found[Resource.BAGS_SENT] == [2 * 10 * D * 4, 0]  # dense: every bag
    assert found[Resource.LOCAL_SUM] == [3 * 10 * D * 4] * 2  # hot part + other part -> bag


def test_bytes_of_the_gathers_of_hot_rows_and_of_the_others() -> None:
    """What passes the L2: 20 rows of each rank from its copy, 40 of all ranks at the holder."""
    e = evaluator(HALVES)
    found = loads(e, Scheme(Exchange.RB, hot_rows=10))
    row, bag = e.setting.machine.value("row_access_bytes") + 8, 1.2 * (D * 4 + 8)
    assert found[Resource.GATHER_L2][1] == pytest.approx(20 * row + 10 * bag)
    assert found[Resource.GATHER_L2][0] == pytest.approx(20 * row + 10 * bag + 40 * row + 20 * bag)
    # from DRAM each row once: of 10 hot ones 10 (1 - 0.95^40)
    row = e.setting.machine.value("row_access_bytes")
    unique = 10 * (1 - 0.95**40)
    assert found[Resource.GATHER_DRAM][1] == pytest.approx(unique * row + 20 * 8 + 10 * bag)


def test_a_sparse_exchange_sends_bags_that_are_not_all_hot() -> None:
    found = loads(evaluator(HALVES, rows=10**6), Scheme(Exchange.SPARSE, hot_rows=10**5))
    bags = 10 * (1 - 0.5**4)
    assert found[Resource.SPARSE_RECEIVED] == pytest.approx([bags * (D * 4 + 4)] * 2, rel=1e-4)
    assert found[Resource.SPARSE_SENT] == pytest.approx([2 * bags * (D * 4 + 4), 0], rel=1e-4)


def test_unique_rows_are_those_of_the_others() -> None:
    e = evaluator(HALVES)
    found = loads(e, Scheme(Exchange.UB, hot_rows=10))
    unique = 90 * (1 - (1 - 0.5 / 90) ** 40)
    assert found[Resource.ROWS_RECEIVED] == pytest.approx([unique * D * 4] * 2)
    assert found[Resource.REQUESTS_SENT] == pytest.approx([unique * 12] * 2)
    assert found[Resource.DEDUPLICATE] == [40 * 200] * 2  # ids of the copies too
    row = e.setting.machine.value("row_access_bytes")  # each of those that came is read once
    assert found[Resource.POOL_DRAM] == pytest.approx([unique * row + 20 * 8 + 12 * (D * 4 + 8)] * 2)
    assert found[Resource.LOCAL_SUM] == [3 * 10 * D * 4] * 2


def test_training_reduces_the_gradients_of_hot_rows_as_those_of_copies() -> None:
    e = evaluator(HALVES, training=True, optimizer="rowwise-adagrad")
    found = loads(e, Scheme(Exchange.RB, hot_rows=10))
    assert found[Resource.COPIED_GRADIENTS] == [10 * D * 4] * 2
    copied = loads(e, Scheme(Exchange.DP))
    assert copied[Resource.COPIED_GRADIENTS] == [100 * D * 4] * 2
    assert found[Resource.SORT][1] == 20 * 32  # look-ups of hot rows alone, one digit
    assert found[Resource.SORT][0] == (20 + 40) * 32


def test_memory_is_the_copy_and_a_part_of_the_others() -> None:
    e = evaluator(HALVES, optimizer="rowwise-adagrad")
    plan = Plan(e.tables, (Placement.of(Scheme(Exchange.UB, 2, 1, 10), [0, 1]),), G, e.domain)
    memory = e.memory(plan)
    assert memory.rows_bytes.tolist() == [(10 + 45) * D * 4] * 2
    assert memory.optimizer_bytes.tolist() == [(10 + 45) * 4] * 2


@pytest.mark.parametrize(
    ("scheme", "said"),
    [
        (Scheme(Exchange.RB, 1, 1, -1), "-1 hot rows"),
        (Scheme(Exchange.DP, 1, 1, 10), "dp with 10 hot rows"),
        (Scheme(Exchange.RS, 2, 1, 10), "rs with 10 hot rows"),
        (Scheme(Exchange.TWO_LEVEL, 2, 1, 10), "two_level with 10 hot rows"),
        (Scheme(Exchange.UB, 2, 1, 99), "2 row parts beside 99 hot rows of 100"),
    ],
)
def test_hot_rows_that_cannot_be(scheme: Scheme, said: str) -> None:
    e = evaluator(HALVES)
    with pytest.raises(BadInputError, match=said):
        Plan(e.tables, (Placement.of(scheme, range(scheme.parts)),), G, 2)


def test_torchrec_has_no_hot_rows() -> None:
    e = evaluator(HALVES)
    plan = Plan(e.tables, (Placement.of(Scheme(Exchange.RB, 1, 1, 10), [0]),), G, e.domain)
    with pytest.raises(BadInputError, match=r"table 't' is rb .*: TorchRec has a row once, not hot rows"):
        torchrec.torchrec_plan(e, plan)
    options = options_of(e, 1e9)
    assert options.hot.any()
    assert not options.hot[torchrec.runnable(options, e)].any()


def skewed(random: np.random.Generator, count: int, biggest: float) -> PlanTables:
    """Tables of random shapes and laws."""
    laws = [zipf(1.2), zipf(0.9), HALVES, UNIFORM]
    shapes = [(int(10 ** random.uniform(2, biggest)), int(random.choice([8, 16]))) for _ in range(count)]
    set_of = TableSet("mine", tuple(Table(f"t{i}", *shape, 10.0) for i, shape in enumerate(shapes)))
    return PlanTables.of(set_of, [laws[int(at)] for at in random.integers(0, len(laws), count)])


@pytest.mark.parametrize("seed", range(6))
def test_the_search_finds_the_best_plan_with_hot_rows(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(50 + seed)
    tables = skewed(random, 2, 5)
    e = Evaluator.on(MACHINE, tables, int(random.choice([256, 8192])), 2, training=seed % 2 == 0)
    limit = tables.total_bytes * 0.8 + 40e6
    best = exact(e, limit)
    found = Search(e, limit, effort_s=0.5).run()
    time_s = float(e.estimate_times(e.loads(found.plan).most))
    assert time_s <= best.time_s * 1.01, f"seed {seed}"
    assert found.bound_s <= best.time_s * 1.001, f"seed {seed}"


def asked(*words: str) -> tuple[int, str, str]:
    """Exit code, output and messages of ``perfmodel plan``."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = run(["plan", *words])
    return code, out.getvalue(), err.getvalue()


SKEWED = ("--gpus", "16", "--distribution", "zipf:1.1", "--effort", "quick", "--set", "max_hbm=3GB")


def test_a_plan_says_which_hot_rows_are_on_every_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables, file = tmp_path / "tables.csv", tmp_path / "plan.json"
    tables.write_text("rows,dim,pooling,count\n10000000,64,20,3\n", encoding="utf-8")
    code, text, _ = asked("--model", str(tables), *SKEWED, "--out", str(file))
    assert code == 0
    assert re.search(r"^Ids +zipf:1.1$", text, re.M)
    assert re.search(r"t\d( \+\d)?: hottest [\d ]+ rows \([\d.]+ % of look-ups, .*B\) on every GPU", text)
    assert re.search(r"\w +\d+×1\*", text) and "* beside a copy of its hottest rows" in " ".join(text.split())
    kept = [entry["hot_rows"] for entry in json.loads(file.read_text())["placements"]]
    assert max(kept) > 0

    again = ("--model", str(tables), "--plan", str(file), *SKEWED[2:])
    code, text, _ = asked(*again, "--json")
    document = json.loads(text)
    assert code == 0 and document["distribution"] == "zipf:1.1"
    assert [entry["hot_rows"] for entry in document["plan"]["placements"]] == kept
    hot = [group for group in document["groups"] if group["hot_rows"]]
    assert hot and all(0.2 < group["hot_share"] < 1 for group in hot)

    uniform = ("--plan", str(file), "--distribution", "uniform", "--set", "max_hbm=3GB", "--json")
    code, text, _ = asked("--model", str(tables), *uniform)
    even = json.loads(text)  # the same plan with uniform ids: the hot rows are no more popular
    assert code == 0 and even["time_s"] > document["time_s"]


def test_a_part_with_the_hottest_row_is_busier_than_is_counted(tmp_path: Path) -> None:
    """10 rows have 5 % of the look-ups each: on one of two parts 0.05 + 0.95/2, over 0.5."""
    e = evaluator(HALVES)
    assert e.fullest_part(0, Scheme(Exchange.RS, 2)) == pytest.approx(1.05)
    assert e.fullest_part(0, Scheme(Exchange.SPARSE, 2, 1, 10)) == pytest.approx(1 + 1 / 90)
    assert e.fullest_part(0, Scheme(Exchange.UB, 2)) == e.fullest_part(0, Scheme(Exchange.RB)) == 1
    assert evaluator(ONE_ROW).fullest_part(0, Scheme(Exchange.RB, 2)) == 2
    assert evaluator(ONE_ROW).fullest_part(0, Scheme(Exchange.RB, 2, 1, 1)) == 1

    tables, file = tmp_path / "tables.csv", tmp_path / "plan.json"
    tables.write_text("rows,dim,pooling\n100000,64,20\n", encoding="utf-8")
    known = PlanTables.load(tables)
    write_plan(Plan(known, (Placement.of(Scheme(Exchange.RS, 8), range(8)),), 8, 8), file)
    words = ("--model", str(tables), "--plan", str(file))
    factor = 1 + 7 / np.sum(np.arange(1.0, 100_001) ** -1.1)
    said = f"The part of t0 with its hottest row gets {factor:.2f}× the ids of the mean part"
    assert said in " ".join(asked(*words, "--distribution", "zipf:1.1")[1].split())
    assert "hottest row" not in asked(*words)[1]


def test_hot_rows_are_looked_up_beside_the_exchange_as_copies_are() -> None:
    """In an overlapped step the hot part of the gather waits for no ids: half of its bytes and more here."""
    e = evaluator(HALVES, rows=10**6, training=True)
    plan = Plan(e.tables, (Placement.of(Scheme(Exchange.SPARSE, 2, 1, 10**5), [0, 1]),), G, e.domain)
    parts = CostedPlan.compute(e, plan).sum_parts(Dense({}))
    found = loads(e, Scheme(Exchange.SPARSE, 2, 1, 10**5))[Resource.GATHER_DRAM][0]
    own = e.count_shards(0, Exchange.SPARSE, 2, 1, 10**5).own[Resource.GATHER_DRAM]
    assert parts.dp_lookup / (parts.dp_lookup + parts.lookup) == pytest.approx(1 - own / found, rel=1e-6)
    assert parts.dp_update > 0 and parts.dp_reduce > 0
