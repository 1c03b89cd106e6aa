"""Groups of options that several commands share."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from perfmodel import resources
from perfmodel.effort import EFFORTS
from perfmodel.engine.schemes import ROW_WISE, SHARDINGS, SHORT
from perfmodel.errors import BadInputError
from perfmodel.question.spec import CommandOptions, Opt
from perfmodel.schema import gate
from perfmodel.schema.files import unknown_name
from perfmodel.units import parse_bytes, parse_count, parse_number, parse_time

DEFAULT_MACHINE = resources.DEFAULT_MACHINE
OBJECTIVES = ("latency", "throughput")
"""What a pass is: a forward pass (latency), or a training step (throughput)."""
_ALSO = {"forward": "latency", "inference": "latency", "training": "throughput", "train": "throughput"}
DEFAULT_BATCH = "1024"
_TABLE_SUFFIXES = (".csv", ".json", ".yaml", ".yml", ".toml")
RESERVE = "15%"
"""Default of ``--reserve``."""

Clock = Annotated[str | None, Opt("How the times were measured: device, graph, stream or eager.", "NAME")]
Csv = Annotated[bool, Opt("Print CSV in SI units.", flag="--csv")]
BATCH = Opt(f"Samples per GPU (default {DEFAULT_BATCH}).", "N", read=parse_count, most=gate.MOST_BATCH)
GLOBAL_BATCH = Opt(
    "Samples of all GPUs together, instead of --batch of each: a whole number for each GPU.",
    "N",
    read=parse_count,
    most=gate.MOST_BATCH,
)
DIM = Opt("Elements per row.", "N", read=parse_count, most=gate.WIDEST)
GPUS = Opt(
    "Number of GPUs (default: as many as the tables need).", "N", read=parse_count, most=gate.MOST_GPUS
)
POOLING = Opt(
    "Rows summed per bag.", "N", read=parse_number, least=gate.LEAST_POOLING, most=gate.MOST_POOLING
)
NO_POOLING = "none"
"""Value of ``--pooling``, alone or before the ids of a sample, ``none:50``: rows are not pooled."""


def pooling_number(text: str, option: str) -> float:
    """Rows of a bag, or ids of a sample that are not pooled: ``32``, ``none:32``. Limits: ``none`` -> 1"""
    first, colon, ids = text.strip().lower().partition(":")
    if first != NO_POOLING:
        return parse_number(text, option)
    return parse_number(ids, option) if colon else 1.0


TABLE_SIZE = Opt(
    "Total size of all tables, e.g. 10TB or 10TiB.",
    "SIZE",
    read=parse_bytes,
    keyword="table_bytes",
    most="1EB",
)
Effort = Annotated[
    str,
    Opt(
        f"How much work the search may do: {', '.join(EFFORTS)}. It is counted, not timed: the same "
        "command gives the same answer.",
        "NAME",
    ),
]
IdDtype = Annotated[str, Opt("Type of an id: int64 or int32.", "TYPE")]
Kernels = Annotated[
    str | None,
    Opt("Look-up kernels: fbgemm (TorchRec's; the default where it was timed), torch or perfmodel.", "NAME"),
]
Machine = Annotated[
    str | None,
    Opt(
        "A shipped machine (perfmodel show machines) or a TOML file (default: that of --calibration, "
        f"else {DEFAULT_MACHINE}).",
        "NAME",
    ),
]
Model = Annotated[
    str | None,
    Opt(
        "A shipped set of tables (perfmodel show models), or a CSV, JSON, YAML, TOML file (its "
        "columns: perfmodel show --help); -: CSV or JSON on stdin.",
        "NAME",
    ),
]
Optimizer = Annotated[
    str | None,
    Opt(
        "Optimizer whose state is counted: none, sgd, rowwise-adagrad, adagrad, adam (default: none; "
        "rowwise-adagrad for throughput).",
        "NAME",
    ),
]
OBJECTIVE = Opt(
    "latency (or inference): the forward pass; throughput (or training): forward and backward.", "NAME"
)
Out = Annotated[Path | None, Opt("File to write.", "FILE")]
Payload = Annotated[
    str | None, Opt("Type of the bags that are sent: fp32 (default), fp16, bf16 or fp8.", "TYPE")
]

Reserve = Annotated[
    str,
    Opt(
        "Share of each GPU's memory reserved for CUDA, NCCL and dense layers.",
        "PART",
    ),
]
SearchSeed = Annotated[int, Opt("Seed of the search.", "N", least=0)]
_WAYS = (
    f"{', '.join(name for name in SHARDINGS if name != ROW_WISE)}; or {ROW_WISE} with another exchange: "
    f"{', '.join(SHORT.values())}; all compares them."
)
SHARDING = Opt(f"Sharding other than {ROW_WISE}: {_WAYS}", "NAME")
Explain = Annotated[
    str | None,
    Opt(
        "Print how the time of this step follows, instead of the answer: its equations with your numbers, "
        "their sources, the parts of its band. reduce-scatter-bags, gather-pool, or the beginning of one.",
        "STEP",
    ),
]
Sharding = Annotated[str | None, SHARDING]
BestSharding = Annotated[
    str | None,
    SHARDING.saying(f"Sharding (default: the fastest of TorchRec's that fits): {ROW_WISE}, {_WAYS}"),
]
TimeLimit = Annotated[
    str | None,
    Opt(
        "Cut the search short after this time; the answer then depends on the machine (default: none).",
        "TIME",
        read=parse_time,
        most="720h",
    ),
]


def is_training(objective: str, what: str = "objective") -> bool:
    """Whether the objective is a training step; ``forward``, ``inference``, ``training``, ``train`` work too.

    what  the name of the option, for the message
    Limits: unknown objective -> BadInputError
    """
    known = _ALSO.get(objective, objective)
    if known not in OBJECTIVES:
        raise unknown_name(what, objective, (*OBJECTIVES, *_ALSO))
    return known == OBJECTIVES[1]


def choose_optimizer(*, training: bool) -> str:
    """The optimizer without ``--optimizer``: row-wise Adagrad in training, else none."""
    return "rowwise-adagrad" if training else "none"


def table_count(text: str, option: str = "--tables") -> int:
    """The number of tables in a text. Limits: the name of a file -> BadInputError that suggests --model"""
    if Path(text).suffix.lower() in _TABLE_SUFFIXES:
        raise BadInputError(
            f"{option} is a number of tables, not a file of them.", f"give --model {shlex.quote(text)}"
        )
    return parse_count(text, option)


TABLES = Opt(
    "Number of tables (default 1).", "N", read=table_count, keyword="table_count", most=gate.MOST_TABLES
)


def page(shows: str) -> Opt:
    """The option ``--report`` of a command. shows  what the page shows, in words for the help"""
    return Opt(f"Also write an HTML page{shows}.", "FILE")


@dataclass(frozen=True, kw_only=True)
class OutputOptions(CommandOptions):
    """Options about how the answer is printed."""

    turn = 3
    as_json: Annotated[bool, Opt("Print one JSON document.", flag="--json")] = False


@dataclass(frozen=True, kw_only=True)
class FileOptions(OutputOptions):
    """Options of a command that can also write files."""

    turn = 3
    force: Annotated[bool, Opt("Replace an existing file.")] = False


@dataclass(frozen=True, kw_only=True)
class IdOptions(CommandOptions):
    """Options about the distribution of the ids."""

    turn = 2
    distribution: Annotated[
        str | None,
        Opt(
            "Distribution of the ids: uniform (default), zipf:1.05, one-row, histogram:NAME or "
            "histogram:FILE.csv.",
            "IDS",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class CalibrationOptions(CommandOptions):
    """Options that choose a calibration and change values of the machine."""

    turn = 2
    calibration: Annotated[
        str | None,
        Opt("A calibration file, the id of a shipped calibration, or latest (your newest run).", "FILE"),
    ] = None
    settings: Annotated[
        list[str] | None,
        Opt("Change a machine value, e.g. nic_bytes_per_s=100GB/s. Repeat for more.", "KEY=VALUE", "--set"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class MachineOptions(CalibrationOptions):
    """Options that choose the machine and its communication library."""

    turn = 2
    machine: Machine = None
    backend: Annotated[
        str | None,
        Opt(
            "Communication library: nccl, nvshmem, best (the faster one for each step), or any "
            "library of your own calibration.",
            "NAME",
        ),
    ] = None
    clock: Clock = None


@dataclass(frozen=True, kw_only=True)
class PassOptions(FileOptions, MachineOptions, IdOptions):
    """Options of all commands about a pass on a machine."""

    turn = 2
    id_dtype: IdDtype = "int64"


@dataclass(frozen=True, kw_only=True)
class TableOptions(CommandOptions):
    """Options for equal tables, or for a set of different tables."""

    model: Model = None
    tables: Annotated[str | None, TABLES] = None
    dtype: Annotated[
        str | None,
        Opt("Type of the elements: fp64, fp32 (default), fp16, bf16, fp8 or int8.", "TYPE"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class EqualTableOptions(TableOptions):
    """Options for equal tables and a number of GPUs."""

    turn = 0
    table_size: Annotated[str | None, TABLE_SIZE] = None
    gpus: Annotated[str | None, GPUS] = None
    batch: Annotated[str | None, BATCH] = None
    pooling: Annotated[
        str | None,
        POOLING.saying(
            "Rows summed per bag (default 32); none, or none:50: so many ids a sample, not pooled.",
            read=pooling_number,
        ),
    ] = None
    dim: Annotated[str | None, DIM.saying("Elements per row, the embedding dimension (default 32).")] = None


@dataclass(frozen=True, kw_only=True)
class GlobalBatchOptions(CommandOptions):
    """Strong scaling: the batch of all GPUs together is fixed while their number changes."""

    turn = 0
    global_batch: Annotated[str | None, GLOBAL_BATCH] = None


@dataclass(frozen=True, kw_only=True)
class RowWiseOptions(PassOptions):
    """Options of a pass on many GPUs: where rows are, memory kept free, latency of a batch."""

    turn = 2
    rows: Annotated[
        str | None,
        Opt("Where rows are: hbm (default), host, or host-cached:10%, with a cache in HBM.", "WHERE"),
    ] = None
    reserve: Reserve = RESERVE
    max_latency: Annotated[
        str | None,
        Opt(
            "Take the largest batch whose 95 % band ends within this time, instead of --batch.",
            "TIME",
            read=parse_time,
            most="1h",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(CommandOptions):
    """Options that choose a forward pass or a training step."""

    turn = 2
    objective: Annotated[str, OBJECTIVE] = OBJECTIVES[0]
    optimizer: Optimizer = None


RANGES = {
    each.words.keyword or each.name: (each.words.end(each.words.least) or 0.0, end)
    for each in EqualTableOptions.declared()
    if isinstance(each.words, Opt) and (end := each.words.end(each.words.most)) is not None
}
"""The smallest and largest value of each option, by keyword of ``perfmodel.project``."""
LARGEST = {name: most for name, (_, most) in RANGES.items()}
