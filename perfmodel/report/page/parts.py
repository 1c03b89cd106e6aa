"""What every page is made of: a card, what may be chosen, views with their figures, and sources."""

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
    """The card at the top, as plain text: the page never takes it for HTML."""

    sentence: str
    times: str = ""
    sure: str = ""  # band and bounds
    gpus: str = ""
    evidence: list[dict[str, Any]] = field(default_factory=list)  # kind, share, words, colour
    alert: str = ""
    notes: list[str] = field(default_factory=list)
    question: str = ""  # as it was understood
    findings: list[dict[str, Any]] = field(default_factory=list)
    """Each a ``title``, and maybe a table: ``columns`` and ``rows``."""


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

    def pinned(self) -> Selector:
        """With the value that was asked for alone."""
        own = slice(self.start, self.start + 1)
        values, words, texts = self.values[own], self.words[own], self.texts[own]
        return replace(self, values=values, words=words, texts=texts, start=0, off={})


@dataclass(frozen=True, eq=False)
class View:
    """What is shown for one value of every selector but the first, which chooses among its cards."""

    chosen: tuple[int, ...]  # position of the value of every selector but the first
    cards: tuple[Card, ...]
    blocks: tuple[Block | Missing, ...]
    titles: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Of blocks whose sentence depends on the first selector: one for each of its values."""
    answers: tuple[Projection, ...] = ()  # that the cards are of, where each is of one
    leads: tuple[Leading | None, ...] = ()  # of these answers the best ways to shard, where compared
    table: tuple[Sequence[str], ...] = ()  # in the card, as text: names of its columns, then its rows


@dataclass(frozen=True, eq=False)
class Page:
    """Everything that a page shows: of a question, of two machines, of a plan, of a chip."""

    title: str  # plain text
    provenance: str  # HTML: where the numbers come from
    views: tuple[View, ...]
    command: str  # makes the page
    selectors: tuple[Selector, ...] = ()
    fixed: tuple[Block | Missing, ...] = ()  # of the question as it was asked, whatever is selected
    question: str = ""  # what was asked, in words
    alerts: tuple[str, ...] = ()  # of the calibration: incomplete, noisy
    again: str = ""  # the command without the options of the selectors; "": all choices are in the page
    refused: Mapping[tuple[int, ...], str] = field(default_factory=dict)
    """Positions of machine, backend, clock and maybe reduction: why there is no view of them."""
    besides: Mapping[str, Any] = field(default_factory=dict)  # data to take along that it does not show

    @property
    def first(self) -> View:
        """The view that is shown at first."""
        start = tuple(selector.start for selector in self.selectors[1:])
        return next(view for view in self.views if view.chosen == start)

    @property
    def card(self) -> Card:
        """The card that is shown at first."""
        return self.first.cards[self.selectors[0].start if self.selectors else 0]

    def blocks(self) -> tuple[Block | Missing, ...]:
        """All figures that are shown at first."""
        return (*self.first.blocks, *self.fixed)

    def block(self, name: str) -> Block | Missing:
        """One of them."""
        absent = Missing(name, "it is not on this page.")
        return next((block for block in self.blocks() if block.name == name), absent)

    def contents(self) -> list[dict[str, str | None]]:
        """Blocks as they are shown at first: name, sentence, or why it is left out."""
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
