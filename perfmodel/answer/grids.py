"""Grids of configurations: products of axes, their feasible points, and the two grids of the paper."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.answer import inputs
from perfmodel.answer.inputs import DEFAULT_RESERVE
from perfmodel.schema.machine import Machine

Columns = dict[str, NDArray[Any]]


def combine_axes(**axes: Iterable[float]) -> Columns:
    """All combinations of the axes, the last varying fastest; one flat array per axis.

    Limits: one value per axis -> one configuration; sizes 2 and 3 -> 6 configurations
    """
    values = [np.asarray(list(axis), dtype=np.float64) for axis in axes.values()]
    mesh = np.meshgrid(*values, indexing="ij")
    return {name: a.reshape(-1) for name, a in zip(axes, mesh, strict=True)}


def find_feasible(
    columns: Columns,
    machine: Machine,
    reserve: float = DEFAULT_RESERVE,
    gpus_per_node: int | None = None,
    *,
    training: bool = False,
    **values: Any,
) -> NDArray[np.bool_]:
    """Which points of a grid are feasible: rows fit the memory, and every GPU gets a row of each table.

    training  whether the rows are those of a training pass;  values  fixed values of the grid (dtype, ...)
    Limits: 10 TB on 64 GPUs of 80 GB -> False, on 128 -> True
    """
    node = gpus_per_node or machine.gpus_per_node
    return inputs.find_feasible({**values, **columns}, machine, reserve, node, training=training)


def list_paper_1(gpus: Iterable[float] = (1, 2, 4, 8)) -> Columns:
    """Grid 1 of arXiv 2512.05831: one table; 192 points with the paper's own GPU counts.

    Source: arXiv 2512.05831, evaluation: T = 1, B 128-1024, D 32-256, L 4-16, G 1-8
    """
    return combine_axes(
        gpus=gpus, table_count=(1,), batch=(128, 256, 512, 1024), dim=(32, 64, 128, 256), pooling=(4, 8, 16)
    )


def list_paper_2(gpus: Iterable[float] = (1, 2, 4, 8)) -> Columns:
    """Grid 2 of arXiv 2512.05831: many tables; 168 points with the paper's own GPU counts.

    Source: arXiv 2512.05831, evaluation: T 1-64, B 128-4096, L = 32, D 32 or 128, G 1-8
    """
    return combine_axes(
        gpus=gpus, table_count=(1, 2, 4, 8, 16, 32, 64), batch=(128, 1024, 4096), dim=(32, 128), pooling=(32,)
    )


GRIDS: dict[str, Callable[..., Columns]] = {"paper-1": list_paper_1, "paper-2": list_paper_2}
"""Presets of ``perfmodel sweep --grid``."""
