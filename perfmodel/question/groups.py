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
from perfmodel.units import parse_bytes, parse_count, parse_number, parse_ratio, parse_time

DEFAULT_MACHINE = resources.DEFAULT_MACHINE
OBJECTIVES = ("latency", "throughput")
"""What a pass is: a forward pass (latency), or a training step (throughput)."""
_ALSO = {"forward": "latency", "inference": "latency", "training": "throughput", "train": "throughput"}
DEFAULT_BATCH = "1024"
RESERVE = "15%"
"""Share of each GPU's memory that is kept free by default."""
NO_POOLING = "none"
"""Value of ``--pooling``, alone or before the ids of a sample, ``none:50``: rows are not pooled."""
_TABLE_SUFFIXES = (".csv", ".json", ".yaml", ".yml", ".toml")
_WAYS = (
    f"{', '.join(name for name in SHARDINGS if name != ROW_WISE)}; or {ROW_WISE} with another exchange: "
    f"{', '.join(SHORT.values())}; all compares them."
)


def read_pooling(text: str, option: str) -> float:
    """Rows of a bag, or ids of a sample that are not pooled: ``32``, ``none:32``. Limits: ``none`` -> 1"""
    head, colon, ids = text.strip().lower().partition(":")
    if head != NO_POOLING:
        return parse_number(text, option)
    return parse_number(ids, option) if colon else 1.0


def read_table_count(text: str, option: str = "--tables") -> int:
    """The number of tables in a text. Limits: the name of a file -> BadInputError that suggests --model"""
    if Path(text).suffix.lower() in _TABLE_SUFFIXES:
        raise BadInputError(
            f"{option} is a number of tables, not a file of them.", f"give --model {shlex.quote(text)}"
        )
    return parse_count(text, option)


def read_share(text: str, option: str) -> float:
    """The share of the memory that is kept free: ``15%`` or ``0.15``. Limits: 1 or more -> BadInputError"""
    value = parse_ratio(text, option, allow_zero=True)
    if value >= 1:
        raise BadInputError(f"{option} {text} leaves no memory.", "less than 1, for example 0.15 or 15%.")
    return value


def is_training(objective: str, what: str = "objective") -> bool:
    """Whether the objective is a training step; ``forward``, ``inference``, ``training``, ``train`` work too.

    what  the name of the option, for the message
    Limits: unknown objective -> BadInputError
    """
    name = _ALSO.get(objective, objective)
    if name not in OBJECTIVES:
        raise unknown_name(what, objective, (*OBJECTIVES, *_ALSO))
    return name == OBJECTIVES[1]


def choose_optimizer(*, training: bool) -> str:
    """The optimizer without one in the question: row-wise Adagrad in training, else none."""
    return "rowwise-adagrad" if training else "none"


BATCH = Opt(f"Samples per GPU (default {DEFAULT_BATCH}).", "N", read=parse_count, maximum=gate.MOST_BATCH)
DIM = Opt("Elements per row (default 32).", "N", read=parse_count, maximum=gate.WIDEST)
GPUS = Opt(
    "Number of GPUs (default: as many as the tables need).", "N", read=parse_count, maximum=gate.MOST_GPUS
)
POOLING = Opt(
    "Rows summed per bag.", "N", read=parse_number, minimum=gate.LEAST_POOLING, maximum=gate.MOST_POOLING
)
TABLES = Opt("Number of tables (default 1).", "N",
             read=read_table_count, keyword="table_count", maximum=gate.MOST_TABLES)  # fmt: skip
TABLE_SIZE = Opt("Total size of all tables, e.g. 10TB or 10TiB.", "SIZE",
                 read=parse_bytes, keyword="table_bytes", maximum="1EB")  # fmt: skip
