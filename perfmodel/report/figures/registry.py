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

    name    as ``perfmodel figure`` takes it;  shows  a line for lists that describes it
    maker   ``.module.function`` that draws it, relative to this package
    """

    name: str
    shows: str
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


SLOWDOWN = Figure(
    "slowdown", "slowdown against table size, a line for each exchange of bags", ".slowdown.slowdown"
)
BREAKDOWN = Figure("breakdown", "the steps of a batch at several table sizes", ".breakdown.breakdown")
ALL_TO_ALL = Figure(
    "collectives-all-to-all", "the measured all-to-all and its fitted curve", ".evidence_figures.all_to_all"
)
REDUCE_SCATTER = Figure(
    "collectives-reduce-scatter",
    "the measured reduce-scatter and its fitted curve",
    ".evidence_figures.reduce_scatter",
)
LIBRARIES = Figure(
    "libraries", "NCCL and NVSHMEM side by side, and where they cross", ".evidence_figures.libraries"
)
LINKS = Figure("links", "NVLink and PCIe side by side", ".evidence_figures.links")
ROOFLINE = Figure(
    "roofline", "bytes per second of gather and pool against table size", ".evidence_figures.kernels_roofline"
)
CHANGES = Figure("changes", "the slowdown after each possible change", ".what_if.changes")
TORNADO = Figure("tornado", "the slowdown with values of the machine halved and doubled", ".what_if.tornado")
HEAT_MAP = Figure(
    "heat-map", "slowdown against batch and pooling, and against tables and dim", ".what_if.heat_map"
)
VALIDATION = Figure("validation", "predicted against measured times", ".evidence_figures.points")
CLAIMS = Figure(
    "claims", "published claims beside what the model predicts", ".evidence_figures.judged_claims"
)
SHARDINGS = Figure(
    "shardings",
    "every sharding at every table size, and which is the fastest",
    "..page.contents.every_sharding",
)
EVIDENCE = (
    ALL_TO_ALL, REDUCE_SCATTER, LIBRARIES, LINKS, ROOFLINE, CHANGES, TORNADO, HEAT_MAP, VALIDATION, CLAIMS,
)  # fmt: skip
"""Figures of the evidence behind an answer."""
STAYING = (*EVIDENCE, SHARDINGS)
"""Figures of the question as asked: the selectors of a page do not change them."""

OVER_GPUS = Figure(
    "over-gpus", "slowdown, time and samples per second against the number of GPUs", ".over_gpus.over_gpus"
)
COMPARED_TIME = Figure(
    "compare-time", "times of A and B against table size, and their ratio", ".compare.times"
)
COMPARED_STEPS = Figure("compare-steps", "the steps of A and B side by side", ".compare.steps")

PLACEMENTS = Figure("placements", "what each GPU holds, by bytes and by time", ".placements.placements")
STEPS = Figure("steps", "the steps of the plan beside those of simple plans", ".plan_steps.steps")
TIMELINE = Figure("timeline", "what runs when, and what overlap hides", ".timeline.timeline")
BALANCE = Figure("balance", "how long each GPU is busy and waits", ".gpu_loads.balance")
MEMORY = Figure("memory", "the bytes of each GPU", ".gpu_loads.memory")
TABLES = Figure("tables", "which sharding for which table", ".plan_tables.tables")
OTHERS = Figure("others", "what the next best scheme of each table would cost", ".plan_tables.others")


@dataclass(frozen=True)
class FigurePage:
    """The figures of a kind of page, in order.

    of    what the page is about;  line  a command that makes the page or, with {name}, a figure of it
    """

    of: str
    line: str
    figures: tuple[Figure, ...]

    @property
    def shows(self) -> dict[str, str]:
        """By name of a figure, the line that describes it."""
        return {figure.name: figure.shows for figure in self.figures}

    def blocks(self, **known: Any) -> tuple[Block | Missing, ...]:
        """Draw all figures of the page. known  arguments for them, by name; each takes what it needs"""
        return tuple(figure.draw(**known) for figure in self.figures)


QUESTION = FigurePage("one question", "perfmodel figure {name}", (SLOWDOWN, BREAKDOWN, *STAYING))
GPUS = FigurePage(
    "the same tables on more and more GPUs", "perfmodel figure {name} --model mlperf-dlrm-dcnv2", (OVER_GPUS,)
)
COMPARED = FigurePage(
    "two machines, or two calibrations",
    "perfmodel figure {name} --compare h100-sxm-ib h200-sxm-ib",
    (COMPARED_TIME, COMPARED_STEPS),
)
PLAN = FigurePage(
    "a plan",
    "perfmodel plan --model mlperf-dlrm-dcnv2 --gpus 128 --report plan.html",
    (PLACEMENTS, STEPS, TIMELINE, BALANCE, MEMORY, TABLES, OTHERS),
)
PAGES = (QUESTION, GPUS, COMPARED, PLAN)
EVERY = {name: shows for page in PAGES for name, shows in page.shows.items()}
"""Figures of all pages by name; no two figures have the same name."""
