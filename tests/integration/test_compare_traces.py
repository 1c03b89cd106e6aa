"""TorchRec really run on two ranks under the profiler: all exchanges and kernels of its plan are found.

What is found does not depend on how fast this machine is; the times are not judged here.
"""

from __future__ import annotations

import json
from pathlib import Path

import forked_ranks
import pytest
from cli_calls import called

from perfmodel.passes.exchange_sets import ExchangeSets
from perfmodel.passes.schemes import Exchange
from perfmodel.plan import Evaluator, Placement, Plan, PlanTables, Scheme, write_plan
from perfmodel.plan.for_torchrec import runnable as torchrec
from perfmodel.plan.made_for import MadeFor
from perfmodel.schema.workload import Table, TableSet

pytest.importorskip("torch")
pytest.importorskip("torchrec")

PROGRAM = Path(__file__).resolve().parents[2] / "benchmarks" / "torchrec_traces.py"
SHAPES = (("users", 4000, 32, 5.0), ("shops", 1000, 32, 2.0), ("days", 60, 16, 1.0))
BATCH = 64


def test_a_traced_training_step_is_found_whole(tmp_path: Path) -> None:
    """By rows on both ranks, and whole on rank 0 and on rank 1; rank 1 comes late."""
    tables = PlanTables.of(TableSet("mine", tuple(Table(*each) for each in SHAPES)))
    placed = [Placement.of(Scheme(Exchange.RS, 2), range(2))]
    placed += [Placement.of(Scheme(Exchange.RB), [rank]) for rank in (0, 1)]
    asked = {"training": True, "optimizer": "rowwise-adagrad", "sets": ExchangeSets()}
    evaluator = Evaluator.on("h100-sxm-ib", tables, BATCH, 2, **asked)
    plan = Plan(tables, tuple(placed), 2, 2)
    file = torchrec.torchrec_plan(evaluator, plan)
    torchrec.write_torchrec_plan(file, tmp_path / "plan.json")
    folder = tmp_path / "traces"
    words = [
        str(tmp_path / "plan.json"),
        "--out",
        str(folder),
        "--training",
        "--steps",
        "3",
        "--late",
        "1:20ms",
    ]
    forked_ranks.said_by(PROGRAM, *words)
    (tmp_path / "tables.csv").write_text(
        "name,rows,dim,pooling\n" + "".join(f"{n},{r},{d},{p}\n" for n, r, d, p in SHAPES)
    )
    traces = [str(folder / f"trace_rank{rank}.json.gz") for rank in (0, 1)]
    ask = ["compare", *traces, "--model", str(tmp_path / "tables.csv"), "--json"]
    ours = called(*ask, "--plan", str(tmp_path / "plan.json"))
    theirs = called(*ask, "--torchrec-plan", str(folder / "plan.txt"), "--batch", str(BATCH))
    assert ours.code in (0, 6) and theirs.code in (0, 6), (ours.err, theirs.err)
    record = json.loads(ours.out)
    write_plan(plan, tmp_path / "own.json", MadeFor.of(evaluator))  # knows one set of exchanges for all
    plain = called(*ask, "--plan", str(tmp_path / "own.json"))
    assert "own.json as TorchRec runs it" in " ".join(plain.err.split())  # it wraps
    assert json.loads(plain.out)["steps"] == record["steps"]
    assert json.loads(theirs.out)["steps"] == record["steps"]
    assert record["training"] and record["all_ranks"] and not record["missing"]
    assert not record["not_of_the_plan"]
    names = {step["name"] for step in record["steps"]}
    assert names == {
        "all_to_all_splits", "all_to_all_lengths", "all_to_all_ids", "all_to_all_bags",
        "all_to_all_gradients",
        "all_to_all_splits_row_wise", "all_to_all_lengths_row_wise", "all_to_all_ids_row_wise",
        "reduce_scatter_bags", "all_gather_gradients", "bucketize", "gather_pool", "backward",
    }  # fmt: skip
    for step in record["steps"]:
        near = pytest.approx(step["planned_bytes"], rel=0.2 if "ids" in step["name"] else 0)
        assert step["seen_bytes"] == near, step["name"]
        assert step["measured_s"] > 0 and step["iterations"] == 2
    assert record["wait_s"] > 0 and record["whole_s"] > record["wait_s"]
