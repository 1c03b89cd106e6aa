"""The page of a question: complete, or with one figure that is made without the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from perfmodel.plan.leading import Leading
from perfmodel.projections import Projection, project_one
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.registry import QUESTION, STAYING
from perfmodel.report.page.contents import fixed_blocks, question
from perfmodel.report.page.leading_card import card_of
from perfmodel.report.page.parts import Page, Selector, View
from perfmodel.report.page.provenance import provenance
from perfmodel.report.page.views import lead_of, said, view
from perfmodel.schema.machine import Machine
from perfmodel.units import format_bytes, format_ratio


def question_page(
    asked: Projection,
    selectors: Sequence[Selector],
    views: Sequence[View],
    command: str,
    lead: Leading | None,
    **rest: Any,
) -> Page:
    """The HTML page of a question: headline, lists to choose from (``selectors``), a view for each choice.

    asked  the projection that it opens with;  command  makes the page
    lead   the fastest sharding of ``asked``; None: shardings are not compared
    rest   further fields of ``Page``
    """
    size, answer = format_bytes(asked.gpu_count.table_bytes, binary=False), lead.answer if lead else asked
    where = f"{size} of embedding tables on {asked.setting.machine.name}"
    return Page(
        f"{where}: {format_ratio(answer.slowdown)}" if lead is None or lead.best else where,
        provenance(answer, command),
        tuple(views),
        command,
        tuple(selectors),
        question=question(lead.base if lead else asked, lead),
        **rest,
    )


def one_figure(
    name: str,
    sizes: Selector,
    selectors: Sequence[Selector],
    machine: Machine,
    options: Mapping[str, Any],
    command: str,
    alerts: Sequence[str] = (),
) -> Page:
    """A page with headline, a single figure, and sources; other figures are not computed.

    name       of a figure in ``QUESTION``;  sizes, selectors  with a single value each
    options    of ``perfmodel.project``, without the selected options;  command  makes the page again
    Limits: another name -> ValueError
    """
    (figure,) = (each for each in QUESTION.figures if each.name == name)
    chosen = tuple(0 for _ in selectors)
    if figure in STAYING:
        known = {**options, **said(selectors, _values(selectors))}
        asked = project_one(machine=machine, table_bytes=sizes.values[0], **known)
        lead = lead_of(asked, machine, known)
        cards = (card_of(asked, lead, whole=True),)
        shown = View(chosen, cards, (figure.draw(asked=asked, options=known, lead=lead),))
    else:
        whole = view(chosen, selectors, sizes, machine, options)
        (asked,), (lead,) = whole.answers, whole.leads
        shown = replace(whole, blocks=tuple(block for block in whole.blocks if block.name == name), titles={})
    return question_page(asked, (sizes, *selectors), (shown,), command, lead, alerts=tuple(alerts))


def every_figure(
    sizes: Selector, selectors: Sequence[Selector], machine: Machine, options: Mapping[str, Any]
) -> Iterator[Block | Missing]:
    """Yield all figures of the report in order; parameters as in ``one_figure``."""
    chosen = tuple(0 for _ in selectors)
    whole = view(chosen, selectors, sizes, machine, options)
    yield from whole.blocks
    yield from fixed_blocks(whole.answers[0], {**options, **_values(selectors)}, whole.leads[0])


def _values(selectors: Sequence[Selector]) -> dict[str, Any]:
    return {selector.name: selector.values[0] for selector in selectors}
