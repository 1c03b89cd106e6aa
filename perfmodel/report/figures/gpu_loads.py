"""Figures of each GPU's memory and work in a plan: which is fullest, which is busiest, which wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.engine.steps import label_step
from perfmodel.report.figures import style
from perfmodel.report.figures.block import Block, Switch
from perfmodel.report.figures.gpu_columns import (
    ORDER,
    OWN_COLOUR,
    STATE_COLOUR,
    Shown,
    bytes_unit,
    colour_of,
    levels,
    source,
    time_unit,
)
from perfmodel.report.figures.marks import blocks
from perfmodel.report.figures.placements import GpuPiece
from perfmodel.report.figures.registry import BALANCE, MEMORY
from perfmodel.report.figures.stacked_bars import part_colour, pattern
from perfmodel.report.figures.words import hover, size_words
from perfmodel.units import counted, format_count, format_fraction, format_ratio, format_time

Floats = NDArray[np.float64]
STATE, BUFFERS, WAITS = "optimizer state", "exchange buffers", "waits for busier GPUs"
_LOW = 0.5  # of a GPU's memory: if the fullest GPU uses less, the figure opens with bytes held
_SAME = 5e-4  # of the mean: a smaller spread counts as equal


def memory(shown: Shown, held: Sequence[Sequence[GpuPiece]]) -> Block:
    """Bars of the bytes on every GPU: rows by sharding, optimizer state, buffers; and the usable memory.

    held  the pieces of every column (``placements.held_by``)
    """
    kind, columns = shown.columns
    found, e = shown.answer.found, shown.answer.evaluator
    parts = _memory_parts(shown, held)
    total, limit = found.memory.total_bytes, found.limit_bytes
    whole = e.setting.machine.value("hbm_bytes")
    factor, unit = bytes_unit(whole)
    base, traces = np.zeros(len(columns)), []
    for name, values in parts.items():
        words = [
            hover(
                [
                    f"<b>{name}</b> on {column.name(kind)}",
                    size_words(value),
                    f"of {size_words(float(total[column.rank]))} in all, {size_words(limit)} may be used",
                ]
            )
            for column, value in zip(columns, values.tolist(), strict=True)
        ]
        traces.append(_bar(name, factor * values, factor * base, words, color=_colour(name)))
        base += values
    axes = [
        style.axis(f"memory of a GPU ({unit})", range=[0, factor * high])
        for high in (1.08 * whole, 1.15 * max(float(total.max()), 1.0))
    ]
    switches = [Switch("whole GPU", {}, {"yaxis": axes[0]}), Switch("what is held", {}, {"yaxis": axes[1]})]
    if float(total.max()) < _LOW * whole:
        switches.reverse()
    figure = shown.figure(traces, height=420, **levels(_limits(limit, whole, factor)), **switches[0].layout)
    how = (
        f"{shown.column_words()} Its blocks are the rows of each sharding, the optimizer state, and the two "
        "buffers of the largest exchange. Memory above the line is reserved (see the view of the whole GPU)."
    )
    data = [
        {
            **column.record(kind),
            **{f"{name.replace(' ', '_')}_bytes": float(values[x]) for name, values in parts.items()},
            "total_bytes": float(total[column.rank]),
            "limit_bytes": limit,
        }
        for x, column in enumerate(columns)
    ]
    return MEMORY.block(memory_title(shown), how, figure, source(shown), tuple(data), tuple(switches))


def _limits(limit: float, whole: float, factor: float) -> list[tuple[float, str]]:
    lines = [(factor * limit, f"{size_words(limit)}<br>may be used")]
    if whole > limit * (1 + 1e-9):
        lines.append((factor * whole, f"{size_words(whole)}<br>is all of a GPU"))
    return lines


def memory_title(shown: Shown) -> str:
    """The title: the fullest and the emptiest GPU (or that all are equal), and the share of memory in use."""
    total, limit = shown.answer.found.memory.total_bytes, shown.answer.found.limit_bytes
    full, empty = int(np.argmax(total)), int(np.argmin(total))
    share = f"{format_fraction(float(total[full]) / limit)} of the {size_words(limit)} that may be used"
    if np.ptp(total) <= _SAME * float(total.mean()):
        return f"Every GPU holds {size_words(float(total[full]))}, {share}."
    (names, several), (least, _) = shown.named(full), shown.named(empty)
    who = f"The fullest GPUs, {names}, hold" if several else f"The fullest GPU, {names}, holds"
    return (
        f"{who} {size_words(float(total[full]))}{' each' if several else ''}, {share}; "
        f"the emptiest, {least}, {size_words(float(total[empty]))}."
    )


def _memory_parts(shown: Shown, held: Sequence[Sequence[GpuPiece]]) -> dict[str, Floats]:
    """Bytes in every column, by sharding, then for optimizer state and buffers; only parts that are not 0."""
    _, columns = shown.columns
    found = {name: np.zeros(len(columns)) for name in ORDER[:-1]}
    for x, pieces in enumerate(held):
        for piece in pieces:
            if piece.tables:
                found[piece.sharding][x] += piece.rows_bytes
    ranks, memory = [column.rank for column in columns], shown.answer.found.memory
    found[STATE], found[BUFFERS] = memory.optimizer_bytes[ranks], memory.buffer_bytes[ranks]
    return {name: values for name, values in found.items() if values.any()}


def _colour(name: str) -> str:
    return {STATE: STATE_COLOUR, BUFFERS: OWN_COLOUR}.get(name) or colour_of(name)


def balance(shown: Shown) -> Block:
    """Bars of each GPU's own time by step, then its waiting; lines at the step's time and at the bound."""
    kind, columns = shown.columns
    shares = shown.shares
    ranks = [column.rank for column in columns]
    total, whole = shares.total_s, float(shares.step_s.sum())
    factor, unit = time_unit(whole)
    base, traces = np.zeros(len(columns)), []
    for at, name in enumerate(shares.names):
        own = shares.own_s[at, ranks]
        words = [
            hover(
                [
                    f"<b>{label_step(name)}</b> on {column.name(kind)}",
                    f"{format_time(time)} at its own bytes, {format_time(float(shares.step_s[at]))} "
                    "at those of the busiest",
                    f"busy for {format_time(float(total[column.rank]))} in all",
                ]
            )
            for column, time in zip(columns, own.tolist(), strict=True)
        ]
        look = {"color": part_colour(shown.step_numbers[name]), "pattern": pattern(shown.step_numbers[name])}
        traces.append(_bar(label_step(name), factor * own, factor * base, words, **look))
        base += own
    waits = np.maximum(whole - total[ranks], 0)
    if waits.max() > _SAME * whole:
        words = [
            hover([f"<b>{column.name(kind)} waits</b> for busier ones", format_time(time)])
            for column, time in zip(columns, waits.tolist(), strict=True)
        ]
        grey = {"color": "rgba(128,128,128,0.22)"}
        traces.append(_bar(WAITS, factor * waits, factor * total[ranks], words, **grey))
    lines = [(factor * whole, f"{format_time(whole)}:<br>the {shown.step_words}")]
    figure = shown.figure(
        traces,
        height=440,
        **levels(lines + shown.bound_level(factor)),
        yaxis=style.axis(f"time ({unit})", range=[0, 1.1 * factor * whole]),
    )
    how = (
        f"{shown.column_words()} Each block is the time that a step would take if every GPU had as many "
        "bytes as this one. The step really takes as long as its busiest GPU."
    )
    data = [
        {
            **column.record(kind),
            **{f"{name}_s": float(shares.own_s[at, column.rank]) for at, name in enumerate(shares.names)},
            "own_s": float(total[column.rank]),
            "step_s": whole,
        }
        for column in columns
    ]
    return BALANCE.block(balance_title(shown), how, figure, source(shown), tuple(data))


def balance_title(shown: Shown) -> str:
    """The title: the busiest GPU, its time over the mean, how long others wait, and in which step."""
    total, whole = shown.shares.total_s, float(shown.shares.step_s.sum())
    most, mean = int(np.argmax(total)), float(total.mean())
    gpus = counted(total.size, "GPU")
    if shown.shares.waiting <= _SAME:
        return f"All {gpus} are equally busy, so none waits." if total.size > 1 else "One GPU does not wait."
    ratio = format_ratio(float(total[most]) / mean)
    if ratio == format_ratio(1.0):
        return (
            f"All {gpus} are about as busy: a GPU waits for {format_fraction(shown.shares.waiting)} of the "
            f"{shown.step_words} on average."
        )
    lost = (shown.shares.step_s - shown.shares.own_s.mean(axis=1)) / whole
    step = int(np.argmax(lost))
    names, several = shown.named(most)
    return (
        f"{names.capitalize()} {'are' if several else 'is'} the busiest, with {ratio} the mean load of "
        f"{format_count(total.size)}; a GPU waits for {format_fraction(shown.shares.waiting)} of the "
        f"{shown.step_words} on average, most of it in {label_step(shown.shares.names[step])}."
    )


def _bar(name: str, heights: Floats, base: Floats, words: list[str], **marker: Any) -> dict[str, Any]:
    return blocks(range(len(words)), heights.tolist(), words, name, **marker) | {"base": base.tolist()}
