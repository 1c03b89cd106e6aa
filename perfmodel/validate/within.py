"""Summarizes errors of predictions on samples that no fit used, as a number for a row of bands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from perfmodel.units import format_fraction, format_ratio
from perfmodel.validate import accuracy
from perfmodel.validate.verdicts import Finding

if TYPE_CHECKING:
    import pandas as pd

_FRAMES: dict[str, Callable[[], pd.DataFrame]] = {
    "in_node": lambda: accuracy.leave_one_size_out(),
    "other_cluster": lambda: accuracy.other_clusters(list(accuracy.OTHER_CLUSTERS)[:2]),
    "two_nodes": accuracy.one_node_to_two,
}
"""Points that no fit used, by their name in a row."""


@lru_cache(maxsize=8)
def _points(of: str) -> pd.DataFrame:
    return _FRAMES[of]()


def held_out(of: str, answer: str, share: float = 0.5, **only: Sequence[str | bool]) -> Finding:
    """A summary of the errors of points that no fit used.

    of  which points;  answer, share  as in ``told``;  only  values allowed in columns, by column
    """
    points = _points(of)
    for column, wanted in only.items():
        points = points[points[column].isin(wanted)]
    return told(points, answer, f"{len(points)} points", share)


def told(points: pd.DataFrame, answer: str, many: str, share: float = 0.5) -> Finding:
    """A summary of the errors of points.

    answer  "inside": share of the points in their bands; "error": the error that a share ``share`` of the
            points does not exceed; "ratio": median of predicted over measured time
    many    number of points, in words
    """
    if answer == "ratio":
        ratio = 1 + float(points["error"].median())
        return Finding(ratio, f"{format_ratio(ratio)} of {many}")
    value = float(points["inside"].mean() if answer == "inside" else points["error"].abs().quantile(share))
    return Finding(value, f"{format_fraction(value)} of {many}")
