"""The largest batch within a latency."""

from __future__ import annotations

import bisect
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from perfmodel.answer.inputs import DEFAULTS
from perfmodel.answer.question import Question
from perfmodel.answer.sweep import Columns, Done, sweep_columns
from perfmodel.schema.gate import MOST_BATCH

if TYPE_CHECKING:
    import pandas as pd

TRIES = 20
"""About how many batches are tried for one answer."""


def sweep_within(question: Question, columns: Columns, done: Done, limit_s: float) -> pd.DataFrame:
    """The rows of ``sweep_columns`` with the largest batches that fit and end within a latency [s].

    The end is that of the 95 % band.

    Without gpus: on those that the default batch needs
    Source: the upper end of the band and the buffers grow with the batch, so intervals are halved
    Limits: it does not fit, or one sample takes longer -> no row
    """
    import pandas as pd

    def find_batch(point: Columns) -> pd.DataFrame:
        @cache
        def answer(batch: int) -> pd.DataFrame:
            row = sweep_columns(question, values | {"batch": np.array([batch])})
            return row[row["fits"]] if len(row) else row

        def end_s(batch: int) -> float:
            return float(answer(batch)["high_s"].iloc[0]) if len(answer(batch)) else np.inf

        values = dict(point)
        start = answer(int(DEFAULTS["batch"]))
        if start.empty:
            return start
        values["gpus"] = start["gpus"].to_numpy()
        powers = bisect.bisect_right(range(MOST_BATCH.bit_length()), limit_s, key=lambda n: end_s(2**n))
        if not powers:
            return start.head(0)
        larger = range(2 ** (powers - 1) + 1, min(2**powers, MOST_BATCH + 1))
        return answer(larger.start - 1 + bisect.bisect_right(larger, limit_s, key=end_s))

    rows = []
    for place in range(len(next(iter(columns.values())))):
        row = find_batch({name: column[place : place + 1] for name, column in columns.items()})
        rows.append(row.set_axis([place] * len(row)))
        done(1)
    return pd.concat(rows)
