"""``perfmodel load``: latencies of a service against its load, and how many GPUs carry it."""

from __future__ import annotations

from pathlib import Path

import typer

from perfmodel.cli.host_option import HostOption
from perfmodel.cli.ids import AlphaOption, DistributionOption
from perfmodel.cli.load_answer import LoadAnswer, answered
from perfmodel.cli.load_options import (
    ArrivalsOption,
    FullBatchOption,
    LoadPageOption,
    LoadPlanOption,
    LoadPricesOption,
    LoadSeedOption,
    LoadShardingOption,
    OverlapOption,
    P99Option,
    QpsOption,
    ReplicasOption,
    RequestsOption,
    SamplesOption,
    StragglersOption,
    WaitOption,
)
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
    one_output,
)
from perfmodel.cli.output import emit, emit_json, note, warn, warn_all
from perfmodel.cli.plan_options import check_page
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
from perfmodel.report.load_text import load_text
from perfmodel.service.highest import FOLLOWED


def load(
    context: typer.Context,
    qps: QpsOption = None,
    p99: P99Option = None,
    table_size: TableSizeOption = None,
    gpus: GpusOption = None,
    model: ModelOption = None,
    plan: LoadPlanOption = None,
    sharding: LoadShardingOption = None,
    batch: FullBatchOption = None,
    wait: WaitOption = None,
    samples: SamplesOption = "1",
    replicas: ReplicasOption = None,
    overlap: OverlapOption = None,
    arrivals: ArrivalsOption = None,
    requests: RequestsOption = FOLLOWED,
    seed: LoadSeedOption = 0,
    stragglers: StragglersOption = True,
    prices: LoadPricesOption = None,
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
      perfmodel load --table-size 10TB --qps 500k --p99 10ms --sharding best
      perfmodel load --table-size 10TB --p99 5ms --tier uvm-caching
      perfmodel load --table-size 10TB --p99 10ms --arrivals times.txt
      perfmodel load --table-size 10TB --qps 500k --p99 10ms --prices prices.toml
    """
    one_output(json=as_json, csv=as_csv)
    check_page(report, None, force=force)
    asked = answered(context.params)
    answer, setting, question, file = asked.answer, asked.setting, asked.question, asked.file
    if report is not None:
        _write_page(context, asked, report)
    if as_csv:
        emit(answer.to_frame().to_csv(index=False))
    elif as_json:
        cost = asked.hourly.to_dict()
        known = {**answer.to_dict(), "cost": cost, "calibration_file": file}
        emit_json("load", machine=setting.machine.name, host=host, **known)
    else:
        emit(load_text(answer, asked.hourly, setting, file, host))
        if question.tables is not None and plan is None:
            warn_all(not_counted(question.tables))
        for line in setting.notes:
            warn(line)


def _write_page(context: typer.Context, asked: LoadAnswer, path: Path) -> None:
    """The page, with the line that makes it again."""
    from perfmodel.cli.page_file import write
    from perfmodel.report.page.alerts import alerts
    from perfmodel.report.page.load_page import load_page

    line = TypedLine.of(context)
    command = line.text(without=["report", "force", "as_json", "as_csv"], more=["--report", path.name])
    doubts = alerts(None, asked.question.calibration)
    write(load_page(asked.answer, asked.hourly, asked.setting, command, doubts), path, "html")
    note(f"wrote {path}")
