"""GPUs of a plan as columns of a figure: each GPU, or each class of identical GPUs if there are many."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.engine.schemes import DATA_PARALLEL, SHARDINGS
from perfmodel.plan.outcome import AlikeTables, Planned
from perfmodel.report.figures import style
from perfmodel.report.figures.shares import Shares
from perfmodel.units import format_count

MOST_COLUMNS = 64
"""Most columns that are drawn."""
EACH, ALIKE, SOME = "each", "alike", "some"
_FEWEST_SLOTS = 4  # a column is never wider than a fourth of the figure
_LABELLED = 24  # up to this many columns, each has a tick
_CLOSE = 0.8  # share of the top level: labels of closer levels would touch
_WIDEST, _BESIDE = 1100, 210  # pixels: of a figure that needs no scrolling; beside its columns
_CHARACTER = 7.5  # pixels of a tick


@dataclass(frozen=True, eq=False)
class GpuColumn:
    """A column of the figure: the rank that is drawn, and all ranks that are identical to it."""

    rank: int
    ranks: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many ranks the column stands for."""
        return len(self.ranks)

    def name(self, kind: str) -> str:
        """The column in words: ``rank 3``; if it stands for several ranks, ``each of ranks 0–7``.

        kind  how GPUs became columns: EACH, ALIKE or SOME
        """
        alike = kind == ALIKE and self.count > 1
        return f"each of ranks {', '.join(runs(self.ranks))}" if alike else f"rank {self.rank}"

    def record(self, kind: str) -> dict[str, int]:
        """The column in the figure's data: rank, and ranks_alike (how many it stands for)."""
        return {"rank": self.rank, "ranks_alike": self.count if kind == ALIKE else 1}

    def tick(self) -> str:
        """The label below the column: ``3`` or ``0–7``; with three ranges or more, ``0–7<br>+24`` others."""
        ranges = runs(self.ranks)
        if len(ranges) <= 2:
            return "<br>".join(ranges)
        remaining = self.count - int(ranges[0].split("–")[-1]) + self.ranks[0] - 1
        return f"{ranges[0]}<br>+{remaining}"


def _measure_ticks(labels: Sequence[str]) -> float:
    """Pixels of the widest line in the labels, plus a gap."""
    return _CHARACTER * (1 + max(len(line) for label in labels for line in label.split("<br>")))


def runs(ranks: Sequence[int]) -> list[str]:
    """Consecutive ranks joined to ranges: ``0–7``, ``16``. ranks  increasing"""
    ranges: list[list[int]] = []
    for rank in ranks:
        if ranges and rank == ranges[-1][1] + 1:
            ranges[-1][1] = rank
        else:
            ranges.append([rank, rank])
    return [f"{start}–{end}" if end > start else str(start) for start, end in ranges]


@dataclass(frozen=True, eq=False)
class Shown:
    """A plan as its figures show it.

    shares  each GPU's own time, by step and by table
    """

    answer: Planned
    shares: Shares

    @staticmethod
    def of(answer: Planned) -> Shown:
        """The plan with its shares computed."""
        return Shown(answer, Shares.of(answer.evaluator, answer.plan, answer.result.cost))

    @cached_property
    def groups(self) -> dict[int, AlikeTables]:
        """By table number, the group of equally sharded tables that it belongs to."""
        return {t: group for group in self.answer.groups for t in group.tables}

    @cached_property
    def columns(self) -> tuple[str, tuple[GpuColumn, ...]]:
        """How GPUs became columns (EACH, ALIKE or SOME), and the columns.

        Limits: up to ``MOST_COLUMNS`` GPUs -> a column for each (EACH);  more -> for each class of identical
        GPUs (ALIKE), the busiest first;  too many classes -> for some GPUs (SOME), evenly from the busiest to
        the least busy
        """
        gpus, total = self.answer.evaluator.gpus, self.shares.total_s
        if gpus <= MOST_COLUMNS:
            return EACH, tuple(GpuColumn(rank, (rank,)) for rank in range(gpus))
        _, lowest, number = np.unique(self._held, axis=0, return_index=True, return_inverse=True)
        if lowest.size <= MOST_COLUMNS:
            order = np.lexsort((lowest, -total[lowest]))
            ranks = [tuple(np.flatnonzero(number.ravel() == index).tolist()) for index in order]
            return ALIKE, tuple(
                GpuColumn(int(lowest[index]), members) for index, members in zip(order, ranks, strict=True)
            )
        order = np.argsort(-total, kind="stable")
        picked = np.unique(np.linspace(0, gpus - 1, MOST_COLUMNS).astype(int))
        return SOME, tuple(GpuColumn(int(order[index]), (int(order[index]),)) for index in picked)

    @property
    def _held(self) -> NDArray[np.int64]:
        """How many shards of each group of tables each GPU holds [G, groups]."""
        tables, ranks = self.answer.plan.shards
        number = np.zeros(len(self.answer.plan.placements), dtype=np.int64)
        for index, group in enumerate(self.answer.groups):
            number[list(group.tables)] = index
        held = np.zeros((self.answer.evaluator.gpus, len(self.answer.groups)), dtype=np.int64)
        np.add.at(held, (ranks, number[tables]), 1)
        return held

    @property
    def step_words(self) -> str:
        """What takes the plan's time: ``training step`` or ``batch``."""
        return "training step" if self.answer.training else "batch"

    def column_words(self) -> str:
        """A sentence for readers of the figure: which GPU or GPUs a column shows."""
        kind, columns = self.columns
        if kind == EACH:
            return "Each column is a GPU, with its rank below."
        if kind == ALIKE:
            return (
                "Each column is one GPU of a group of identical ones, whose ranks are below; the busiest "
                "are on the left."
            )
        of = f"{len(columns)} of {format_count(self.answer.evaluator.gpus)}"
        return f"Each column is a GPU, with its rank below: {of}, from the busiest (left) to the least busy."

    @property
    def fullest(self) -> int:
        """The rank that holds the most bytes; the lowest of several."""
        return int(np.argmax(self.answer.result.memory.total_bytes))

    def figure(self, traces: list[dict[str, Any]], **layout: Any) -> Any:
        """A plotly figure of ``traces`` with the columns on its x axis. layout  further plotly settings"""
        kind, columns = self.columns
        count = len(columns)
        labels = [column.tick() for column in columns]
        stride = 1 if count <= _LABELLED else 4
        width = max(520, 17 * count)
        if kind != EACH:
            long = _measure_ticks(labels)
            if count * long > _WIDEST - _BESIDE:
                labels = [label.replace("–", "–<br>") for label in labels]
                long = _measure_ticks(labels)
            stride = math.ceil(count * long / (_WIDEST - _BESIDE))
            width = max(width, round(_BESIDE + count * long / stride))
        width = min(_WIDEST, width)
        ticks = list(range(0, count, stride))
        if kind == ALIKE:  # the fullest GPUs, which titles name, always have a tick
            full = next(index for index, column in enumerate(columns) if self.fullest in column.ranks)
            ticks = sorted([full, *(index for index in ticks if abs(index - full) >= stride)])
        title = "ranks that are alike" if kind == ALIKE else "rank"
        beside = max(_FEWEST_SLOTS - count, 0) / 2
        axis = style.axis(
            title,
            range=[-0.5 - beside, count - 0.5 + beside],
            showgrid=False,
            zeroline=False,
            tickmode="array",
            tickvals=ticks,
            ticktext=[labels[index] for index in ticks],
            tickangle=0,
        )
        look = {"barmode": "overlay", "bargap": 0.1, "meta": {"min_width": width}, "xaxis": axis}
        return style.new_figure(traces, **look, **layout)


