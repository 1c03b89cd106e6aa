"""``perfmodel project``: how much slower, and because of what?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from perfmodel.cli.ids import AlphaOption, DistributionOption, ids_of
from perfmodel.cli.options import (
    BackendOption,
    CalibrationOption,
    ClockOption,
    CsvOption,
    ForceOption,
    GpusPerNodeOption,
    JsonOption,
    MachineOption,
    SetOption,
    advice,
    calibration_file,
    calibration_of,
    check_gpus,
    library_of,
    machine_of,
    one_output,
)
from perfmodel.cli.output import emit, emit_json, note, warn
from perfmodel.cli.report import check_beside, write_beside
from perfmodel.cli.shardings import (
    ALL,
    Output,
    ShardingOption,
    checked_sharding,
    print_all,
    print_one,
    row_wise_cut,
)
from perfmodel.cli.suggest import Typed, answerable
from perfmodel.cli.workload import (
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
    ReserveOption,
    ScenarioOption,
    TableSizeOption,
    TablesOption,
    local_memory_of,
    reserve_of,
    workload_values,
)

_COMMAND = ("perfmodel", "project")

ReportOption = Annotated[
    Path | None,
    typer.Option("--report", metavar="FILE", help="Also write the page of perfmodel report to this file."),
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
    reserve: ReserveOption = "0",
    gpus_per_node: GpusPerNodeOption = None,
    scenario: ScenarioOption = "cluster",
    reduction: ReductionOption = "auto",
    sharding: ShardingOption = None,
    alpha: AlphaOption = None,
    distribution: DistributionOption = None,
    payload: PayloadOption = None,
    settings: SetOption = None,
    local_memory: LocalMemoryOption = None,
    calibration: CalibrationOption = None,
    as_json: JsonOption = False,
    as_csv: CsvOption = False,
    report: ReportOption = None,
    force: ForceOption = False,
) -> None:
    """How much slower is the embedding bag when its tables are spread over many GPUs, and because of what?

    \b
    Examples
      perfmodel project --table-size 10TB
      perfmodel project --table-size 10TB --tables 64 --dim 128 --batch 4096 --machine h200-sxm-ib
      perfmodel project --model mlperf-dlrm-dcnv2 --gpus 16
      perfmodel project --table-size 10TB --set nic_bytes_per_s=100GB/s
      perfmodel project --table-size 10TB --local-memory 10TB@3TB/s
      perfmodel project --table-size 10TB --payload fp16
      perfmodel project --table-size 10TB --sharding all
      perfmodel project --table-size 10TB --report out.html
    """
    one_output(json=as_json, csv=as_csv)
    if report is not None:
        check_beside(report, force, local_memory=local_memory)
    way = checked_sharding(sharding, reduction, local_memory)
    ids = ids_of(alpha, distribution)
    workload = workload_values(
        table_size=table_size, gpus=gpus, model=model, batch=batch, tables=tables, pooling=pooling, dim=dim,
        dtype=dtype, id_dtype=id_dtype,
    )  # fmt: skip
    typed = Typed.of(machine, calibration, backend)
    calibration = calibration_of(calibration, backend, clock)
    chosen = machine_of(machine, settings, calibration)
    options: dict[str, Any] = {
        "backend": library_of(chosen, backend, calibration),
        "clock": clock,
        "reserve": reserve_of(reserve),
        "gpus_per_node": gpus_per_node,
        "scenario": scenario,
        "reduction": reduction,
        "payload": payload,
        "distribution": ids,
        "calibration": calibration,
        "local_memory": local_memory_of(local_memory),
    }
    if local_memory is None:
        check_gpus(workload.get("table_bytes", 0), chosen, options["reserve"])
    from perfmodel.project import project_one

    with advice(
        chosen,
        options["backend"],
        clock,
        lambda: calibration and answerable(_COMMAND, typed, workload, chosen, options),
    ):
        answer = project_one(machine=chosen, **workload, **options)
        if report is not None:
            known = {name: value for name, value in workload.items() if name not in _SELECTED}
            note(write_beside(context, report, (table_size, batch, pooling, dim), {**options, **known}))
    if way is not None:
        out = Output(as_json, as_csv, calibration_file(calibration), typed.line)
        if way == ALL:
            print_all(answer, workload, lambda w: project_one(machine=chosen, **w, **options), out)
        else:
            print_one(answer, way, out)
        return
    if as_csv:
        emit(answer.to_frame().to_csv(index=False))
        return
    from perfmodel.project.sensitivity import next_experiment, sensitivities

    changes = sensitivities(answer)
    experiment = next_experiment(answer) if answer.forward.memory is None else None
    if as_json:
        measure = vars(experiment) if experiment else None
        emit_json(
            "project",
            **answer.to_dict(),
            calibration_file=calibration_file(calibration),
            changes=[vars(c) for c in changes],
            next_experiment=measure,
            **(row_wise_cut(answer) if sharding is not None else {}),
        )
        return
    from perfmodel.report.projection import projection_text

    file = calibration_file(calibration)
    emit(projection_text(answer, changes, experiment, typed.machine, file, lambda w: typed.line(w, answer)))
    for line in answer.notes:
        warn(line)


_SELECTED = ("table_bytes", "batch", "pooling", "dim")  # what the reader of a page may choose
