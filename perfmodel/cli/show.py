"""``perfmodel show``: what is shipped, and what is in a file of the same kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import typer

from perfmodel.cli.output import CommandReply
from perfmodel.cli.question import find_calibration
from perfmodel.errors import BadInputError
from perfmodel.question.measured import LISTS, ShowOptions
from perfmodel.report import catalogue_text, chip_text
from perfmodel.report.calibration_text import calibration_record, calibration_text, calibrations_text
from perfmodel.schema.calibration import list_calibrations, load_calibration, shipped_calibration
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
_MOST_NEAR = 8


class Kind(NamedTuple):
    """What is shipped of one kind: its names, how each is read, and the texts of all and of a single one."""

    names: Callable[[], list[str]]
    load: Callable[[str], Any]
    list_text: Callable[[Sequence[Any]], str]
    text: Callable[[Any], str]
    record: Callable[[Any], dict[str, Any]]
    list_record: Callable[[Any], dict[str, Any]]


def _dump(entry: Any) -> dict[str, Any]:
    record: dict[str, Any] = entry.model_dump(mode="json")
    return record


KINDS = {
    "machines": Kind(
        list_machines, load_machine, catalogue_text.machines_text, catalogue_text.machine_text, _dump, _dump
    ),
    "models": Kind(
        list_models,
        load_tables,
        catalogue_text.models_text,
        catalogue_text.model_text,
        catalogue_text.full_model_record,
        catalogue_text.model_record,
    ),
    "chips": Kind(list_chips, load_chip, chip_text.chips_text, chip_text.chip_text, _dump, _dump),
}


def show(context: typer.Context, options: ShowOptions) -> CommandReply:
    """A list of what is shipped, one of it in full, or a calibration."""
    list_name, name = options.what, options.name
    if list_name is None:
        step = f"give {', '.join(LISTS)}, or a calibration: its file, id, or latest."
        raise BadInputError("nothing is named.", step)
    if name is None and list_name.lower().endswith(_OF_TABLES):
        list_name, name = "models", list_name
    if options.as_toml:
        return _show_file(list_name, options)
    if list_name == "calibrations":
        if name is not None:
            load_machine(name)
        calibrations = [shipped_calibration(entry) for entry in list_calibrations(name)]
        records = [calibration_record(entry) for entry in calibrations]
        return CommandReply(lambda: {list_name: records}, lambda: calibrations_text(calibrations))
    if list_name in KINDS:
        kind = KINDS[list_name]
        if name is None:
            items = [kind.load(entry) for entry in kind.names()]
            return CommandReply(
                lambda: {list_name: [kind.list_record(entry) for entry in items]},
                lambda: kind.list_text(items),
            )
        entry = kind.load(name)
        return CommandReply(lambda: {list_name: [kind.record(entry)]}, lambda: kind.text(entry))
    if name is not None:
        raise BadInputError(f"{list_name} is no list.", f"give {', '.join(LISTS)}.")
    return _show_calibration(list_name)


def _show_file(list_name: str, options: ShowOptions) -> CommandReply:
    """The file of a machine or a chip."""
    files = {"machines": ("h100-sxm-ib", machine_file), "chips": ("ascend-910", chip_file)}
    if list_name not in files or options.name is None or options.as_json:
        example = list_name if list_name in files else "machines"
        step = f"perfmodel show {example} {files[example][0]} --toml"
        raise BadInputError("--toml prints the file of a machine or a chip.", step)
    text = files[list_name][1](options.name)
    return CommandReply(dict, lambda: text if list_name == "chips" else _OWN_NAME + text)


def _show_calibration(name: str) -> CommandReply:
    """What a calibration holds. Limits: another name -> BadInputError that says what is like it"""
    try:
        calibration = load_calibration(find_calibration(name))
    except BadInputError as error:
        shipped = {f"{kind} {entry}": entry for kind, how in KINDS.items() for entry in how.names()}
        shipped |= {entry: entry for entry in list_calibrations()}
        near = [words for words, entry in shipped.items() if entry.startswith(name)][:_MOST_NEAR]
        if not (error.allowed and near):
            raise
        lines = "\n".join(f"  perfmodel show {words}" for words in near)
        message = f"{name} is no list, and no calibration."
        raise BadInputError(message, f"what begins so:\n{lines}", allowed=error.allowed) from None
    return CommandReply(
        lambda: {"calibration": calibration.model_dump(mode="json")},
        lambda: calibration_text(calibration),
    )
