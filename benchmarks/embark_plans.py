"""Writes the plans of EMBark's workloads for ``perfmodel validate --paper``: ``embark_plans.py [EFFORT]``.

EFFORT is the work of each search, in counted seconds (10 unless given). The plans are data, so that what is
validated is the cost model, and does not move with the planner.
"""

from __future__ import annotations

import json
import sys

from perfmodel.plan.plan_files import plan_record
from perfmodel.plan.searching.search import Search
from perfmodel.resources import data_path
from perfmodel.validate.embark import build_evaluator, count_usable_bytes, load_embark, plan_name
from perfmodel.validate.verdicts import load_claims

_BATCH = 65536


def main(effort_s: float) -> None:
    """Plans of every workload, one file each."""
    run = load_embark()
    questions = [claim.ask for claim in load_claims()]
    models = dict.fromkeys([*run.models, *(ask["model"] for ask in questions if ask["what"] == "throughput")])
    for model in models:
        evaluator = build_evaluator(model, run.gpus, _BATCH)
        result = Search(evaluator, count_usable_bytes(evaluator), effort_s=effort_s).run()
        path = data_path("dlrm", "plans", plan_name(model, run.gpus))
        record = json.dumps(plan_record(result.costed.plan), separators=(",", ":"))
        path.write_text(f"{record}\n", encoding="utf-8")
        print(f"{model}: {result.costed.time_s * 1e3:.3f} ms, {result.stopped}")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 10.0)
