"""The list of all figures, in the order of the pages; importing it imports no drawing code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from typing import Any

from perfmodel.report.figures.block import Block, Missing, Switch

Rows = Sequence[Mapping[str, Any]]
Switches = Sequence[Switch]


@dataclass(frozen=True)
class Figure:
    """A figure that can be drawn.

    name   of its part of a page, and of the files that its buttons save
    maker  ``.module.function`` that draws it, relative to this package
    """

    name: str
    maker: str

    def draw(self, **known: Any) -> Block | Missing:
        """Import ``maker`` and call it, with the arguments in ``known`` that it has parameters for."""
        module, _, function = self.maker.rpartition(".")
        made = getattr(import_module(module, __package__), function)
        found: Block | Missing = made(
            **{name: known[name] for name in signature(made).parameters if name in known}
        )
        return found

    def block(
        self, title: str, how: str, figure: Any, source: str, data: Rows, switches: Switches = ()
    ) -> Block:
        """A ``Block`` with this figure's name.

        how  a line on how to read the figure;  figure  plotly's;  data  its numbers, as rows of a table
        """
        return Block(self.name, title, how, figure, source, tuple(data), tuple(switches))

    def missing(self, why: str) -> Missing:
        """A ``Missing`` with this figure's name. why  it cannot be drawn"""
        return Missing(self.name, why)


SLOWDOWN = Figure("slowdown", ".slowdown.slowdown")
BREAKDOWN = Figure("breakdown", ".breakdown.breakdown")
ALL_TO_ALL = Figure("collectives-all-to-all", ".evidence_figures.all_to_all")
REDUCE_SCATTER = Figure("collectives-reduce-scatter", ".evidence_figures.reduce_scatter")
LIBRARIES = Figure("libraries", ".evidence_figures.libraries")
LINKS = Figure("links", ".evidence_figures.links")
ROOFLINE = Figure("roofline", ".evidence_figures.kernels_roofline")
CHANGES = Figure("changes", ".what_if.changes")
HEAT_MAP = Figure("heat-map", ".what_if.heat_map")
VALIDATION = Figure("validation", ".evidence_figures.points")
SHARDINGS = Figure("shardings", "..page.contents.every_sharding")
EVIDENCE = (
    ALL_TO_ALL, REDUCE_SCATTER, LIBRARIES, LINKS, ROOFLINE, CHANGES, HEAT_MAP, VALIDATION,
)  # fmt: skip
"""Figures of the evidence behind an answer."""
STAYING = (*EVIDENCE, SHARDINGS)
"""Figures of the question as asked: the selectors of a page do not change them."""

OVER_GPUS = Figure("over-gpus", ".over_gpus.over_gpus")

PLACEMENTS = Figure("placements", ".placements.placements")
STEPS = Figure("steps", ".plan_steps.steps")
BALANCE = Figure("balance", ".gpu_loads.balance")
MEMORY = Figure("memory", ".gpu_loads.memory")
TABLES = Figure("tables", ".plan_tables.tables")
OTHERS = Figure("others", ".plan_tables.others")
PLAN = (PLACEMENTS, STEPS, BALANCE, MEMORY, TABLES, OTHERS)
"""Figures of a plan, in the order of its page."""

CORES = Figure("cores", ".chip_cores.cores")
"""The figure of a plan for the cores of a chip."""
