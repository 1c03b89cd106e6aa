"""The list of all figures, in the order of the pages; importing it imports no drawing code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from perfmodel.report.figures.block import Block, Missing, Switch

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Figure:
    """A figure that can be drawn.

    name   of its part of a page, and of the files that its buttons save
    maker  ``.module.function`` that draws it, relative to this package
    """

    name: str
    maker: str

    def draw(self, *subject: Any, **named: Any) -> Block | Missing:
        """Import ``maker``, and call it with what the figure is about."""
        module, _, function = self.maker.rpartition(".")
        drawn: Block | Missing = getattr(import_module(module, __package__), function)(*subject, **named)
        return drawn

    def block(
        self, title: str, how: str, figure: Any, source: str, data: Rows, switches: Sequence[Switch] = ()
    ) -> Block:
        """A ``Block`` with this figure's name.

        how  a line on how to read the figure;  figure  plotly's;  data  its numbers, as rows of a table
        """
        return Block(self.name, title, how, figure, source, tuple(data), tuple(switches))

    def missing(self, why: str) -> Missing:
        """A ``Missing`` with this figure's name. why  it cannot be drawn"""
        return Missing(self.name, why)


BREAKDOWN = Figure("breakdown", ".breakdown.draw_breakdown")
SLOWDOWN = Figure("slowdown", ".lines.draw_slowdown")
OVER_GPUS = Figure("over-gpus", ".lines.draw_over_gpus")
CHANGES = Figure("changes", ".bars.draw_changes")
SHARDINGS = Figure("shardings", ".bars.draw_shardings")
SHAPES = Figure("shapes", ".heat_maps.draw_shapes")
COLLECTIVES = Figure("collectives", ".collective_curves.draw_collectives")
ROOFLINE = Figure("roofline", ".roofline.draw_roofline")
VALIDATION = Figure("validation", ".validation.draw_validation")
PAPER_COLLECTIVES = Figure("paper-collectives", ".collective_curves.draw_paper_collectives")
PAPER_STAGES = Figure("paper-stages", ".paper.draw_stages")
PAPER_GRIDS = Figure("paper-grids", ".heat_maps.draw_grids")
PAPER_LINKS = Figure("paper-links", ".paper.draw_links")
PAPER_SLOWDOWN = Figure("paper-slowdown", ".paper.draw_ends")
PAPER = (PAPER_COLLECTIVES, PAPER_STAGES, PAPER_GRIDS, PAPER_LINKS, PAPER_SLOWDOWN)
"""Figures of arXiv 2512.05831: 1, 6 to 8, the two grids, its links, and 9."""
QUESTION = (SHARDINGS, OVER_GPUS, SHAPES, COLLECTIVES, ROOFLINE, *PAPER, VALIDATION)
"""Figures of a question below its first screen, in the order of its page; each is drawn of a ``Subject``."""

PLACEMENTS = Figure("placements", ".placements.placements")
STEPS = Figure("steps", ".plan_steps.steps")
PLAN = (PLACEMENTS, STEPS)
"""Figures of a plan, in the order of its page."""
