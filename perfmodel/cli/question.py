"""The question of a command: typed options are read once into a machine, a library and a ``Question``."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from perfmodel.answer.question import Question, read_sharding
from perfmodel.cli.options import check_distinct, check_name, settings_of, split_values
from perfmodel.cli.output import warn
from perfmodel.engine.basis import HostRows
from perfmodel.engine.settings import BEST
from perfmodel.errors import BadInputError, NoCalibrationError, NoKernelsError
from perfmodel.question.groups import (
    DEFAULT_MACHINE,
    NO_POOLING,
    OBJECTIVES,
    RESERVE,
    QuestionOptions,
    TableOptions,
    is_training,
    read_share,
)
from perfmodel.schema.calibration import Calibration, list_calibrations, load_calibration
from perfmodel.schema.evidence import Backend
from perfmodel.schema.gate import MOST_GPUS
from perfmodel.schema.machine import KEYS, Machine, doubted_values, list_machines, load_machine
from perfmodel.schema.table_files import load_tables
from perfmodel.schema.workload import element_bytes, parse_distribution
from perfmodel.units import format_bytes, format_count, parse_count

if TYPE_CHECKING:
    from perfmodel.answer import Answer
    from perfmodel.answer.ranking import Ranking

_ACCEPTED = "accepted"
_FAR = 100
"""Ratio to a machine's own rate beyond which another is doubted."""
_NUMBERS = [
    option
    for option in QuestionOptions.declared()
    if option.name in (*TableOptions.__annotations__, "gpus", "batch")
]


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
    names = typed.get("machine") or [None]
    names = [names] if isinstance(names, str) else split_names(names, "--machine") if names[0] else names
    loaded = load_calibration(calibration) if calibration else None
    if loaded is not None and not loaded.complete:
        warn(f"calibration {calibration} is partial: some planned points are missing")
    choices = []
    for name in names:
        if name is None and loaded is not None:
            name = _find_machine(loaded, str(calibration))
        machine = apply_settings(load_machine(name or DEFAULT_MACHINE), typed.get("settings"))
        library = backend or str(loaded.backend if loaded else machine.defaults.backend)
        choices.append(ChosenMachine(machine, library, calibration))
    check_distinct([choice.machine.name for choice in choices], "--machine")
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


def _find_machine(loaded: Calibration, calibration: str) -> str:
    """The machine of a calibration: a shipped one, or the machine file beside the calibration's."""
    if loaded.machine in list_machines():
        return loaded.machine
    from perfmodel.schema.run_files import machine_file_beside, no_machine_file

    if beside := machine_file_beside(calibration):
        return str(beside)
    where = f"calibration {calibration}", loaded.machine, Path(calibration).parent
    raise no_machine_file(*where, "; or name it with --machine PATH")


def apply_settings(machine: Machine, settings: list[str] | None) -> Machine:
    """The machine with the values of ``--set key=value``; each changed value is marked as assumed.

    Limits: a value ten times away from any product -> BadInputError, unless ``accepted=key`` is set too
    """
    values = settings_of(settings)
    accepted = [key for key in values.pop(_ACCEPTED, "").split(",") if key]
    changed = machine.with_overrides(dict(values))
    doubted = {key: text for key, text in changed.doubts().items() if key in values}
    for key in values:
        before, after = machine.value(key) if machine.knows(key) else 0, changed.value(key)
        if before and after and not 1 / _FAR <= after / before <= _FAR and KEYS[key].unit == "byte/s":
            ratio = f"{after / before:.3g} times the {machine.quantity(key)} of {machine.name}."
            doubted.setdefault(key, ratio)
    for key in accepted:
        if key not in values:
            raise BadInputError(f"--set {_ACCEPTED}={key}: {key} is not set.", f"--set {key}=VALUE as well.")
    if refused := {key: text for key, text in doubted.items() if key not in accepted}:
        names = ",".join([*accepted, *refused])
        raise doubted_values("--set ", refused, f"--set {_ACCEPTED}={names}")
    return changed


def calibration_file(calibration: str | None) -> str | None:
    """The file that ``--calibration`` named; None for a shipped calibration, or without the option."""
    return None if calibration is None or calibration in list_calibrations() else calibration


@contextlib.contextmanager
def advise(machine: Machine) -> Iterator[None]:
    """Context in which NoCalibrationError says where the calibrations are listed."""
    try:
        yield
    except NoKernelsError:
        raise
    except NoCalibrationError as error:
        if machine.name not in list_machines():  # the user's own: what it lacks is to be measured
            raise
        step = (
            f"use another --backend, --set clock or --machine (perfmodel show calibrations {machine.name}), "
        )
        raise NoCalibrationError(
            error.message, f"{step}or fit one from logs: perfmodel import LOG…"
        ) from None


def advised(question: Question) -> contextlib.AbstractContextManager[None]:
    """The context ``advise`` for a question's machine."""
    return advise(question.machine)


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


def question_of(typed: Mapping[str, Any], choice: ChosenMachine | None = None) -> Question:
    """The question of a command.

    typed  its options by name; None: not typed;  choice  what ``choose`` gave for them; None: not yet called
    Limits: values that cannot be used, or cannot be combined -> BadInputError
    """
    check_model(typed)
    pooling, colon, ids = (typed["pooling"] or "").strip().lower().partition(":")
    if pooling == NO_POOLING:
        typed = {**typed, "pooling": ids if colon else None}
    numbers = {option.keyword: option.value(typed[option.name]) for option in _NUMBERS}
    tables = numbers.pop("model")
    machine, backend, calibration = choice or choose(typed)[0]
    question = Question(
        machine=machine,
        **{name: value for name, value in numbers.items() if value is not None},
        tables=tables,
        table_set=None if tables is None else load_tables(tables),
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
    if typed["global_batch"] is None:
        return question
    if typed["batch"] is not None:
        raise BadInputError("--batch and --set global_batch cannot be combined.", "leave one of them out.")
    return replace(question, total=parse_count(typed["global_batch"], "--set global_batch")).share_total()


def _search_plan(ranking: Ranking) -> Answer | None:
    from perfmodel.plan.question import plan_quickly  # an answer about equal tables loads no planner

    return plan_quickly(ranking)


def check_model(typed: Mapping[str, Any]) -> None:
    """Raise BadInputError if options of equal tables are typed together with --model."""
    names = ("table_size", "tables", "dim", "dtype", "grid", "pooling")
    clash = [name for name in names if typed.get(name) not in (None, [], NO_POOLING)]
    if typed.get("model") and clash:
        flag = "--set dtype" if clash[0] == "dtype" else f"--{clash[0].replace('_', '-')}"
        raise BadInputError(f"--model and {flag} cannot be combined.", "a model brings its own tables.")


def split_names(texts: Sequence[str], option: str) -> list[str]:
    """The names and files in lists with commas; a text that is a file is not split."""
    parts = [[text] if os.path.isfile(text) else split_values([text], option) for text in texts]
    return [name for names in parts for name in names]


def short_below(size: float) -> float:
    """The largest number with two significant digits that is not above ``size``."""
    unit = 10.0 ** (math.floor(math.log10(size)) - 1)
    return math.floor(size / unit) * unit
