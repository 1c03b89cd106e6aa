"""The parts of every page: a card, selectors, views with figures, and sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.page.sources import code

if TYPE_CHECKING:
    from perfmodel.plan.leading import Leading
    from perfmodel.projections import Projection


@dataclass(frozen=True)
class Card:
    """The card at the top, as plain text, which the page never interprets as HTML."""

    sentence: str
    times: str = ""
    sure: str = ""  # band and bounds
    gpus: str = ""
    evidence: list[dict[str, Any]] = field(default_factory=list)  # kind, share, words, colour
    alert: str = ""
    notes: list[str] = field(default_factory=list)
    question: str = ""  # as the program understood it
    findings: list[dict[str, Any]] = field(default_factory=list)
    """Each has a ``title``, and may have a table: ``columns`` and ``rows``."""


@dataclass(frozen=True)
class Selector:
    """A quantity that the reader of the page can select."""

    name: str  # batch, pooling, dim, machine: a keyword of ``perfmodel.project``
    label: str
    values: tuple[Any, ...]
    words: tuple[str, ...]  # a text for each value
    start: int = 0  # position of the question's value
    option: str = ""  # of the command line: --batch
    texts: tuple[str, ...] = ()  # each value as the option takes it
    typed: bool = False  # whether the option was given
    off: Mapping[int, str] = field(default_factory=dict)  # positions that the page lacks, with the reason

    def pinned(self) -> Selector:
        """The selector with the question's value only."""
        own = slice(self.start, self.start + 1)
        values, words, texts = self.values[own], self.words[own], self.texts[own]
        return replace(self, values=values, words=words, texts=texts, start=0, off={})


@dataclass(frozen=True, eq=False)
class View:
    """A view of the page, for one value of every selector but the first, which selects its card."""

    chosen: tuple[int, ...]  # position in every selector but the first
    cards: tuple[Card, ...]
    blocks: tuple[Block | Missing, ...]
    titles: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Titles of blocks that depend on the first selector: one for each of its values."""
    answers: tuple[Projection, ...] = ()  # of the cards, if each card has one
    leads: tuple[Leading | None, ...] = ()  # the fastest shardings of these answers, if compared
    table: tuple[Sequence[str], ...] = ()  # on the card, as text: its head, then its rows


@dataclass(frozen=True, eq=False)
class Page:
    """All that a page shows: of a question, a comparison, a plan or a chip."""

    title: str  # plain text
    provenance: str  # HTML: where the numbers come from
    views: tuple[View, ...]
    command: str  # makes the page
    selectors: tuple[Selector, ...] = ()
    fixed: tuple[Block | Missing, ...] = ()  # about the question as asked, whatever is selected
    question: str = ""  # the question in words
    alerts: tuple[str, ...] = ()  # doubts about the calibration: incomplete, noisy
    again: str = ""  # the command without options of selectors; "": the page has all choices
    refused: Mapping[tuple[int, ...], str] = field(default_factory=dict)
    """Positions of machine, backend, clock and possibly reduction without a view, with the reason."""
    besides: Mapping[str, Any] = field(default_factory=dict)  # further data in the page that it does not show

    @property
    def first(self) -> View:
        """The view that the page opens with."""
        start = tuple(selector.start for selector in self.selectors[1:])
        return next(view for view in self.views if view.chosen == start)

    @property
    def card(self) -> Card:
        """The card that the page opens with."""
        return self.first.cards[self.selectors[0].start if self.selectors else 0]

    def blocks(self) -> tuple[Block | Missing, ...]:
        """The figures that the page opens with."""
        return (*self.first.blocks, *self.fixed)

    def block(self, name: str) -> Block | Missing:
        """A block by name; Missing if the page does not have it."""
        absent = Missing(name, "it is not on this page.")
        return next((block for block in self.blocks() if block.name == name), absent)

    def contents(self) -> list[dict[str, str | None]]:
        """Name and title of each block that the page opens with, or the reason why it is left out."""
        return [
            {"name": b.name, "title": None, "left_out": b.why}
            if isinstance(b, Missing)
            else {"name": b.name, "title": b.title, "left_out": None}
            for b in self.blocks()
        ]

    def alone(self, block: Block, command: str) -> Page:
        """A page of its card and this figure alone. command  makes it again"""
        pinned = tuple(selector.pinned() for selector in self.selectors)
        view = View(tuple(0 for _ in pinned[1:]), (self.card,), (block,))
        line = f"<p>This figure of it alone:</p>{code(command)}"
        return Page(
            self.title,
            f"{self.provenance}\n{line}",
            (view,),
            command,
            pinned,
            question=self.question,
            alerts=self.alerts,
        )
