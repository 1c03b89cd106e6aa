"""Random small cases of plans, and what a bound says of each: no plan may take less.

Run:    python tests/oracles/bound_cases.py 500             every plan of a plan file (15 min of one core)
        python tests/oracles/bound_cases.py 500 --listed    plans of the listed schemes
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from oracles.plan_files import Case, Entry, any_entry, descended
from perfmodel.errors import BadInputError
from perfmodel.plan import Evaluator, PlanTables
from perfmodel.plan.bounding.at_once import at_once, at_prices
from perfmodel.plan.bounding.bound import Bounding
from perfmodel.plan.bounding.cover import Cover
from perfmodel.plan.bounding.curves import StepCurves
from perfmodel.plan.bounding.mean_loads import MeanLoads
from perfmodel.plan.bounding.mixed_integer import MixedInteger
from perfmodel.plan.bounding.problem import Problem
from perfmodel.plan.bounding.rooms import RoomBound
from perfmodel.plan.bounding.tangents import TO_US
from perfmodel.plan.choices.options import options_of
from perfmodel.schema.distributions import parse_distribution
from perfmodel.schema.workload import Table, TableSet

MACHINE = "h100-sxm-ib"
DISTRIBUTIONS = ("uniform", "uniform", "zipf:1.05", "zipf:0.6", "one-row", "histogram:fbgemm-t856")
_DIMS = (4, 8, 16, 33, 64, 100, 128, 192)
_ROUNDING = 1 + 1e-9
_TOLD = 50  # cases, after which it says how far it is


def random_case(random: np.random.Generator) -> Case:
    """3 to 6 tables on 4 to 8 GPUs in so much memory that few plans fit, or any."""
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
    evaluator = Evaluator.on(
        MACHINE,
        PlanTables.of(TableSet("random", tables), ids),
        int(random.choice([64, 1024, 8192])),
        G,
        gpus_per_node=node if node < G and G % node == 0 else None,
        training=training,
        optimizer=str(random.choice(["none", "rowwise-adagrad", "adam"])) if training else "none",
        payload=[None, "fp16"][int(random.integers(2))],
    )
    free = Case(evaluator, np.inf)
    needs = [needed_bytes(free, random) for _ in range(15)]
    tight = float(np.quantile(needs, random.choice([0.02, 0.2, 0.6])))
    return Case(evaluator, tight * (1 + 1e-9) if random.random() < 0.85 else np.inf)


def needed_bytes(case: Case, random: np.random.Generator) -> float:
    """Memory of the fullest rank of any plan."""
    entries = [any_entry(case, table, random) for table in range(len(case.tables))]
    return float(case.needs_bytes(entries).max())


def at_once_s(case: Case, entries: list[Entry], known_s: float) -> float:
    """The bound at once, at the loads of a plan and of none [s]; the larger of both."""
    of = options_of if case.listed else Cover
    curves = StepCurves.of(case.evaluator)
    problem = Problem(of(case.evaluator, case.limit_bytes), curves, case.limit_bytes, known_s)
    loads = curves.units(case.evaluator.loads(case.plan(entries)).most)
    found = [at_once(problem, sizes) for sizes in (loads, np.zeros_like(loads))]
    best = max(found, key=lambda each: each.bound_s)
    return max(best.bound_s, at_prices(problem, best, np.inf).bound_s)


def bound_s(case: Case, known_s: float, parts: int = 20, seconds: float = 1.5) -> float:
    """The bound when a plan of ``known_s`` is known, which it cannot be above [s]."""
    of = options_of if case.listed else Cover
    curves = StepCurves.of(case.evaluator)
    problem = Problem(of(case.evaluator, case.limit_bytes), curves, case.limit_bytes, known_s)
    bounding = Bounding(problem, lambda part, relaxed: known_s, 0.01)
    began = time.process_time()
    bounding.run(lambda: bounding.solved >= parts or time.process_time() > began + seconds)
    return bounding.bound_s


def mean_loads_s(case: Case, known_s: float, parts: int = 100, seconds: float = 1.0) -> float:
    """The same from mean loads alone, from no prices but of memory."""
    of = options_of if case.listed else Cover
    curves = StepCurves.of(case.evaluator)
    problem = Problem(of(case.evaluator, case.limit_bytes), curves, case.limit_bytes, known_s)
    means = MeanLoads(problem, np.zeros(curves.step.size), 1.0)
    began = time.process_time()
    means.run(np.inf, lambda: means.solved >= parts or time.process_time() > began + seconds)
    return min(means.bound_us / TO_US, known_s)


def whole_s(case: Case, known_s: float, seconds: float = 1.0) -> float:
    """The same with whole tables."""
    of = options_of if case.listed else Cover
    curves = StepCurves.of(case.evaluator)
    whole = MixedInteger(Problem(of(case.evaluator, case.limit_bytes), curves, case.limit_bytes, known_s))
    began = time.process_time()
    whole.solve(lambda: time.process_time() > began + seconds, lambda options: None)
    return whole.bound_s


def rooms_s(case: Case, known_s: float, seconds: float = 1.5) -> float:
    """The same by the rooms of ranks, of listed schemes."""
    curves = StepCurves.of(case.evaluator)
    problem = Problem(options_of(case.evaluator, case.limit_bytes), curves, case.limit_bytes, known_s)
    rooms = RoomBound(problem, known_s * TO_US)
    began = time.process_time()
    rooms.run(lambda: time.process_time() > began + seconds)
    return rooms.bound_us / TO_US


def compared(seed: int, plans: int = 80, steps: int = 200, *, listed: bool = False) -> tuple[float, float]:
    """(bound, time of the best plan that was tried) of a random case [s]; no plan fits: infinite, twice.

    The bound is told of a plan that takes a third longer than the best one: it may be above that.
    """
    random = np.random.default_rng(seed)
    case = replace(random_case(random), listed=listed)
    best, entries = descended(case, random, plans, steps)
    if not np.isfinite(best):
        return np.inf, np.inf
    try:
        soon = at_once_s(case, entries, best * 4 / 3)
        means = mean_loads_s(case, best * 4 / 3)
        whole = whole_s(case, best * 4 / 3)
        rooms = rooms_s(case, best * 4 / 3) if listed else 0.0
        return max(soon, means, whole, rooms, bound_s(case, best * 4 / 3)), best
    except BadInputError:  # a table fits nowhere, it says: then no plan may fit
        return np.inf, best


def main() -> int:
    gaps, wrong, listed = [], 0, "--listed" in sys.argv
    numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
    for seed in range(*numbers) if numbers else range(20):
        bound, best = compared(seed, listed=listed)
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
