"""GPUs of a plan as columns of a figure: each GPU, or each class of identical GPUs if there are many."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.plan.outcome import AlikeTables, Planned
from perfmodel.report.figures import style
from perfmodel.report.figures.shares import Shares
from perfmodel.units import format_count

MOST_COLUMNS = 64
"""Most columns that are drawn."""
EACH, ALIKE, SOME = "each", "alike", "some"
_FEWEST_SLOTS = 4  # a column is never wider than a fourth of the figure
_LABELLED = 24  # up to this many columns, each has a tick
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
        return f"each of ranks {', '.join(join_ranks(self.ranks))}" if alike else f"rank {self.rank}"

    def record(self, kind: str) -> dict[str, int]:
        """The column in the figure's data: rank, and ranks_alike (how many it stands for)."""
        return {"rank": self.rank, "ranks_alike": self.count if kind == ALIKE else 1}

    def label(self) -> str:
        """The label below the column: ``3`` or ``0–7``; with three ranges or more, ``0–7<br>+24`` others."""
        ranges = join_ranks(self.ranks)
        if len(ranges) <= 2:
            return "<br>".join(ranges)
        left = self.count - int(ranges[0].split("–")[-1]) + self.ranks[0] - 1
        return f"{ranges[0]}<br>+{left}"


def _measure_label(labels: Sequence[str]) -> float:
    """Pixels of the widest line in the labels, plus a gap."""
    return _CHARACTER * (1 + max(len(line) for label in labels for line in label.split("<br>")))


def join_ranks(ranks: Sequence[int]) -> list[str]:
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
    """A plan as its figure shows it. shares  each GPU's work, by step and by table"""

    planned: Planned
    shares: Shares

    @staticmethod
    def of(planned: Planned) -> Shown:
        """The plan with its shares computed."""
        return Shown(planned, Shares.of(planned.evaluator, planned.plan, planned.result.cost))

    @cached_property
    def groups(self) -> dict[int, AlikeTables]:
        """By table number, the group of equally sharded tables that it belongs to."""
        return {t: group for group in self.planned.groups for t in group.tables}

    @cached_property
    def columns(self) -> tuple[str, tuple[GpuColumn, ...]]:
        """How GPUs became columns (EACH, ALIKE or SOME), and the columns.

        Limits: up to ``MOST_COLUMNS`` GPUs -> a column for each (EACH);  more -> for each class of identical
        GPUs (ALIKE), the busiest first;  too many classes -> for some GPUs (SOME), evenly from the busiest to
        the least busy
        """
        gpus, total = self.planned.evaluator.gpus, self.shares.total_s
        if gpus <= MOST_COLUMNS:
            return EACH, tuple(GpuColumn(rank, (rank,)) for rank in range(gpus))
        _, sample, number = np.unique(self._held, axis=0, return_index=True, return_inverse=True)
        if sample.size <= MOST_COLUMNS:
            order = np.lexsort((sample, -total[sample]))
            ranks = [tuple(np.flatnonzero(number.ravel() == group).tolist()) for group in order]
            samples = sample[order].tolist()
            return ALIKE, tuple(GpuColumn(rank, alike) for rank, alike in zip(samples, ranks, strict=True))
        order = np.argsort(-total, kind="stable")
        picked = order[np.unique(np.linspace(0, gpus - 1, MOST_COLUMNS).astype(int))]
        return SOME, tuple(GpuColumn(rank, (rank,)) for rank in picked.tolist())

    @property
    def _held(self) -> NDArray[np.int64]:
        """How many shards of each group of tables each GPU holds [G, groups]."""
        tables, ranks = self.planned.plan.shards
        number = np.zeros(len(self.planned.plan.placements), dtype=np.int64)
        for index, group in enumerate(self.planned.groups):
            number[list(group.tables)] = index
        held = np.zeros((self.planned.evaluator.gpus, len(self.planned.groups)), dtype=np.int64)
        np.add.at(held, (ranks, number[tables]), 1)
        return held

    def describe_columns(self) -> str:
        """A sentence for readers of the figure: which GPU or GPUs a column shows."""
        kind, columns = self.columns
        if kind == EACH:
            return "Each column is a GPU, with its rank below."
        if kind == ALIKE:
            return (
                "Each column is one GPU of a group of identical ones, whose ranks are below; the busiest "
                "are on the left."
            )
        count = f"{len(columns)} of {format_count(self.planned.evaluator.gpus)}"
        return (
            f"Each column is a GPU, with its rank below: {count}, from the busiest (left) to the least busy."
        )

    def draw(self, traces: list[dict[str, Any]], **layout: Any) -> Any:
        """A plotly figure of ``traces`` with the columns on its x axis. layout  further plotly settings"""
        kind, columns = self.columns
        count, labels = len(columns), [column.label() for column in columns]
        stride, width = 1 if count <= _LABELLED else 4, max(520, 17 * count)
        if kind != EACH:
            long = _measure_label(labels)
            if count * long > _WIDEST - _BESIDE:
                labels = [label.replace("–", "–<br>") for label in labels]
                long = _measure_label(labels)
            stride = math.ceil(count * long / (_WIDEST - _BESIDE))
            width = max(width, round(_BESIDE + count * long / stride))
        ticks = list(range(0, count, stride))
        if kind == ALIKE:  # the GPUs that hold most always have a tick
            fullest = int(np.argmax(self.planned.result.memory.total_bytes))
            full = next(index for index, column in enumerate(columns) if fullest in column.ranks)
            ticks = sorted([full, *(tick for tick in ticks if abs(tick - full) >= stride)])
        beside = max(_FEWEST_SLOTS - count, 0) / 2
        axis = style.axis(
            "ranks that are alike" if kind == ALIKE else "rank",
            range=[-0.5 - beside, count - 0.5 + beside],
            showgrid=False,
            zeroline=False,
            tickmode="array",
            tickvals=ticks,
            ticktext=[labels[tick] for tick in ticks],
            tickangle=0,
        )
        look = {"barmode": "overlay", "bargap": 0.1, "meta": {"min_width": min(_WIDEST, width)}}
        return style.new_figure(traces, **look, xaxis=axis, **layout)
