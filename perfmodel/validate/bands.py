"""Checks of ``data/paper/bands.toml``: how wrong the predictions are allowed to be. One function a band."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from perfmodel.units import format_fraction
from perfmodel.validate import accuracy
from perfmodel.validate.verdicts import Finding

if TYPE_CHECKING:
    import pandas as pd

_RING_CLUSTER = accuracy.OTHER_CLUSTERS[:1]
_RING = ("all_gather", "reduce_scatter")


@lru_cache(maxsize=1)
def _in_node() -> pd.DataFrame:
    return accuracy.leave_one_size_out(alpha_beta=False)


@lru_cache(maxsize=1)
def _other_cluster() -> pd.DataFrame:
    return accuracy.other_clusters(_RING_CLUSTER)


@lru_cache(maxsize=1)
def _two_nodes() -> pd.DataFrame:
    return accuracy.one_node_to_two()


def _error(points: pd.DataFrame, share: float) -> Finding:
    value = float(np.quantile(np.abs(points["error"]), share))
    return Finding(value, f"{format_fraction(value)} of {len(points)} points")


def _inside(points: pd.DataFrame) -> Finding:
    value = float(points["inside"].mean())
    return Finding(value, f"{format_fraction(value)} of {len(points)} points")


def _sized(points: pd.DataFrame, *sizes: str) -> pd.DataFrame:
    return points[points["size"].isin(sizes)]


def _ring() -> pd.DataFrame:
    points = _other_cluster()
    return points[points["collective"].isin(_RING)]


CHECKS: dict[str, Callable[[], Finding]] = {
    "in_node_median": lambda: _error(_in_node(), 0.5),
    "in_node_p90": lambda: _error(_in_node(), 0.9),
    "in_node_inside": lambda: _inside(_in_node()),
    "other_cluster_bulk": lambda: _error(_sized(_ring(), "bulk"), 0.5),
    "other_cluster_rest": lambda: _error(_sized(_ring(), "floor", "middle"), 0.5),
    "other_cluster_inside": lambda: _inside(_other_cluster()),
    "two_nodes_bulk": lambda: _error(_sized(_two_nodes(), "bulk"), 0.5),
    "two_nodes_middle": lambda: _error(_sized(_two_nodes(), "middle"), 0.5),
    "two_nodes_floor": lambda: _error(_sized(_two_nodes(), "floor"), 0.5),
    "two_nodes_inside": lambda: _inside(_two_nodes()),
}
"""Check of each band by name."""
