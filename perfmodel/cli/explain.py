"""``perfmodel explain``: the equation of a step with the user's numbers in it, and where each comes from."""

from __future__ import annotations

from typing import Annotated

import typer

from perfmodel.cli.explain_alternatives import explain_the_alternatives, is_alternatives
from perfmodel.cli.explain_collective import (
    OpOption,
    SizeOption,
    explain_one_collective,
    is_collective,
    only_of_collective,
)
from perfmodel.cli.explain_load import (
    GivenArrivalsOption,
    GivenHostOption,
    GivenOverlapOption,
    GivenP99Option,
    GivenPricesOption,
    GivenQpsOption,
    GivenReplicasOption,
    GivenRequestsOption,
    GivenSamplesOption,
    GivenSeedOption,
    GivenStragglersOption,
    GivenWaitOption,
    explain_the_load,
    is_load,
    only_of_load,
)
from perfmodel.cli.explain_plan_file import explain_step_of_plan, only_of_plan
from perfmodel.cli.ids import AlphaOption, DistributionOption
from perfmodel.cli.options import (
    BackendOption,
    CalibrationOption,
    ClockOption,
    GpusPerNodeOption,
    JsonOption,
    KernelsOption,
    MachineOption,
    SetOption,
)
from perfmodel.cli.output import emit, emit_cited, emit_json
from perfmodel.cli.plan_options import OptimizerOption, PlanOption
from perfmodel.cli.question import question_of
from perfmodel.cli.suggest import Typed, answerable
from perfmodel.cli.workload import (
    ALL,
    RESERVE,
    BatchOption,
    DimOption,
    DtypeOption,
    GpusOption,
    IdDtypeOption,
    LocalMemoryOption,
    ModelOption,
    PayloadOption,
    PoolingOption,
    ReductionOption,
    RemoteMemoryOption,
    ReserveOption,
    ScenarioOption,
    ShardingOption,
    TableSizeOption,
    TablesOption,
    TierOption,
    checked_sharding,
)
from perfmodel.errors import BadInputError
from perfmodel.passes.explanation import Explanation
from perfmodel.project import Projection
from perfmodel.project.explain_slowdown import WHOLE, explain_slowdown
from perfmodel.project.explain_step import explain_step
from perfmodel.report.explanation_text import explanation_text, number_text
from perfmodel.report.projection_text import headline
from perfmodel.report.terminal import paragraph
from perfmodel.service.highest import FOLLOWED

GivenObjectiveOption = Annotated[
    str | None, typer.Option("--objective", metavar="NAME", help="With --plan: latency or throughput.")
]
_DEFAULT_TABLE_SIZE = "10TB"
_ROW_WISE = "A step of the row-wise pass, as project has it. --plan FILE: a step of that plan."


