"""Machines side by side: one question on each of them, with equally many samples on all GPUs of each."""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from perfmodel.answer.question import Question
from perfmodel.answer.swept import Columns, Done, sweep_columns
from perfmodel.model.capacity import allowed_gpus, whole_nodes

if TYPE_CHECKING:
    import pandas as pd

CRITERIA = {"time": "time_s", "throughput": "sample_time_s", "cost": "cost_of_1e9_samples"}
"""Column of each criterion; less is better."""
_MOST_TIMES = 16
SPREADS = (1.0, 1.05, 1.25, 1.5, 2.0)
"""Multiples of the fewest GPUs that are tried by cost: more GPUs may share the tables more evenly."""


def sweep_samples(
    question: Question,
    columns: Columns,
    done: Done,
    samples: int | None = None,
    spreads: Sequence[float] = (1.0,),
) -> pd.DataFrame:
    """The rows of ``sweep_columns`` that fit, with so many samples on all GPUs together.

    samples   of which the fullest GPU has ceil(samples / gpus); None: each GPU has ``columns["batch"]``
    spreads   without gpus in the columns, of one point: multiples of the fewest GPUs that fit
    """

    def answer(counts: Sequence[float]) -> pd.DataFrame:
        gpus = np.array(counts, dtype=np.float64)
        point = {name: np.resize(column, gpus.size) for name, column in columns.items()} | {"gpus": gpus}
        point = point if samples is None else point | {"batch": np.ceil(samples / gpus)}
        frame = sweep_columns(question, point, done)
        return frame[frame["fits"]] if len(frame) else frame

    done(len(next(iter(columns.values()))))
    if "gpus" in columns:
        return answer(columns["gpus"].tolist())
    small = columns if samples is None else {**columns, "batch": np.ones(1)}
    frame = sweep_columns(question, small)
    if frame.empty or not frame["fits"].all():
        return frame.head(0)
    node, fewest = question.machine.gpus_per_node, int(frame["gpus"].iloc[0])
    counts = allowed_gpus(fewest, _MOST_TIMES * fewest, node)
    if answer([fewest]).empty:
        place = bisect.bisect_left(counts, True, key=lambda count: not answer([count]).empty)
        fewest = counts[min(place, len(counts) - 1)]
    rows = answer(sorted({float(whole_nodes(math.ceil(ratio * fewest), node)) for ratio in spreads}))
    return rows.set_axis([0] * len(rows))


def rank_machines(
    rows: pd.DataFrame, by: str, samples: int | None, nodes: Mapping[str, int], prices: Mapping[str, float]
) -> pd.DataFrame:
    """The best row of each machine, the best machine first.

    by     a name of ``CRITERIA``;  samples  of all GPUs; None: each GPU has its batch
    nodes  GPUs of a node (of an NVL72: a tray), by machine;  prices  of a GPU for an hour, by machine

    Columns beside those of ``rows``: samples; gpus_paid, of whole nodes; samples_per_s; sample_time_s;
    cost of 10⁹ samples = price × GPUs paid × hours; ratio to the best machine; decided: their 95 % bands do
    not overlap (prices are exact).
    """
    names, key = rows["machine"].astype(str), CRITERIA[by]
    node, price = names.map(nodes), names.map(prices).astype(float)
    total = rows["gpus"] * rows["batch"] if samples is None else samples
    paid, time = -(-rows["gpus"] // node) * node, rows["time_s"] / total
    columns = rows.assign(samples=total, gpus_paid=paid, samples_per_s=1 / time, sample_time_s=time)
    columns["cost_of_1e9_samples"] = price * paid * 1e9 * time / 3600
    best = columns.sort_values(key, kind="stable").drop_duplicates("machine", ignore_index=True)
    low, high = (best[key] * best[end] / best["time_s"] for end in ("low_s", "high_s"))
    return best.assign(ratio=best[key] / best[key][0], decided=low > high[0])