SHARDING_COLOURS = dict(zip(SHARDINGS, (*style.PALETTE[:7], "#c2484d"), strict=True))
"""The colour of each sharding in every figure of a plan."""
HOT, OWN = "hot rows", "own samples"
HOT_COLOUR, OWN_COLOUR = "#7fb3dd", style.PALETTE[7]
ORDER = (DATA_PARALLEL, HOT, *(name for name in SHARDINGS if name != DATA_PARALLEL), OWN)
"""Order of the blocks in a column, from below."""


def colour_of(name: str) -> str:
    """The colour of a sharding, of hot rows, or of work for a GPU's own samples."""
    return {**SHARDING_COLOURS, HOT: HOT_COLOUR, OWN: OWN_COLOUR}[name]


def time_unit(top_s: float) -> tuple[float, str]:
    """The largest unit in which ``top_s`` is at least 1, and how many of it a second has: 1e3, "ms"."""
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if top_s * factor >= 1:
            return factor, unit
    return 1e9, "ns"


def bytes_unit(top_bytes: float) -> tuple[float, str]:
    """The unit for memory up to ``top_bytes``, and how many of it a byte has: 1e-9, "GB"."""
    for power, unit in ((12, "TB"), (9, "GB"), (6, "MB"), (3, "kB")):
        if top_bytes >= 10.0**power:
            return 10.0**-power, unit
    return 1.0, "B"


def levels(lines: Sequence[tuple[float, str]]) -> dict[str, Any]:
    """Plotly settings for dashed lines across a figure, labels right of it, and the margin for these.

    lines  height on the axis, and label
    Limits: two close lines -> their labels are moved apart
    """
    shapes, words = [], []
    top = max((level for level, _ in lines), default=0.0)
    for index, (level, text) in enumerate(sorted(lines, reverse=True)):
        place = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "yref": "y", "y0": level, "y1": level}
        dash = "dash" if level == top else "dot"
        shapes.append({**place, "line": {"color": "rgba(255,255,255,0.6)", "width": 3.5}})
        shapes.append({**place, "line": {"color": "#333333", "width": 1.5, "dash": dash}})
        close = len(lines) > 1 and min(value for value, _ in lines) > _CLOSE * top
        anchor = "middle" if not close else "bottom" if index == 0 else "top"
        words.append(
            {"text": text, "xref": "paper", "x": 1.005, "xanchor": "left", "y": level, "yanchor": anchor}
            | {"showarrow": False, "align": "left"}
        )
    return {"shapes": shapes, "annotations": words, "margin": {"l": 72, "r": 130, "t": 56, "b": 56}}


def source(shown: Shown) -> str:
    """The line below every figure of a plan: machine, calibration, ids, batch, weakest evidence."""
    e = shown.answer.evaluator
    names = ", ".join(dict.fromkeys(e.setting.links.calibrations)) or "none"
    ids = ", ".join(dict.fromkeys(law.name for law in e.tables.ids))
    return (
        f"Modelled: machine {e.setting.machine.name}, calibration {names}, ids {ids}, "
        f"{format_count(e.batch)} samples per GPU; weakest evidence: {shown.answer.result.cost.evidence}."
    )
