"""``perfmodel show``: what is shipped, and what is in a file of the same kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import typer

from perfmodel.cli.output import CommandReply
from perfmodel.cli.question import find_calibration
from perfmodel.errors import BadInputError
from perfmodel.question.measured import LISTS, ShowOptions
from perfmodel.report import catalogue_text
from perfmodel.report.calibration_text import calibration_record, calibration_text, calibrations_text
from perfmodel.resources import DEFAULT_MACHINE
from perfmodel.schema.calibration import list_calibrations, load_calibration, shipped_calibration
from perfmodel.schema.files import unknown_name
from perfmodel.schema.machine import (
    chip_file,
    list_chips,
    list_machines,
    load_chip,
    load_machine,
    machine_file,
)
from perfmodel.schema.table_files import list_models, load_tables

_OWN_NAME = "# A start for your own: write a name of its own below, and where you read each number.\n"
_OF_TABLES = ".csv", ".yaml", ".yml"
"""Suffixes of table sets that no calibration has."""


class Kind(NamedTuple):
    """What is shipped of one kind: its names, how each is read, and the texts of all and of a single one."""

    names: Callable[[], list[str]]
    load: Callable[[str], Any]
    list_text: Callable[[Sequence[Any]], str]
    text: Callable[[Any], str]
    record: Callable[[Any], dict[str, object]] = lambda entry: dict(entry.model_dump(mode="json"))
    list_record: Callable[[Any], dict[str, object]] = lambda entry: dict(entry.model_dump(mode="json"))
    file: Callable[[str], str] | None = None


KINDS = {
    "machines": Kind(
        list_machines,
        load_machine,
        catalogue_text.machines_text,
        catalogue_text.hardware_text,
        file=lambda name: _OWN_NAME + machine_file(name),
    ),
    "models": Kind(
        list_models,
        load_tables,
        catalogue_text.models_text,
        catalogue_text.model_text,
        catalogue_text.full_model_record,
        catalogue_text.model_record,
    ),
    "chips": Kind(
        list_chips, load_chip, catalogue_text.chips_text, catalogue_text.hardware_text, file=chip_file
    ),
}


def show(context: typer.Context, options: ShowOptions) -> CommandReply:
    """A list of what is shipped, one of it in full, or a calibration."""
    list_name, name = options.what, options.name
    if list_name is None:
        step = f"give {', '.join(LISTS)}, or a calibration: its file, id, or latest."
        raise BadInputError("nothing is named.", step)
    if name is None and list_name.lower().endswith(_OF_TABLES):
        list_name, name = "models", list_name
    for kinds, shipped in KINDS.items():  # of what is shipped the name alone will do
        if name is None and list_name in shipped.names():
            list_name, name = kinds, list_name
    kind = KINDS.get(list_name)
    if options.as_toml:
        if kind is None or kind.file is None or name is None or options.as_json:
            step = "perfmodel show machines h100-sxm-ib --toml"
            raise BadInputError("--toml prints the file of a machine or a chip.", step)
        text = kind.file(name)
        return CommandReply(dict, lambda: text)
    if kind is not None:
        items = [kind.load(entry) for entry in ([name] if name else kind.names())]
        record, write = (kind.record, kind.text) if name else (kind.list_record, kind.list_text)
        return CommandReply(
            lambda: {list_name: [record(entry) for entry in items]},
            lambda: write(items[0] if name else items),
        )
    if list_name in LISTS:  # calibrations
        if name is not None:
            load_machine(name)
        calibrations = [shipped_calibration(entry) for entry in list_calibrations(name)]
        records = [calibration_record(entry) for entry in calibrations]
        return CommandReply(lambda: {list_name: records}, lambda: calibrations_text(calibrations))
    if name is not None:
        raise BadInputError(f"{list_name} is no list.", f"give {', '.join(LISTS)}.")
    try:
        calibration = load_calibration(find_calibration(list_name))
    except BadInputError as error:
        if error.where != "calibration":
            raise
        shipped_names = [entry for kinds in KINDS.values() for entry in kinds.names()]
        names = [*LISTS, *shipped_names, *error.allowed]
        unknown = unknown_name("name", list_name, names, DEFAULT_MACHINE)
        unknown.next_step += f"\nall of a kind: perfmodel show {LISTS[0]}, or {', '.join(LISTS[1:])}."
        raise unknown from None
    return CommandReply(
        lambda: {"calibration": calibration.model_dump(mode="json")}, lambda: calibration_text(calibration)
    )
