"""TorchRec's side of benchmarks/planner.py, in a process of its own that can be stopped.

python benchmarks/planner_torchrec.py PLAN.json [--training]: a file for TorchRec, whose tables and topology
count; --training: a step has a backward pass. Answers each line of standard input by one line, all JSON:

    {"ask": "score", "plan": file} -> {"ms": ..., "bytes": ...}: the busiest and the fullest rank of a plan
    {"ask": "plan", "seconds": s}  -> what EmbeddingShardingPlanner finds, proposing for so long
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from collections.abc import Callable
from time import process_time
from typing import Any

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)

import torch  # noqa: E402
import torchrec  # noqa: E402
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder  # noqa: E402
from torchrec.distributed.planner import EmbeddingShardingPlanner  # noqa: E402
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator, get_partition_by_type  # noqa: E402
from torchrec.distributed.planner.perf_models import NoopPerfModel, NoopStorageModel  # noqa: E402
from torchrec.distributed.planner.shard_estimators import (  # noqa: E402
    EmbeddingPerfEstimator,
    EmbeddingStorageEstimator,
)
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation  # noqa: E402
from torchrec.distributed.planner.types import ParameterConstraints, PlannerError, Shard, ShardingOption  # noqa: E402
from torchrec.distributed.planner.utils import build_sharder_data_map, sharder_name  # noqa: E402
from torchrec.optim import RowWiseAdagrad  # noqa: E402

from calibrate import torchrec_plan  # noqa: E402
from perfmodel.schema.torchrec_plan import TorchRecPlan, TorchRecTable  # noqa: E402

_TYPES = {2: torchrec.types.DataType.FP16, 4: torchrec.types.DataType.FP32}


def list_features(entry: TorchRecTable) -> list[str]:
    """Names of the features that look rows of a table up."""
    return [f"f{at or ''}_{entry.table}" for at in range(entry.features)]


def module_of(
    plan: TorchRecPlan, training: bool = False, device: str = "meta", *, weighted: bool = False
) -> Any:
    """The tables as an EmbeddingBagCollection, in training with row-wise Adagrad."""
    module = torchrec.EmbeddingBagCollection(
        device=torch.device(device),
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


class Rating:
    """TorchRec's estimators and its planner on the tables and the topology of a plan for TorchRec."""

    def __init__(self, plan: TorchRecPlan, training: bool) -> None:
        self.plan, self.training = plan, training
        self.module, self.topology = module_of(plan, training), torchrec_plan.topology(plan)
        sharder = EmbeddingBagCollectionSharder()
        self.weights = sharder.shardable_parameters(self.module)
        self.data = build_sharder_data_map({sharder_name(type(self.module)): sharder})

    def option(self, entry: Any, kind: str, kernel: str, shards: list[Any]) -> Any:
        """One table cut so as the sharding option that TorchRec's estimators rate."""
        return ShardingOption(
            name=entry.table,
            tensor=self.weights[entry.table],
            module=("", self.module),
            input_lengths=[entry.pooling],
            batch_size=self.plan.batch,
            sharding_type=kind,
            partition_by=get_partition_by_type(kind),
            compute_kernel=kernel,
            shards=shards,
            is_pooled=True,
        )

    def options(self, plan: TorchRecPlan) -> list[Any]:
        """A plan as sharding options."""
        options = []
        for entry in plan.tables:
            copies = entry.sharding_type == "data_parallel"
            sizes = [[entry.rows, entry.dim]] * plan.gpus if copies else entry.shard_sizes
            offsets = [[0, 0]] * plan.gpus if copies else entry.shard_offsets
            shards = [
                Shard(size=size, offset=offset, rank=rank)
                for size, offset, rank in zip(sizes, offsets, entry.ranks, strict=True)
            ]
            options.append(self.option(entry, entry.sharding_type, entry.compute_kernel, shards))
        return options

    def estimate(self, options: list[Any]) -> list[Any]:
        """The options, each shard with its time and its memory."""
        for estimator in (EmbeddingPerfEstimator, EmbeddingStorageEstimator):
            rating = estimator(self.topology, is_inference=not self.training)
            rating.estimate(options, sharder_data_map=self.data)
        return options

    def score(self, plan: TorchRecPlan) -> dict[str, float]:
        """A plan as TorchRec rates it: the busiest rank's sum [ms], and the fullest one's [bytes]."""
        return self._rated(self.estimate(self.options(plan)))

    def _rated(self, options: list[Any]) -> dict[str, float]:
        models = {"ms": NoopPerfModel, "bytes": NoopStorageModel}
        return {name: float(model(self.topology).rate(options)) for name, model in models.items()}

    def planned(
        self, seconds: float, perf: Callable[..., Any] | None = None, rating: Callable[..., Any] | None = None
    ) -> dict[str, Any]:
        """What TorchRec's planner finds for the tables, its CPU time, and how its own estimators rate it.

        It knows the pooling factors and places tables in GPU memory only; all else is its default.
        perf  estimates the times of shards in place of TorchRec's estimator;  rating  of it rates whole plans
        """
        limits = {
            entry.table: ParameterConstraints(
                compute_kernels=["fused", "dense"], pooling_factors=[entry.pooling]
            )
            for entry in self.plan.tables
        }
        estimators = [
            estimator(self.topology, limits, is_inference=not self.training)
            for estimator in (perf or EmbeddingPerfEstimator, EmbeddingStorageEstimator)
        ]
        enumerator = EmbeddingEnumerator(self.topology, self.plan.batch, limits, estimators)
        began = process_time()
        planner = EmbeddingShardingPlanner(
            topology=self.topology,
            batch_size=self.plan.batch,
            constraints=limits,
            enumerator=enumerator,
            storage_reservation=FixedPercentageStorageReservation(0.0),
            stats=[],
            performance_model=rating(estimators[0]) if rating else None,
            timeout_seconds=max(int(seconds), 1),
        )
        try:
            planner.plan(self.module, [EmbeddingBagCollectionSharder()])
        except PlannerError as error:
            return {"failed": str(error).strip().splitlines()[0], "seconds": process_time() - began}
        seconds, best = process_time() - began, planner._best_plan
        return {
            "seconds": seconds,
            **self._rated(self.estimate(best)),
            "tables": {
                option.name: {
                    "type": option.sharding_type,
                    "ranks": [shard.rank for shard in option.shards],
                }
                for option in best
            },
        }


def main() -> None:
    rating = Rating(torchrec_plan.load(sys.argv[1]), "--training" in sys.argv)
    for line in sys.stdin:
        request = json.loads(line)
        if request["ask"] == "score":
            answer = rating.score(torchrec_plan.load(request["plan"]))
        else:
            answer = rating.planned(request["seconds"])
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