SHARDING = Opt(f"Sharding (default: TorchRec's fastest that cuts tables): {ROW_WISE}, {_WAYS}", "NAME")
OBJECTIVE = Opt("latency: the forward pass; throughput (or training): forward and backward.", "NAME")
ROWS = Opt("Where rows are: hbm (default), host, or host-cached:10%, with a cache in HBM.", "WHERE")
MAX_LATENCY = Opt(
    "Take the largest batch whose 95 % band ends within this time, instead of --batch.",
    "TIME", read=parse_time, maximum="1h",
)  # fmt: skip
Backend = Annotated[
    str | None,
    Opt("Communication library: nccl, nvshmem, best (the faster for each step), or your own.", "NAME"),
]
Clock = Annotated[
    str | None, Opt("How the times were measured: device, graph, stream or eager.", by_set=True)
]
Dtype = Annotated[
    str | None,
    Opt("Type of the elements: fp64, fp32 (default), fp16, bf16, fp8 or int8.", by_set=True),
]
Effort = Annotated[
    str,
    Opt(f"Work that the search may do: {', '.join(EFFORTS)}. It is counted: the answer repeats.", "NAME"),
]
Explain = Annotated[
    str | None,
    Opt("Explain this step alone: equations with your numbers, sources, parts of the band.", "STEP"),
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
Out = Annotated[Path | None, Opt("File to write.", "FILE")]
Settings = Annotated[
    list[str] | None,
    Opt("Change a machine's value, nic_bytes_per_s=100GB/s, or one below. Repeatable.", "KEY=VALUE", "--set"),
]


@dataclass(frozen=True, kw_only=True)
class OutputOptions(CommandOptions):
    """Options about how the answer is printed."""

    turn = 3
    as_json: Annotated[bool, Opt("Print one JSON document.", flag="--json")] = False


@dataclass(frozen=True, kw_only=True)
class IdOptions(CommandOptions):
    """Options about the distribution of the ids."""

    turn = 0
    distribution: Annotated[
        str | None,
        Opt("Ids: uniform (default), zipf:1.05, one-row, histogram:NAME or histogram:FILE.csv.", "IDS"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class MachineOptions(CommandOptions):
    """Options that choose the machine, what was measured on it, and its communication library."""

    turn = 2
    machine: Machine = None
    calibration: Annotated[
        str | None,
        Opt("A calibration: a file, a shipped id, or latest (your newest run).", "FILE"),
    ] = None
    backend: Backend = None
    settings: Settings = None
    clock: Clock = None


@dataclass(frozen=True, kw_only=True)
class PassOptions(OutputOptions, MachineOptions, IdOptions):
    """Options of all commands about a pass on a machine."""

    turn = 2
    reserve: Annotated[
        str | None,
        Opt(f"Share of the memory kept for CUDA, NCCL and dense layers (default {RESERVE}).",
            read=read_share, by_set=True, maximum=1.0),
    ] = None  # fmt: skip
    global_batch: Annotated[
        str | None,
        Opt("Samples of all GPUs together, instead of --batch.", read=parse_count, maximum=gate.MOST_BATCH,
            by_set=True),
    ] = None  # fmt: skip
    id_dtype: Annotated[str, Opt("Type of an id: int64 (default) or int32.", by_set=True)] = "int64"
    optimizer: Annotated[
        str | None,
        Opt("State that training keeps: none, sgd, rowwise-adagrad, adagrad, adam.", by_set=True),
    ] = None
    payload: Annotated[
        str | None, Opt("Type of the bags that are sent: fp32 (default), fp16, bf16 or fp8.", by_set=True)
    ] = None
    kernels: Annotated[
        str | None, Opt("Look-up kernels: fbgemm (TorchRec's, the default), torch or perfmodel.", by_set=True)
    ] = None


@dataclass(frozen=True, kw_only=True)
class TableOptions(CommandOptions):
    """Options of a set of tables, or of equal tables."""

    turn = 0
    table_size: Annotated[str | None, TABLE_SIZE] = None
    tables: Annotated[str | None, TABLES] = None
    dim: Annotated[str | None, DIM] = None
    pooling: Annotated[
        str | None,
        POOLING.saying("Rows summed per bag (default 32); none or none:50: not pooled.", read=read_pooling),
    ] = None
    model: Model = None
    dtype: Dtype = None


@dataclass(frozen=True, kw_only=True)
class QuestionOptions(PassOptions, TableOptions):
    """The question of ``project``, for the screen, for a page, and for each point of a sweep."""

    turn = 1
    gpus: Annotated[str | None, GPUS] = None
    batch: Annotated[str | None, BATCH] = None
    sharding: Annotated[str | None, SHARDING] = None
    objective: Annotated[str, OBJECTIVE] = OBJECTIVES[0]


RANGES = {
    option.keyword: (option.words.end(option.words.minimum) or 0.0, end)
    for option in QuestionOptions.declared()
    if option.name in (*TableOptions.__annotations__, "gpus", "batch")
    and isinstance(option.words, Opt)
    and (end := option.words.end(option.words.maximum)) is not None
}
"""The smallest and largest value of each number of a question, by keyword of ``perfmodel.project``."""
LARGEST = {name: maximum for name, (_, maximum) in RANGES.items()}
