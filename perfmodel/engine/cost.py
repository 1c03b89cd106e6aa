"""The cost of a plan: the time of every step with its band and busiest rank, and the memory of every rank."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from perfmodel import effort
from perfmodel.effort import Work
from perfmodel.engine.basis import PassBasis
from perfmodel.engine.cut import Training
from perfmodel.engine.exchange_sets import ExchangeSets
from perfmodel.engine.loads import LoadModel, Loads, ShardLoads
from perfmodel.engine.memory import GpuMemory, MemoryModel
from perfmodel.engine.pass_cost import cost_passes
from perfmodel.engine.placement import Plan, Scheme
from perfmodel.engine.schemes import asks_once
from perfmodel.engine.settings import load_setting
from perfmodel.engine.steps import Step, StepCost
from perfmodel.engine.tables import Array, PlanTables
from perfmodel.engine.timing import FastTimes, round_off
from perfmodel.errors import BadInputError
from perfmodel.schema.evidence import Evidence
from perfmodel.schema.machine import Machine, load_machine
from perfmodel.schema.workload import element_bytes

_OF_BASIS = ("gpus_per_node", "payload", "training", "optimizer")


class Evaluator:
    """Computes the cost of plans for some tables on one setting.

    basis          machine, libraries and constants; precision on the wire, optimizer, training
    tables         T tables
    batch          B, samples of one rank [-];  gpus  G ranks [-];  id_dtype  of the ids
    sets           which tables exchange together: all, or by TorchRec's ``ExchangeSets``, where all bags
                   are weighted if any bag is
    Steps run one after the other; every step waits for its busiest rank. A projection uses the same
    functions for kernels and collectives: its row-wise pass is one plan here.
    Limits: unknown names, a batch or a number of GPUs below 1 -> BadInputError
    """

    def __init__(
        self,
        basis: PassBasis,
        tables: PlanTables,
        batch: int,
        gpus: int,
        *,
        id_dtype: str = "int64",
        sets: ExchangeSets | None = None,
    ) -> None:
        for name, value in (("batch", batch), ("gpus", gpus)):
            if value < 1 or value != int(value):
                raise BadInputError(f"{name} {value} cannot be used.", "it must be a whole number above 0.")
        if sets is not None and tables.partly_weighted:
            tables = tables.add_weights()
        self.basis, self.setting, self.training = basis, basis.setting, basis.training
        self.tables, self.batch, self.gpus, self.id_dtype = tables, int(batch), int(gpus), id_dtype
        self.work = Work()
        self.domain = int(basis.domain(np.asarray(float(gpus))))
        self.memories = MemoryModel(tables, basis.state, sets is not None, self.training)
        training = None
        if self.training:
            unique = tables.count_unique(float(batch) * gpus)
            training = Training(self.memories.state, self.memories.copied_state, unique)
        self.model = LoadModel(
            tables,
            float(self.batch),
            self.gpus,
            self.domain,
            basis.constant,
            self.setting.machine.value,
            float(element_bytes(id_dtype, "id dtype")),
            basis.sent_element_bytes,
            training,
            sets,
            host=basis.rows,
            unpooled=basis.unpooled,
        )
        steps = basis.steps
        steps = sets.add_steps(steps, weighted=bool(tables.weight_bytes.any())) if sets else steps
        groups = self.model.groups.resources if self.model.groups else ()
        self.times = FastTimes(basis, self.gpus, self.domain, steps, groups, self.model.sort_digits)

    @staticmethod
    def on(
        machine: str | Machine,
        tables: PlanTables,
        batch: int,
        gpus: int,
        *,
        id_dtype: str = "int64",
        sets: ExchangeSets | None = None,
        **options: Any,
    ) -> Evaluator:
        """An evaluator on a machine by name. options  of ``load_setting`` and of ``PassBasis``, by name"""
        box = load_machine(machine) if isinstance(machine, str) else machine
        of_basis = {name: options.pop(name) for name in _OF_BASIS if name in options}
        setting = load_setting(box, options.pop("backend", str(box.defaults.backend)), **options)
        return Evaluator(PassBasis(setting, **of_basis), tables, batch, gpus, id_dtype=id_dtype, sets=sets)

    def exchange_by(self, sets: ExchangeSets | None) -> Evaluator:
        """The same evaluator, except that tables exchange together in these sets."""
        return Evaluator(self.basis, self.tables, self.batch, self.gpus, id_dtype=self.id_dtype, sets=sets)

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of a pass, in order of execution."""
        return self.times.steps

    @property
    def steps_by_name(self) -> dict[str, Step]:
        """The steps by name."""
        return {step.name: step for step in self.steps}

    def count_shards(
        self, table: ArrayLike, kind: ArrayLike, r: ArrayLike, c: ArrayLike, *more: ArrayLike
    ) -> ShardLoads:
        """Bytes that one shard of each table adds to its rank, and that each table adds to every rank.

        table    indices of tables;  kind  ``Exchange`` codes;  r, c  numbers of row and column parts
        more     hot rows (``LoadModel.count_shards``), 0 by default
        """
        shards = self.model.count_shards(table, kind, r, c, *more)
        self.work.add(effort.LISTED, shards.own.size / shards.own.shape[-1])
        return shards

    def loads(self, plan: Plan, shards: ShardLoads | None = None) -> Loads:
        """Bytes of every resource on every rank.

        shards  loads of one shard of each table, if computed before
        Limits: a plan for other GPUs or tables -> BadInputError
        """
        if (plan.gpus, plan.domain) != (self.gpus, self.domain):
            change = "leave out --gpus, for a plan brings its own"
            if plan.gpus == self.gpus:
                change = "name the machine that it was made for, with --set gpus_per_node"
            raise BadInputError(
                f"the plan is for {plan.gpus} GPUs in scale-up domains of {plan.domain}.",
                f"here are {self.gpus} in domains of {self.domain}: {change}; or plan anew without --plan.",
            )
        if plan.tables.fingerprint != self.tables.fingerprint:
            raise BadInputError(
                f"the plan is for the tables of {plan.tables.model}, not of {self.tables.model}.",
                "use the model that it was made for, or plan anew.",
            )
        self.work.add(effort.COSTED + effort.COSTED_TABLE * len(plan.placements))
        return self.model.sum_shards(plan, shards)

    def cost(self, plan: Plan) -> StepCost:
        """The time of every step of a plan: ``step`` of its ``loads``."""
        return self.step(self.loads(plan))

    def step(self, loads: Loads) -> StepCost:
        """The time of every step that runs, as in a projection, and their sum with its band.

        loads  bytes of every resource on every rank
        """
        cost = cost_passes(self.times, loads.most[np.newaxis])
        rows = cost.build_rows(0, lambda step: self._find_busiest(step, loads))
        low, _, high = (float(end[0]) for end in cost.band)
        return StepCost(
            rows, float(cost.time_s[0]), low, high, Evidence.weakest(row.evidence for row in rows)
        )

    def time_passes(self, most: Array) -> Array:
        """Times [...] of many passes, each computed as precisely as in ``step``.

        most  bytes of every resource on the busiest rank, [..., K] for K resources
        """
        self.work.add(effort.EXACT)
        return cost_passes(self.times, most).time_s

    def _find_busiest(self, step: Step, loads: Loads) -> tuple[float, float, int]:
        """(bytes of the busiest rank, mean bytes of a rank, the busiest rank) of a step; of a gather the rank
        with the longest time is the busiest.
        """
        if step.gathers:
            value = self.setting.machine.value
            rates = value("gather_bytes_per_s"), value("l2_bytes_per_s")
            seconds = [loads.of(x) / rate for x, rate in zip(step.resources, rates, strict=True)]
            rank, size = int(np.argmax(np.max(seconds, axis=0))), loads.of(step.resources[0])
        else:
            size = np.max([loads.of(resource) for resource in step.resources], axis=0)
            rank = int(np.argmax(size))
        if step.splits:
            size = np.full(self.gpus, self.times.splits_bytes)
        return float(size[rank]), float(size.mean()), rank

    def estimate_times(self, most: Array) -> Array:
        """Times [...] of many passes without bands, for a search.

        most  bytes of every resource on the busiest rank, [..., K] for K resources
        Within 0.1 % of ``step(...).time_s``; 100 000 passes in tens of milliseconds.
        """
        self.work.add(effort.SCORING + effort.SCORED_ROW * most.size / most.shape[-1])
        return round_off(self.times.estimate(most))

    def hot_share(self, table: int, hot: int) -> float:
        """Share of the look-ups of a table that ask for its most popular ``hot`` rows [-]."""
        return self.model.look_ups.find(table).hot_share(hot)

    def fullest_part(self, table: int, scheme: Scheme) -> float:
        """Look-ups of the fullest row part of a table relative to the mean part, on which loads are based.

        Limits: one row part, or unique rows, which each rank requests once -> 1
        """
        if scheme.row_parts == 1 or asks_once(scheme.kind):
            return 1.0
        return self.model.look_ups.find(table).fullest(scheme.hot_rows, scheme.row_parts)

    def memory(self, plan: Plan, loads: Loads | None = None) -> GpuMemory:
        """Memory of every rank of a plan [bytes]; ``loads`` if computed before."""
        return self.memories.count_ranks(plan, loads or self.loads(plan), self.times)
