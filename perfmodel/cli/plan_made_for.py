"""``--plan FILE``: options that are not typed are taken from the plan file, and a line names them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfmodel.answer.question import format_exact
from perfmodel.cli.options import settings_of
from perfmodel.cli.output import note
from perfmodel.cli.typed_line import TypedLine
from perfmodel.errors import BadInputError
from perfmodel.plan.files import MadeFor, read_made_for, read_model
from perfmodel.question.groups import DEFAULT_BATCH, DEFAULT_MACHINE, OBJECTIVES
from perfmodel.question.plans import PlanOptions
from perfmodel.schema.calibration import list_calibrations
from perfmodel.schema.files import shown
from perfmodel.schema.gate import STDIN
from perfmodel.schema.machine import KEYS, list_machines
from perfmodel.schema.table_files import list_models
from perfmodel.schema.workload import Distribution, parse_distribution
from perfmodel.units import parse_quantity, parse_ratio

if TYPE_CHECKING:
    import typer

_ACCEPTED = "accepted"
_DEFAULTS = {
    "machine": DEFAULT_MACHINE,
    "batch": DEFAULT_BATCH,
    "objective": OBJECTIVES[0],
    "distribution": "uniform",
    "id_dtype": "int64",
}
_OF_CALIBRATION = ("machine", "backend", "clock")
"""Options that a named calibration implies."""


def take_options(context: typer.Context, plan_file: Path | None) -> dict[str, Any]:
    """The options of a command, by name; options that were not typed are taken from the plan file.

    A line says which were taken, except defaults. plan_file  None: no option is taken
    """
    values, typed = dict(context.params), {name for name, _ in TypedLine.of(context).options}
    if plan_file is None:
        return values
    words: list[str] = []
    made = read_made_for(plan_file)
    made = None if made is None else _located(made, plan_file)
    if values["model"] is None:
        values["model"] = _tables_of(plan_file, made)
        words += ["--model", str(values["model"])]
    if made is not None:
        left = {*typed}
        if "calibration" in typed:
            left.update(_OF_CALIBRATION)
        elif "machine" in typed and values["machine"] not in (made.machine, made.machine_file):
            left.add("calibration")
        taken, options = _texts(made), {option.name: option for option in PlanOptions.declared()}
        for option in ("machine", "calibration"):
            if (missing := _missing(made, option)) is not None:
                taken[option] = None
                if option not in left:
                    note(f"no {option} {missing} is known here: give its file with --{option}")
        given = settings_of(values["settings"])
        more = {key: _of_key(key, value) for key, value in made.overrides.items() if key not in given}
        if more:  # accepted without a further check
            accepted = ",".join(filter(None, [given.pop(_ACCEPTED, ""), *more]))
            sets = {**given, **more, _ACCEPTED: accepted}
            values["settings"] = [f"{key}={text}" for key, text in sets.items()]
        for name, text in taken.items():
            if name not in left and text is not None:
                values[name] = text
                shown_text = ",".join(dict.fromkeys(text)) if isinstance(text, list) else text
                words += [] if text == _DEFAULTS.get(name) else options[name].to_words(shown_text)
            if name == "machine":
                words += [word for key, text in more.items() for word in ("--set", f"{key}={text}")]
    if words:
        note(f"taken from {plan_file}: {shlex.join(words)}")
    return values


def ids_as_made(values: Mapping[str, Any]) -> Distribution | tuple[Distribution, ...]:
    """How ids are distributed: as typed, or as the plan file says, which may be different for each table.

    values  options by name, as ``take_options`` returns them
    """
    if isinstance(values["distribution"], list):
        return tuple(map(parse_distribution, values["distribution"]))
    return parse_distribution(values["distribution"])


def files_of(asked: Mapping[str, Any]) -> dict[str, str | None]:
    """The typed files of tables and machine, as model_file and machine_file; None: they are shipped."""
    shipped = {"model": list_models(), "machine": list_machines()}
    return {
        f"{option}_file": None if asked[option] in (None, str(STDIN), *names) else asked[option]
        for option, names in shipped.items()
    }


def _tables_of(plan_file: Path, made: MadeFor | None) -> str:
    """The value of ``--model`` for the tables of a plan file: a table file, or the name of a shipped set.

    Limits: its tables are neither shipped nor in a file here -> BadInputError
    """
    name, file = read_model(plan_file), None if made is None else made.model_file
    if file is not None and os.path.exists(file):
        return file
    if name in list_models():
        return name
    raise BadInputError(
        f"plan file {plan_file} is for the tables of {shown(file or name)}, which are not known here.",
        "give their file, e.g. --model tables.csv",
    )


def _located(made: MadeFor, plan_file: Path) -> MadeFor:
    """The record, in which files that are missing are replaced by files of their names beside the plan."""
    moved = {}
    for field in ("model_file", "machine_file", "calibration"):
        name = getattr(made, field)
        if name is not None and not os.path.exists(name) and os.path.isfile(plan_file.parent / name):
            moved[field] = str(plan_file.parent / name)
    return made.model_copy(update=moved)


def _missing(made: MadeFor, option: str) -> str | None:
    """The name of the record's machine or calibration if it is neither shipped nor in a file here; else None.

    option  machine or calibration
    """
    if option == "calibration":
        name = made.calibration
        return None if name is None or name in list_calibrations() or os.path.exists(name) else name
    own = made.calibration is not None and _missing(made, "calibration") is None  # its machine is too
    if own or made.machine in list_machines():
        return None
    return None if made.machine_file is not None and os.path.exists(made.machine_file) else made.machine


def _texts(made: MadeFor) -> dict[str, Any]:
    """The record as texts of the command's options, by name; None: the option's default."""
    known = made.model_fields_set
    own_machine = made.machine if made.machine in list_machines() else None
    return {
        "machine": made.machine_file or own_machine,
        "batch": str(made.batch),
        "objective": OBJECTIVES[made.training] if "training" in known else None,
        "distribution": made.distribution if "distribution" in known else None,
        **{name: getattr(made, name) for name in _SAME},
        "reserve": None if made.reserve is None else _share(made.reserve),
        "max_hbm": None if made.max_hbm_bytes is None else _quantity(made.max_hbm_bytes, "byte"),
    }


_SAME = (
    *("optimizer", "payload", "id_dtype", "backend", "clock", "kernels", "calibration"),
    "dense",
)
"""Options that have the same name and text in the record."""


def _of_key(key: str, value: float) -> str:
    return _quantity(value, KEYS[key].unit) if key in KEYS else repr(value)


def _quantity(value: float, unit: str) -> str:
    """A text, with a unit if possible, that ``parse_quantity`` reads as exactly this value."""
    text = format_exact(value, unit)
    return text if parse_quantity(text, unit) == value else repr(value)


def _share(value: float) -> str:
    text = f"{100 * value:g}%"
    return text if parse_ratio(text, allow_zero=True) == value else repr(value)
