"""``perfmodel load``: latencies of a service against its load, and how many GPUs carry it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from perfmodel.cli.host_option import HostOption, check_host
from perfmodel.cli.ids import AlphaOption, DistributionOption
from perfmodel.cli.load_options import (
    ArrivalsOption,
    FullBatchOption,
    LoadPageOption,
    LoadPlanOption,
    LoadSeedOption,
    OverlapOption,
    P99Option,
    QpsOption,
    ReplicasOption,
    RequestsOption,
    SamplesOption,
    StragglersOption,
    TypedLoad,
    WaitOption,
    check_beside_plan,
)
from perfmodel.cli.load_progress import LoadProgress
from perfmodel.cli.options import (
    BackendOption,
    CalibrationOption,
    ClockOption,
    CsvOption,
    ForceOption,
    GpusPerNodeOption,
    JsonOption,
    KernelsOption,
    MachineOption,
    SetOption,
    calibration_file,
    one_output,
)
from perfmodel.cli.output import emit, emit_json, note, warn, warn_all
from perfmodel.cli.plan_options import check_page
from perfmodel.cli.question import Question, question_of
from perfmodel.cli.typed_line import TypedLine
from perfmodel.cli.workload import (
    RESERVE,
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
    TableSizeOption,
    TablesOption,
    TierOption,
    not_counted,
)
from perfmodel.errors import BadInputError
from perfmodel.passes.settings import Setting
from perfmodel.project.hosted import check_clock
from perfmodel.report.load_text import load_text
from perfmodel.schema.distributions import UNIFORM
from perfmodel.service.highest import FOLLOWED
from perfmodel.service.served import MOST_SAMPLES, ServedPass, hosted_pass, planned_pass, projected_pass
from perfmodel.service.service_load import ServiceLoad, service_load
from perfmodel.service.stragglers import NONE, measured_ranks, spread_of

if TYPE_CHECKING:
    from perfmodel.plan.cost import Evaluator

_PLAN_BATCHES = tuple(2**power for power in range(17))


def load(
    context: typer.Context,
    qps: QpsOption = None,
    p99: P99Option = None,
    table_size: TableSizeOption = None,
    gpus: GpusOption = None,
    model: ModelOption = None,
    plan: LoadPlanOption = None,
    batch: FullBatchOption = None,
    wait: WaitOption = None,
    samples: SamplesOption = "1",
    replicas: ReplicasOption = None,
    overlap: OverlapOption = None,
    arrivals: ArrivalsOption = None,
    requests: RequestsOption = FOLLOWED,
    seed: LoadSeedOption = 0,
    stragglers: StragglersOption = True,
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
    alpha: AlphaOption = None,
    distribution: DistributionOption = None,
    payload: PayloadOption = None,
    kernels: KernelsOption = None,
    host: HostOption = None,
    settings: SetOption = None,
    local_memory: LocalMemoryOption = None,
    remote_memory: RemoteMemoryOption = None,
    tier: TierOption = None,
    calibration: CalibrationOption = None,
    as_json: JsonOption = False,
    as_csv: CsvOption = False,
    report: LoadPageOption = None,
    force: ForceOption = False,
) -> None:
    """Latencies of a service under load, the best batch and wait, and how many GPUs it needs.

    \b
    Examples
      perfmodel load --table-size 10TB --qps 500k --p99 10ms
      perfmodel load --table-size 10TB --qps 500k --p99 10ms --report load.html
      perfmodel load --table-size 10TB --p99 5ms --batch 64 --wait 200us
      perfmodel load --model mlperf-dlrm-dcnv2 --gpus 16 --qps 2M --p99 2ms
      perfmodel load --model tables.csv --plan plan.json --qps 100k --p99 3ms
      perfmodel load --table-size 10TB --qps 500k --p99 10ms --host eager
      perfmodel load --table-size 10TB --p99 5ms --tier uvm-caching
      perfmodel load --table-size 10TB --p99 10ms --arrivals times.txt
    """
    one_output(json=as_json, csv=as_csv)
    memory = {"local_memory": local_memory, "remote_memory": remote_memory}
    check_host(host, **memory)
    if plan is not None:
        check_beside_plan(tier=tier, **memory)
    check_page(report, None, force=force)
    asked = TypedLoad.of(context.params)
    if table_size is None and gpus is None and model is None:
        raise BadInputError("which tables?", "give --table-size, --gpus or --model, e.g. --table-size 10TB")
    question = question_of({**context.params, "batch": None})
    question.check_gpus()
    file = calibration_file(question.calibration)
    with question.advised():
        setting, served = _planned(plan, question) if plan else _projected(question)
        if host is not None:
            check_clock(setting, host)
            served = hosted_pass(served, host, file)
        measured = [
            measured_ranks(setting, s.collective, served.gpus) if s.collective else 0 for s in served.steps
        ]
        spread = spread_of(question.calibration if file else None) if stragglers else NONE
        with contextlib.closing(LoadProgress()) as progress:
            answer = service_load(asked.question(served, spread, tuple(measured)), progress.tell)
    if report is not None:
        _write_page(context, answer, setting, report, question.calibration)
    if as_csv:
        emit(answer.to_frame().to_csv(index=False))
    elif as_json:
        emit_json("load", machine=setting.machine.name, host=host, **answer.to_dict(), calibration_file=file)
    else:
        emit(load_text(answer, setting, file, host))
        if question.tables is not None and plan is None:
            warn_all(not_counted(question.tables))
        for line in setting.notes:
            warn(line)


def _write_page(
    context: typer.Context, answer: ServiceLoad, setting: Setting, path: Path, calibration: str | None
) -> None:
    """The page, with the line that makes it again."""
    from perfmodel.cli.page_file import write
    from perfmodel.report.page.alerts import alerts
    from perfmodel.report.page.load_page import load_page

    line = TypedLine.of(context)
    command = line.text(without=["report", "force", "as_json", "as_csv"], more=["--report", path.name])
    write(load_page(answer, setting, command, alerts(None, calibration)), path, "html")
    note(f"wrote {path}")


def _projected(question: Question) -> tuple[Setting, ServedPass]:
    """The row-wise pass, on as many GPUs as ``perfmodel project`` takes."""
    answer = question.answer()
    keywords = question.keywords("gpus", "batch")
    return answer.setting, projected_pass(keywords, answer.gpus, MOST_SAMPLES)


def _planned(path: Path, question: Question) -> tuple[Setting, ServedPass]:
    """The forward pass of a plan file."""
    from perfmodel.plan import PlanTables
    from perfmodel.plan.cost import Evaluator
    from perfmodel.plan.torchrec_files import read_any_plan

    if question.tables is None:
        raise BadInputError(
            "--plan places the tables of which model?", "give the --model that it was made for."
        )
    known = PlanTables.load(question.tables, question.distribution or UNIFORM)
    given, sets = read_any_plan(path, known)
    setting = question.setting()
    ids = {4: "int32", 8: "int64"}[question.id_bytes or 8]
    rest: dict[str, Any] = {
        "gpus_per_node": question.gpus_per_node,
        "id_dtype": ids,
        "payload": question.payload,
    }

    def evaluator(batch: int) -> Evaluator:
        return Evaluator(setting, known, batch, given.gpus, sets=sets, **rest)

    usable = setting.machine.value("hbm_bytes") * (1 - question.reserve)
    return setting, planned_pass(evaluator, given, usable, _PLAN_BATCHES)
