"""A block of the report: a figure with the sentence that it shows, or why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Switch:
    """One way to see a figure: what it changes in traces and layout, both drawn before."""

    label: str  # of a group of buttons: µs, %
    traces: Mapping[str, Any]  # as Plotly.restyle takes it: one value, or a list with one a trace
    layout: Mapping[str, Any]  # as Plotly.relayout takes it
    title: str = ""  # of the block while it is seen so; empty: the block's own


@dataclass(frozen=True)
class Block:
    """One finding: a figure, the sentence above it, and the numbers in it."""

    name: str  # a slug: slowdown
    title: str  # the finding in a sentence, computed from the data
    how_to_read: str  # one line
    figure: Any  # plotly.graph_objects.Figure
    source: str  # where the data come from, and their evidence
    data: tuple[Mapping[str, Any], ...]  # rows of one table: plain numbers in SI units, and words
    switches: tuple[Switch, ...] = ()  # the figure is drawn as the first one shows it
    choice: str = ""  # of what it is, where there are others: 8 GPUs
    others: tuple[Block, ...] = ()  # the same of something else, each with its choice


@dataclass(frozen=True)
class Missing:
    """A block that cannot be drawn."""

    name: str
    why: str  # one line: what is missing, and the command that would give it
