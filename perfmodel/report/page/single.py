"""One figure of the report by its name, made without the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from perfmodel.project import project_one
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.names import FIGURES
from perfmodel.report.page.assemble import Page
from perfmodel.report.page.contents import FIXED_NAMES, fixed_block
from perfmodel.report.page.views import Selector, Settings, View, view
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
        known = {**options, **{selector.name: selector.values[0] for selector in selectors}}
        asked = project_one(machine=machine, table_bytes=sizes.values[0], **known)
        shown = View(chosen, (asked,), (fixed_block(name, asked, known),), {})
    else:
        whole = view(chosen, selectors, sizes, Settings(machine, options), options)
        shown = replace(whole, blocks=tuple(block for block in whole.blocks if block.name == name), titles={})
    return Page(sizes, tuple(selectors), (shown,), (), command, tuple(alerts))


def block_of(page: Page) -> Block | Missing:
    """The one figure of a page of ``single``."""
    return page.first.blocks[0]


def with_block(page: Page, block: Block) -> Page:
    """The page with this figure in the place of its own."""
    return replace(page, views=(replace(page.first, blocks=(block,)),))
