"""The table of 95 % bands, from whole operators and from node counts that no fit saw.

    python benchmarks/bands.py    writes data/priors/bands.toml (2 minutes)

An end is the farthest of the operators' own 97.5 % points: of k exchangeable operators a further one lies
beyond that on one side once in k + 1 times, so rows of fewer than three operators take the points of
other links in addition (split-conformal prediction, by operator). No end is nearer than the one that follows
from the median difference of two operators of one configuration.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import left_out
import numpy as np
import pandas as pd

from perfmodel.resources import data_path
from perfmodel.schema.priors import load_priors

EDGES_BYTES = (2.0**16, 2.0**25, 2.0**28)
LINKS = ("nvlink", "nvl72", "pcie", "network", "slingshot")
_SHARE, _FEWEST, _ALONE = 0.975, 3, ("pcie", "slingshot")
_NEAR_DOUBLINGS = 2.4  # of nodes, up to which points give the ends of a row; those beyond give its growth
_APART = np.log1p([0.116, 0.146, 0.043, 0.043])
"""Median |ln| between two operators of one nominal configuration, by class of sizes."""
_LEAST = 1.96 / 0.6745 * _APART
"""95 % end of a normal distribution whose median absolute value is ``_APART``."""
_WHY = (
    "How far ln(measured / predicted) is below and above 0 for operators that no fit had seen, and in rows "
    "of this_cluster for more nodes of one cluster: the farthest of their 2.5 and 97.5 % points, at least "
    "what two operators of one configuration differ by (medians 11.6, 14.6, 4.3 %). Classes of sizes: below "
    "64 KiB, to 32 MiB, to 256 MiB, above. growth: for each doubling of domains beyond the measured ones."
)


def classify(points: pd.DataFrame, *, this_cluster: bool) -> pd.DataFrame:
    """Columns for ``find_ends``: y = ln(measured / predicted), class of sizes, links, law, operator."""
    return points.assign(
        y=-points["log_error"],
        size_class=np.searchsorted(EDGES_BYTES, points["payload_bytes"], side="right"),
        links=points["links"].mask(points["links"].isin(["infiniband", "efa", "roce"]), "network"),
        law=~points["known"] if not this_cluster else True,
        operator=points["machine"] if this_cluster else points["operator"],
    )


def select(points: pd.DataFrame, links: str, law: bool, size_class: int) -> pd.DataFrame:
    """The points that a cell of the table rests on."""
    alike = points[(points["law"] == law) & (points["size_class"] == size_class)]
    chosen = alike[alike["links"] == links]
    if chosen["operator"].nunique() >= _FEWEST or (links in _ALONE and law and len(chosen)):
        return chosen
    return alike[~alike["links"].isin(_ALONE) | (alike["links"] == links)]


def find_ends(points: pd.DataFrame) -> tuple[float, float]:
    """(below, above) of the points of a cell of the table: the farthest of the operators' own ends."""
    ends = points.groupby("operator")["y"].quantile(np.array([1 - _SHARE, _SHARE])).unstack()
    floor_log = float(_LEAST[points["size_class"].iloc[0]])
    return max(-float(ends[1 - _SHARE].min()), floor_log), max(float(ends[_SHARE].max()), floor_log)


def find_growth(points: pd.DataFrame) -> Iterator[tuple[float, float]]:
    """(below, above) of each class of sizes that a doubling of nodes adds: median over clusters.

    Of a cluster: how much farther the ends of its far points are than those of its near ones, a doubling.
    """
    doublings = np.log2(points["nodes"] / points["seen_nodes"])
    points = points.assign(doublings=doublings, far=doublings > _NEAR_DOUBLINGS)
    for size_class in range(len(EDGES_BYTES) + 1):
        slopes = []
        for _, of_operator in points[points["size_class"] == size_class].groupby("operator"):
            near, far = of_operator[~of_operator["far"]], of_operator[of_operator["far"]]
            if len(near) and len(far):
                apart = far["doublings"].mean() - near["doublings"].mean()
                ends = np.array(find_ends(far)) - np.array(find_ends(near))
                slopes.append(np.maximum(ends, 0) / apart)
        below, above = np.median(slopes, axis=0)
        yield float(below), float(above)


def with_bands_of_others(points: pd.DataFrame) -> pd.DataFrame:
    """The points with the band that the table would have without their operator.

    points  of ``left_out.operators_left_out``: beside the row, their bands have what growth adds
    """
    classes, parts = classify(points, this_cluster=False), []
    table = load_priors().bands
    for key, group in classes.groupby(["links", "law", "size_class", "operator"]):
        links, law, size_class, operator = str(key[0]), bool(key[1]), int(str(key[2])), str(key[3])
        below, above = find_ends(select(classes[classes["operator"] != operator], links, law, size_class))
        row = table.find(links, this_cluster=False, law=law)
        wider = np.log(group["high_s"] / group["predicted_s"]) - row.above[size_class]
        low, high = group["predicted_s"] * np.exp(-below), group["predicted_s"] * np.exp(above + wider)
        parts.append(group.assign(low_s=low, high_s=high))
    judged = pd.concat(parts).loc[points.index]
    inside = (judged["low_s"] <= judged["time_s"]) & (judged["time_s"] <= judged["high_s"])
    return points.assign(low_s=judged["low_s"], high_s=judged["high_s"], inside=inside)


def make_text() -> str:
    """The file of the table."""
    like = classify(left_out.operators_left_out(), this_cluster=False)
    large = classify(left_out.large_left_out(), this_cluster=True)
    near = large[np.log2(large["nodes"] / large["seen_nodes"]) <= _NEAR_DOUBLINGS]
    lines = [f"why = {json.dumps(_WHY)}", f"edges_bytes = {list(EDGES_BYTES)}"]
    below, above = zip(*find_growth(large), strict=True)
    lines.append(f"growth = {{ below = {format_rounded(below)}, above = {format_rounded(above)} }}")
    for this_cluster, law, points in ((False, False, like), (False, True, like), (True, True, near)):
        for links in LINKS:
            cells = [select(points, links, law, size_class) for size_class in range(len(EDGES_BYTES) + 1)]
            below, above = zip(*map(find_ends, cells), strict=True)
            names = sorted({str(name) for cell in cells for name in cell["operator"].unique()})
            lines += [
                "",
                "[[row]]",
                f'links = "{links}"',
                f"this_cluster = {json.dumps(this_cluster)}",
                f"law = {json.dumps(law)}",
                f"below = {format_rounded(below)}",
                f"above = {format_rounded(above)}",
                f"points = {sum(map(len, cells))}",
                f"operators = {json.dumps(names)}",
            ]
    return "\n".join(lines) + "\n"


def format_rounded(values: tuple[float, ...]) -> list[float]:
    return [round(float(value), 3) for value in values]


if __name__ == "__main__":
    data_path("priors", "bands.toml").write_text(make_text(), encoding="utf-8")
