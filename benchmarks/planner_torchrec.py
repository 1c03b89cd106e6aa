"""TorchRec's planner for benchmarks/planner.py, in a process of its own that can be stopped.

python benchmarks/planner_torchrec.py PLAN.json SECONDS [--training]: a file for TorchRec, whose tables and
topology count; how long its planner may propose; --training: a step has a backward pass. It prints a line of
JSON, {"tables": {name: {"type": sharding type, "ranks": ranks of its shards}}}, or {"why": "no plan: ..."}.
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from typing import Any

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)

import torch  # noqa: E402
import torchrec  # noqa: E402
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder  # noqa: E402
from torchrec.distributed.planner import EmbeddingShardingPlanner  # noqa: E402
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator  # noqa: E402
from torchrec.distributed.planner.shard_estimators import (  # noqa: E402
    EmbeddingPerfEstimator,
    EmbeddingStorageEstimator,
)
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation  # noqa: E402
from torchrec.distributed.planner.types import ParameterConstraints, PlannerError  # noqa: E402
from torchrec.optim import RowWiseAdagrad  # noqa: E402

from calibrate import torchrec_plan  # noqa: E402
from perfmodel.schema.torchrec_plan import TorchRecPlan, TorchRecTable  # noqa: E402

_TYPES = {2: torchrec.types.DataType.FP16, 4: torchrec.types.DataType.FP32}


def list_features(entry: TorchRecTable) -> list[str]:
    """Names of the features that look rows of a table up."""
    return [f"f{number or ''}_{entry.table}" for number in range(entry.features)]


def module_of(plan: TorchRecPlan, training: bool = False, *, weighted: bool = False) -> Any:
    """The tables as an EmbeddingBagCollection, in training with row-wise Adagrad."""
    module = torchrec.EmbeddingBagCollection(
        device=torch.device("meta"),
        tables=[
            torchrec.EmbeddingBagConfig(
                name=entry.table,
                embedding_dim=entry.dim,
                num_embeddings=entry.rows,
                feature_names=list_features(entry),
                data_type=_TYPES[entry.element_bytes],
            )
            for entry in plan.tables
        ],
        is_weighted=weighted,
    )
    if training:
        for weight in module.parameters():
            weight._optimizer_classes = [RowWiseAdagrad]  # what its storage estimator looks at
    return module


def find_plan(plan: TorchRecPlan, seconds: float, training: bool) -> dict[str, Any]:
    """What TorchRec's planner finds for the tables and the topology of a plan, as it is printed.

    It knows the pooling factors and places tables in GPU memory only; all else is its default.
    """
    limits = {
        entry.table: ParameterConstraints(compute_kernels=["fused", "dense"], pooling_factors=[entry.pooling])
        for entry in plan.tables
    }
    topology = torchrec_plan.topology(plan)
    estimators = [
        estimator(topology, limits, is_inference=not training)
        for estimator in (EmbeddingPerfEstimator, EmbeddingStorageEstimator)
    ]
    planner = EmbeddingShardingPlanner(
        topology=topology,
        batch_size=plan.batch,
        constraints=limits,
        enumerator=EmbeddingEnumerator(topology, plan.batch, limits, estimators),
        storage_reservation=FixedPercentageStorageReservation(0.0),
        stats=[],
        timeout_seconds=max(int(seconds), 1),
    )
    try:
        planner.plan(module_of(plan, training), [EmbeddingBagCollectionSharder()])
    except PlannerError as error:
        return {"why": f"no plan: {str(error).strip().splitlines()[0]}"}
    tables = {
        option.name: {"type": option.sharding_type, "ranks": [shard.rank for shard in option.shards]}
        for option in planner._best_plan
    }
    return {"tables": tables}


if __name__ == "__main__":
    print(
        json.dumps(find_plan(torchrec_plan.load(sys.argv[1]), float(sys.argv[2]), "--training" in sys.argv))
    )
