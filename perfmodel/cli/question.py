"""The question of a command: the typed options are read once into a ``Question``."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from perfmodel.answer.inputs import share_equally
from perfmodel.answer.question import Question, read_sharding
from perfmodel.cli.chosen import advice, calibration_of, library_of, machine_of
from perfmodel.cli.options import check_distinct, split_values
from perfmodel.engine.basis import HostRows
from perfmodel.errors import BadInputError
from perfmodel.question.groups import (
    NO_POOLING,
    OBJECTIVES,
    RESERVE,
    QuestionOptions,
    TableOptions,
    is_training,
    read_share,
)
from perfmodel.schema.gate import MOST_GPUS
from perfmodel.schema.table_files import load_tables
from perfmodel.schema.workload import element_bytes, parse_distribution
from perfmodel.units import format_bytes, format_count, parse_count

LISTS = ("table_size", "batch", "pooling", "dim", "machine")
"""Options that take several values in a sweep; a question has the first value of each."""
_NUMBERS = [option for option in QuestionOptions.declared()
            if option.name in (*TableOptions.__annotations__, "gpus", "batch")]  # fmt: skip


def advised(question: Question) -> AbstractContextManager[None]:
    """The context ``chosen.advice`` for a question's machine, library and clock."""
    return advice(question.machine, question.backend, question.clock)


def check_size(question: Question, *table_bytes: float) -> None:
    """Raise BadInputError if tables of these sizes (none: its own) need more GPUs than are covered."""
    largest = max(table_bytes, default=question.table_bytes or 0.0)
    room_bytes = question.machine_of_rows.value("hbm_bytes") * (1 - question.reserve)
    if largest > MOST_GPUS * room_bytes:
        size, room = (format_bytes(number, binary=False) for number in (largest, room_bytes))
        raise BadInputError(
            f"--table-size {size} needs {format_count(largest / room_bytes)} GPUs of {room}: more than this "
            "model covers.",
            f"at most {format_count(MOST_GPUS)} GPUs.",
        )


def question_of(typed: Mapping[str, Any]) -> Question:
    """The question of a command. typed  its options by name; missing options are not set

    Limits: values that cannot be used, or cannot be combined -> BadInputError
    """
    check_model(typed)
    first = {**typed, **{name: _first(name, typed.get(name)) for name in LISTS}}
    pooling, colon, ids = (first["pooling"] or "").strip().lower().partition(":")
    if pooling == NO_POOLING:
        first["pooling"] = ids if colon else None
    numbers = {option.keyword: option.value(first[option.name]) for option in _NUMBERS}
    tables = numbers.pop("model")
    backend, clock = first["backend"], first["clock"]
    calibration = calibration_of(first["calibration"], backend, clock)
    machine = machine_of(first["machine"], first["settings"], calibration)
    question = Question(
        machine=machine,
        **{name: value for name, value in numbers.items() if value is not None},
        tables=tables,
        table_set=None if tables is None else load_tables(tables),
        id_bytes=element_bytes(first["id_dtype"], "id dtype"),
        backend=library_of(machine, backend, calibration),
        clock=clock,
        calibration=calibration,
        reserve=read_share(first["reserve"] or RESERVE, "--set reserve"),
        payload=first["payload"],
        kernels=first["kernels"],
        distribution=parse_distribution(first["distribution"]),
        unpooled=pooling == NO_POOLING,
        rows=HostRows.of(first.get("rows") or "hbm", "--rows"),
        objective=OBJECTIVES[is_training(first["objective"], "--objective")],
        optimizer=first["optimizer"],
        sharding=read_sharding(first["sharding"]),
    )
    if first["global_batch"] is None:
        return question
    if first["batch"] is not None:
        raise BadInputError("--batch and --set global_batch cannot be combined.", "leave one of them out.")
    return replace(question, total=parse_count(first["global_batch"], "--set global_batch")).share_total()


def on_machines(question: Question, typed: Mapping[str, Any]) -> list[Question]:
    """The question on each of the typed machines, its own first. typed  the options by name"""
    questions = [question]
    for name in split_names(typed["machine"] or [], "--machine")[1:]:
        machine = machine_of(name, typed["settings"], question.calibration)
        library = library_of(machine, typed["backend"], question.calibration)
        questions.append(replace(question, machine=machine, backend=library))
    check_distinct([asking.machine.name for asking in questions], "--machine")
    return questions


def split_names(texts: Sequence[str], option: str) -> list[str]:
    """The names and files in lists with commas; a text that is a file is not split."""
    parts = [[text] if os.path.isfile(text) else split_values([text], option) for text in texts]
    return [name for names in parts for name in names]


def _first(name: str, typed: str | Sequence[str] | None) -> str | None:
    """The first value of an option: ``1024`` of ``1024,256`` or ``1024..4096``. A file is not split."""
    if not typed:
        return None
    if isinstance(typed, str):
        return typed
    return split_names(typed[:1], f"--{name.replace('_', '-')}")[0].partition("..")[0]


def short_below(size: float) -> float:
    """The largest number with two significant digits that is not above ``size``."""
    unit = 10.0 ** (math.floor(math.log10(size)) - 1)
    return math.floor(size / unit) * unit


def share_of(typed: Mapping[str, Any], gpus: int) -> int:
    """How many samples of ``global_batch`` each GPU gets. typed  the options by name

    Limits: as ``share_equally``; ``--batch`` too -> BadInputError
    """
    if typed.get("batch") is not None:
        raise BadInputError("--batch and --set global_batch cannot be combined.", "leave one of them out.")
    return share_equally(parse_count(typed["global_batch"], "--set global_batch"), gpus)


def check_model(typed: Mapping[str, object]) -> None:
    """Raise BadInputError if options of equal tables are typed together with --model."""
    own = {**typed, "pooling": None if typed.get("pooling") == NO_POOLING else typed.get("pooling")}
    clash = [name for name in ("table_size", "tables", "pooling", "dim", "dtype", "grid") if own.get(name)]
    if typed.get("model") and clash:
        flag = "--set dtype" if clash[0] == "dtype" else f"--{clash[0].replace('_', '-')}"
        raise BadInputError(f"--model and {flag} cannot be combined.", "a model brings its own tables.")
