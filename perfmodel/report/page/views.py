"""The views of a page over table sizes: each combination of the selectors is computed in advance."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from perfmodel.answer import Answer, project_each
from perfmodel.answer.inputs import DEFAULTS
from perfmodel.answer.ranking import Ranking, is_ranked, rank_on_fewest
from perfmodel.engine.schemes import ROW_WISE
from perfmodel.errors import BadInputError, PerfmodelError
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.line_traces import SlowdownLine
from perfmodel.report.figures.registry import BREAKDOWN, SLOWDOWN
from perfmodel.report.figures.slowdown import Mark, sentence
from perfmodel.report.figures.style import PALETTE
from perfmodel.report.figures.words import library_name
from perfmodel.report.page.lines import Lines, answerable, frame_of
from perfmodel.report.page.parts import Card, Selector, View
from perfmodel.report.page.ranking_card import card_of
from perfmodel.report.page.setups import Loaded, Offer, Setup, reason
from perfmodel.validate.claims import load_claims

MOST_VIEWS = 64
_PAPER_BYTES, _PAPER_GPUS = 10e12, 128
_LEAST, _MOST = "10a", "10b"  # ids of claims: the smallest and the largest slowdown in the paper's Fig 9
_BAR_SIZES = (160e9, 640e9, 1e12, 2.5e12, 5e12, 10e12, 25e12, 100e12)


def combinations(selectors: Sequence[Selector]) -> list[tuple[int, ...]]:
    """Every combination of positions in the selectors. Limits: more than ``MOST_VIEWS`` -> BadInputError"""
    found = list(itertools.product(*(range(len(selector.values)) for selector in selectors)))
    if len(found) > MOST_VIEWS:
        raise BadInputError(
            f"{len(found)} combinations of {', '.join(s.label for s in selectors)} are too many for a page.",
            f"at most {MOST_VIEWS}: give fewer values.",
        )
    return found


@dataclass(frozen=True, eq=False)
class ViewsAsked:
    """The data from which all views of a page are made.

    sizes, workload  selectors of the table size, and of batch, pooling and dim
    offer     selectors of machine, library, clock and exchange;  loaded  their calibrations
    lines     computes the lines of figures
    options   of ``perfmodel.project``, without the options of the selectors
    lead      the fastest sharding of the question; None: it is not known yet
    best      whether shardings are compared
    """

    sizes: Selector
    workload: tuple[Selector, ...]
    offer: Offer
    loaded: Loaded
    lines: Lines
    options: Mapping[str, Any]
    lead: Ranking | None = None
    best: bool = True

    @property
    def start(self) -> tuple[int, ...]:
        """The question's positions in the selectors of the workload, then of the setup."""
        return (*(selector.start for selector in self.workload), *next(iter(self.offer.setups)))

    def rank_answers(self, chosen: tuple[int, ...], answers: Sequence[Answer]) -> tuple[Ranking | None, ...]:
        """The fastest sharding of each row-wise answer; None for all if shardings are not compared.

        chosen   for each selector but the table size, the position of its value in the view
        """
        if not self.best:
            return (None,) * len(answers)
        known = {self.sizes.start: self.lead} if chosen == self.start and self.lead is not None else {}
        return tuple(known.get(place) or lead_of(base) for place, base in enumerate(answers))

    def lead_answer(self, base: Answer) -> Answer:
        """The answer of the fastest sharding; ``base`` if shardings are not compared."""
        lead = lead_of(base) if self.best else None
        return lead.answer if lead else base

    def cards(
        self, chosen: tuple[int, ...], answers: Sequence[Answer], found: Sequence[Ranking | None]
    ) -> tuple[Card, ...]:
        """The headline at the top of the page for each projection of a view, one per table size.

        Only the headline of the question as it was typed lists the changes that help, and the plan.
        chosen   for each selector but the table size, the position of its value in the view
        answers  the projections;  found  the fastest sharding of each; None: shardings are not compared
        """
        pairs = enumerate(zip(answers, found, strict=True))
        return tuple(card_of(base, lead, whole=self.is_asked(chosen, at)) for at, (base, lead) in pairs)

    def is_asked(self, chosen: tuple[int, ...], at: int) -> bool:
        """Whether the view and the position ``at`` in ``sizes`` belong to the question as it was typed."""
        return chosen == self.start and at == self.sizes.start

    def said(self, workload: Mapping[str, Any]) -> dict[str, Any]:
        """``workload`` without defaults that the user did not type, since answers list typed values."""
        return said(self.workload, workload)

    def places(self) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """For each view, its positions in the selectors of the workload and of the setup.

        These are all workloads with the question's setup, then the question's workload with other setups.
        """
        start = tuple(selector.start for selector in self.workload)
        own, *others = self.offer.setups
        return [*((work, own) for work in combinations(self.workload)), *((start, way) for way in others)]


def workloads(selectors: Sequence[Selector]) -> list[dict[str, Any]]:
    """Every combination of the selectors' values, as keywords of ``perfmodel.project``."""
    return [_workload(selectors, chosen) for chosen in combinations(selectors)]


def said(selectors: Sequence[Selector], workload: Mapping[str, Any]) -> dict[str, Any]:
    """``workload`` without defaults that the user did not type. selectors  know the typed values"""
    typed = {selector.name for selector in selectors if selector.typed}
    return {name: value for name, value in workload.items() if name in typed or value != DEFAULTS.get(name)}


def _workload(selectors: Sequence[Selector], chosen: Sequence[int]) -> dict[str, Any]:
    return {s.name: s.values[at] for s, at in zip(selectors, chosen, strict=True)}


