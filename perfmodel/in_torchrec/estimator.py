"""Our times in TorchRec's planner: a ``ShardEstimator``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torchrec.distributed.planner.types import (
    ParameterConstraints,
    Perf,
    ShardEstimator,
    ShardingOption,
    Topology,
)

from perfmodel.errors import BadInputError
from perfmodel.model.exchanges import Exchange
from perfmodel.passes.steps import BACKWARD, STEPS
from perfmodel.plan.cost import Evaluator
from perfmodel.plan.exchange_sets import ExchangeSets
from perfmodel.plan.placement import Scheme
from perfmodel.plan.tables import PlanTables
from perfmodel.project.understood import DEFAULT_MACHINE
from perfmodel.schema.machine import Machine
from perfmodel.schema.workload import Table, TableSet

Array = NDArray[np.float64]

_TO_MS = 1e3  # TorchRec counts in milliseconds
_BACKWARD = {step.name for step in BACKWARD}
_PARTS = ("fwd_compute", "fwd_comms", "bwd_compute", "bwd_comms")
_KERNELS = ("dense", "fused")
_DTYPES = {2: "fp16", 4: "fp32", 8: "fp64", 1: "int8"}


class PerfmodelEstimator(ShardEstimator):  # type: ignore[misc]  # TorchRec has no types
    """Times of shards by this program's calibrated model, with the launch of kernels, the latency of
    collectives on so many ranks and what stays in the L2.

        EmbeddingEnumerator(topology, batch, constraints, estimator=[PerfmodelEstimator(topology, constraints,
            machine="h200-sxm-ib"), EmbeddingStorageEstimator(topology, constraints)])

    topology      its ranks, nodes and domains; all rates are the machine's
    constraints   of TorchRec's planner: their ``pooling_factors`` come through the options
    machine       a shipped one by name, a file, or a ``Machine``;  is_inference  forward alone
    costs         options of ``Evaluator.on``: calibration, scenario, payload, optimizer ...
    TorchRec adds up what its shards take on each rank, but tables share collectives and kernels. So a shard
    has its part of a pass of tables that are all cut as its own, spread evenly over the ranks:

        time(shard) = t(T tables of this kind, so cut) G / (T parts)                                  [ms]

    T tables, G ranks, parts that have a holder each (G of a copy).
    Limits: all tables alike and so cut -> the sum on a rank is the pass;  a kernel that keeps rows elsewhere
            than in GPU memory -> infinite: it is not modelled
    """

    def __init__(
        self,
        topology: Topology,
        constraints: dict[str, ParameterConstraints] | None = None,
        *,
        machine: str | Machine = DEFAULT_MACHINE,
        is_inference: bool = False,
        **costs: Any,
    ) -> None:
        self.topology, self.machine, self.training = topology, machine, not is_inference
        self.costs: dict[str, Any] = {"optimizer": "rowwise-adagrad" if self.training else "none", **costs}

    def estimate(
        self,
        sharding_options: list[ShardingOption],
        sharder_data_map: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Sets ``perf`` of every shard. Limits: options of several batches -> BadInputError"""
        if not sharding_options:
            return
        options = [option for option in sharding_options if option.compute_kernel in _KERNELS]
        for option in sharding_options:
            for shard in option.shards:
                shard.perf = Perf(*[float("inf")] * len(_PARTS))
        if options:
            tables, of = self._tables(sharding_options)
            evaluator = self._evaluator(tables, sharding_options[0].batch_size)
            schemes = [self._scheme(option, evaluator) for option in options]
            perfs = self._perfs(evaluator, [of[option.fqn] for option in options], schemes)
            for option, perf in zip(options, perfs, strict=True):
                for shard in option.shards:
                    shard.perf = perf

    def _tables(self, options: Sequence[ShardingOption]) -> tuple[PlanTables, dict[str, int]]:
        """Every table once, and which of them each name is; one of fewer rows than ranks has as many."""
        batches = {option.batch_size for option in options}
        if len(batches) > 1:
            raise BadInputError(
                f"sharding options have batches of {sorted(batches)}.", "give all tables one batch size."
            )
        found: dict[str, Table] = {}
        for option in options:
            rows, dim = (int(size) for size in option.tensor.shape)
            dtype = _DTYPES[option.tensor.element_size()]
            rows = max(rows, self.topology.world_size)
            found[option.fqn] = Table(option.fqn, rows, dim, float(sum(option.input_lengths)), dtype)
        return PlanTables.of(TableSet("module", tuple(found.values()))), {
            name: at for at, name in enumerate(found)
        }

    def _evaluator(self, tables: PlanTables, batch: int) -> Evaluator:
        """Of the machine; with the topology's domains where those are smaller."""
        gpus, domain = self.topology.world_size, self.topology.intra_group_size

        def costing(**more: Any) -> Evaluator:
            how = {"training": self.training, "sets": ExchangeSets(), **self.costs, **more}
            return Evaluator.on(self.machine, tables, batch, gpus, **how)

        found = costing()
        if domain < found.domain:
            found = costing(gpus_per_node=domain)
        if found.domain != min(domain, gpus):
            raise BadInputError(
                f"the topology has domains of {domain} GPUs, "
                f"and {found.setting.machine.name} of {found.domain}.",
                "give the topology and the machine of one cluster.",
            )
        return found

    @staticmethod
    def _scheme(option: ShardingOption, evaluator: Evaluator) -> Scheme:
        kind, shards = option.sharding_type, len(option.shards)
        if kind == "data_parallel":
            return Scheme(Exchange.DP)
        if kind in ("table_row_wise", "grid_shard") and evaluator.domain < evaluator.gpus:
            return Scheme(Exchange.TWO_LEVEL, evaluator.domain, shards // evaluator.domain)
        if kind in ("row_wise", "table_row_wise", "grid_shard"):
            return Scheme(Exchange.RS, evaluator.gpus)
        return Scheme(Exchange.RB, 1, shards)

    def _perfs(self, evaluator: Evaluator, tables: list[int], schemes: list[Scheme]) -> list[Perf]:
        """Of one shard of each table, cut so."""
        kind, r, c = (np.array([getattr(s, n) for s in schemes]) for n in ("kind", "row_parts", "col_parts"))
        loads = evaluator.shard_loads(np.array(tables), kind, r, c)
        G, T = float(evaluator.gpus), float(len(evaluator.tables))
        parts = np.where(kind == Exchange.DP, G, r * c)
        most = T * (loads.everywhere + loads.own * (parts / G)[:, np.newaxis])
        share = _TO_MS * G / (T * parts)
        sums = {part: np.zeros(len(schemes)) for part in _PARTS}
        for name, time in evaluator.parts(most).items():
            step = STEPS.get(name)
            collective = step is None or bool(step.collective)  # what is between steps is the fabric's
            direction = "bwd" if name in _BACKWARD or (step and step.whole in _BACKWARD) else "fwd"
            sums[f"{direction}_{'comms' if collective else 'compute'}"] += time * share
        return [Perf(**{part: float(each[at]) for part, each in sums.items()}) for at in range(len(schemes))]
