"""A block of a page: a figure and its title sentence, or the reason why there is no figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Switch:
    """A button of a figure: its label, and new settings of the drawn traces and of the layout."""

    label: str
    traces: Mapping[str, Any]
    layout: Mapping[str, Any]


@dataclass(frozen=True)
class Block:
    """A figure with its words and numbers.

    name, title  a slug; the finding in a sentence, computed from the data
    how_to_read  one line, and one for each claim of a paper
    figure       plotly's;  source  where the data come from, and their evidence
    data         the numbers in the figure: rows of a table, in SI units
    switches     buttons, the first of which shows the figure as it is drawn
    """

    name: str
    title: str
    how_to_read: str
    figure: Any
    source: str
    data: Sequence[Mapping[str, Any]]
    switches: Sequence[Switch] = ()


@dataclass(frozen=True)
class Missing:
    """A block that cannot be drawn. why  what is missing, and the command that would give it"""

    name: str
    why: str
