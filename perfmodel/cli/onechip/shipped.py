"""``perfmodel chips``: chips whose cores look tables up, with sources."""

from __future__ import annotations

from typing import Annotated

import typer

from perfmodel.cli.onechip.options import ChipSetOption, chip_of
from perfmodel.cli.options import JsonOption
from perfmodel.cli.output import emit, emit_cited, emit_json
from perfmodel.errors import BadInputError


def chips(
    name: Annotated[
        str | None, typer.Argument(help="Show this one in full; without a name, list all.")
    ] = None,
    settings: ChipSetOption = None,
    as_json: JsonOption = False,
    as_toml: Annotated[
        bool, typer.Option("--toml", help="Print the file of a shipped chip, as a start for your own.")
    ] = False,
) -> None:
    """The shipped chips; with a name, every value with its source.

    \b
    Examples
      perfmodel chips
      perfmodel chips ascend-910
      perfmodel chips ascend-910 --toml > my-chip.toml
      perfmodel chips my-chip.toml --json
    """
    if name is None and settings:
        raise BadInputError("--set needs one chip.", "name it: perfmodel chips ascend-910")
    if as_toml:
        emit(_file_of(name, alone=not (settings or as_json)))
    else:
        _show(name, settings, as_json=as_json)


def _show(name: str | None, settings: list[str] | None, *, as_json: bool) -> None:
    """One chip in full, or a line of each."""
    from perfmodel.report.onechip.chips_text import chip_text, chips_text
    from perfmodel.schema.chip import list_chips

    chosen = [chip_of(item, settings) for item in ([name] if name else list_chips())]
    if as_json:
        emit_json("chips", chips=[chip.model_dump(mode="json") for chip in chosen])
    else:
        emit_cited(chip_text(chosen[0]) if name else chips_text(chosen))


def _file_of(name: str | None, *, alone: bool) -> str:
    """The file of a shipped chip. Limits: none is named, or with other options -> BadInputError"""
    from perfmodel.schema.chip import chip_file

    if name is None or not alone:
        raise BadInputError(
            "--toml prints the file of one shipped chip.", "perfmodel chips ascend-910 --toml"
        )
    return chip_file(name)
