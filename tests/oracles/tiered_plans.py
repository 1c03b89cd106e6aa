"""Every plan of small tables with tiers below the HBM, priced one by one: the best, and what is said of it.

Run:    python tests/oracles/tiered_plans.py 40         random cases on 4 GPUs (5 min of one core)
        python tests/oracles/tiered_plans.py 40 80      those numbered 40 to 79
Ranks of one node are alike, so of plans that differ in their numbers alone one is priced.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from perfmodel.passes.allowed_tiers import Below
from perfmodel.plan.choices.node_memory import below_fits
from perfmodel.plan.searching.tiered_search import TieredSearch
from perfmodel.schema.tiers import parse_tiers

from perfmodel.passes.schemes import Exchange
from perfmodel.plan import Evaluator, Placement, Plan, PlanTables, ShardLoads
from perfmodel.plan.choices.options import Options, options_of
from perfmodel.schema.distributions import parse_distribution
from perfmodel.schema.workload import Table, TableSet

Array = NDArray[np.float64]

BOX = "h100-sxm-ib"
IDS = ("uniform", "zipf:0.8", "zipf:1.05", "zipf:1.2")
TIERS = (
    "uvm,uvm-caching:10%,uvm-caching:50%",
    "uvm,uvm-caching:5%,lfu,uvm-caching:30%,lfu",
    "uvm-caching:20%",
    "uvm,uvm-caching:10%,prefetch,uvm-caching:40%,prefetch",
    "uvm",
    "uvm-caching:20%,ssd:20%",
)
_ROUNDING, _SAME = 1e-9, 1e-6


@dataclass(frozen=True, eq=False)
class TieredCase:
    """Tables in so much memory a GPU, and the options that plans of them have."""

    evaluator: Evaluator
    limit_bytes: float
    options: Options


@dataclass(frozen=True)
class Judged:
    """Of one case: what is found, its bound, and the best of all plans that fit [s]; how many those are."""

    found_s: float
    bound_s: float
    best_s: float
    plans: int

    @property
    def wrong(self) -> str:
        """What is not true of it; empty: nothing."""
        if self.bound_s > self.best_s * (1 + _ROUNDING):
            return "a plan is below the bound"
        if self.found_s > self.best_s * (1 + _SAME):
            return f"a plan is {self.found_s / self.best_s - 1:.2%} faster than what is found"
        return ""


def random_case(seed: int, gpus: int = 4) -> TieredCase:
    """Three tables of unlike size and use, of which not all fit the HBM."""
    random = np.random.default_rng(seed)
    some = tuple(
        Table(
            f"t{at}",
            int(10 ** random.uniform(3.3, 5)),
            int(random.choice([16, 32, 64])),
            float(random.choice([1, 2, 8, 20])),
        )
        for at in range(3)
    )
    tables = PlanTables.of(TableSet("few", some), parse_distribution(str(random.choice(IDS))))
    training = bool(random.integers(2))
    evaluator = Evaluator.on(
        BOX,
        tables,
        int(random.choice([64, 256, 1024])),
        gpus,
        below=Below.of(parse_tiers(str(random.choice(TIERS)).split(","))),
        training=training,
        optimizer=str(random.choice(["none", "rowwise-adagrad", "adam"])) if training else "none",
    )
    rows = float(tables.rows @ tables.dim) * 4
    limit = rows / gpus * float(random.choice([0.5, 0.8, 1.2])) + 4e6
    o = options_of(evaluator, limit)
    kept = (o.hot == 0) & np.isin(o.exchange, [Exchange.RB, Exchange.DP, Exchange.RS])
    return TieredCase(evaluator, limit, o.kept(kept & (o.c == 1)))


def judged(case: TieredCase, effort_s: float) -> Judged:
    """By all plans."""
    times = all_plans_s(case.evaluator, case.options, case.limit_bytes)
    found = TieredSearch(case.evaluator, case.limit_bytes, options=case.options, effort_s=effort_s).run()
    return Judged(found.cost.time_s, found.bound_s, float(times.min()), times.size)


def all_plans_s(evaluator: Evaluator, o: Options, limit_bytes: float) -> Array:
    """Times of all plans of some options on any ranks that fit, with the caches that ranks share [s]."""
    most = []
    for option in product(*(range(o.of(t).start, o.of(t).stop) for t in range(o.kind_of.size))):
        shards = ShardLoads(o.own[list(option)], o.everywhere[list(option)])
        for ranks in unlike_ranks(o, option, [()] * o.gpus):
            cut = zip(option, ranks, strict=True)
            placed = tuple(Placement.of(o.scheme(at), which) for at, which in cut)
            plan = Plan(evaluator.tables, placed, o.gpus, o.domain)
            loads = evaluator.loads(plan, shards)
            memory = evaluator.memory(plan, loads)
            if float(memory.total_bytes.max()) <= limit_bytes and below_fits(evaluator, memory.below):
                most.append(loads.most)
    return evaluator.exact_times(np.array(most))


def unlike_ranks(
    o: Options, option: tuple[int, ...], has: list[tuple[int, ...]]
) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Ranks of the shards of each table; ``has``  of each rank the tables before that it has a shard of."""
    if not option:
        yield ()
        return
    at, seen = option[0], set()
    for ranks in ranks_of(o, at):
        alike = tuple(sorted(has[rank] for rank in ranks))
        if alike in seen:
            continue
        seen.add(alike)
        now = [(*each, len(option)) if rank in ranks else each for rank, each in enumerate(has)]
        for rest in unlike_ranks(o, option[1:], now):
            yield (ranks, *rest)


def ranks_of(o: Options, at: int) -> list[tuple[int, ...]]:
    if o.parts[at] == 0:
        return [()]
    if o.everywhere_held[at]:
        return [tuple(range(o.gpus))]
    return list(combinations(range(o.gpus), int(o.parts[at])))


def main() -> int:
    numbers = [int(word) for word in sys.argv[1:]]
    gaps, wrong = [], 0
    for seed in range(*numbers) if numbers else range(10):
        one = judged(random_case(seed), 6.0)
        gaps.append(1 - one.bound_s / one.found_s)
        if one.wrong:
            wrong += 1
            print(f"case {seed}: {one.wrong} ({one.plans} plans)", flush=True)
    least, middle, most = np.quantile(gaps, [0, 0.5, 1])
    print(f"{len(gaps)} cases, {wrong} wrong")
    print(f"gap of the bound to the best plan: {least:.1%} to {most:.1%}, median {middle:.1%}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
