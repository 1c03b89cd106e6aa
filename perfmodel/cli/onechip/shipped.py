"""``perfmodel chips``: chips whose cores look tables up, with sources."""

from __future__ import annotations

import typer

from perfmodel.cli.onechip.options import chip_of
from perfmodel.cli.output import emit, emit_cited, emit_json
from perfmodel.errors import BadInputError
from perfmodel.question.chips import ChipsOptions


def chips(context: typer.Context, options: ChipsOptions) -> None:
    """Print the list of shipped chips, all values of a chip, or its file."""
    if options.name is None and options.settings:
        raise BadInputError("--set needs one chip.", "name it: perfmodel chips ascend-910")
    if options.as_toml:
        emit(_file_of(options.name, alone=not (options.settings or options.as_json)))
    else:
        _show(options.name, options.settings, as_json=options.as_json)


def _show(name: str | None, settings: list[str] | None, *, as_json: bool) -> None:
    """Print all values of the named chip; without a name, a line for each chip."""
    from perfmodel.report.onechip.chips_text import chip_text, chips_text
    from perfmodel.schema.chip import list_chips

    chosen = [chip_of(item, settings) for item in ([name] if name else list_chips())]
    if as_json:
        emit_json("chips", chips=[chip.model_dump(mode="json") for chip in chosen])
    else:
        emit_cited(chip_text(chosen[0]) if name else chips_text(chosen))


def _file_of(name: str | None, *, alone: bool) -> str:
    """The text of a shipped chip's file. alone  whether no other options were typed

    Limits: no name, or other options -> BadInputError
    """
    from perfmodel.schema.chip import chip_file

    if name is None or not alone:
        raise BadInputError(
            "--toml prints the file of one shipped chip.", "perfmodel chips ascend-910 --toml"
        )
    return chip_file(name)
