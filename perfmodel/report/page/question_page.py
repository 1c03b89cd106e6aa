"""The page of one question: whole, or with one of its figures, made without the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from perfmodel.projections import Projection, project_one
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.registry import QUESTION, STAYING
from perfmodel.report.page.contents import fixed_blocks, question
from perfmodel.report.page.parts import Page, Selector, View
from perfmodel.report.page.provenance import provenance
from perfmodel.report.page.question_card import question_card
from perfmodel.report.page.views import view
from perfmodel.schema.machine import Machine
from perfmodel.units import format_bytes, format_ratio


def question_page(
    asked: Projection, selectors: Sequence[Selector], views: Sequence[View], command: str, **rest: Any
) -> Page:
    """The page that these views make.

    asked  the answer that it is made for;  command  makes the page
    rest   of ``Page``: fixed, alerts, again, refused
    """
    size = format_bytes(asked.gpu_count.table_bytes, binary=False)
    return Page(
        f"{size} of embedding tables on {asked.setting.machine.name}: {format_ratio(asked.slowdown)}",
        provenance(asked, command),
        tuple(views),
        command,
        tuple(selectors),
        question=question(asked),
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
    """A page with the card, this figure, and where the numbers come from.

    name       of ``QUESTION``;  sizes, selectors  of one value each
    options    of ``perfmodel.project``, without the selected ones;  command  makes the page again
    Limits: another name -> ValueError
    """
    (figure,) = (each for each in QUESTION.figures if each.name == name)
    chosen = tuple(0 for _ in selectors)
    if figure in STAYING:
        known = {**options, **_values(selectors)}
        asked = project_one(machine=machine, table_bytes=sizes.values[0], **known)
        shown = View(chosen, (question_card(asked),), (figure.draw(asked=asked, options=known),))
    else:
        whole = view(chosen, selectors, sizes, machine, options)
        (asked,) = whole.answers
        shown = replace(whole, blocks=tuple(block for block in whole.blocks if block.name == name), titles={})
    return question_page(asked, (sizes, *selectors), (shown,), command, alerts=tuple(alerts))


def every_figure(
    sizes: Selector, selectors: Sequence[Selector], machine: Machine, options: Mapping[str, Any]
) -> Iterator[Block | Missing]:
    """All figures of the report in their order; the parameters are those of ``one_figure``."""
    chosen = tuple(0 for _ in selectors)
    whole = view(chosen, selectors, sizes, machine, options)
    yield from whole.blocks
    yield from fixed_blocks(whole.answers[0], {**options, **_values(selectors)})


def _values(selectors: Sequence[Selector]) -> dict[str, Any]:
    return {selector.name: selector.values[0] for selector in selectors}
