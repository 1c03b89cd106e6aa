"""Our times in TorchRec's planner, as a ``ShardEstimator``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torchrec.distributed.planner.types import (
    ParameterConstraints,
    Perf,
    ShardEstimator,
    ShardingOption,
    Topology,
)

from perfmodel.engine.cost import Evaluator
from perfmodel.engine.exchange_sets import ExchangeSets
from perfmodel.engine.placement import COPY, Scheme
from perfmodel.engine.schemes import OF_TORCHREC, ROW_WISE, by_domain, copied
from perfmodel.engine.steps import BACKWARD, STEPS
from perfmodel.engine.tables import Array, Ints, PlanTables
from perfmodel.engine.timing import LAUNCHES
from perfmodel.errors import BadInputError
from perfmodel.question.groups import DEFAULT_MACHINE
from perfmodel.schema.machine import Machine
from perfmodel.schema.workload import Table, TableSet

TO_MS = 1e3
"""Milliseconds per second: TorchRec's unit of time."""
_EMPTY = 1e-9  # share of the bytes of a pass at which only latency is left
_BACKWARD = {step.name for step in BACKWARD}
_PARTS = ("fwd_compute", "fwd_comms", "bwd_compute", "bwd_comms")
_KERNELS = ("dense", "fused")
_DTYPES = {2: "fp16", 4: "fp32", 8: "fp64", 1: "int8"}


