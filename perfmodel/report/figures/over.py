"""What the answers beside each other in a figure differ in: the size of the tables, or the number of GPUs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from perfmodel.project import Projection
from perfmodel.units import counted, format_bytes, format_count

Words = Callable[[Projection], str]


@dataclass(frozen=True)
class Over:
    """Words of a figure over several answers; those of one answer are made of it."""

    axis: tuple[str, ...]
    one: str  # what a bar or column is
    everywhere: str
    nowhere: str
    none: str  # why there is nothing to draw
    at: str  # before a name: ``at``
    unit: str  # after the last of several names
    name: Words  # in a sentence: ``10 TB``
    last: Words  # after a number that is of it: ``on 128 GPUs (10 TB)``
    place: Callable[[Projection], tuple[str, ...]]  # ``10 TB``, ``128 GPUs``
    tick: Words  # below a narrow column


def _size(answer: Projection) -> str:
    return format_bytes(answer.gpu_count.table_bytes, binary=False)


def _gpus(answer: Projection) -> str:
    return counted(answer.gpus, "GPU")


def _count(answer: Projection) -> str:
    return format_count(answer.gpus)


SIZES = Over(
    axis=("bytes of all tables", "GPUs"),
    one="size of the tables",
    everywhere="at every size here",
    nowhere="at any size here",
    none="every size here fits on one GPU: ask for larger tables with --table-size.",
    at="at",
    unit="",
    name=_size,
    last=lambda answer: f"on {_gpus(answer)} ({_size(answer)})",
    place=lambda answer: (_size(answer), _gpus(answer)),
    tick=lambda answer: f"{_size(answer)}<br>{_count(answer)}",
)
GPUS = Over(
    axis=("GPUs",),
    one="number of GPUs",
    everywhere="on every number of GPUs here",
    nowhere="on any number of GPUs here",
    none="on one GPU nothing is sharded: ask for more with --gpus.",
    at="on",
    unit=" GPUs",
    name=_count,
    last=lambda answer: f"on {_gpus(answer)}",
    place=lambda answer: (_gpus(answer),),
    tick=_count,
)
