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
from perfmodel.cli.chosen import advice, calibration_of, check_gpus, library_of, machine_of
from perfmodel.cli.options import check_distinct, split_values
from perfmodel.engine.basis import HostRows
from perfmodel.errors import BadInputError
from perfmodel.question.groups import NO_POOLING, OBJECTIVES, EqualTableOptions, is_training
from perfmodel.schema.table_files import load_tables
from perfmodel.schema.workload import element_bytes, parse_distribution
from perfmodel.units import parse_count, parse_ratio

LISTS = ("table_size", "batch", "pooling", "dim", "machine", "backend", "clock")
"""Options that take several values in a sweep; a question has the first value of each."""


def advised(question: Question) -> AbstractContextManager[None]:
    """The context ``chosen.advice`` for a question's machine, library and clock."""
    return advice(question.machine, question.backend, question.clock)


def check_size(question: Question, *table_bytes: float) -> None:
    """Raise BadInputError if tables of these sizes (none: its own) need more GPUs than are covered."""
    largest = max(table_bytes, default=question.table_bytes or 0.0)
    check_gpus(largest, question.machine_of_rows, question.reserve)


def question_of(typed: Mapping[str, Any]) -> Question:
    """The question of a command. typed  its options by name; missing options are not set

    Limits: values that cannot be used, or cannot be combined -> BadInputError
    """
    first = {**typed, **{name: _first(name, typed.get(name)) for name in LISTS}}
    pooling, colon, ids = (first.get("pooling") or "").strip().lower().partition(":")
    if pooling == NO_POOLING:
        first["pooling"] = ids if colon else None
    workload = workload_values(first)
    backend, clock = first["backend"], first["clock"]
    calibration = calibration_of(first.get("calibration"), backend, clock)
    machine = machine_of(first["machine"], first.get("settings"), calibration)
    question = Question(
        machine=machine,
        **workload,
        table_set=None if workload["tables"] is None else load_tables(workload["tables"]),
        backend=library_of(machine, backend, calibration),
        clock=clock,
        calibration=calibration,
        reserve=reserve_of(first["reserve"]),
        payload=first.get("payload"),
        kernels=first.get("kernels"),
        distribution=parse_distribution(first.get("distribution")),
        unpooled=pooling == NO_POOLING,
        rows=HostRows.of(first.get("rows") or "hbm", "--rows"),
        objective=OBJECTIVES[is_training(first.get("objective") or OBJECTIVES[0], "--objective")],
        optimizer=first.get("optimizer"),
        sharding=read_sharding(first.get("sharding")),
    )
    if first.get("global_batch") is None:
        return question
    if first.get("batch") is not None:
        raise BadInputError("--batch and --global-batch cannot be combined.", "leave one of them out.")
    return replace(question, total=parse_count(first["global_batch"], "--global-batch")).share_total()


def on_machines(question: Question, typed: Mapping[str, Any]) -> list[Question]:
    """The question on each of the typed machines, its own first. typed  the options by name"""
    found = [question]
    for name in _names(typed["machine"] or [])[1:]:
        box = machine_of(name, typed["settings"], question.calibration)
        library = library_of(box, typed["backend"], question.calibration)
        found.append(replace(question, machine=box, backend=library))
    check_distinct([each.machine.name for each in found], "--machine")
    return found


def _names(texts: Sequence[str]) -> list[str]:
    """The machines in lists with commas; a text that is a file is not split."""
    each = [[text] if os.path.isfile(text) else split_values([text], "--machine") for text in texts]
    return [name for names in each for name in names]


def _first(name: str, typed: str | Sequence[str] | None) -> str | None:
    """The first value of an option: ``1024`` of ``1024,256`` or ``1024..4096``. A file is not split."""
    if typed is None or isinstance(typed, str):
        return typed
    if not typed or os.path.isfile(typed[0]):
        return typed[0] if typed else None
    return split_values(list(typed), f"--{name.replace('_', '-')}")[0].partition("..")[0]


def short_below(size: float) -> float:
    """The largest number with two significant digits that is not above ``size``."""
    unit = 10.0 ** (math.floor(math.log10(size)) - 1)
    return math.floor(size / unit) * unit


def workload_values(typed: Mapping[str, Any]) -> dict[str, Any]:
    """Tables and their look-ups as keywords of ``perfmodel.project``. typed  the options by name"""
    model = typed.get("model")
    if model is not None:
        check_model(typed)
    asked = EqualTableOptions.values(typed)
    numbers = {name: value for name, value in asked.items() if value is not None and name != "model"}
    return {"tables": model, "id_bytes": element_bytes(typed["id_dtype"], "id dtype"), **numbers}


def share_of(typed: Mapping[str, Any], gpus: int) -> int:
    """How many samples of ``--global-batch`` each GPU gets. typed  the options by name

    Limits: as ``share_equally``; ``--batch`` too -> BadInputError
    """
    if typed.get("batch") is not None:
        raise BadInputError("--batch and --global-batch cannot be combined.", "leave one of them out.")
    return share_equally(parse_count(typed["global_batch"], "--global-batch"), gpus)


def check_model(typed: Mapping[str, object]) -> None:
    """Raise BadInputError if options of equal tables (None: not typed) are typed together with --model."""
    if not typed.get("model"):
        return
    clash = [f"--{name.replace('_', '-')}" for name in _OF_A_MODEL if typed.get(name) is not None]
    if clash:
        raise BadInputError(f"--model and {clash[0]} cannot be combined.", "a model brings its own tables.")


_OF_A_MODEL = ("table_size", "tables", "pooling", "dim", "dtype", "grid")


def reserve_of(text: str) -> float:
    """The number in the text of ``--reserve``, ``15%`` or ``0.15``. Limits: 1 or more -> BadInputError"""
    value = parse_ratio(text, "--reserve", allow_zero=True)
    if value >= 1:
        raise BadInputError(f"--reserve {text} leaves no memory.", "less than 1, for example 0.15 or 15%.")
    return value
