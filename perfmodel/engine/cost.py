"""The cost of passes: the time of every step with its band, its busiest rank, and the memory of every rank.

Every pass is costed here: row-wise passes of many configurations, the plans of a search, one plan in full.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from perfmodel import effort
from perfmodel.collectives.timings import Array, Codes, Timing
from perfmodel.effort import Work
from perfmodel.engine.basis import PassBasis
from perfmodel.engine.cut import Training
from perfmodel.engine.exchange_sets import ExchangeSets, list_codes
from perfmodel.engine.loads import LoadModel, ShardLoads
from perfmodel.engine.memory import GpuMemory, MemoryModel
from perfmodel.engine.placement import Plan, Scheme
from perfmodel.engine.schemes import asks_once
from perfmodel.engine.settings import Setting, load_setting
from perfmodel.engine.steps import HANDOVER, STEPS, Step, StepCost, StepRow, Times, sum_causes
from perfmodel.engine.tables import PlanTables
from perfmodel.engine.timing import FastTimes, PassTimes, round_off
from perfmodel.errors import BadInputError
from perfmodel.model import bands
from perfmodel.schema.evidence import MAIN_SHARE, Evidence
from perfmodel.schema.machine import Machine, load_machine
from perfmodel.schema.workload import element_bytes


@dataclass(frozen=True, eq=False)
class TimedStep:
    """A step of many passes: bytes that a GPU sends or moves in it, and its times."""

    step: Step
    payload_bytes: Array
    timing: Timing


@dataclass(frozen=True, eq=False)
class PassCost:
    """Steps of passes one after the other: every step waits for its busiest GPU. Arrays [...], one per pass.

    Source of the band: collectives share one cause of error, kernels another, sorts of ids a third
    (``Step.cause``); the causes combine in quadrature (``bands.sum_band``)
    """

    setting: Setting
    steps: tuple[TimedStep, ...]

    @cached_property
    def time_s(self) -> Array:
        """Time of each pass [s]."""
        return np.asarray(sum(step.timing.time_s for step in self.steps))

    @cached_property
    def causes(self) -> dict[str, Times]:
        """(low, centre, high) of each cause of error [s]."""
        timings = ((step.step.cause, step.timing) for step in self.steps)
        return sum_causes((cause, t.low_s, t.time_s, t.high_s) for cause, t in timings)

    @property
    def main_evidence(self) -> Codes:
        """Rank of the weakest evidence such that steps with it or weaker take ``MAIN_SHARE`` of the time."""
        time = self.time_s
        rests: dict[int, Array] = {}  # by rank of the evidence, the time of the steps that have it
        for step in self.steps:
            ranks = step.timing.evidence
            for rank in list_codes(ranks).tolist():
                rests[rank] = rests.get(rank, 0) + np.where(ranks == rank, step.timing.time_s, 0)
        main = np.zeros(time.shape, dtype=np.int8)
        weaker = np.zeros_like(time)
        for rank in sorted(rests, reverse=True):
            weaker = weaker + rests[rank]
            np.maximum(main, np.int8(rank), out=main, where=weaker > MAIN_SHARE * time)
        return main

    def build_rows(
        self, index: int, busiest: Callable[[Step], tuple[float, float, int]] | None = None
    ) -> tuple[StepRow, ...]:
        """Lines of an answer for the pass at ``index``: the steps that take time.

        busiest  of a plan whose GPUs differ: (bytes of a step's busiest GPU, of the mean GPU, that GPU)
        """
        total_s = float(self.time_s[index])
        rows = []
        for step in self.steps:
            timing = step.timing
            time_s = float(timing.time_s[index])
            if time_s == 0:
                continue
            library = timing.library_names[int(timing.library[index])]
            row = StepRow(
                name=step.step.name,
                label=step.step.label,
                collective=step.step.collective,
                library=library,
                payload_bytes=float(step.payload_bytes[index]),
                time_s=time_s,
                share=time_s / total_s,
                low_s=float(timing.low_s[index]),
                high_s=float(timing.high_s[index]),
                floor_s=float(timing.floor_s[index]),
                clock=self.setting.find_clock(library),
                evidence=Evidence.from_rank(int(timing.evidence[index])),
                limit=timing.limit_names[int(timing.limit[index])],
            )
            if busiest is not None and step.step.name != HANDOVER:
                payload, mean, rank = busiest(step.step)
                row = replace(row, payload_bytes=payload, mean_bytes=mean, rank=rank)
            rows.append(row)
        return tuple(rows)


def cost_passes(times: PassTimes, most: Array, steps: Sequence[Step] | None = None) -> PassCost:
    """Time the steps of passes that have bytes, and their hand-over if a calibration measured it.

    times   computes those of the steps;  most  largest load of a GPU in each of K resources [..., K] [bytes]
    steps   None: all that any of the passes has
    Limits: one GPU -> the kernels of the look-up alone
    """
    if steps is None:
        steps = [s for s in times.steps if s.always or any(most[..., x].any() for x in s.resources)]
    timed: list[TimedStep] = []
    sent: list[tuple[Step, Any]] = []
    # Successive collectives on the same ranks: one look-up of a time table serves them all.
    for (collective, _), successive in groupby(steps, key=lambda step: (step.collective, step.ranks)):
        run = list(successive)
        if not collective:
            moved = [np.atleast_1d(most[..., step.resources[0]]) for step in run]
            timed += map(TimedStep, run, moved, [times.time_step(step, most) for step in run])
            continue
        moved = [times.find_payload(step, most) for step in run]
        together = times.time_collective(run[0], np.stack(moved))
        for row, step in enumerate(run):
            timing = together.at(row)
            timed.append(TimedStep(step, moved[row], timing))
            sent.append((step, timing.time_s.astype(bool)))
    setting = times.basis.setting
    if not setting.handover.constants or not sent:
        return PassCost(setting, tuple(timed))
    (low, time, high), evidence = setting.handover.sum_times(sent)
    code = np.zeros(time.shape, np.int8)
    timing = Timing(time, low, high, time, evidence, code, (HANDOVER,), code, (setting.backend,))
    return PassCost(setting, (*timed, TimedStep(STEPS[HANDOVER], np.zeros(time.shape), timing)))


def compare_with_local(
    causes: Mapping[str, Times], local: Mapping[str, Times], floor: float | Array, gpus: float | Array
) -> dict[str, Any]:
    """Columns that compare a pass on G GPUs with the look-up of one GPU's batch in local memory.

    causes, local  (low, time, high) of the pass and of the local look-up, by cause of error [s]
    floor  time of the pass without bytes [s];  gpus  G [-]
    Source of the band: ``bands.compute_slowdown_band``
    Limits: G = 1 -> slowdown and throughput_ratio 1
    """
    low, time, high = bands.sum_band(*causes.values())
    alone = bands.sum_band(*local.values())[1]
    nothing = tuple(0.0 * end for end in next(iter(local.values())))
    apart = bands.sum_band(nothing, *(times for cause, times in causes.items() if cause not in local))
    shared = ((causes.get(cause, nothing), of_local) for cause, of_local in local.items())
    slowdown_low, slowdown_high = bands.compute_slowdown_band(apart, *shared)
    return {
        "low_s": low,
        "high_s": high,
        "slowdown_low": slowdown_low,
        "slowdown_high": slowdown_high,
        "time_s": time,
        "baseline_time_s": alone,
        "floor_time_s": floor,
        "slowdown": time / alone,
        "slowdown_floor_part": floor / alone,
        "slowdown_bytes_part": (time - floor) / alone,
        "throughput_ratio": gpus * alone / time,
    }


class Evaluator:
    """Computes the cost of plans for some tables on one setting.

    basis          machine, libraries and constants; precision on the wire, optimizer, training
    tables         T tables
    batch          B, samples of one rank [-];  gpus  G ranks [-];  id_dtype  of the ids
    sets           which tables exchange together: all, or by TorchRec's ``ExchangeSets``, where all bags
                   are weighted if any bag is
    Steps run one after the other; every step waits for its busiest rank.
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
        """Build what computes loads, memory and times of any plan for these tables."""
        for name, value in (("batch", batch), ("gpus", gpus)):
            if value < 1 or value != int(value):
                raise BadInputError(f"{name} {value} cannot be used.", "it must be a whole number above 0.")
        if sets is not None:
            tables = tables.add_weights()
        self.basis = basis
        self.setting = basis.setting
        self.training = basis.training
        self.tables = tables
        self.batch = int(batch)
        self.gpus = int(gpus)
        self.id_dtype = id_dtype
        self.work = Work()
        self.domain = int(basis.domain(np.asarray(float(gpus))))
        self.memories = MemoryModel(tables, basis.state, sets is not None, self.training)
        training = None
        if self.training:
            unique = tables.count_unique(float(batch) * gpus)
            training = Training(self.memories.state, self.memories.copied_state, unique)
        self.model = LoadModel(
            tables=tables,
            basis=basis,
            batch=float(self.batch),
            gpus=self.gpus,
            domain=self.domain,
            id_bytes=float(element_bytes(id_dtype, "id dtype")),
            training=training,
            sets=sets,
        )
        steps = basis.steps
        steps = sets.add_steps(steps, weighted=bool(tables.weight_bytes.any())) if sets else steps
        groups = self.model.groups.resources
        self.times = FastTimes(basis, self.gpus, self.domain, steps, groups, self.model.sort_digits)

    @staticmethod
    def on(machine: str | Machine, tables: PlanTables, batch: int, gpus: int, **options: Any) -> Evaluator:
        """An evaluator on a machine. options  of ``load_setting``, ``PassBasis``, ``Evaluator``, by name"""
        box = load_machine(machine) if isinstance(machine, str) else machine
        names = ("gpus_per_node", "payload", "training", "optimizer")
        of_basis = {name: options.pop(name) for name in names if name in options}
        of_evaluator = {name: options.pop(name) for name in ("id_dtype", "sets") if name in options}
        setting = load_setting(box, options.pop("backend", str(box.defaults.backend)), **options)
        return Evaluator(PassBasis(setting, **of_basis), tables, batch, gpus, **of_evaluator)

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
        self.work.add(effort.LISTED, shards.on_holder.size / shards.on_holder.shape[-1])
        return shards

    def loads(self, plan: Plan, shards: ShardLoads | None = None) -> Array:
        """Bytes of K resources on each of G ranks [K, G].

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
        if plan.tables is not self.tables and plan.tables.fingerprint != self.tables.fingerprint:
            raise BadInputError(
                f"the plan is for the tables of {plan.tables.model}, not of {self.tables.model}.",
                "use the model that it was made for, or plan anew.",
            )
        self.work.add(effort.COSTED + effort.COSTED_TABLE * len(plan.placements))
        return self.model.sum_shards(plan, shards)

    def cost(self, plan: Plan, shards: ShardLoads | None = None) -> CostedPlan:
        """A plan with its loads, its cost and its memory. shards, limits  as of ``loads``"""
        loads = self.loads(plan, shards)
        buffers = self.times.count_buffers(loads)
        memory = GpuMemory(*self.memories.count_held(plan), buffers)
        return CostedPlan(self, plan, loads, self.step(loads), memory)

    def step(self, loads: Array) -> StepCost:
        """The time of every step that runs, as in a projection, and their sum with its band.

        loads  bytes of every resource on every rank [K, G]
        """
        cost = cost_passes(self.times, loads.max(axis=1)[np.newaxis])
        rows = cost.build_rows(0, lambda step: self._find_busiest(step, loads))
        low, _, high = bands.sum_band(*cost.causes.values())
        weakest = Evidence.weakest(row.evidence for row in rows)
        return StepCost(rows, float(cost.time_s[0]), float(low[0]), float(high[0]), weakest)

    def time_passes(self, most: Array) -> Array:
        """Times [...] of many passes, each computed as precisely as in ``step``.

        most  bytes of every resource on the busiest rank, [..., K] for K resources
        """
        self.work.add(effort.EXACT)
        return cost_passes(self.times, most).time_s

    def _find_busiest(self, step: Step, loads: Array) -> tuple[float, float, int]:
        """(bytes of the busiest rank, mean bytes of a rank, the busiest rank) of a step. loads  [K, G]"""
        if step.gathers:  # the longer of DRAM and L2 counts, so busiest is who takes longest
            rates = [self.basis.numbers[name] for name in ("gather_bytes_per_s", "l2_bytes_per_s")]
            seconds = [loads[x] / rate for x, rate in zip(step.resources, rates, strict=True)]
            size = loads[step.resources[0]]
            rank = int(np.argmax(np.max(seconds, axis=0)))
        else:
            size = loads[list(step.resources)].max(axis=0)
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


@dataclass(frozen=True, eq=False)
class CostedPlan:
    """A plan with the loads of every rank, its cost, the memory of every rank, and what computed them."""

    evaluator: Evaluator
    plan: Plan
    loads: Array
    cost: StepCost
    memory: GpuMemory

    @property
    def time_s(self) -> float:
        """Time of a pass [s]."""
        return self.cost.time_s

    @property
    def fullest_bytes(self) -> float:
        """Memory of the fullest rank [bytes]."""
        return float(self.memory.total_bytes.max())

    @cached_property
    def copied_shares(self) -> dict[str, float]:
        """Share that replicas have of the busiest rank's DRAM bytes [-], of look-ups and of row updates."""
        steps = self.evaluator.steps_by_name
        tables = np.arange(len(self.plan.tables))
        copied = self.evaluator.count_shards(tables, *self.plan.schemes).everywhere.sum(axis=0)
        dram = {name: steps[name].resources[0] for name in ("gather_pool", "update_rows") if name in steps}
        return {name: float(copied[x]) / max(float(self.loads[x].max()), 1.0) for name, x in dram.items()}
