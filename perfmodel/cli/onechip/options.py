"""Reads the options ``--chip`` and ``--set`` of commands about one chip."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfmodel.cli.options import settings_of
from perfmodel.question.chips import EXAMPLE

if TYPE_CHECKING:
    from perfmodel.schema.chip import Chip


def chip_of(name: str, settings: list[str] | None, example: str = EXAMPLE) -> Chip:
    """The chip of this shipped name or file, with the values of ``--set``. example  for its messages"""
    from perfmodel.schema.chip import load_chip

    return load_chip(name).with_overrides(dict(settings_of(settings, example)))
