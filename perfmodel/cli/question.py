"""The question of a command: typed options are read once into a machine, a library and a ``Question``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from perfmodel.answer.question import Question, read_sharding
from perfmodel.cli.options import LEAVE_ONE, apart, check_name, settings_of, split_values
from perfmodel.cli.output import warn
from perfmodel.engine.basis import HostRows
from perfmodel.engine.settings import BEST
from perfmodel.errors import BadInputError
from perfmodel.question.groups import (
    DEFAULT_MACHINE,
    NO_POOLING,
    OBJECTIVES,
    RESERVE,
    QuestionOptions,
    is_training,
    read_share,
)
from perfmodel.schema.calibration import list_calibrations, load_calibration
from perfmodel.schema.evidence import Backend
from perfmodel.schema.gate import MOST_GPUS
from perfmodel.schema.machine import KEYS, Machine, doubted_values, load_machine
from perfmodel.schema.table_files import load_tables
from perfmodel.schema.workload import element_bytes, parse_distribution
from perfmodel.units import format_bytes, format_count

if TYPE_CHECKING:
    from perfmodel.answer import Answer
    from perfmodel.answer.ranking import Ranking

_ACCEPTED = "accepted"
_FAR = 100
"""Ratio to a machine's own rate beyond which another is doubted."""
_NUMBERS = ("table_bytes", "table_count", "dim", "pooling", "dtype", "gpus", "batch")


class ChosenMachine(NamedTuple):
    """A machine with the user's what-ifs, its communication library, and a calibration's id or file."""

    machine: Machine
    backend: str
    calibration: str | None = None


def choose(typed: Mapping[str, Any]) -> list[ChosenMachine]:
    """What the options ``machine``, ``calibration``, ``backend``, ``clock`` and ``settings`` mean.

    typed  the options by name; a sweep has several machines
    Limits: names that are not known, values that cannot be -> BadInputError
    """
    backend, calibration = typed.get("backend"), typed.get("calibration")
    if backend is not None:
        check_name("--backend", backend, [*map(str, Backend), BEST])
    if calibration is not None:
        calibration = find_calibration(calibration, backend, typed.get("clock"))
    machines = typed.get("machine") or []
    names = [machines] if isinstance(machines, str) else split_names(machines, "--machine")
    loaded = load_calibration(calibration) if calibration else None
    if loaded is not None and not loaded.complete:
        warn(f"calibration {calibration} is partial: some planned points are missing")
    choices = []
    for name in names or (None,):
        if name is None and loaded is not None:
            from perfmodel.schema.run_files import find_machine_beside

            folder = Path(str(calibration)).parent
            name = find_machine_beside(folder, loaded.machine, f"calibration {calibration}")
        machine = apply_settings(load_machine(name or DEFAULT_MACHINE), typed.get("settings"))
        library = backend or str(loaded.backend if loaded else machine.defaults.backend)
        choices.append(ChosenMachine(machine, library, calibration))
    loaded_names = [choice.machine.name for choice in choices]
    if twice := [name for place, name in enumerate(loaded_names) if name in loaded_names[:place]]:
        step = "leave one of them, or give a changed file a name of its own."
        raise BadInputError(f"--machine has {twice[0]} twice.", step)
    return choices


def find_calibration(text: str, backend: str | None = None, clock: str | None = None) -> str:
    """The calibration that ``--calibration`` means: a shipped id, or a file, also for ``latest`` and a run.

    backend, clock  as typed; they choose among the calibrations of a run
    """
    if text in list_calibrations():
        return text
    from perfmodel.schema.run_files import calibration_in, run_folder

    folder = run_folder(text)
    return text if folder is None else str(calibration_in(folder, backend, clock))


