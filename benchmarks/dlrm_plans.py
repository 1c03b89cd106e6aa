"""Writes the plans of ``perfmodel validate``, ``--dlrm`` and ``--paper``: ``dlrm_plans.py [EFFORT]``.

EFFORT is the work of each search, in counted seconds (10 unless given). The plans are data, so that what is
validated is the cost model, and does not move with the planner.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from perfmodel.plan import plan_record
from perfmodel.plan.searching.search import Search
from perfmodel.validate.dlrm_inputs import load_inputs, planned
from perfmodel.validate.questions import throughput_case
from perfmodel.validate.verdicts import load_claims

FOLDER = Path(__file__).resolve().parents[1] / "data" / "dlrm" / "plans"


def main(effort_s: float) -> None:
    """Plans of every case, one file each."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    cases = {case.name: case for case in planned(load_inputs())}
    asked = [claim.ask for claim in load_claims().claim if claim.ask["what"] == "throughput"]
    throughputs = [
        throughput_case(ask["model"], ask["gpus"], ask["alpha"], ask["batches"][0]) for ask in asked
    ]
    for case in [*cases.values(), *(case for case in throughputs if case.name not in cases)]:
        evaluator = case.evaluator()
        found = Search(evaluator, case.usable_bytes(evaluator), effort_s=effort_s).run()
        path = FOLDER / f"{case.name}.json"
        path.write_text(json.dumps(plan_record(found.plan), separators=(",", ":")) + "\n", encoding="utf-8")
        print(
            f"{case.name}: {found.cost.time_s * 1e3:.3f} ms, {found.gap:.1%} above the bound, {found.stopped}"
        )


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 10.0)
