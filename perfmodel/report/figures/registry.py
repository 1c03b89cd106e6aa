"""The figures of a question, by their names, in the order of the page."""

from __future__ import annotations

from collections.abc import Callable

from perfmodel.errors import PerfmodelError
from perfmodel.report.figures.bars import draw_breakdown, draw_changes, draw_shardings
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.collective_curves import draw_collectives, draw_paper_collectives
from perfmodel.report.figures.heat_maps import draw_grids, draw_shapes
from perfmodel.report.figures.lines import draw_over_gpus, draw_slowdown
from perfmodel.report.figures.paper import draw_ends, draw_links, draw_stages
from perfmodel.report.figures.roofline import draw_roofline
from perfmodel.report.figures.subject import Subject
from perfmodel.report.figures.validation import draw_validation

FIGURES: dict[str, Callable[[Subject], Block]] = {
    "breakdown": draw_breakdown,
    "slowdown": draw_slowdown,
    "changes": draw_changes,
    "shardings": draw_shardings,
    "over-gpus": draw_over_gpus,
    "shapes": draw_shapes,
    "collectives": draw_collectives,
    "roofline": draw_roofline,
    "paper-collectives": draw_paper_collectives,
    "paper-stages": draw_stages,
    "paper-links": draw_links,
    "paper-grids": draw_grids,
    "paper-slowdown": draw_ends,
    "validation": draw_validation,
}
PAPER = [name for name in FIGURES if name.startswith("paper")]
"""Figures 1, 6 to 8, NVLink against PCIe, the two grids, and 9 of arXiv 2512.05831."""


def draw_figure(name: str, subject: Subject) -> Block | Missing:
    """The figure of this name; where it cannot be drawn, the reason."""
    try:
        return FIGURES[name](subject)
    except PerfmodelError as error:
        return Missing(name, error.message)
