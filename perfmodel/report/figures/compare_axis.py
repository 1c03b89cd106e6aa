"""What two answers are compared over: table sizes, each on the GPUs it needs, or GPUs for the same tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from perfmodel.project import Projection
from perfmodel.report.figures import style
from perfmodel.units import counted, format_bytes, format_count


@dataclass(frozen=True)
class CompareAxis:
    """Words and axis of a comparison.

    key    of a row: what differs from one point to the next
    points what they are called: sizes;  everywhere  at all of them
    words  of one point: ``10 TB``;  spread  of the first and the last one
    what   of an answer in a sentence: ``10 TB``
    axis   from the least to the most;  each  what a batch runs on
    small  why nothing is exchanged, and what to ask
    """

    key: str
    points: str
    everywhere: str
    words: Callable[[float], str]
    spread: Callable[[float, float], str]
    what: Callable[[Projection], str]
    axis: Callable[[float, float], dict[str, Any]]
    each: str
    small: str


def _size(value: float) -> str:
    return format_bytes(value, binary=False)


def _gpus(value: float) -> str:
    return counted(int(value), "GPU")


def _gpus_axis(low: float, high: float) -> dict[str, Any]:
    powers = [2.0**k for k in range(25) if low <= 2**k <= high]
    ticks = powers or [low, high]
    return style.log_axis(
        low, high, format_count, "GPUs", tickvals=ticks, ticktext=[format_count(value) for value in ticks]
    )


BY_SIZE = CompareAxis(
    "table_bytes",
    "sizes",
    "at every size",
    _size,
    lambda low, high: f"from {_size(low)} to {_size(high)}" if low != high else f"for {_size(low)}",
    lambda answer: _size(answer.gpu_count.table_bytes),
    lambda low, high: style.bytes_axis(low, high, "bytes of all tables"),
    "on as many GPUs as the tables need",
    "every size here fits on one GPU: ask for larger tables with --table-size.",
)
BY_GPUS = CompareAxis(
    "gpus",
    "numbers of GPUs",
    "on every number of GPUs",
    _gpus,
    lambda low, high: f"from {format_count(low)} to {_gpus(high)}" if low != high else f"on {_gpus(low)}",
    lambda answer: f"{_size(answer.gpu_count.table_bytes)} on {_gpus(answer.gpus)}",
    _gpus_axis,
    "of the same tables on each number of GPUs",
    "on one GPU nothing is exchanged: ask for more with --gpus.",
)
