"""Ratings of whole plans in TorchRec's planner by our model, as a ``PerfModel``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from torchrec.distributed.planner.types import PerfModel, ShardingOption

from perfmodel.engine.cost import Evaluator
from perfmodel.engine.exchange_sets import ExchangeSets
from perfmodel.engine.schemes import copied
from perfmodel.engine.steps import SHARDING_TYPES
from perfmodel.in_torchrec.estimator import TO_MS, PerfmodelEstimator, find_scheme


class PerfmodelRating(PerfModel):  # type: ignore[misc]  # TorchRec has no types
    """The time of a plan: one set of exchanges per sharding type, each step limited by its own busiest rank.

        EmbeddingShardingPlanner(..., performance_model=PerfmodelRating(estimator))

    estimator  the ``PerfmodelEstimator`` that rated the shards; it gives machine, topology and cost options
    TorchRec's own rating is the busiest rank's sum of its shards' times. That neglects the exchanges that
    shards of a type share, and the cost of a further sharding type.
    Limits: the same plan -> ``Evaluator.cost`` with its sharding types, within 0.1 %;  a table whose rows are
            not in GPU memory -> infinite, as its shards
    """

    def __init__(self, estimator: PerfmodelEstimator) -> None:
        """estimator  that rated the shards: it gives machine, topology and cost options."""
        self.estimator = estimator
        self._known: tuple[tuple[str, ...], int, Evaluator] | None = None

    def rate(self, plan: list[ShardingOption]) -> float:
        """Time of the plan [ms]. Limits: as ``PerfmodelEstimator.estimate``

        plan  TorchRec's choice for each table, with the rank of each of its shards. Each resource of a step
              (``loads``) has the bytes of its own busiest rank, plus what every rank has.
        """
        if any(not np.isfinite(shard.perf.total) for option in plan for shard in option.shards):
            return float("inf")
        evaluator = self._build_evaluator(plan)
        index = {name: t for t, name in enumerate(evaluator.tables.names)}
        plan = sorted(plan, key=lambda option: index[option.fqn])
        sets = ExchangeSets(tuple(option.sharding_type for option in plan))
        schemes = [find_scheme(option, evaluator) for option in plan]
        kind, rows, columns = np.array([(s.kind, s.row_parts, s.col_parts) for s in schemes]).T
        loads = replace(evaluator.model, sets=sets).count_shards(np.arange(len(plan)), kind, rows, columns)
        busiest = loads.everywhere.sum(axis=0)  # [resources]
        held = [(t, shard.rank) for t, option in enumerate(plan) for shard in option.shards]
        # tables that are cut, each with the rank of a shard; copies are on every rank, in ``everywhere``
        tables, ranks = np.array([(t, rank) for t, rank in held if not copied(kind[t])], int).reshape(-1, 2).T
        by_rank = np.zeros((evaluator.gpus, loads.on_holder.shape[1]))  # [ranks, resources]
        np.add.at(by_rank, ranks, loads.on_holder[tables])
        busiest += by_rank.max(axis=0)
        return float(evaluator.estimate_times(busiest)) * TO_MS

    def _build_evaluator(self, plan: list[ShardingOption]) -> Evaluator:
        """An evaluator for these tables, with the steps of all sharding types."""
        names = tuple(sorted(option.fqn for option in plan))
        batch = plan[0].batch_size
        if self._known is None or self._known[:2] != (names, batch):
            tables, _ = self.estimator.read_tables(plan)
            evaluator = self.estimator.build_evaluator(tables, batch)
            self._known = names, batch, evaluator.exchange_by(ExchangeSets(SHARDING_TYPES))
        return self._known[2]
