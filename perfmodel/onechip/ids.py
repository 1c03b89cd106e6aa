"""Popularity of the rows of tables, from the distributions that people name."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from perfmodel.model.popularity import popularity_bins
from perfmodel.onechip.popular import RowPopularity
from perfmodel.schema.distributions import Distribution


def popularities(ids: Iterable[Distribution], rows: Iterable[float]) -> list[RowPopularity]:
    """Of each of some tables. Source: ``model.popularity.popularity_bins``"""
    return [_popularity(each, float(E)) for each, E in zip(ids, rows, strict=True)]


@lru_cache(maxsize=4096)
def _popularity(ids: Distribution, E: float) -> RowPopularity:
    """Of a table of E rows; rows that are never asked for are the last bin."""
    p, rows = popularity_bins(ids, E)
    never = E - float(np.sum(rows))
    if never > 0.5:
        p, rows = np.append(p, 0.0), np.append(rows, never)
    else:
        rows = rows * (E / np.sum(rows))
    return RowPopularity.of(p / np.sum(p * rows), rows, E)
