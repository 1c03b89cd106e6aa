"""Figures of one question: one of them by its name, made without the others, or every one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from perfmodel.project import project_one
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.names import FIGURES
from perfmodel.report.page.assemble import Page
from perfmodel.report.page.contents import FIXED_NAMES, fixed_block, fixed_blocks
from perfmodel.report.page.selectors import Selector
from perfmodel.report.page.views import Settings, View, view
from perfmodel.schema.machine import Machine


def single(
    name: str,
    sizes: Selector,
    selectors: Sequence[Selector],
    machine: Machine,
    options: Mapping[str, Any],
    command: str,
    alerts: Sequence[str] = (),
) -> Page:
    """A page with the card, this figure, and where the numbers come from.

    name       of ``FIGURES``;  sizes, selectors  of one value each
    options    of ``perfmodel.project``, without the selected ones;  command  makes the page again
    Limits: another name -> KeyError
    """
    _ = FIGURES[name]
    chosen = tuple(0 for _ in selectors)
    if name in FIXED_NAMES:
        known = {**options, **_values(selectors)}
        asked = project_one(machine=machine, table_bytes=sizes.values[0], **known)
        shown = View(chosen, (asked,), (fixed_block(name, asked, known),), {})
    else:
        whole = view(chosen, selectors, sizes, Settings(machine, options), options)
        shown = replace(whole, blocks=tuple(block for block in whole.blocks if block.name == name), titles={})
    return Page(sizes, tuple(selectors), (shown,), (), command, tuple(alerts))


def every(
    sizes: Selector, selectors: Sequence[Selector], machine: Machine, options: Mapping[str, Any]
) -> Iterator[Block | Missing]:
    """All figures of the report in their order; the parameters are those of ``single``."""
    chosen = tuple(0 for _ in selectors)
    whole = view(chosen, selectors, sizes, Settings(machine, options), options)
    yield from whole.blocks
    yield from fixed_blocks(whole.answers[0], {**options, **_values(selectors)})


def _values(selectors: Sequence[Selector]) -> dict[str, Any]:
    return {selector.name: selector.values[0] for selector in selectors}


def with_block(page: Page, block: Block) -> Page:
    """The page with this figure in the place of its own."""
    return replace(page, views=(replace(page.first, blocks=(block,)),))
