"""Rows over the link, memory and busiest ranks of random plans with tiers, beside a referee's, id by id."""

from __future__ import annotations

import numpy as np
import pytest
from oracles.id_by_id import CountedTable
from oracles.plan_files import Case, Entry, entry
from oracles.tiers_by_id import TierReferee
from perfmodel.model.set_caches import lfu_absent
from perfmodel.passes.allowed_tiers import Below
from perfmodel.passes.tier_loads import law_of
from perfmodel.schema.tiers import parse_tiers

from perfmodel.passes.step_resources import Resource
from perfmodel.plan import Evaluator, PlanTables, plan_from
from perfmodel.schema.distributions import zipf
from perfmodel.schema.workload import Table, TableSet

STATE = {"none": (0, 0), "rowwise-adagrad": (0, 4), "adagrad": (4, 0), "adam": (8, 0)}
COUNTED = {
    "ids": (Resource.CACHE_IDS, 0.01),
    "fetched": (Resource.FETCHED, 0.02),
    "fetched_wire": (Resource.FETCHED_WIRE, 0.02),
    "in_place": (Resource.IN_PLACE, 0.015),
    "in_place_wire": (Resource.IN_PLACE_WIRE, 0.015),
    "updated": (Resource.UPDATED_BELOW, 0.01),
    "updated_wire": (Resource.UPDATED_BELOW_WIRE, 0.01),
}
"""What of the bytes may differ: the draws by chance, and the law of misses."""
FULL, OF_FULL = 0.7, 0.2
"""Of the rows that a cache has room for, how many a batch may ask for; and what may differ where it asks for
more: sets of 32 overflow, and FBGEMM then takes in the first tables' rows first, which no law here counts."""
STEPS = {"ids": "cache_lookup", "fetched": "fetch_rows", "in_place": "gather_host", "updated": "update_host"}
IN_FLIGHT_BYTES = 1.3e-6 * 64e9  # latency and rate of the link of the machine
VERY_SKEWED = 1.05


def random_case(random: np.random.Generator) -> tuple[Case, TierReferee, list[str]]:
    """4 or 5 tables on 2 or 4 GPUs, and the tiers that they may be in."""
    gpus, skew = int(random.choice([2, 4])), float(random.choice([0, 0.4, VERY_SKEWED, 1.2]))
    shapes = zip(random.choice([2, 4, 8], 5), random.choice(["fp32", "fp32", "fp16"], 5), strict=True)
    tables = tuple(
        Table(
            f"t{at}",
            int(10 ** random.uniform(3.7, 4.4)),
            int(random.choice([16, 32, 64])),
            int(pooling),
            width,
        )
        for at, (pooling, width) in enumerate(shapes)
    )[: int(random.integers(4, 6))]
    training, policy = bool(random.integers(2)), str(random.choice(["", ",lfu"]))
    optimizer, batch = str(random.choice(list(STATE))) if training else "none", int(random.choice([128, 512]))
    cached = [f"uvm-caching:{share}%{policy}" for share in random.choice([10, 20, 30, 50], 2, replace=False)]
    evaluator = Evaluator.on(
        "h100-sxm-ib",
        PlanTables.of(TableSet("random", tables), zipf(skew)),
        batch,
        gpus,
        below=Below.of(parse_tiers(["uvm", *cached])),
        training=training,
        optimizer=optimizer,
    )
    counted = [
        CountedTable(t.rows, t.dim, 2 if t.dtype == "fp16" else 4, int(t.pooling), skew) for t in tables
    ]
    referee = TierReferee(counted, batch, IN_FLIGHT_BYTES, *STATE[optimizer], training)
    return Case(evaluator, np.inf), referee, ["hbm", "uvm", *cached]


