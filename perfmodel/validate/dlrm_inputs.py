"""What ``perfmodel validate --dlrm`` predicts: ``data/dlrm/checks.toml``, its cases, their stored plans."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from perfmodel import resources
from perfmodel.plan import Evaluator, Plan, PlanTables, read_plan
from perfmodel.schema.distributions import zipf
from perfmodel.schema.files import invalid_fields, read_toml
from perfmodel.validate.verdicts import Claim

_STRICT = ConfigDict(frozen=True, extra="forbid")
_FOLDER = "dlrm"


class Conditions(BaseModel):
    """How tables are trained."""

    model_config = _STRICT

    optimizer: str
    payload: str
    id_dtype: str
    alpha: float = Field(ge=0)
    reserve: float = Field(ge=0, lt=1)
    why: str


class MlperfChecks(Conditions):
    """MLPerf's rows."""

    model: str
    rows: str


class EmbarkChecks(Conditions):
    """EMBark's figures."""

    models: tuple[str, ...]
    figure_model: str
    machine: str
    batch: int
    gpus: tuple[int, ...]


class Gpu(BaseModel):
    """A GPU of the measured rows."""

    model_config = _STRICT

    name: str
    machine: str
    unlike: str = ""  # why its rows inform no fit


class LeftOut(BaseModel):
    """A GPU whose rows cannot be predicted."""

    model_config = _STRICT

    name: str
    why: str


class Inputs(BaseModel):
    """The whole file."""

    model_config = _STRICT

    dense: str
    mlperf: MlperfChecks
    embark: EmbarkChecks
    gpu: list[Gpu]
    left_out: list[LeftOut]
    claim: list[Claim]


@lru_cache(maxsize=1)
def load_inputs() -> Inputs:
    """The shipped checks."""
    path = resources.data_path(_FOLDER, "checks.toml")
    try:
        return Inputs.model_validate(read_toml(path, "checks file"))
    except ValidationError as error:
        raise invalid_fields(error, "checks file", str(path)) from None


@dataclass(frozen=True)
class Case:
    """Tables trained on some GPUs: what a plan is made for."""

    model: str
    machine: str
    gpus: int
    gpus_per_node: int
    batch: int  # of one GPU
    conditions: Conditions

    @property
    def name(self) -> str:
        """Of its plan file."""
        return f"{self.model}_{self.machine}_{self.gpus}_by_{self.gpus_per_node}"

    def evaluator(self) -> Evaluator:
        """Costs plans of this case, forward and backward."""
        had = self.conditions
        return Evaluator.on(
            self.machine,
            PlanTables.load(self.model, zipf(had.alpha)),
            self.batch,
            self.gpus,
            gpus_per_node=self.gpus_per_node,
            id_dtype=had.id_dtype,
            payload=had.payload,
            optimizer=had.optimizer,
            training=True,
        )

    def usable_bytes(self, evaluator: Evaluator) -> float:
        """Memory of a GPU for tables and their exchange."""
        return evaluator.setting.machine.value("hbm_bytes") * (1 - self.conditions.reserve)

    def plan(self, evaluator: Evaluator) -> Plan:
        """The stored plan (``benchmarks/dlrm_plans.py``)."""
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
        """Of MLPerf: v3.1."""
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
    """The case of one measured row."""
    m, batch = inputs.mlperf, round(row.global_batch / row.gpus)
    return Case(m.model, gpu.machine, row.gpus, row.gpus // row.nodes, batch, m)


def embark_case(inputs: Inputs, model: str, gpus: int, batch: int | None = None) -> Case:
    """EMBark's workload on some GPUs; ``batch`` of one GPU, unless the global one is kept."""
    e = inputs.embark
    return Case(model, e.machine, gpus, min(gpus, 8), batch or e.batch // gpus, e)


def planned(inputs: Inputs) -> Iterator[Case]:
    """Every case that has a stored plan: MLPerf's largest batch of each shape, EMBark's most GPUs."""
    known = {gpu.name: gpu for gpu in inputs.gpu}
    cases = {}
    for row in sorted(mlperf_steps(inputs), key=lambda row: row.global_batch):
        if row.gpu in known:
            case = mlperf_case(inputs, known[row.gpu], row)
            cases[case.name] = case
    yield from cases.values()
    for model in inputs.embark.models:
        yield embark_case(inputs, model, max(inputs.embark.gpus))
