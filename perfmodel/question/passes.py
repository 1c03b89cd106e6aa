"""Options of the commands about a pass and a collective."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from perfmodel.question import groups
from perfmodel.question.groups import (
    EqualTableOptions,
    GlobalBatchOptions,
    MachineOptions,
    OutputOptions,
    RowWiseOptions,
    TrainingOptions,
)
from perfmodel.question.spec import Opt
from perfmodel.units import parse_bytes

Texts = list[str] | None


@dataclass(frozen=True, kw_only=True)
class QuestionOptions(TrainingOptions, RowWiseOptions, GlobalBatchOptions, EqualTableOptions):
    """Options of a question about tables on a machine, for the screen and for a page."""

    sharding: groups.BestSharding = None
    payload: groups.Payload = None
    kernels: groups.Kernels = None


@dataclass(frozen=True, kw_only=True)
class ProjectOptions(QuestionOptions):
    """How much slower is an embedding bag when its tables are spread over many GPUs, and why?

    \b
    Examples
      perfmodel project --table-size 10TB
      perfmodel project --table-size 10TB --tables 64 --dim 128 --batch 4096 --machine h200-sxm-ib
      perfmodel project --model mlperf-dlrm-dcnv2 --gpus 16
      perfmodel project --model mlperf-dlrm-dcnv2 --gpus 16 --global-batch 65536
      perfmodel project --table-size 10TB --max-latency 10ms
      perfmodel project --table-size 10TB --set nic_bytes_per_s=100GB/s
      perfmodel project --table-size 10TB --pooling none:50 --sharding ub
      perfmodel project --table-size 10TB --rows host
      perfmodel project --table-size 10TB --rows host-cached:10% --distribution zipf:1.05
      perfmodel project --table-size 10TB --payload fp16
      perfmodel project --table-size 10TB --kernels torch
      perfmodel project --table-size 10TB --sharding all
      perfmodel project --table-size 10TB --explain reduce-scatter-bags
      perfmodel project --table-size 10TB --objective training --optimizer adam
      perfmodel project --table-size 10TB --report out.html
    """

    explain: groups.Explain = None
    as_csv: groups.Csv = False
    report: Annotated[
        Path | None, Opt("Also write an HTML page to this file, as perfmodel report does.", "FILE")
    ] = None


@dataclass(frozen=True, kw_only=True)
class CollectiveOptions(OutputOptions, MachineOptions):
    """Time, bandwidth and 95 % band of a collective, at any number of GPUs.

    The size is that of nccl-tests: the send buffer of one rank for all_to_all and reduce_scatter, the receive
    buffer for all_gather, the buffer for all_reduce and broadcast.

    \b
    Examples
      perfmodel collective --op all_to_all --size 1GiB --gpus 128
      perfmodel collective --op all --size 1MiB..64MiB --gpus 8,16 --machine h200-sxm-ib
      perfmodel collective --op all_gather --size 1GiB --gpus 64 --set nic_bytes_per_s=100GB/s --json
      perfmodel collective --op all_to_all --size 1GiB --gpus 128 --explain
      perfmodel collective --op all_reduce --size 1GiB..8GiB --gpus 16 --gates --json
    """

    op: Annotated[
        list[str], Opt("all_to_all, reduce_scatter, all_gather, all_reduce, broadcast; or all.", "NAME")
    ]
    size: Annotated[
        list[str],
        Opt(
            "Bytes of one rank's buffer: 1GiB, 64KiB,1MiB or 1MiB..1GiB.",
            "SIZE",
            read=parse_bytes,
            several=True,
        ),
    ]
    gpus: Annotated[list[str], groups.GPUS.saying("Number of ranks: 128, 8,16 or 8..1024.", several=True)]
    backend: Annotated[
        str | None,
        Opt(
            "Communication library: nccl, nvshmem, any library of your own calibration, or best, the faster "
            "of NCCL and NVSHMEM.",
            "NAME",
        ),
    ] = None
    gpus_per_node: Annotated[int | None, Opt("GPUs used in each node (default: all of them).", "N")] = None
    explain: Annotated[
        bool, Opt("Print how the time of the one collective follows: equations, sources, parts of the band.")
    ] = False
    gates: Annotated[
        bool,
        Opt("Print what validates a cluster: the lowest busbw and longest time of normal ones."),
    ] = False
    as_csv: groups.Csv = False


@dataclass(frozen=True, kw_only=True)
class SweepOptions(TrainingOptions, RowWiseOptions, GlobalBatchOptions):
    """Project all combinations of the given values: one row each, in SI units.

    Each has the sharding that project leads with, TorchRec's fastest; --sharding row-wise takes millions.
    Lists are separated by commas, ranges double: 1TB..16TB is 1, 2, 4, 8 and 16 TB.

    \b
    Examples
      perfmodel sweep --grid paper-1 --sharding row-wise --out paper-1.csv
      perfmodel sweep --grid paper-2 --gpus 128 --machine h100-paper --csv
      perfmodel sweep --table-size 1TB..64TB --batch 128..4096 --dim 32,128 --out sweep.parquet
      perfmodel sweep --gpus 16,128 --machine h100-sxm-ib,gb200-nvl72 --csv
      perfmodel sweep --table-size 1TB --gpus 16..128 --global-batch 65536
      perfmodel sweep --model mlperf-dlrm-dcnv2,criteo-1tb --gpus 8..128 --batch 512..4096 --csv
      perfmodel sweep --table-size 10TB --machine h100-sxm-ib,gb200-nvl72 --by time
      perfmodel sweep --table-size 10TB --machine h100-sxm-ib --by cost --price h100-sxm-ib=2.5USD/GPU/h
    """

    grid: Annotated[
        str | None, Opt("The paper's grid: paper-1 (192 points) or paper-2 (168 points).", "NAME")
    ] = None
    model: Annotated[
        Texts,
        Opt(
            "Sets of tables (perfmodel show models, or files), over --gpus and --batch.",
            "NAMES",
        ),
    ] = None
    table_size: Annotated[
        Texts, groups.TABLE_SIZE.saying("1TB,10TB or 80GB..100TB (doubling).", several=True)
    ] = None
    gpus: Annotated[Texts, groups.GPUS.saying("8,128 or 8..1024 (doubling).", several=True)] = None
    batch: Annotated[Texts, groups.BATCH.saying("Samples per GPU.", several=True)] = None
    tables: Annotated[Texts, groups.TABLES.saying("Numbers of tables.", several=True)] = None
    pooling: Annotated[Texts, groups.POOLING.saying("Rows summed per bag.", several=True)] = None
    dim: Annotated[Texts, groups.DIM.saying("Elements per row.", several=True)] = None
    dtype: Annotated[Texts, Opt("fp64, fp32 (default), fp16, bf16, fp8, int8.", "TYPE")] = None
    sharding: groups.BestSharding = None
    machine: Annotated[
        Texts,
        Opt(
            f"One or more machines (default: that of --calibration, else {groups.DEFAULT_MACHINE}).",
            "NAME",
        ),
    ] = None  # type: ignore[assignment]
    by: Annotated[
        str | None, Opt("Machines side by side, the best first by time, throughput or cost.", "NAME")
    ] = None
    price: Annotated[
        Texts, Opt("Price of a machine's GPU, e.g. h100-sxm-ib=2.5USD/GPU/h. Repeat for more.", "NAME=PRICE")
    ] = None
    out: groups.Out = None
    as_csv: groups.Csv = False