def any_tier(case: Case, table: int, tiers: list[str], random: np.random.Generator) -> Entry:
    """Whole, in row parts or in column parts, of some ranks, in some tier.

    Very skewed ids in one row part: the one with the hottest row has more than the mean, which a plan counts.
    """
    G, skewed = case.evaluator.gpus, case.tables.ids[table].skew >= VERY_SKEWED
    memory = tiers[2] if table == 0 else str(random.choice(tiers, p=[0.1, 0.3, 0.3, 0.3]))
    cuts = [("rb", 1, 1), ("rb", 1, 2), ("ub", 1, 1), *([("rb", 2, 1), ("rs", G, 1)] if not skewed else [])]
    kind, r, c = cuts[int(random.integers(len(cuts)))]
    if kind == "ub" and (memory == "uvm" or ",lfu" in memory):  # read in place: apart, below
        kind = "rb"
    ranks = [int(rank) for rank in random.permutation(G)[: r * c]]
    return entry((kind, r, c), 0, ranks) | ({} if memory == "hbm" else {"memory": memory})


@pytest.mark.parametrize("seed", range(8))
def test_rows_over_the_link_and_memory_are_what_a_referee_counts(seed: int) -> None:
    random = np.random.default_rng(seed)
    case, referee, tiers = random_case(random)
    document = case.document([any_tier(case, t, tiers, random) for t in range(len(case.tables))])
    counted = referee.count(
        document, random, batches=11_000 // referee.batch, warm=50, read=5_500 // referee.batch
    )
    found = counted.of
    plan = plan_from(document, case.tables)
    loads, cost = case.evaluator.loads(plan), case.evaluator.cost(plan)
    rows = {row.name: row for row in cost.rows}
    for name, (resource, most) in COUNTED.items():
        said, seen = loads.values[resource], found[name]
        full = name.startswith("fetched") and counted.filled.max() > FULL
        np.testing.assert_allclose(said, seen, rtol=OF_FULL if full else most, atol=64, err_msg=name)
        if name in STEPS and said.max() > 0 and not full:
            assert rows[STEPS[name]].payload_bytes == said.max()
            assert seen[rows[STEPS[name]].rank] >= seen.max() * (1 - 2 * most), name
    memory = case.evaluator.memory(plan, loads)
    np.testing.assert_allclose(memory.host, found["host"], rtol=1e-12)
    in_hbm = memory.rows_bytes + memory.optimizer_bytes
    np.testing.assert_allclose(in_hbm, found["hbm"], rtol=1e-3)


@pytest.mark.parametrize(
    ("memory", "rows", "merged"),
    [
        ("uvm", 20_000, False),
        ("uvm", 600, True),
        ("uvm-caching:10%,lfu", 20_000, False),
        ("uvm-caching:50%,lfu", 1200, True),
    ],
)
def test_requests_of_unique_rows_in_place_are_merged_where_a_whole_list_is_on_its_way(
    memory: str, rows: int, merged: bool
) -> None:
    """Each of 4 ranks asks for each of its rows once; 650 rows of 128 bytes are on their way at once."""
    table, G, B = Table("t", rows, 32, 8.0, "fp32"), 4, 256
    tables = PlanTables.of(TableSet("one", (table,)), zipf(1.05))
    case = Case(Evaluator.on("h100-sxm-ib", tables, B, G, below=Below.of(parse_tiers([memory]))), np.inf)
    document = case.document([entry(("ub", 1, 1), 0, [2]) | {"memory": memory}])
    referee = TierReferee([CountedTable(rows, 32, 4, 8, 1.05)], B, IN_FLIGHT_BYTES, 0, 0, False)
    random = np.random.default_rng(1)
    seen = referee.count(document, random, batches=10, warm=0, read=10).of["in_place"][2]
    said = case.evaluator.loads(plan_from(document, case.tables)).values[Resource.IN_PLACE, 2]
    law, share = law_of(zipf(1.05), rows, G * B * 8.0), float(memory.partition(":")[2].partition("%")[0] or 0)
    assert said == pytest.approx(seen, rel=0.03 if share else 0.01)  # sets are drawn by chance
    absent = lfu_absent(law.rate, law.rows, share / 100 * rows / 32, 32.0) if share else law.rows
    every = G * float(absent @ -np.expm1(-law.rate / G)) * 128
    assert (seen < 0.8 * every) == merged