def apply_settings(machine: Machine, settings: list[str] | None) -> Machine:
    """The machine with the values of ``--set key=value``; each changed value is marked as assumed.

    Limits: a value ten times away from any product -> BadInputError, unless ``accepted=key`` is set too
    """
    values = settings_of(settings)
    accepted = [key for key in values.pop(_ACCEPTED, "").split(",") if key]
    changed = machine.with_overrides(dict(values))
    doubted = {key: text for key, text in changed.doubts().items() if key in values}
    rates = [key for key in values if key in machine.values and KEYS[key].unit == "byte/s"]
    for key in rates:
        before, after = machine.value(key), changed.value(key)
        if before and after and not 1 / _FAR <= after / before <= _FAR:
            ratio = f"{after / before:.3g} times the {machine.quantity(key)} of {machine.name}."
            doubted.setdefault(key, ratio)
    if refused := {key: text for key, text in doubted.items() if key not in accepted}:
        names = ",".join([*accepted, *refused])
        raise doubted_values("--set ", refused, f"--set {_ACCEPTED}={names}")
    return changed


def calibration_file(calibration: str | None) -> str | None:
    """The file that ``--calibration`` named; None for a shipped calibration, or without the option."""
    return None if calibration in list_calibrations() else calibration


def check_size(question: Question, table_bytes: float) -> None:
    """Raise BadInputError if tables of this size need more GPUs than are covered."""
    room_bytes = question.machine_of_rows.value("hbm_bytes") * (1 - question.reserve)
    if table_bytes > MOST_GPUS * room_bytes:
        size = format_bytes(table_bytes, binary=False)
        room = format_bytes(room_bytes, binary=False)
        words = f"--table-size {size} needs {format_count(table_bytes / room_bytes)} GPUs of {room}"
        step = f"at most {format_count(MOST_GPUS)} GPUs."
        raise BadInputError(f"{words}: more than this model covers.", step)


def question_of(typed: Mapping[str, Any], choice: ChosenMachine | None = None) -> Question:
    """The question of a command.

    typed  its options by name; None: not typed;  choice  what ``choose`` gave for them; None: not yet called
    Limits: values that cannot be used, or cannot be combined -> BadInputError
    """
    check_model(typed)
    pooling, colon, ids = (typed["pooling"] or "").strip().lower().partition(":")
    if pooling == NO_POOLING:
        typed = {**typed, "pooling": ids if colon else None}
    values = QuestionOptions.values(typed)
    machine, backend, calibration = choice or choose(typed)[0]
    question = Question(
        machine=machine,
        **{name: values[name] for name in _NUMBERS if values[name] is not None},
        tables=values["model"],
        table_set=None if values["model"] is None else load_tables(values["model"]),
        id_bytes=element_bytes(typed["id_dtype"], "id dtype"),
        backend=backend,
        clock=typed["clock"],
        calibration=calibration,
        reserve=read_share(typed["reserve"] or RESERVE, "--set reserve"),
        payload=typed["payload"],
        kernels=typed["kernels"],
        distribution=parse_distribution(typed["distribution"]),
        unpooled=pooling == NO_POOLING,
        rows=HostRows.of(typed.get("rows") or "hbm", "--rows"),
        objective=OBJECTIVES[is_training(typed["objective"], "--objective")],
        optimizer=typed["optimizer"],
        sharding=read_sharding(typed["sharding"]),
        planner=_search_plan,
    )
    check_size(question, question.table_bytes or 0.0)
    apart("--batch", typed["batch"], LEAVE_ONE, **{"set global_batch": typed["global_batch"]})
    total = values["global_batch"]
    return question if total is None else replace(question, total=total).share_total()


def _search_plan(ranking: Ranking) -> Answer | None:
    """The plan that a question's ``planner`` gives: the quick search for what the ranking is of, or None."""
    from perfmodel.plan.question import plan_quickly  # an answer about equal tables loads no planner

    return plan_quickly(ranking)


def check_model(typed: Mapping[str, object]) -> None:
    """Raise BadInputError if options of equal tables are typed together with --model."""
    names = ("table_size", "tables", "dim", "grid", "pooling")
    shapes = {name: typed.get(name) for name in names if typed.get(name) != NO_POOLING}
    shapes["set dtype"] = typed.get("dtype")
    apart("--model", typed.get("model"), "a model brings its own tables.", **shapes)


def split_names(texts: Sequence[str], option: str) -> list[str]:
    """The names and files in lists with commas; a text that is a file is not split."""
    parts = [[text] if os.path.isfile(text) else split_values([text], option) for text in texts]
    return [name for names in parts for name in names]
