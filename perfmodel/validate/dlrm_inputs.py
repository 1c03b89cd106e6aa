"""Inputs of ``perfmodel validate --dlrm``: ``data/dlrm/checks.toml``, its cases, their plans."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from pydantic import Field

from perfmodel import resources
from perfmodel.model.access import fixed_bags_popularity
from perfmodel.model.popularity import BINS_PER_OCTAVE
from perfmodel.plan import Evaluator, Plan, PlanTables, read_plan
from perfmodel.schema.distributions import UNIFORM, Distribution, zipf
from perfmodel.schema.strict import Strict, read_as
from perfmodel.validate.hugectr import PlannerCall, plan_of
from perfmodel.validate.verdicts import Claim

_FOLDER = "dlrm"


class Conditions(Strict):
    """Conditions under which tables are trained. why  where they come from"""

    optimizer: str
    payload: str
    id_dtype: str
    reserve: float = Field(0.0, ge=0, lt=1)
    why: str


class MlperfChecks(Conditions):
    """How MLPerf's rows are predicted.

    model  set of tables;  rows  name of the measured rows;  planner  the calls that plan them
    skew   of each table's fixed bags, by name of the table; 0 for other tables
    """

    model: str
    rows: str
    skew: tuple[tuple[str, float], ...]
    planner: tuple[PlannerCall, ...]

    def ids(self, tables: PlanTables) -> tuple[Distribution, ...]:
        """Distribution of each table's ids: fixed bags."""
        skew, columns = dict(self.skew), (tables.names, tables.rows.tolist(), tables.pooling.tolist())
        return tuple(
            fixed_bags(rows, skew[name], pooling) if name in skew else UNIFORM
            for name, rows, pooling in zip(*columns, strict=True)
        )


def fixed_bags(rows: float, skew: float, pooling: float) -> Distribution:
    """The distribution of ids in MLPerf's data: ``access.fixed_bags_popularity``."""
    p, count = fixed_bags_popularity(rows, skew, pooling, BINS_PER_OCTAVE)
    bins = tuple(zip((count / rows).tolist(), (p * count).tolist(), strict=True))
    return Distribution(f"bags:{skew:g}:{pooling:g}:{rows:g}", 0.0, bins)


class EmbarkChecks(Conditions):
    """How EMBark's figures are computed again.

    alpha  exponent of the ids' power law;  models  sets of tables;  figure_model  of the figure of shares
    machine, gpus  hardware on which it trained;  batch  samples of all GPUs
    """

    alpha: float = Field(ge=0)
    models: tuple[str, ...]
    figure_model: str
    machine: str
    batch: int
    gpus: tuple[int, ...]

    def ids(self, tables: PlanTables) -> tuple[Distribution, ...]:
        """Distribution of each table's ids: Zipf's law."""
        return (zipf(self.alpha),) * len(tables)


class Gpu(Strict):
    """A GPU of the measured rows, by the name that they use.

    machine  the shipped machine for it;  unlike  their difference in words; "": none
    """

    name: str
    machine: str
    unlike: str = ""  # why its rows inform no fit


class LeftOut(Strict):
    """A GPU whose rows cannot be predicted."""

    name: str
    why: str


class Inputs(Strict):
    """The contents of ``data/dlrm/checks.toml``; ``dense`` names the dense layers.

    gpu, left_out  GPUs of measured rows, usable or not;  claim  claims to judge"""

    dense: str
    mlperf: MlperfChecks
    embark: EmbarkChecks
    gpu: list[Gpu]
    left_out: list[LeftOut]
    claim: list[Claim]


@lru_cache(maxsize=1)
def load_inputs() -> Inputs:
    """The shipped checks."""
    return read_as(Inputs, resources.data_path(_FOLDER, "checks.toml"), "checks file")


@dataclass(frozen=True)
class Case:
    """Tables trained on some GPUs, for which there is a plan.

    planner  the call of HugeCTR's planner that makes the plan; None: the plan is stored in a file
    conditions  how it was trained: ids, element sizes, optimizer, memory that was kept free
    """

    model: str
    machine: str
    gpus: int
    gpus_per_node: int
    batch: int  # of one GPU
    conditions: MlperfChecks | EmbarkChecks
    planner: PlannerCall | None = None

    @property
    def name(self) -> str:
        """Name of the file of its plan."""
        return f"{self.model}_{self.machine}_{self.gpus}_by_{self.gpus_per_node}"

    def evaluator(self) -> Evaluator:
        """An evaluator for this case, forward and backward."""
        had, tables = self.conditions, PlanTables.load(self.model)
        return Evaluator.on(
            self.machine,
            tables.with_ids(had.ids(tables)),
            self.batch,
            self.gpus,
            gpus_per_node=self.gpus_per_node,
            id_dtype=had.id_dtype,
            payload=had.payload,
            optimizer=had.optimizer,
            training=True,
        )

    def usable_bytes(self, evaluator: Evaluator) -> float:
        """Memory of a GPU for tables and their exchange [bytes]."""
        return evaluator.setting.machine.value("hbm_bytes") * (1 - self.conditions.reserve)

    def plan(self, evaluator: Evaluator) -> Plan:
        """The plan: HugeCTR's, or the stored plan (``benchmarks/dlrm_plans.py``)."""
        if self.planner:
            return plan_of(evaluator.tables, self.gpus, self.gpus_per_node, self.planner)
        return read_plan(resources.data_path(_FOLDER, "plans", f"{self.name}.json"), evaluator.tables)


@dataclass(frozen=True)
class Measured:
    """One measured step of MLPerf."""

    system: str
    gpu: str
    gpus: int
    nodes: int
    global_batch: int
    step_time_s: float

    @property
    def round(self) -> str:
        """Round of MLPerf, such as v3.1."""
        return self.system.split()[0]


def mlperf_steps(inputs: Inputs) -> list[Measured]:
    """MLPerf's measured steps, in the order of the file."""
    import pandas as pd

    rows = pd.read_csv(resources.data_path("reference", "dlrm_steps.csv"))
    rows = rows[(rows["model"] == inputs.mlperf.rows) & rows["step_time_s"].notna() & (rows["flag"] == "ok")]
    columns = ("system", "gpu", "gpus", "nodes", "global_batch", "step_time_s")
    return [
        Measured(str(a), str(b), int(c), int(d), int(e), float(f))
        for a, b, c, d, e, f in zip(*(rows[name].tolist() for name in columns), strict=True)
    ]


def mlperf_case(inputs: Inputs, gpu: Gpu, row: Measured) -> Case:
    """The case (tables, GPUs, batch) that a measured row trained."""
    m, batch = inputs.mlperf, round(row.global_batch / row.gpus)
    call = next((each for each in m.planner if each.of(row.round, gpu.name, row.nodes)), None)
    return Case(m.model, gpu.machine, row.gpus, row.gpus // row.nodes, batch, m, call)


def embark_case(inputs: Inputs, model: str, gpus: int, batch: int | None = None) -> Case:
    """EMBark's workload on some GPUs. batch  samples per GPU; None: EMBark's samples of all GPUs, divided"""
    e = inputs.embark
    return Case(model, e.machine, gpus, min(gpus, 8), batch or e.batch // gpus, e)


def planned(inputs: Inputs) -> Iterator[Case]:
    """Every case with a stored plan: EMBark's workloads on the most GPUs."""
    for model in inputs.embark.models:
        yield embark_case(inputs, model, max(inputs.embark.gpus))
