"""A block of the report: a figure and its title sentence, or the reason why there is no figure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Switch:
    """A view of a figure: the changes that its button makes to traces and layout, both drawn before."""

    label: str  # on its button: µs, %
    traces: Mapping[str, Any]  # as Plotly.restyle takes them: a value, or a list of one per trace
    layout: Mapping[str, Any]  # as Plotly.relayout takes it
    title: str = ""  # of the block in this view; "": the block's own


@dataclass(frozen=True)
class Block:
    """A figure, the finding that is its title, and the numbers in it."""

    name: str  # a slug: slowdown
    title: str  # the finding in a sentence, computed from the data
    how_to_read: str  # one line
    figure: Any  # plotly.graph_objects.Figure
    source: str  # where the data come from, and their evidence
    data: tuple[Mapping[str, Any], ...]  # rows of one table: plain numbers in SI units, and words
    switches: tuple[Switch, ...] = ()  # the figure is drawn as the first one shows it
    choice: str = ""  # what this figure is of, if there are others: 8 GPUs
    others: tuple[Block, ...] = ()  # the same figure of something else, each with its choice


@dataclass(frozen=True)
class Missing:
    """A block that cannot be drawn."""

    name: str
    why: str  # one line: what is missing, and the command that would give it
