"""``perfmodel project``: how much slower, and because of what?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfmodel.cli.host_option import HostOption
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
)
from perfmodel.cli.workload import (
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
)

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
    from perfmodel.cli.project_answer import answer_project

    answer_project(context, report)
