"""``perfmodel project``: how much slower, and because of what?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfmodel.cli.host_option import HostOption, check_host
from perfmodel.cli.ids import AlphaOption, DistributionOption
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
    not_counted,
    table_count,
)
from perfmodel.errors import BadInputError
from perfmodel.project import Projection
from perfmodel.project.hosted import EAGER, Hosted, hosted
from perfmodel.project.ids_ahead import ids_ahead
from perfmodel.project.kernel_choice import other_kernels
from perfmodel.project.sensitivity import next_experiment, sensitivities
from perfmodel.report.projection_text import projection_text
from perfmodel.schema.evidence import Clock

_COMMAND = ("perfmodel", "project")

ReportOption = Annotated[
    Path | None,
    typer.Option(
        "--report", metavar="FILE", help="Also write an HTML page to this file, as perfmodel report does."
    ),
]


def project(
    context: typer.Context,
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
    host: HostOption = None,
    settings: SetOption = None,
    local_memory: LocalMemoryOption = None,
    remote_memory: RemoteMemoryOption = None,
    tier: TierOption = None,
    calibration: CalibrationOption = None,
    as_json: JsonOption = False,
    as_csv: CsvOption = False,
    report: ReportOption = None,
    force: ForceOption = False,
) -> None:
    """How much slower is an embedding bag when its tables are spread over many GPUs, and why?

    \b
    Examples
      perfmodel project --table-size 10TB
      perfmodel project --table-size 10TB --tables 64 --dim 128 --batch 4096 --machine h200-sxm-ib
      perfmodel project --model mlperf-dlrm-dcnv2 --gpus 16
      perfmodel project --table-size 10TB --set nic_bytes_per_s=100GB/s
      perfmodel project --table-size 10TB --local-memory 10TB@3TB/s
      perfmodel project --table-size 10TB --remote-memory 10TB@3TB/s,shared:16,latency:3us
      perfmodel project --table-size 10TB --tier uvm-caching:10% --alpha 1.05
      perfmodel project --table-size 10TB --payload fp16
      perfmodel project --table-size 10TB --kernels torch
      perfmodel project --table-size 10TB --host eager
      perfmodel project --table-size 10TB --sharding all
      perfmodel project --table-size 10TB --report out.html
    """
    one_output(json=as_json, csv=as_csv)
    if report is not None:
        from perfmodel.cli.report import check_beside, write_beside

        check_beside(report, force, local_memory=local_memory, remote_memory=remote_memory)
    memory = {"local_memory": local_memory, "remote_memory": remote_memory}
    check_host(host, as_csv=as_csv, report=report, sharding=sharding, **memory)
    way = checked_sharding(sharding, reduction, tier=tier, **memory)
    if tables is not None:
        table_count(tables)
    if table_size is None and gpus is None and model is None:
        raise BadInputError("which tables?", "give --table-size, --gpus or --model, e.g. --table-size 10TB")
    typed, question = Typed.of(machine, calibration, backend), question_of(context.params)
    question.check_gpus()
    if question.tables is not None:
        warn_all(not_counted(question.tables))
    file = calibration_file(question.calibration)
    with question.advised(lambda: answerable(_COMMAND, typed, question)):
        answer = question.answer()
        if report is not None:
            note(write_beside(context, report))
    if sharding is not None:
        from perfmodel.cli.shardings import Output, print_all, print_one, row_wise_cut
    if way is not None:
        out = Output(as_json, as_csv, file, typed.line)
        if way == ALL:
            print_all(answer, question, out)
        else:
            print_one(answer, question, way, out)
        return
    if as_csv:
        emit(answer.to_frame().to_csv(index=False))
        return

    changes = sensitivities(answer)
    experiment = next_experiment(answer) if answer.forward.memory is None else None
    others = tuple(other_kernels(answer)) if answer.forward.memory is None else ()
    issued = None if host is None else hosted(answer, host, file)
    ahead = ids_ahead(answer) if answer.forward.memory is None else None
    if as_json:
        measure = vars(experiment) if experiment else None
        emit_json(
            "project",
            **{**answer.to_dict(), **(row_wise_cut(answer) if sharding is not None else {})},
            calibration_file=file,
            changes=[vars(c) for c in changes],
            next_experiment=measure,
            host=issued.to_dict() if issued else None,
            ids_ahead=ahead.to_dict() if ahead else None,
            kernels={
                "implementation": answer.setting.kernel_library,
                "timed": answer.setting.kernels is not None,
                "others": [vars(other) for other in others],
            },
        )
        return

    emit(
        projection_text(
            answer,
            changes,
            experiment,
            typed.machine,
            file,
            lambda w: typed.line(w, answer),
            others,
            issued,
            ahead,
            _beside(answer, file) if host is None else None,
        )
    )
    for line in answer.notes:
        warn(line)


def _beside(answer: Projection, file: str | None) -> Hosted | None:
    """The answer with an eager host. Limits: nothing sharded, or a host in its times already -> None"""
    clocks = {*answer.setting.links.clocks, answer.setting.kernel_clock}
    if answer.gpus == 1 or answer.forward.memory is not None or Clock.EAGER in clocks:
        return None
    return hosted(answer, EAGER, file)
