"""Training steps of EMBark's workloads, for the claims of its paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from pydantic import Field

from perfmodel import resources
from perfmodel.answer.uniform_plans import UniformPlan, UniformPlans
from perfmodel.engine.cost import CostedPlan, Evaluator
from perfmodel.engine.schemes import TABLE_ROW_WISE
from perfmodel.engine.tables import PlanTables
from perfmodel.engine.training import Dense, WholeStep, collect_ends
from perfmodel.errors import BadInputError
from perfmodel.model.capacity import usable_bytes
from perfmodel.model.dense import BACKWARD_RATIO, StepParts, compute_step_time
from perfmodel.plan.plan_files import read_plan
from perfmodel.schema.fields import Strict, read_as
from perfmodel.schema.priors import load_dense, load_rates
from perfmodel.schema.workload import zipf
from perfmodel.units import format_count, format_fraction, format_number, format_ratio
from perfmodel.validate.verdicts import Finding

_MILLION = 1e6
_NODE_GPUS = 8


class EmbarkRun(Strict):
    """How EMBark trained, and what its paper leaves open (``why``).

    models  sets of tables of its figures;  figure_model  of the figure of shares
    gpus    of its largest runs;  alpha  exponent of the ids' power law;  dense  names the dense layers
    """

    models: tuple[str, ...]
    figure_model: str
    machine: str
    gpus: int
    alpha: float = Field(ge=0)
    dense: str
    optimizer: str
    payload: str
    id_dtype: str
    reserve: float = Field(ge=0, lt=1)
    why: str


@lru_cache(maxsize=1)
def load_embark() -> EmbarkRun:
    """How EMBark trained, from the shipped file."""
    return read_as(EmbarkRun, resources.data_path("paper", "embark.toml"), "EMBark's run")


def build_evaluator(model: str, gpus: int, batch: int) -> Evaluator:
    """The evaluator of a workload on EMBark's machine, forward and backward. batch  samples of all GPUs"""
    run = load_embark()
    tables = PlanTables.load(model)
    return Evaluator.on(
        run.machine,
        tables.replace_ids((zipf(run.alpha),) * len(tables)),
        batch // gpus,
        gpus,
        gpus_per_node=_NODE_GPUS,
        id_dtype=run.id_dtype,
        payload=run.payload,
        optimizer=run.optimizer,
        training=True,
    )


def count_usable_bytes(evaluator: Evaluator) -> float:
    """Memory of a GPU for tables and their exchange [bytes]."""
    return float(usable_bytes(evaluator.setting.machine.value("hbm_bytes"), load_embark().reserve))


def plan_name(model: str, gpus: int) -> str:
    """Name of the file of the stored plan, which ``benchmarks/embark_plans.py`` writes."""
    return f"{model}_{load_embark().machine}_{gpus}_by_{_NODE_GPUS}.json"


@lru_cache(maxsize=32)
def load_planned(model: str, gpus: int, batch: int) -> CostedPlan:
    """A workload with the plan that our planner found (EMBark's own are unpublished). batch  of all GPUs"""
    evaluator = build_evaluator(model, gpus, batch)
    path = resources.data_path("dlrm", "plans", plan_name(model, gpus))
    return evaluator.cost(read_plan(path, evaluator.tables))


@lru_cache(maxsize=32)
def _plan_table_row_wise(model: str, gpus: int, batch: int) -> CostedPlan:
    """A workload with the fastest plan of table-row-wise sharding. batch  samples of all GPUs"""
    evaluator = build_evaluator(model, gpus, batch)
    uniform = UniformPlans(evaluator, count_usable_bytes(evaluator)).find_best(TABLE_ROW_WISE)
    if not isinstance(uniform, UniformPlan):
        raise BadInputError(f"{model} on {gpus} GPUs: {uniform.explain()}.", "choose more GPUs.")
    return uniform.costed


def predict_throughput(
    model: str, training_flops: float, *, batches: Sequence[int], gpus: int, gradient_bytes: float
) -> Finding:
    """Millions of samples per second of all GPUs.

    training_flops  operations of a sample, forward and backward;  gradient_bytes  of the dense layers
    batches         samples of all GPUs: the first is assumed; the band covers all, and errors of their steps
    """
    rates = []
    for batch in batches:
        plan = load_planned(model, gpus, batch)
        dense = build_dense(plan.evaluator, training_flops / (1 + BACKWARD_RATIO), gradient_bytes)
        step = WholeStep.compute(plan, dense)
        rates += [batch / time_s / _MILLION for time_s in (step.step_s, step.low_s, step.high_s)]
    judged = Finding.within(rates[0], rates, format_number)
    sizes = f"{format_count(min(batches))} to {format_count(max(batches))}"
    return replace(judged, words=f"{judged.words} million a second at batches of {sizes} in all")


def build_dense(evaluator: Evaluator, flops: float, gradient_bytes: float) -> Dense:
    """Dense layers of which only the operations are known: all run after the embeddings.

        t = flops B / (rate share),   weights = flops / 2                     [s], [-]

    flops  forward, one sample [FLOP];  gradient_bytes  of one weight;  B  samples of one GPU
    Source: definition of fully connected layers; a convolution or attention has fewer weights
    """
    gpu, share = load_rates().of(evaluator.setting.machine.name)
    top = flops * evaluator.batch / (gpu.flops_per_s * share.together)
    times = {"top": top, "top_backward": BACKWARD_RATIO * top}
    return Dense(times, share.error, flops / 2, gradient_bytes)


def compute_share(gpus: int, batches: Sequence[int]) -> Finding:
    """Share of embedding communication in a serial table-row-wise step, with the first of ``batches``.

    batches  of all GPUs together. The tables and the batch are not published: the band covers all workloads
             and all ``batches``
    """
    run = load_embark()
    shares = []
    models = sorted(run.models, key=lambda model: model != run.figure_model)  # the figure's is first
    for batch in batches:
        for model in models:
            for parts in _collect_ends(_plan_table_row_wise(model, gpus, batch)):
                shares.append(parts.embedding_communication_time / parts.serial_time)
    return Finding.within(shares[0], shares, format_fraction)


def compare_speedup(answer: str, batches: Sequence[int]) -> Finding:
    """Our plans, overlapped, over serial table-row-wise, on the most GPUs; the band covers all ``batches``.

    answer  "mean" or "max" over the workloads
    """
    run = load_embark()
    ratios = []
    for batch in batches:  # parts of steps: of each model, then at each end of the errors
        before = [_collect_ends(_plan_table_row_wise(model, run.gpus, batch)) for model in run.models]
        after = [_collect_ends(load_planned(model, run.gpus, batch)) for model in run.models]
        for serial, overlapped in zip(zip(*before, strict=True), zip(*after, strict=True), strict=True):
            over = [  # of each model, all with the same cause of error at the same end
                slow.serial_time / compute_step_time(fast, training=True)
                for slow, fast in zip(serial, overlapped, strict=True)
            ]
            ratios.append(max(over) if answer == "max" else sum(over) / len(over))
    return Finding.within(ratios[0], ratios, format_ratio)


def _collect_ends(plan: CostedPlan) -> tuple[StepParts, ...]:
    """The parts of a step, then with each cause of error at either end, others central."""
    return collect_ends(plan, Dense.compute(load_dense(load_embark().dense), plan.evaluator))
