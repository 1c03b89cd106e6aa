"""The parts of every page: a card, figures, and sources.

A *card* is the headline of a page: the answer in a sentence, times and findings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perfmodel.report.figures.block import Block, Missing


@dataclass(frozen=True)
class Card:
    """The headline (card) at the top of a page, all as plain text, which is never interpreted as HTML.

    sentence, times  the answer, and both times;  sure  bands and bounds;  gpus  how many GPUs, and why
    evidence  shares of the time: dictionaries with kind, share, words, colour
    alert     a doubt that the reader must see;  notes  further sentences
    question  as the program understood it;  findings  sentences
    """

    sentence: str
    times: str = ""
    sure: str = ""
    gpus: str = ""
    evidence: Sequence[Mapping[str, Any]] = ()
    alert: str = ""
    notes: Sequence[str] = ()
    question: str = ""
    findings: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class Page:
    """The contents of a page for a question, a plan or a chip.

    pair       two figures side by side below the headline;  helps  what stands below the findings
    blocks     the other figures, in the order of the reader's questions
    provenance  sources of the numbers, as HTML;  command  makes the page
    alerts     doubts about the calibration: incomplete, noisy
    besides    further data for the page's readers, which it does not show
    """

    title: str  # plain text
    provenance: str
    card: Card
    blocks: tuple[Block | Missing, ...]
    command: str
    pair: tuple[Block | Missing, ...] = ()
    helps: tuple[Block | Missing, ...] = ()
    alerts: tuple[str, ...] = ()
    besides: Mapping[str, Any] = field(default_factory=dict)

    @property
    def figures(self) -> tuple[Block | Missing, ...]:
        """All figures, from the top of the page."""
        return (*self.pair, *self.helps, *self.blocks)

    def contents(self) -> list[dict[str, str | None]]:
        """A dictionary for each figure: name, title, and ``left_out``, the reason if it is missing."""
        return [
            {
                "name": block.name,
                "title": getattr(block, "title", None),
                "left_out": getattr(block, "why", None),
            }
            for block in self.figures
        ]
