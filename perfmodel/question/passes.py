"""Options of the commands about a pass and a collective, and of their pages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

from perfmodel.question import groups
from perfmodel.question.groups import MachineOptions, OutputOptions, PassOptions, QuestionOptions
from perfmodel.question.spec import CommandOptions, Opt
from perfmodel.units import parse_bytes, parse_count

Texts = list[str] | None


@dataclass(frozen=True, kw_only=True)
class ProjectOptions(QuestionOptions):
    """How much slower is an embedding bag when its tables are spread over many GPUs, and why?

    \b
    Examples
      perfmodel project --table-size 10TB
      perfmodel project --table-size 10TB --tables 64 --dim 128 --batch 4096 --machine h200-sxm-ib
      perfmodel project --model mlperf-dlrm-dcnv2 --gpus 16
      perfmodel project --table-size 10TB --max-latency 10ms
      perfmodel project --table-size 10TB --set nic_bytes_per_s=100GB/s --set payload=fp16
      perfmodel project --table-size 10TB --pooling none:50 --sharding ub
      perfmodel project --table-size 10TB --rows host-cached:10% --distribution zipf:1.05
      perfmodel project --table-size 10TB --sharding all
      perfmodel project --table-size 10TB --explain reduce-scatter-bags
      perfmodel project --table-size 10TB --objective training --set optimizer=adam
    """

    rows: Annotated[str | None, groups.ROWS] = None
    max_latency: Annotated[str | None, groups.MAX_LATENCY] = None
    explain: groups.Explain = None


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
        Opt("Bytes of one rank's buffer: 1GiB, 64KiB,1MiB or 1MiB..1GiB.", "SIZE", read=parse_bytes,
            several=True, maximum="256TiB"),
    ]  # fmt: skip
    gpus: Annotated[list[str], groups.GPUS.saying("Number of ranks: 128, 8,16 or 8..1024.", several=True)]
    gpus_per_node: Annotated[
        int | None, Opt("GPUs used in each node (default: all of them).", read=parse_count, by_set=True)
    ] = None
    explain: Annotated[
        bool, Opt("Print how the time of the one collective follows: equations, sources, parts of the band.")
    ] = False
    gates: Annotated[
        bool, Opt("Print what validates a cluster: the lowest busbw and longest time of normal ones.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class SweepOptions(PassOptions):
    """Project all combinations of the given values, one row each; or set machines side by side.

    Each has the sharding that project leads with, TorchRec's fastest; --sharding row-wise takes millions.
    Lists are separated by commas, ranges double: 1TB..16TB is 1, 2, 4, 8 and 16 TB.

    \b
    Examples
      perfmodel sweep --grid paper-1 --sharding row-wise --out paper-1.csv
      perfmodel sweep --table-size 1TB..64TB --batch 128..4096 --dim 32,128 --out sweep.parquet
      perfmodel sweep --table-size 1TB --gpus 16..128 --set global_batch=65536
      perfmodel sweep --model mlperf-dlrm-dcnv2,criteo-1tb --gpus 8..128 --batch 512..4096 --json
      perfmodel sweep --table-size 10TB --machine h100-sxm-ib,gb200-nvl72
      perfmodel sweep --table-size 10TB --machine h100-sxm-ib --by cost --price h100-sxm-ib=2.5USD/GPU/h
    """

    grid: Annotated[
        str | None, Opt("The paper's grid: paper-1 (192 points) or paper-2 (168 points).", "NAME")
    ] = None
    model: Annotated[Texts, Opt("Sets of tables (names or files), over --gpus and --batch.", "NAMES")] = None
    table_size: Annotated[
        Texts, groups.TABLE_SIZE.saying("1TB,10TB or 80GB..100TB (doubling).", several=True)
    ] = None
    gpus: Annotated[Texts, groups.GPUS.saying("8,128 or 8..1024 (doubling).", several=True)] = None
    batch: Annotated[Texts, groups.BATCH.saying("Samples per GPU.", several=True)] = None
    tables: Annotated[Texts, groups.TABLES.saying("Numbers of tables.", several=True)] = None
    pooling: Annotated[Texts, groups.POOLING.saying("Rows summed per bag.", several=True)] = None
    dim: Annotated[Texts, groups.DIM.saying("Elements per row.", several=True)] = None
    dtype: groups.Dtype = None
    sharding: Annotated[str | None, groups.SHARDING] = None
    machine: Annotated[
        Texts, Opt(f"One or more machines (default: {groups.DEFAULT_MACHINE}), compared.", "NAMES")
    ] = None  # type: ignore[assignment]
    by: Annotated[str | None, Opt("Compare machines by time (default), throughput or cost.", "NAME")] = None
    price: Annotated[
        Texts, Opt("Price of a machine's GPU, e.g. h100-sxm-ib=2.5USD/GPU/h. Repeatable.", "NAME=PRICE")
    ] = None
    out: Annotated[Path | None, Opt("File to write: .csv or .parquet.", "FILE")] = None
    objective: Annotated[str, replace(groups.OBJECTIVE, by_set=True)] = groups.OBJECTIVES[0]
    rows: Annotated[str | None, replace(groups.ROWS, by_set=True)] = None


@dataclass(frozen=True, kw_only=True)
class ReportOptions(QuestionOptions):
    """One HTML page that opens from disk with no network: the answer, its figures, their data and sources.

    \b
    Examples
      perfmodel report
      perfmodel report --table-size 20TB --batch 4096 --machine h200-sxm-ib --out h200.html
      perfmodel report --calibration latest --gpus 8
      perfmodel report --model mlperf-dlrm-dcnv2 --gpus 64
      perfmodel report --paper --out paper.html
    """

    paper: Annotated[
        bool, Opt("Only the figures of arXiv 2512.05831, with what it says and whether it holds.")
    ] = False
    out: Annotated[Path | None, Opt("Page to write, .html (default: report.html).", "FILE")] = None


@dataclass(frozen=True, kw_only=True)
class ExploreOptions(CommandOptions):
    """Ask in your browser: sliders for the tables and the machine, and the answer beside them.

    The page is served on this machine alone, and needs no network. Only who knows the secret in the printed
    address can open it. The address then holds the question: a copied link asks it again.

    \b
    Examples
      perfmodel explore
      perfmodel explore --model mlperf-dlrm-dcnv2 --machine h200-sxm-ib
      perfmodel explore --model tables.csv --port 8051 --no-browser
    """

    model: groups.Model = None
    machine: groups.Machine = None
    port: Annotated[
        int,
        Opt("Port to listen on; 0: any that is free.", "N", read=partial(parse_count, allow_zero=True),
            maximum=65535),
    ] = 8050  # fmt: skip
    browser: Annotated[bool, Opt("Open the page in your browser.", flag="--browser/--no-browser")] = True
