"""TorchRec's planner with its own estimator and with ours, beside our planner.

Run:    python benchmarks/torchrec_estimator.py            three table sets on 64 GPUs (8 min on 2 cores)
        python benchmarks/torchrec_estimator.py --models criteo-kaggle --gpus 16

Training steps, 65 536 samples of all ranks, fp32, uniform ids, tables in GPU memory. "step ms" is a whole
plan by our model, one set of exchanges for each sharding type in use; "theirs ms" is TorchRec's score of
it; "x" is the step over that of TorchRec's own plan. The planner proposes for as long each time (--limit);
"plan s" is the CPU time that it took, with the estimates.
"""

from __future__ import annotations

import argparse
import functools
import sys
from dataclasses import replace
from time import process_time

import numpy as np
from planner import Loose, placement_of
from planner_torchrec import Rating

from perfmodel.engine.exchange_sets import ExchangeSets
from perfmodel.errors import BadInputError
from perfmodel.in_torchrec import PerfmodelEstimator, PerfmodelRating
from perfmodel.plan import Evaluator, PlanTables, uniform_plan
from perfmodel.plan.for_torchrec import runnable as torchrec
from perfmodel.plan.searching.search import Search
from perfmodel.report.terminal import table

MODELS = ("criteo-kaggle", "mlperf-dlrm-dcnv2", "embark-t200")
_STOCK, _OURS, _RATED, _PLANNER = "its own times", "PerfmodelEstimator", "and PerfmodelRating", "our planner"
_MEMORY, _TO_MS = 0.85, 1e3


def rows_of(model: str, gpus: int, asked: argparse.Namespace) -> list[list[str]]:
    """One line a planner: its times, its score and what it chose."""
    tables = PlanTables.load(model)
    how = {"training": True, "optimizer": "rowwise-adagrad", "sets": ExchangeSets()}
    evaluator = Evaluator.on(asked.machine, tables, max(asked.batch // gpus, 1), gpus, **how)
    limit = _MEMORY * evaluator.setting.machine.value("hbm_bytes")
    base = uniform_plan(tables, "row-wise", gpus, evaluator.domain)
    rating = Rating(torchrec.torchrec_plan(evaluator, base, limit), training=True)
    ours = functools.partial(PerfmodelEstimator, machine=asked.machine)
    perfs = {_STOCK: (None, None), _OURS: (ours, None), _RATED: (ours, PerfmodelRating)}
    found, first = [], 0.0
    for name, times in perfs.items():
        planned = rating.planned(asked.limit, *times)
        if "failed" in planned:
            found.append([name, f"{planned['seconds']:.2g}", "-", "-", "-", planned["failed"]])
            continue
        chosen = [planned["tables"][each] for each in tables.names]
        types = [each["type"] for each in chosen]
        placements = tuple(placement_of(each, gpus, evaluator.domain) for each in chosen)
        costs = evaluator.exchange_by(ExchangeSets(tuple(types)))
        step = _time(costs, Loose(tables, placements, gpus, evaluator.domain))
        first = first or step
        counts = " ".join(f"{kind} {types.count(kind)}" for kind in sorted(set(types)))
        found.append(_line(name, planned["seconds"], step, first, planned["ms"], counts))
    began = process_time()
    plan = Search(evaluator, limit, effort_s=asked.effort, restrict=torchrec.runnable).run()
    seconds = process_time() - began
    file = torchrec.torchrec_plan(evaluator, plan.plan, limit)
    types = [entry.sharding_type for entry in file.tables]
    counts = " ".join(f"{kind} {types.count(kind)}" for kind in sorted(set(types)))
    score = rating.score(file)["ms"]
    found.append(_line(_PLANNER, seconds, plan.cost.time_s, first or plan.cost.time_s, score, counts))
    return found


def _time(evaluator: Evaluator, plan: Loose) -> float:
    """Of a plan in which 3 rows in 8 parts count as 8."""
    rows = np.maximum(plan.tables.rows, plan.row_parts)
    return evaluator.step(replace(evaluator.model, tables=replace(plan.tables, rows=rows)).loads(plan)).time_s


def _line(
    name: str, seconds: float, step_s: float, first_s: float, score_ms: float, counts: str
) -> list[str]:
    ratio = f"{step_s / first_s:.2f}"
    return [name, f"{seconds:.2g}", f"{step_s * _TO_MS:.3f}", ratio, f"{score_ms:.3f}", counts]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=MODELS, help="table sets, or files of tables")
    parser.add_argument("--gpus", nargs="+", type=int, default=(64,))
    parser.add_argument("--machine", default="h100-sxm-ib")
    parser.add_argument("--batch", type=int, default=65536, help="samples of all ranks together")
    parser.add_argument("--limit", type=float, default=30.0, help="seconds of TorchRec's planner")
    parser.add_argument("--effort", type=float, default=10.0, help="counted seconds of our search")
    asked = parser.parse_args()
    heads = ["TorchRec's planner with", "plan s", "step ms", "x", "theirs ms", "sharding types"]
    for model in asked.models:
        for gpus in asked.gpus:
            try:
                rows = rows_of(model, gpus, asked)
            except BadInputError as error:
                print(f"{model}, {gpus} GPUs: {error.message}\n", flush=True)
                continue
            print(f"{model}, {gpus} GPUs of {asked.machine}\n{table(heads, rows, left=(0, 5))}\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
