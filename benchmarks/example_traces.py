"""The traces of docs/examples/traces: two made runs of four ranks, in the format of torch.profiler.

Run:    python benchmarks/example_traces.py --out docs/examples/traces

They are made, not measured. Bytes are those of a plan on four GPUs; times are what the shipped calibration
says of H100, times 1.15 of collectives and 1.1 of kernels, with 3 % of scatter; rank 2 comes up to 4 us late.
The run "sizes" has batches of several sizes, to make a calibration of; the run "own" has one, to compare.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from perfmodel.passes.exchange_sets import ExchangeSets
from perfmodel.passes.schemes import Exchange
from perfmodel.plan import Evaluator, Placement, Plan, PlanTables, Scheme, write_plan
from perfmodel.plan.made_for import MadeFor
from perfmodel.schema.table_files import load_tables
from perfmodel.schema.traces import KernelFamily
from perfmodel.validate.traced.expected import PlannedExchange, PlannedPass, planned_pass

TABLES = (
    "name,rows,dim,pooling\nusers,40000000,64,20\nitems,10000000,64,10\nshops,200000,32,4\ndays,400,32,1\n"
)
RANKS, BATCH = 4, 1024
RUNS = {"sizes": (256, 512, 1024, 2048, 4096, 8192) * 3, "own": (BATCH,) * 8}
SLOWER, SLOWER_KERNELS, SCATTER, LATE_US = 1.15, 1.1, 0.03, 4.0
KERNELS = {
    KernelFamily.BUCKETIZE: "_block_bucketize_sparse_features_cuda_kernel2",
    KernelFamily.GATHER_POOL: "split_embedding_codegen_forward_unweighted_kernel",
}
_NAMES = {
    "all_to_all": ("all_to_allv", "SendRecv"),
    "reduce_scatter": ("_reduce_scatter_base", "ReduceScatter"),
}
_GAP_US, _STEP_US = 2.0, 20.0


def plan_of(tables: PlanTables) -> Plan:
    """The two large tables by rows on all ranks, the small ones whole on ranks 2 and 3."""
    rows = Placement.of(Scheme(Exchange.RS, RANKS), range(RANKS))
    whole = [Placement.of(Scheme(Exchange.RB), [rank]) for rank in (2, 3)]
    return Plan(tables, (rows, rows, *whole), RANKS, RANKS)


def evaluator_of(tables: PlanTables, batch: int) -> Evaluator:
    """As TorchRec runs it: exchanges for each kind of sharding."""
    sets = ExchangeSets(("row_wise", "row_wise", "table_wise", "table_wise"))
    return Evaluator.on("h100-sxm-ib", tables, batch, RANKS, sets=sets)


def _kernel(name: str, at_us: float, time_us: float, stream: int, args: dict[str, Any]) -> dict[str, Any]:
    return {
        "ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream,
        "ts": round(at_us, 3), "dur": round(time_us, 3), "args": {"stream": stream, "device": 0, **args},
    }  # fmt: skip


def _collective(step: PlannedExchange, rank: int, at_us: float, time_us: float) -> dict[str, Any]:
    bags = "bags" in step.name
    sent, received = (int(side[rank]) // (4 if bags else 8) for side in (step.sent, step.received))
    name, kind = _NAMES[step.row.collective]
    shares = step.received / step.received.sum()
    uneven = kind == "SendRecv" and RANKS * shares.max() > 1.01
    split = [int(sent * share) for share in shares] if uneven else []
    said = {
        "Collective name": name, "In msg nelems": sent, "Out msg nelems": received, "Group size": RANKS,
        "dtype": "Float" if bags else "Long", "In split size": str(split), "Out split size": "[]",
        "Process Group Name": "0", "Process Group Description": "default_pg",
        "Process Group Ranks": str(list(range(RANKS))),
    }  # fmt: skip
    return _kernel(f"ncclDevKernel_{kind}(ncclDevKernelArgsStorage<4096ul>)", at_us, time_us, 20, said)


def _in_order(planned: PlannedPass) -> list[Any]:
    """Exchanges in TorchRec's order; ids are bucketized before them, and looked up before the bags leave."""
    kernels = {each.family: each for each in planned.kernels}
    steps: list[Any] = [kernels[KernelFamily.BUCKETIZE], *planned.exchanges]
    at = next(i for i, step in enumerate(steps) if "bags" in step.name)
    return [*steps[:at], kernels[KernelFamily.GATHER_POOL], *steps[at:]]


def events_of(passes: Sequence[PlannedPass], seed: int) -> dict[int, list[dict[str, Any]]]:
    """Events of every rank, one pass after the other."""
    random, found, at = np.random.default_rng(seed), defaultdict[int, list[dict[str, Any]]](list), 1000.0
    for number, planned in enumerate(passes):
        began, at = at, at + _GAP_US
        for step in _in_order(planned):
            scatter = float(np.exp(SCATTER * random.standard_normal()))
            if isinstance(step, PlannedExchange):
                late = random.uniform(0, 1, RANKS)
                late[2] += LATE_US * random.uniform()
                end = at + late.max() + 1e6 * step.row.time_s * SLOWER * scatter
                for rank in range(RANKS):
                    starts = at + late[rank]
                    found[rank].append(_collective(step, rank, starts, end - starts))
            else:
                mean_us = 1e6 * sum(row.time_s for row in step.rows) * SLOWER_KERNELS * scatter
                times = mean_us * step.shares / step.shares.max()
                end = at + float(times.max())
                for rank in range(RANKS):
                    found[rank].append(_kernel(KERNELS[step.family], at, float(times[rank]), 7, {}))
            at = end + _GAP_US
        for rank in range(RANKS):
            found[rank].append(
                {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "pid": 9, "tid": 1,
                 "ts": round(began, 3), "dur": round(at - began, 3), "args": {}}
            )  # fmt: skip
        at += _STEP_US
    return found


def document(rank: int, events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """As the profiler writes the trace of one rank."""
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}],
        "distributedInfo": {
            "backend": "nccl", "rank": rank, "world_size": RANKS, "nccl_version": "2.29.2",
            "pg_config": [{"pg_name": "0", "ranks": list(range(RANKS)), "pg_size": RANKS}],
        },
        "baseTimeNanoseconds": 1_700_000_000_000_000_000,
        "host_name": "made",
        "traceEvents": list(events),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the tables, the plan and the runs")
    folder: Path = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tables.csv").write_text(TABLES)
    tables = PlanTables.of(load_tables(str(folder / "tables.csv")))
    plan = plan_of(tables)
    write_plan(plan, folder / "plan.json", MadeFor.of(evaluator_of(tables, BATCH)))
    for seed, (name, batches) in enumerate(RUNS.items()):
        (folder / name).mkdir(exist_ok=True)
        passes = [planned_pass(evaluator_of(tables, batch), plan) for batch in batches]
        for rank, events in events_of(passes, seed).items():
            text = json.dumps(document(rank, events), separators=(",", ":")).encode()
            (folder / name / f"rank{rank}.json.gz").write_bytes(gzip.compress(text, mtime=0))


if __name__ == "__main__":
    main()