@dataclass(frozen=True)
class NoView:
    """A setup without answer for the question's workload. way  its positions in the selectors"""

    way: tuple[int, ...]
    why: str


def views(asked: ViewsAsked, build: ViewOf) -> Iterator[View | NoView]:
    """Make the views one after the other, the question's setup first; ``NoView`` where there is no answer.

    build  makes a view, with the parameters of ``view_of``
    Limits: the question's setup has no answer -> its error
    """
    own = next(iter(asked.offer.setups))
    for work, way in asked.places():
        workload, setup = _workload(asked.workload, work), asked.offer.setups[way]
        try:
            yield build((*work, *way), workload, setup, asked)
        except PerfmodelError as error:
            if way == own:
                raise
            yield NoView(way, reason(error))


def lead_of(base: Answer) -> Ranking | None:
    """The fastest sharding of a row-wise answer's question; None if shardings are not compared."""
    return rank_on_fewest(base) if is_ranked(base) else None


def best_line(setup: Setup, answers: Sequence[Answer]) -> SlowdownLine:
    """The line of the fastest sharding of each table size, with a marker that no other line has."""
    label = f"{library_name(setup.curves.backend)} fastest sharding"
    return SlowdownLine(label, frame_of(answers), style=len(PALETTE))


def view_of(chosen: tuple[int, ...], workload: Mapping[str, Any], setup: Setup, asked: ViewsAsked) -> View:
    """The view of a workload with a setup, over table sizes.

    chosen  its positions in the selectors;  asked  what all views are made from
    """
    sizes, machine = asked.sizes, setup.machine
    known = {**asked.options, **setup.options, **asked.said(workload)}
    setting = asked.loaded.of(machine, setup.curves)
    quick = {**known, "setting": setting}
    told = known if machine.overrides else quick  # with a setting, overrides without effect are not reported
    answers = tuple(project_each("table_bytes", sizes.values, machine, **told))
    found = asked.rank_answers(chosen, answers)
    shown = [lead.answer if lead else base for base, lead in zip(answers, found, strict=True)]
    others = [size for size in bar_sizes(answers[0], sizes.values) if size not in sizes.values]
    beside = [asked.lead_answer(base) for base in answerable(machine, quick, others)]
    bars = sorted([*shown, *beside], key=lambda answer: answer.gpu_count.table_bytes)
    lines = list(asked.lines.of(setup, workload))
    if {answer.sharding for answer in bars if answer.gpus > 1} - {ROW_WISE}:
        lines = [best_line(setup, bars), *lines]
    first = SLOWDOWN.draw(lines=lines, asked=shown[sizes.start], marks=marks(answers))
    titles = {} if isinstance(first, Missing) else {first.name: tuple(sentence(lines, a) for a in shown)}
    blocks = (first, BREAKDOWN.draw(answers=bars))
    return View(chosen, asked.cards(chosen, answers, found), blocks, titles, answers, found)


ViewOf = Callable[[tuple[int, ...], Mapping[str, Any], Setup, Any], View]
"""A function with the parameters of ``view_of``."""


@dataclass(frozen=True, eq=False)
class Across:
    """How a page over some quantity is made: over table sizes, or over numbers of GPUs.

    largest_bytes  most bytes of tables;  lines  the class that computes lines;  view  makes a view
    fixed     makes the figures that stay in all views;  blocks  how many these are, for a progress bar
    selected  options for which the page has selectors
    """

    largest_bytes: float
    lines: type[Lines]
    view: ViewOf
    fixed: Callable[[Answer, Mapping[str, Any], Ranking | None], Iterable[Block | Missing]]
    blocks: int
    selected: tuple[str, ...]


def bar_sizes(answer: Answer, sizes: Sequence[float]) -> list[float]:
    """Table sizes of the bars: round sizes, the capacity of a few GPUs, and the selectable sizes."""
    return sorted({*_BAR_SIZES, *small_sizes(answer), *map(float, sizes)})


def small_sizes(answer: Answer) -> list[float]:
    """Bytes of tables that 2, 4 and 8 GPUs of this machine hold, if less than the smallest round size."""
    usable = answer.gpu_count.usable_bytes
    return [count * usable for count in (2, 4, 8) if count * usable < min(_BAR_SIZES)]


def _is_of_the_paper(answer: Answer) -> bool:
    """Whether table size, GPUs, HBM and a single scale-up domain are as in the paper's question."""
    count, forward = answer.gpu_count, answer.forward
    one_domain = forward.domain(answer.work.gpus)[0] >= answer.gpus
    same = count.table_bytes == _PAPER_BYTES and answer.gpus == _PAPER_GPUS
    return same and bool(one_domain)


@lru_cache(maxsize=1)
def _published() -> dict[str, float]:
    published = {claim.id: claim.published for claim in load_claims().claim}
    return {name: published[name] or 0.0 for name in (_LEAST, _MOST)}


def marks(answers: Sequence[Answer]) -> tuple[Mark, ...]:
    """The smallest and the largest slowdown that the paper reports for 10 TB on 128 GPUs.

    Limits: none of the answers is to that question -> none
    """
    if not any(map(_is_of_the_paper, answers)):
        return ()
    words = {_LEAST: "the least slowed of its workloads", _MOST: "the most slowed of its workloads"}
    where = "arXiv 2512.05831, Fig 9: 10 TB on 128 GPUs, NVLink between all of them"
    return tuple(
        Mark(_PAPER_BYTES, value, f"{value:g}×, {words[name]}<br>{where}")
        for name, value in _published().items()
    )
