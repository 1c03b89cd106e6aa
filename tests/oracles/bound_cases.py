"""Random small cases of plans, and what a bound says of each: no plan may take less.

Run:    python tests/oracles/bound_cases.py 500        plans of the listed schemes (20 min of one core)
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from oracles.plan_files import Case, Entry, any_entry, descended
from perfmodel.errors import BadInputError
from perfmodel.plan import Evaluator, PlanTables
from perfmodel.plan.bounding.curves import StepCurves
from perfmodel.plan.bounding.lower_bound import lower_bound
from perfmodel.plan.choices.options import options_of
from perfmodel.schema.workload import Table, TableSet, parse_distribution

MACHINE = "h100-sxm-ib"
DISTRIBUTIONS = ("uniform", "uniform", "zipf:1.05", "zipf:0.6", "one-row", "histogram:fbgemm-t856")
_DIMS = (4, 8, 16, 33, 64, 100, 128, 192)
_ROUNDING = 1 + 1e-9
_TOLD = 50  # cases, after which it says how far it is


def random_tables(random: np.random.Generator) -> TableSet:
    """3 to 6 tables, each with ids of its own popularity."""
    count = int(random.integers(3, 7))
    tables = tuple(
        Table(
            f"t{place}",
            int(10 ** random.uniform(0.5, 7)),
            int(random.choice(_DIMS)),
            float(random.choice([1, 2, 4, 30, 100])),
            str(random.choice(["fp32", "fp16"])),
            distribution=parse_distribution(str(random.choice(DISTRIBUTIONS))),
        )
        for place in range(count)
    )
    return TableSet("random", tables)


def random_evaluator(random: np.random.Generator) -> Evaluator:
    """3 to 6 tables on 4 to 8 GPUs."""
    G, T = int(random.integers(4, 9)), int(random.integers(3, 7))
    node = int(random.choice([2, 4, 8]))
    tables = tuple(
        Table(
            f"t{at}",
            int(10 ** random.uniform(0.5, 7)),
            int(random.choice(_DIMS)),
            float(random.choice([1, 2, 4, 30, 100])),
            str(random.choice(["fp32", "fp16"])),
        )
        for at in range(T)
    )
    ids = [parse_distribution(str(random.choice(DISTRIBUTIONS)))] * T
    training = bool(random.integers(2))
    return Evaluator.on(
        MACHINE,
        PlanTables.of(TableSet("random", tables), ids),
        int(random.choice([64, 1024, 8192])),
        G,
        gpus_per_node=node if node < G and G % node == 0 else None,
        training=training,
        optimizer=str(random.choice(["none", "rowwise-adagrad", "adam"])) if training else "none",
        payload=[None, "fp16"][int(random.integers(2))],
    )


def random_case(random: np.random.Generator) -> Case:
    """Tables in so much memory that few plans of listed schemes fit, or any."""
    evaluator = random_evaluator(random)
    free = Case(evaluator, np.inf, listed=True)
    needs = [needed_bytes(free, random) for _ in range(15)]
    tight = float(np.quantile(needs, random.choice([0.02, 0.2, 0.6])))
    return Case(evaluator, tight * (1 + 1e-9) if random.random() < 0.85 else np.inf, listed=True)


def needed_bytes(case: Case, random: np.random.Generator) -> float:
    """Memory of the fullest rank of any plan."""
    entries = [any_entry(case, table, random) for table in range(len(case.tables))]
    return float(case.needs_bytes(entries).max())


def bound_s(case: Case, entries: list[Entry], known_s: float) -> float:
    """The larger bound [s] of two: from the loads of a plan, and from none."""
    curves = StepCurves.of(case.evaluator)
    options = options_of(case.evaluator, case.limit_bytes)
    loads = curves.units(case.evaluator.loads(case.plan(entries)).most)
    bounds = [
        lower_bound(options, curves, case.limit_bytes, sizes, known_s)
        for sizes in (loads, np.zeros_like(loads))
    ]
    return min(max(bounds), known_s)


def compared(seed: int, plans: int = 80, steps: int = 200) -> tuple[float, float]:
    """(bound, time of the best plan that was tried) of a random case [s]; no plan fits: infinite, twice.

    The bound is told of a plan that takes a third longer than the best one: it may be above that.
    """
    random = np.random.default_rng(seed)
    case = random_case(random)
    best, entries = descended(case, random, plans, steps)
    if not np.isfinite(best):
        return np.inf, np.inf
    try:
        return bound_s(case, entries, best * 4 / 3), best
    except BadInputError:  # a table fits nowhere, it says: then no plan may fit
        return np.inf, best


def main() -> int:
    gaps, wrong = [], 0
    numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
    for seed in range(*numbers) if numbers else range(20):
        bound, best = compared(seed)
        if not np.isfinite(best):
            continue
        gaps.append(1 - bound / best)
        if len(gaps) % _TOLD == 0:
            print(
                f"{len(gaps)} cases, {wrong} with a plan below the bound so far", file=sys.stderr, flush=True
            )
        if bound > best * _ROUNDING:
            wrong += 1
            print(f"seed {seed}: bound {bound * 1e6:.3f} us, a plan takes {best * 1e6:.3f} us", flush=True)
    found = np.quantile(gaps, [0, 0.5, 0.9, 1])
    print(f"{len(gaps)} cases, {wrong} with a plan below the bound")
    least, middle, most, worst = (f"{gap:.1%}" for gap in found)
    print(f"gap to the best plan that was tried: {least} to {worst}, median {middle}, 90 % below {most}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
