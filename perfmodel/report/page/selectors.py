"""What the reader of a page may choose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Selector:
    """One thing that the reader of the page may choose."""

    name: str  # batch, pooling, dim, machine: a keyword of ``perfmodel.project``
    label: str
    values: tuple[Any, ...]
    words: tuple[str, ...]  # of the values
    start: int = 0  # position of the value that was asked for
    option: str = ""  # of the command line: --batch
    texts: tuple[str, ...] = ()  # of the values, as the option takes them
    typed: bool = False  # whether the option was given
    off: Mapping[int, str] = field(default_factory=dict)  # positions that the page lacks, and why
