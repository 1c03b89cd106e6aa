"""TorchRec's side of benchmarks/planner.py, in a process of its own that can be stopped.

python benchmarks/planner_torchrec.py CASE.json: scores plans with TorchRec's EmbeddingPerfEstimator, then
lets its EmbeddingShardingPlanner plan the same tables. Prints each score, and the plan, as a line of JSON.

CASE.json: "plans", files for TorchRec by name, the first one's tables and topology are planned; "seconds"
that its proposers may take; "training", whether a step has a backward pass.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import warnings
from pathlib import Path
from typing import Any

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)

import torch  # noqa: E402
import torchrec  # noqa: E402
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder  # noqa: E402
from torchrec.distributed.planner import EmbeddingShardingPlanner  # noqa: E402
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator, get_partition_by_type  # noqa: E402
from torchrec.distributed.planner.perf_models import NoopPerfModel  # noqa: E402
from torchrec.distributed.planner.shard_estimators import (  # noqa: E402
    EmbeddingPerfEstimator,
    EmbeddingStorageEstimator,
)
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation  # noqa: E402
from torchrec.distributed.planner.types import ParameterConstraints, PlannerError, Shard, ShardingOption  # noqa: E402
from torchrec.distributed.planner.utils import build_sharder_data_map, sharder_name  # noqa: E402
from torchrec.optim import RowWiseAdagrad  # noqa: E402

from calibrate import torchrec_plan  # noqa: E402
from perfmodel.schema.torchrec_plan import TorchRecPlan  # noqa: E402

_TYPES = {2: torchrec.types.DataType.FP16, 4: torchrec.types.DataType.FP32}


def module_of(plan: TorchRecPlan, training: bool) -> Any:
    """The tables as an EmbeddingBagCollection without memory; in training with row-wise Adagrad."""
    module = torchrec.EmbeddingBagCollection(
        device=torch.device("meta"),
        tables=[
            torchrec.EmbeddingBagConfig(
                name=entry.table,
                embedding_dim=entry.dim,
                num_embeddings=entry.rows,
                feature_names=[f"f_{entry.table}"],
                data_type=_TYPES[entry.element_bytes],
            )
            for entry in plan.tables
        ],
    )
    if training:
        for weight in module.parameters():
            weight._optimizer_classes = [RowWiseAdagrad]  # what its storage estimator looks at
    return module


def options_of(plan: TorchRecPlan, module: Any) -> list[Any]:
    """A plan as the sharding options that TorchRec's estimator scores."""
    weights = EmbeddingBagCollectionSharder().shardable_parameters(module)
    found = []
    for entry in plan.tables:
        copies = entry.sharding_type == "data_parallel"
        sizes = [[entry.rows, entry.dim]] * plan.gpus if copies else entry.shard_sizes
        offsets = [[0, 0]] * plan.gpus if copies else entry.shard_offsets
        found.append(
            ShardingOption(
                name=entry.table,
                tensor=weights[entry.table],
                module=("", module),
                input_lengths=[entry.pooling],
                batch_size=plan.batch,
                sharding_type=entry.sharding_type,
                partition_by=get_partition_by_type(entry.sharding_type),
                compute_kernel=entry.compute_kernel,
                shards=[
                    Shard(size=size, offset=offset, rank=rank)
                    for size, offset, rank in zip(sizes, offsets, entry.ranks, strict=True)
                ],
                is_pooled=True,
            )
        )
    return found


def score_ms(plan: TorchRecPlan, module: Any, training: bool) -> float:
    """Time of a step as TorchRec's planner rates a plan [ms]: the busiest rank's sum."""
    topology, sharder = torchrec_plan.topology(plan), EmbeddingBagCollectionSharder()
    options = options_of(plan, module)
    data = build_sharder_data_map({sharder_name(type(module)): sharder})
    EmbeddingPerfEstimator(topology, is_inference=not training).estimate(options, sharder_data_map=data)
    return float(NoopPerfModel(topology).rate(options))


def planned(plan: TorchRecPlan, module: Any, training: bool, seconds: float) -> dict[str, Any]:
    """What TorchRec's planner finds for the tables of ``plan``, how long it takes and how it rates it.

    It knows the pooling factors and places tables in GPU memory only; all else is its default.
    """
    limits = {
        entry.table: ParameterConstraints(compute_kernels=["fused", "dense"], pooling_factors=[entry.pooling])
        for entry in plan.tables
    }
    topology = torchrec_plan.topology(plan)
    estimators = [
        EmbeddingPerfEstimator(topology, limits, is_inference=not training),
        EmbeddingStorageEstimator(topology, limits, is_inference=not training),
    ]
    enumerator = EmbeddingEnumerator(topology, plan.batch, limits, estimators)
    began = time.monotonic()
    planner = EmbeddingShardingPlanner(
        topology=topology,
        batch_size=plan.batch,
        constraints=limits,
        enumerator=enumerator,
        storage_reservation=FixedPercentageStorageReservation(0.0),
        stats=[],
        timeout_seconds=max(int(seconds), 1),
    )
    try:
        planner.plan(module, [EmbeddingBagCollectionSharder()])
    except PlannerError as error:
        return {"failed": str(error).strip().splitlines()[0], "seconds": time.monotonic() - began}
    best = planner._best_plan
    return {
        "seconds": time.monotonic() - began,
        "ms": float(NoopPerfModel(topology).rate(best)),
        "tables": {
            option.name: {
                "type": option.sharding_type,
                "ranks": [shard.rank for shard in option.shards],
            }
            for option in best
        },
    }


def main() -> None:
    case = json.loads(Path(sys.argv[1]).read_text())
    plans = {name: torchrec_plan.load(path) for name, path in case["plans"].items()}
    first = next(iter(plans.values()))
    module = module_of(first, case["training"])
    for name, plan in plans.items():
        print(json.dumps({"name": name, "ms": score_ms(plan, module, case["training"])}), flush=True)
    print(json.dumps({"planned": planned(first, module, case["training"], case["seconds"])}), flush=True)


if __name__ == "__main__":
    main()
