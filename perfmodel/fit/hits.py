"""Share of look-ups that miss the L2 cache in a timed kernel, for the ids that it drew."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from perfmodel.errors import BadInputError
from perfmodel.model import access

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]

_BINS_PER_OCTAVE = 8
"""Bins of popularity: 10 million rows have 200; 32 bins per octave would change no ratio by 0.1 %."""


def miss_ratios(cells: pd.DataFrame, row_bytes: Floats, cache_bytes: Floats) -> Floats:
    """L2 misses per look-up in each timed gather (a cell) [-].

        uniform   1 - access.l2_hit_ratio     an empty cache: calls rotate through more rows than it holds
        zipf:s    access.miss_ratio(T_c)     a table larger than the cache: popular rows of earlier
                                              calls are still in it
                  access.cold_misses / n     a table that fits: calls look up copies of it in turn
        one-row   1 / n

    cells        rows of ``Run.kernel_samples`` with rows, shards, batch, pooling, distribution
    row_bytes    bytes of a row [bytes];  cache_bytes  of the cache for one table [bytes]; arrays [cells]
    Raises BadInputError for an unknown distribution.
    Limits: no cache -> 1;  zipf:0 in a small cache -> uniform, but for filling the cache
    """
    rows = cells["rows"].to_numpy(float) / cells["shards"].to_numpy(float)
    draws = (cells["batch"] * cells["pooling"]).to_numpy(float)
    kept = access.resident_rows(rows, draws, row_bytes, cache_bytes)
    found = 1 - access.l2_hit_ratio(rows, draws, kept, access.unique_rows_uniform(rows, draws))
    names = cells["distribution"].astype(str).to_numpy()
    room = np.asarray(cache_bytes / row_bytes, float)
    for at in np.flatnonzero(names != "uniform"):
        found[at] = _skewed(names[at], float(rows[at]), float(draws[at]), float(room[at]))
    return np.asarray(found, float)


def _skewed(name: str, rows: float, draws: float, room: float) -> float:
    if name == "one-row":
        return 1 / draws
    kind, _, skew = name.partition(":")
    try:
        s = float(skew)
    except ValueError:
        s = np.nan
    if kind != "zipf" or not s >= 0:
        raise BadInputError(f"ids of {name!r} are unknown.", "known: uniform, zipf:ALPHA, one-row.")
    p, counts = access.zipf_popularity(rows, s, _BINS_PER_OCTAVE)
    if room >= rows:
        return float(access.cold_misses(p, counts, draws, room)) / draws
    return float(access.miss_ratio(p, counts, access.characteristic_draws(p, counts, room)))
