"""Checks of what other papers state: EMBark's throughputs, and independence of the ids on Ascend."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from perfmodel import resources
from perfmodel.model.dense import BACKWARD, GivenFlops
from perfmodel.onechip.answer import answer_on, cost_on
from perfmodel.onechip.symmetric import global_memory
from perfmodel.plan.pricing.dense import on_machine
from perfmodel.plan.pricing.tables import PlanTables
from perfmodel.plan.pricing.training import CostedPlan
from perfmodel.schema.chip import load_chip
from perfmodel.schema.distributions import parse_distribution
from perfmodel.schema.files import invalid_fields, read_toml
from perfmodel.units import format_number, format_ratio, format_time
from perfmodel.validate.dlrm_inputs import Case, embark_case, load_inputs
from perfmodel.validate.verdicts import Finding

_STRICT = ConfigDict(frozen=True, extra="forbid")
_MILLION = 1e6


class Throughput(BaseModel):
    """A row of EMBark's Table 1: operations of a sample, forward and backward."""

    model_config = _STRICT

    model: str
    training_flops: float = Field(gt=0)


class Embark(BaseModel):
    """EMBark's Table 1."""

    model_config = _STRICT

    source: str
    gpus: int
    alpha: float
    gradient_bytes: float
    why: str
    row: list[Throughput]


class Ascend(BaseModel):
    """Where the dependence on the ids is asked."""

    model_config = _STRICT

    source: str
    chip: str
    models: list[str]
    batch: int
    ids: list[str]
    effort: str


class OtherPapers(BaseModel):
    """``data/paper/other_papers.toml``."""

    model_config = _STRICT

    embark: Embark
    ascend: Ascend


@lru_cache(maxsize=1)
def load_other_papers() -> OtherPapers:
    """The shipped inputs."""
    path = resources.data_path("paper", "other_papers.toml")
    try:
        return OtherPapers.model_validate(read_toml(path, "inputs of checks"))
    except ValidationError as error:
        raise invalid_fields(error, "inputs of checks", str(path)) from None


def throughput_case(model: str) -> Case:
    """Tables of a row of Table 1, with the ids that EMBark trained on."""
    embark, inputs = load_other_papers().embark, load_inputs()
    conditions = inputs.embark.model_copy(update={"alpha": embark.alpha})
    return replace(embark_case(inputs, model, embark.gpus), conditions=conditions)


@lru_cache(maxsize=8)
def embark_throughput(model: str) -> Finding:
    """Samples per second of all GPUs, in millions: stored plan, the row's own operations per sample."""
    embark = load_other_papers().embark
    row = next(row for row in embark.row if row.model == model)
    case = throughput_case(model)
    evaluator = case.evaluator()
    layers = GivenFlops(row.training_flops / (1 + BACKWARD))
    dense = on_machine(layers, case.machine, embark.gradient_bytes)
    step_s = CostedPlan.of(evaluator, case.plan(evaluator)).step(dense).step_s
    samples = case.batch * case.gpus
    value = samples / step_s / _MILLION
    return Finding(value, f"{format_number(value)} million a second, a step of {format_time(step_s)}")


@lru_cache(maxsize=1)
def ascend_dependence() -> Finding:
    """Worst over best batch of one of our mappings, over that of plain gathers: the worst table set.

    Of the mappings made for each of the ids, the one whose worst batch is shortest.
    """
    asked = load_other_papers().ascend
    chip, ids = load_chip(asked.chip), [parse_distribution(text) for text in asked.ids]
    found = {}
    for model in asked.models:
        tables = PlanTables.load(model, ids[0])
        costs = [cost_on(chip, tables, asked.batch, each) for each in ids]
        made = [answer_on(chip, tables, asked.batch, each, effort=asked.effort).mapping for each in ids]
        times = [[mapping.batch(cost).seconds for cost in costs] for mapping in made]
        best, gathered = min(times, key=max), [global_memory(cost).time_s for cost in costs]
        found[model] = max(best) / min(best), max(gathered) / min(gathered)
    worst = max(found, key=lambda model: found[model][0] / found[model][1])
    ours, plain = found[worst]
    words = f"{format_ratio(ours / plain)}: {format_ratio(ours)} against {format_ratio(plain)} ({worst})"
    return Finding(ours / plain, words)
