"""The parts of every page: a card, selectors, views with figures, and sources.

A *card* is the headline of a page: the box at its top with the answer in a sentence, times and findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from perfmodel.report.figures.block import Block, Missing

if TYPE_CHECKING:
    from perfmodel.answer import Answer
    from perfmodel.answer.ranking import Ranking


@dataclass(frozen=True)
class Card:
    """The headline (card) at the top of a page, all as plain text, which is never interpreted as HTML.

    sentence, times  the answer, and both times;  sure  bands and bounds;  gpus  how many GPUs, and why
    evidence  shares of the time: dictionaries with kind, share, words, colour
    question  as the program understood it
    alert  a doubt that the reader must see;  notes  further sentences
    """

    sentence: str
    times: str = ""
    sure: str = ""
    gpus: str = ""
    evidence: list[dict[str, Any]] = field(default_factory=list)
    alert: str = ""
    notes: list[str] = field(default_factory=list)
    question: str = ""
    findings: list[dict[str, Any]] = field(default_factory=list)
    """Each has a ``title``, and may have a table: ``columns`` and ``rows``."""


@dataclass(frozen=True)
class Selector:
    """A list from which the reader of a page chooses, for example the batch.

    name    the keyword of ``perfmodel.project``;  values, words  the values, and a text for each
    start   position of the question's value
    option, texts  the command-line option that sets it, and each value as it takes it
    typed   whether the user typed the option
    off     by position of values that the page lacks, the reason
    """

    name: str
    label: str
    values: tuple[Any, ...]
    words: tuple[str, ...]
    start: int = 0
    option: str = ""
    texts: tuple[str, ...] = ()
    typed: bool = False
    off: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class View:
    """The state of a page for a choice of values, one from every selector.

    chosen   positions in all selectors but the first; the position in the first chooses among ``cards``
    answers, leads  the projection, and the fastest sharding, for each card
    table    in the headline, as text: its head, then its rows
    """

    chosen: tuple[int, ...]
    cards: tuple[Card, ...]
    blocks: tuple[Block | Missing, ...]
    titles: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Titles of blocks that depend on the first selector: one for each of its values."""
    answers: tuple[Answer, ...] = ()
    leads: tuple[Ranking | None, ...] = ()
    table: tuple[Sequence[str], ...] = ()


@dataclass(frozen=True, eq=False)
class Page:
    """The contents of a page for a question, a comparison, a plan or a chip.

    views      one for each choice of values from ``selectors``;  fixed  figures in every view
    provenance  sources of the numbers, as HTML;  command  makes the page
    again      the command without the options of selectors;  refused  choices without a view, and why
    besides    further data for the page's readers, which it does not show
    """

    title: str  # plain text
    provenance: str
    views: tuple[View, ...]
    command: str
    selectors: tuple[Selector, ...] = ()
    fixed: tuple[Block | Missing, ...] = ()
    question: str = ""  # the question in words
    alerts: tuple[str, ...] = ()  # doubts about the calibration: incomplete, noisy
    again: str = ""
    refused: Mapping[tuple[int, ...], str] = field(default_factory=dict)
    """Positions of machine, backend, clock and perhaps sharding that have no view: the reason for each."""
    besides: Mapping[str, Any] = field(default_factory=dict)

    @property
    def first(self) -> View:
        """The view that the page opens with."""
        start = tuple(selector.start for selector in self.selectors[1:])
        return next(view for view in self.views if view.chosen == start)

    @property
    def card(self) -> Card:
        """The headline that the page opens with."""
        return self.first.cards[self.selectors[0].start if self.selectors else 0]

    def blocks(self) -> tuple[Block | Missing, ...]:
        """The figures that the page opens with."""
        return (*self.first.blocks, *self.fixed)

    def contents(self) -> list[dict[str, str | None]]:
        """A dictionary for each figure that the page opens with: name, title, left_out.

        left_out  the reason if it is missing, else None
        """
        return [
            {"name": b.name, "title": None, "left_out": b.why}
            if isinstance(b, Missing)
            else {"name": b.name, "title": b.title, "left_out": None}
            for b in self.blocks()
        ]