class PerfmodelEstimator(ShardEstimator):  # type: ignore[misc]  # TorchRec has no types
    """Times of shards by this program's calibrated model, including kernel launches, the latency of
    collectives on so many ranks, and L2 hits.

        EmbeddingEnumerator(topology, batch, constraints, estimator=[PerfmodelEstimator(topology, constraints,
            machine="h200-sxm-ib"), EmbeddingStorageEstimator(topology, constraints)])

    topology      gives ranks, nodes and domains; all rates are the machine's
    constraints   of TorchRec's planner: their ``pooling_factors`` arrive in the sharding options
    machine       a shipped one by name, a file, or a ``Machine``;  is_inference  forward pass only
    costs         options of ``Evaluator.on``: calibration, payload, optimizer ...
    TorchRec adds up the times of shards on each rank, but tables share collectives and kernels. So a shard
    gets its part of the time of a pass in which all tables are cut in the same way and dealt evenly:

        time(shard) = (t(T e + n s) - t(0)) / n,   n = max(1, T parts / G)                            [ms]

    t(x)   time of the pass if the busiest rank has load x;  t(0)  latency and launches, equal for all plans
           with this kind of exchange
    T, G   tables and ranks;  parts  shards of a table (G for a replica);  n  shards on a busy rank
    e, s   load of a table on every rank, and load of one shard [bytes]
    This applies to replicas and to the kind of exchange that is fastest for all tables. A table with another
    exchange pays for separate exchanges with their latency, t(e + s), since TorchRec would run another set of
    exchanges (``ExchangeSets``). ``PerfmodelRating`` rates whole plans, with all latency.
    Limits: equal tables with equal cuts -> the sum on a rank is the pass minus its latency;  a kernel that
            keeps rows elsewhere than in GPU memory -> infinite: it is not modelled
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
        """Arguments: as above; row-wise Adagrad unless ``costs`` name another optimizer."""
        self.topology = topology
        self.machine = machine
        self._usual: int | None = None  # kind of exchange; determined by the first options
        optimizer = "none" if is_inference else "rowwise-adagrad"
        self.costs = {"training": not is_inference, "sets": ExchangeSets(), "optimizer": optimizer, **costs}

    def estimate(
        self,
        sharding_options: list[ShardingOption],
        sharder_data_map: Mapping[str, object] | None = None,
        **_: object,
    ) -> None:
        """Sets ``perf``, the estimated times, of every shard; infinite for a kernel that is not modelled.

        Limits: options with different batches, rows that are not pooled -> BadInputError
        """
        if not sharding_options:
            return
        options = [option for option in sharding_options if option.compute_kernel in _KERNELS]
        for option in sharding_options:
            for shard in option.shards:
                shard.perf = Perf(**dict.fromkeys(_PARTS, float("inf")))
        if options:
            tables, of = self.read_tables(sharding_options)
            evaluator = self.build_evaluator(tables, sharding_options[0].batch_size)
            schemes = [find_scheme(option, evaluator) for option in options]
            perfs = self._estimate_perfs(evaluator, [of[option.fqn] for option in options], schemes)
            for option, perf in zip(options, perfs, strict=True):
                for shard in option.shards:
                    shard.perf = perf

    def read_tables(self, options: Sequence[ShardingOption]) -> tuple[PlanTables, dict[str, int]]:
        """(the tables of these sharding options, the index of each by name).

        A table with fewer rows than ranks counts as if it had as many rows as ranks.
        """
        batches = {option.batch_size for option in options}
        if len(batches) > 1:
            raise BadInputError(
                f"sharding options have batches of {sorted(batches)}.", "give all tables one batch size."
            )
        named: dict[str, Table] = {}
        for option in options:
            if not option.is_pooled:
                words = f"the rows of {option.fqn} are not pooled: their times are not modelled."
                raise BadInputError(words, "plan it with TorchRec's own estimator.")
            rows, dim = option.tensor.shape
            rows = max(rows, self.topology.world_size)
            dtype = _DTYPES[option.tensor.element_size()]
            features = len(option.input_lengths)
            pooling = float(sum(option.input_lengths)) / features
            named[option.fqn] = Table(option.fqn, rows, dim, pooling, dtype, features=features)
        index = {name: number for number, name in enumerate(named)}
        return PlanTables.of(TableSet("module", tuple(named.values()))), index

    def build_evaluator(self, tables: PlanTables, batch: int) -> Evaluator:
        """The evaluator of these tables on the machine, with the topology's domains if they are smaller.

        batch  samples per GPU
        Limits: larger domains than the machine's -> BadInputError
        """
        gpus = self.topology.world_size
        domain = self.topology.intra_group_size
        evaluator = Evaluator.on(self.machine, tables, batch, gpus, **self.costs)
        if domain < evaluator.domain:
            costs = self.costs | {"gpus_per_node": domain}
            evaluator = Evaluator.on(self.machine, tables, batch, gpus, **costs)
        if evaluator.domain != min(domain, gpus):
            raise BadInputError(
                f"the topology has domains of {domain} GPUs, "
                f"and {evaluator.setting.machine.name} of {evaluator.domain}.",
                "give the topology and the machine of one cluster.",
            )
        return evaluator

    def _estimate_perfs(self, evaluator: Evaluator, tables: list[int], schemes: list[Scheme]) -> list[Perf]:
        """For each table (by index) and the scheme beside it, times of one shard [ms] by the class's formula.

        Of its times, ``full`` is t(T e + n s) of all tables together, and ``empty`` t(0).
        """
        of = np.array(tables)
        kind, r, c = np.array([(s.kind, s.row_parts, s.col_parts) for s in schemes]).T
        loads = evaluator.count_shards(of, kind, r, c)
        G = float(evaluator.gpus)
        T = float(len(evaluator.tables))
        n = np.maximum(T * np.where(copied(kind), G, r * c) / G, 1)
        together = T * loads.everywhere + loads.on_holder * n[:, np.newaxis]
        full = _sum_parts(evaluator.times.estimate_steps(together))
        empty = _sum_parts(evaluator.times.estimate_steps(_EMPTY * together))
        times = {name: (full[name] - empty[name]) / n for name in _PARTS}
        if self._usual is None:
            self._usual = _find_usual(of, kind, sum(full.values(), np.zeros(of.size)))
        apart = ~copied(kind) & (kind != self._usual)
        alone = _sum_parts(evaluator.times.estimate_steps(loads.everywhere + loads.on_holder))
        for name in ("fwd_comms", "bwd_comms"):
            times[name] = np.where(apart, alone[name], times[name])
        times = {name: np.maximum(time, 0) * TO_MS for name, time in times.items()}
        return [Perf(**{name: float(time[i]) for name, time in times.items()}) for i in range(len(schemes))]


def find_scheme(option: ShardingOption, evaluator: Evaluator) -> Scheme:
    """This program's scheme for a sharding option of TorchRec: its exchange, its row and column parts."""
    shards = len(option.shards)
    gpus = evaluator.gpus
    domain = evaluator.domain
    cut = OF_TORCHREC[option.sharding_type]
    if by_domain(cut.exchange):
        if domain == gpus:
            return Scheme.from_name(ROW_WISE, gpus, domain)
        return Scheme(cut.exchange, domain, shards // domain)
    return Scheme.from_name(cut.name, gpus, domain, col_parts=shards)


def _sum_parts(times: Mapping[str, Array]) -> dict[str, Array]:
    """Adds up the times of steps by the four parts that TorchRec distinguishes, such as ``fwd_compute``."""
    totals = dict.fromkeys(_PARTS, np.zeros(()))
    for name, time in times.items():
        step = STEPS.get(name)
        launches = name.startswith(LAUNCHES)
        # times of no step are those of launches, and of a network that all exchanges share
        collective = not launches if step is None else bool(step.collective)
        direction = "bwd" if name in _BACKWARD or (step and step.whole in _BACKWARD) else "fwd"
        place = f"{direction}_{'comms' if collective else 'compute'}"
        totals[place] = totals[place] + time
    shape = next(iter(times.values())).shape
    return {name: np.broadcast_to(time, shape) for name, time in totals.items()}


def _find_usual(table: Ints, kind: Ints, time: Array) -> int:
    """The kind of exchange that is fastest if all tables use it, among the kinds that most tables can use.

    For each possible shard: table  its index;  kind  its exchange;  time  of a pass if all tables were equal
    to this table and cut in this way
    """
    totals: dict[int, tuple[int, float]] = {}
    for exchange in np.unique(kind[~copied(kind)]):
        using = kind == exchange
        able = np.unique(table[using])
        totals[int(exchange)] = -able.size, float(sum(time[using & (table == t)].min() for t in able))
    return min(totals, key=lambda exchange: totals[exchange], default=int(COPY.kind))
