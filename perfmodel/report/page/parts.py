"""The parts of every page: a card, figures, and sources.

A *card* is the headline of a page: the answer in a sentence, times and findings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perfmodel.report.figures.block import Block, Missing
from perfmodel.schema.evidence import Evidence


@dataclass(frozen=True)
class Card:
    """The headline (card) at the top of a page, all as plain text, which is never interpreted as HTML.

    sentence, times  the answer, and both times;  sure  bands and bounds;  gpus  how many GPUs, and why
    evidence  shares of the time, the strongest first
    alert     a doubt that the reader must see;  notes  further sentences
    question  as the program understood it;  findings  sentences
    """

    sentence: str
    times: str = ""
    sure: str = ""
    gpus: str = ""
    evidence: Mapping[Evidence, float] = field(default_factory=dict)
    alert: str = ""
    notes: Sequence[str] = ()
    question: str = ""
    findings: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class Page:
    """The contents of a page for a question or a plan.

    title       plain text;  provenance  sources of the numbers, as HTML;  command  makes the page
    pair        two figures side by side below the headline;  helps  what stands below the findings
    blocks      the other figures, in the order of the reader's questions
    alerts      doubts about the calibration: incomplete, noisy
    besides     further data for the page's readers, which it does not show
    """

    title: str
    provenance: str
    card: Card
    blocks: Sequence[Block | Missing]
    command: str
    pair: Sequence[Block | Missing] = ()
    helps: Sequence[Block | Missing] = ()
    alerts: Sequence[str] = ()
    besides: Mapping[str, Any] = field(default_factory=dict)

    @property
    def figures(self) -> tuple[Block | Missing, ...]:
        """All figures, from the top of the page."""
        return (*self.pair, *self.helps, *self.blocks)

    def describe_figures(self) -> list[dict[str, str | None]]:
        """A dictionary for each figure: name, title, and ``left_out``, the reason if it is missing."""
        named = {"title": "title", "left_out": "why"}
        return [
            {"name": block.name, **{key: getattr(block, name, None) for key, name in named.items()}}
            for block in self.figures
        ]