def explain(
    context: typer.Context,
    step: Annotated[
        str,
        typer.Argument(
            help="A step of perfmodel project: reduce-scatter, gather, all-to-all-ids … With --plan, "
            "a step of that plan. Or slowdown, for how the steps make it up; collective, for one collective; "
            "load, for a service; alternatives, for that comparison."
        ),
    ],
    op: OpOption = None,
    size: SizeOption = None,
    plan_file: PlanOption = None,
    objective: GivenObjectiveOption = None,
    optimizer: OptimizerOption = None,
    table_size: TableSizeOption = None,
    gpus: GpusOption = None,
    model: ModelOption = None,
    batch: BatchOption = None,
    tables: TablesOption = None,
    pooling: PoolingOption = None,
    dim: DimOption = None,
    dtype: DtypeOption = None,
    id_dtype: IdDtypeOption = "int64",
    machine: MachineOption = None,
    backend: BackendOption = None,
    clock: ClockOption = None,
    reserve: ReserveOption = RESERVE,
    gpus_per_node: GpusPerNodeOption = None,
    scenario: ScenarioOption = "cluster",
    reduction: ReductionOption = "auto",
    sharding: ShardingOption = None,
    alpha: AlphaOption = None,
    distribution: DistributionOption = None,
    payload: PayloadOption = None,
    kernels: KernelsOption = None,
    settings: SetOption = None,
    local_memory: LocalMemoryOption = None,
    remote_memory: RemoteMemoryOption = None,
    tier: TierOption = None,
    qps: GivenQpsOption = None,
    p99: GivenP99Option = None,
    wait: GivenWaitOption = None,
    samples: GivenSamplesOption = "1",
    replicas: GivenReplicasOption = None,
    overlap: GivenOverlapOption = None,
    arrivals: GivenArrivalsOption = None,
    requests: GivenRequestsOption = FOLLOWED,
    seed: GivenSeedOption = 0,
    stragglers: GivenStragglersOption = True,
    host: GivenHostOption = None,
    prices: GivenPricesOption = None,
    calibration: CalibrationOption = None,
    as_json: JsonOption = False,
) -> None:
    """The equation of one step with your numbers in it, each with unit, source and evidence.

    Takes the options of project (default: --table-size 10TB), those of plan with --plan FILE, those of
    collective for a collective, those of load for load.

    \b
    Examples
      perfmodel explain reduce-scatter
      perfmodel explain slowdown --table-size 10TB
      perfmodel explain gather --table-size 10TB --dim 128
      perfmodel explain all-to-all-ids --gpus 16 --machine h200-sxm-ib --json
      perfmodel explain all-to-all-rows --sharding ub
      perfmodel explain convert-out --payload fp16
      perfmodel explain fetch-rows --tier uvm-caching:10% --alpha 1.05
      perfmodel explain gather --remote-memory 10TB@3TB/s,shared:16,latency:3us
      perfmodel explain collective --op all_to_all --size 1GiB --gpus 128
      perfmodel explain gather --plan plan.json --batch 4096
      perfmodel explain load --table-size 10TB --qps 500k --p99 10ms
      perfmodel explain alternatives --table-size 10TB
    """
    if is_collective(step):
        explain_one_collective(context)
        return
    only_of_collective(step, op, size)
    if is_alternatives(step):
        explain_the_alternatives(context)
        return
    if is_load(step):
        explain_the_load(context)
        return
    only_of_load(context, step)
    if plan_file is not None:
        explain_step_of_plan(context)
        return
    only_of_plan(objective, optimizer)
    way = checked_sharding(sharding, reduction, local_memory, tier, remote_memory)
    if way == ALL:
        raise BadInputError(
            "--sharding all has the steps of many shardings.", "name one of them, e.g. --sharding table-wise"
        )
    asked = dict(context.params)
    if table_size is None and gpus is None and model is None:
        asked["table_size"] = _DEFAULT_TABLE_SIZE
    typed, question = Typed.of(machine, calibration, backend), question_of(asked)
    question.check_gpus()

    words, whole = ("perfmodel", "explain", step), step.strip().lower() in WHOLE

    def instead() -> str:
        check = explain_slowdown if whole else lambda answer: explain_step(answer, step)
        return answerable(words, typed, question, check)

    with question.advised(instead):
        answer = question.answer()
        if whole:
            _emit_whole(answer, way, typed, as_json)
            return
        found = explain_step(answer, step) if way is None else _of_way(answer, way, step, typed)
    if as_json:
        emit_json("explain", **found.to_dict())
        return

    first = "" if way is not None else f"{paragraph(_ROW_WISE)}\n"
    emit_cited(f"{first}{explanation_text(found)}")


def _emit_whole(base: Projection, way: str | None, typed: Typed, as_json: bool) -> None:
    """How the steps make up the slowdown, of row-wise or of another way."""
    answer, numbers = base, explain_slowdown(base)
    if way is not None:
        from perfmodel.cli.shardings import one_way
        from perfmodel.plan.as_projection import projection_of

        answer = one_way(base, way, typed.line).answer or base
        numbers = explain_slowdown(answer, *[projection_of] * 3) if answer is not base else numbers
    if as_json:
        title, *_ = headline(answer).split("  ")
        emit_json("explain", title=title, numbers=[each.to_dict() for each in numbers])
        return
    emit("\n\n".join([headline(answer), *map(number_text, numbers)]))


def _of_way(answer: Projection, way: str, step: str, typed: Typed) -> Explanation:
    from perfmodel.cli.shardings import explain_way

    return explain_way(answer, way, step, typed.line)
