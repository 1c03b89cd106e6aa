"""``perfmodel project``: how much slower, and because of what?"""

from __future__ import annotations

from collections.abc import Mapping
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
    check_most,
    library_of,
    machine_of,
    one_output,
)
from perfmodel.cli.output import emit, emit_json, note, warn
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
from perfmodel.errors import BadInputError

_COMMAND = ("perfmodel", "project")

TableSizeOption = Annotated[
    str | None,
    typer.Option("--table-size", metavar="SIZE", help="Bytes of all tables together, e.g. 10TB or 10TiB."),
]
GpusOption = Annotated[
    str | None, typer.Option("--gpus", metavar="N", help="Spread over this many GPUs (default: as needed).")
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="NAME",
        help="A shipped set of tables (perfmodel models), or a CSV, JSON, YAML, TOML file.",
    ),
]
BatchOption = Annotated[
    str | None, typer.Option("--batch", metavar="N", help="Samples per GPU (default 1024).")
]
TablesOption = Annotated[
    str | None, typer.Option("--tables", metavar="N", help="Number of tables (default 1).")
]
PoolingOption = Annotated[
    str | None, typer.Option("--pooling", metavar="N", help="Rows summed per bag (default 32).")
]
DimOption = Annotated[str | None, typer.Option("--dim", metavar="N", help="Elements of a row (default 32).")]
DtypeOption = Annotated[
    str | None,
    typer.Option(
        "--dtype", metavar="TYPE", help="Element of a row: fp64, fp32 (default), fp16, bf16, fp8 or int8."
    ),
]
IdDtypeOption = Annotated[
    str, typer.Option("--id-dtype", metavar="TYPE", help="Type of an id: int64 or int32.")
]
ReserveOption = Annotated[
    str,
    typer.Option(
        "--reserve", metavar="PART", help="Part of each GPU's memory kept for other things, e.g. 15%."
    ),
]
ScenarioOption = Annotated[
    str,
    typer.Option(
        "--scenario",
        metavar="NAME",
        help="cluster (the real one) or nvlink-everywhere (the paper's assumption).",
    ),
]
ReductionOption = Annotated[
    str,
    typer.Option(
        "--reduction",
        metavar="NAME",
        help="How partial bags become bags: auto, reduce-scatter, all-to-all, two-level or sparse.",
    ),
]
PayloadOption = Annotated[
    str | None,
    typer.Option("--payload", metavar="TYPE", help="Bags on the wire: fp32 (default), fp16, bf16, fp8."),
]
LocalMemoryOption = Annotated[
    str | None,
    typer.Option(
        "--local-memory",
        metavar="SIZE@RATE",
        help="One memory for all tables instead: SIZE@RATE, e.g. 10TB@3TB/s.",
    ),
]


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
        from perfmodel.cli.report import check_beside, write_beside

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


def workload_values(*, model: str | None, id_dtype: str, **texts: str | None) -> dict[str, Any]:
    """Keywords of ``perfmodel.project`` from what was typed; options that exclude each other are refused."""
    from perfmodel.schema.workload import id_dtype_bytes
    from perfmodel.units import parse_bytes, parse_count, parse_number

    if model is not None:
        check_model(texts)
    elif texts.get("table_size") is None and texts.get("gpus") is None:
        raise BadInputError("which tables?", "give --table-size, --gpus or --model, e.g. --table-size 10TB")
    parsers = {
        "table_size": (parse_bytes, "table_bytes"),
        "gpus": (parse_count, "gpus"),
        "batch": (parse_count, "batch"),
        "tables": (parse_count, "table_count"),
        "pooling": (parse_number, "pooling"),
        "dim": (parse_count, "dim"),
    }
    values: dict[str, Any] = {"id_bytes": id_dtype_bytes(id_dtype), "dtype": texts.get("dtype")}
    for name, (parse, key) in parsers.items():
        text = texts.get(name)
        if text is not None:
            option = f"--{name.replace('_', '-')}"
            values[key] = parse(text, option)
            check_most(key, values[key], option)
    if model is not None:
        values["tables"] = model
    return {name: value for name, value in values.items() if value is not None}


def check_model(typed: Mapping[str, object]) -> None:
    """Refuse options beside --model that say what tables are. typed  options by name, None: not given"""
    clash = [f"--{name.replace('_', '-')}" for name in _OF_A_MODEL if typed.get(name) is not None]
    if clash:
        raise BadInputError(f"--model and {clash[0]} exclude each other.", "a model brings its own tables.")


_OF_A_MODEL = ("table_size", "tables", "pooling", "dim", "dtype")


def reserve_of(text: str) -> float:
    """A fraction of ``15%`` or ``0.15``, below 1."""
    from perfmodel.units import parse_ratio

    value = parse_ratio(text, "--reserve", allow_zero=True)
    if value >= 1:
        raise BadInputError(f"--reserve {text} leaves no memory.", "less than 1, for example 0.15 or 15%.")
    return value


def local_memory_of(text: str | None) -> tuple[float, float] | None:
    """Bytes and bytes per second of ``10TB@3TB/s``."""
    if text is None:
        return None
    from perfmodel.units import parse_bytes, parse_rate

    size, at, rate = text.partition("@")
    if not at:
        raise BadInputError(
            f"--local-memory {text} is not SIZE@RATE.", "for example --local-memory 10TB@3TB/s"
        )
    return parse_bytes(size, "--local-memory"), parse_rate(rate, "--local-memory")
