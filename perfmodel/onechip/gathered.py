"""Time of a core to gather rows from global memory (GM), through the caches of the chip."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.model import core_cache, one_chip
from perfmodel.onechip.core_misses import Passed

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows that pieces gather; an array entry per piece.

    draws   look-ups n [-];  row  bytes of one row [bytes];  share  of the table's look-ups in the piece [-]
    missed  share of the look-ups that miss the shared cache [-];  top  share that goes to the hottest row [-]
    part    share of the batch [-];  lockstep  whether all cores work on the same table
    passed  requests that miss the core's own cache; None: cores have no caches
    """

    draws: Array
    row: Array
    share: Array
    missed: Array
    top: Array
    part: Array
    passed: Passed | None
    lockstep: bool


@dataclass(frozen=True, eq=False)
class Gathered:
    """Time of a core to gather rows; its fields are as in ``work.CoreStep`` [s], variance [s^2]."""

    wait: Array
    busy: Array
    variance: Array
    quick: Array
    after: Array


def gathered(v: Mapping[str, float], rows: Rows) -> Gathered:
    """Time to gather rows. v  values of the chip

    Source: ``one_chip.gather_time``; with a core's own cache ``core_cache.cold_gather_time``
    Limits: a core's cache of 0 bytes -> without a cache
    """
    return _past_no_cache(v, rows) if rows.passed is None else _through_cache(v, rows, rows.passed)


def _past_no_cache(v: Mapping[str, float], rows: Rows) -> Gathered:
    n, k, far = rows.draws, v["rows_in_flight"], row_times(v, rows.row)
    hits = [np.clip(1 - _ratio(rows.missed, n), 0, 1)][: len(far) - 1]
    latency = one_chip.slowest_row(far, hits, 1)
    last = one_chip.slowest_row(far, hits, np.clip(n, 1, k))
    peak = one_chip.issued_rate(rows.row, v["core_bytes_per_s"], v["row_issue_s"])
    time = one_chip.gather_time(n, rows.row, latency, last, k, peak)
    wait, none = np.minimum(latency, time), np.zeros_like(n)
    varies = one_chip.gather_variance(n, rows.share, far, hits, k)
    varies = np.where(n / k * latency >= time, varies, 0)
    return Gathered(wait, time - wait, varies, none, none)


def _through_cache(v: Mapping[str, float], rows: Rows, passed: Passed) -> Gathered:
    n, k, far = rows.draws, v["rows_in_flight"], row_times(v, rows.row)
    begin, later = _hits(rows, passed, k, shared=len(far) > 2)
    first, latency = (one_chip.slowest_row(far, hits, 1) for hits in (begin, later))
    last = one_chip.slowest_row(far, begin, np.clip(n, 1, k))
    rate = core_cache.passed_rate(
        v["core_cache_bytes_per_s"], v["core_bytes_per_s"], _ratio(passed.requests, n)
    )
    peak = one_chip.issued_rate(rows.row, rate, v["row_issue_s"])
    some = 1 - later[0]
    beyond = np.divide(latency - later[0] * far[0], some, out=np.copy(latency), where=some > 0)
    misses = np.maximum(n - k, 0) * some
    time = core_cache.cold_gather_time(n, rows.row, first, last, far[0], beyond, misses, k, peak)
    wait = np.minimum(first, time)
    varies = one_chip.gather_variance(n, rows.share, far, later, k)
    blocked = np.divide(k, rows.top, out=np.full_like(n, np.inf), where=rows.top > 0)
    after = np.maximum(n - blocked, 0) * np.maximum(latency / k, rows.row / peak)
    varies, quick = np.where(n / k * latency >= time, varies, 0), np.broadcast_to(far[1], n.shape)
    return Gathered(wait, time - wait, varies, quick, after)


def _hits(rows: Rows, passed: Passed, k: float, shared: bool) -> tuple[list[Array], list[Array]]:
    """(hit rates of the caches for the first k look-ups of a piece, hit rates for its other look-ups) [-].

    A core's cache is empty when a piece begins. In lockstep all cores begin at once, and the shared cache has
    no row of the table either. shared  whether there is a shared cache
    """
    n, none = rows.draws, np.zeros_like(rows.draws)
    missed = np.minimum(rows.missed, passed.requests)
    of_passed = _ratio(missed, passed.requests)
    begun = np.minimum(passed.begun * rows.part, missed) if rows.lockstep else of_passed * passed.begin
    later = np.maximum(n - k, 0)
    out, beyond = _ratio(passed.requests - passed.begin, later), _ratio(missed - begun, later)
    if not shared:
        return [none], [1 - out]
    return [none, none if rows.lockstep else 1 - of_passed], [1 - out, np.maximum(out - beyond, 0)]


def row_times(v: Mapping[str, float], row: Array) -> list[Array]:
    """Times from a row's request to its last byte [s], from nearest to furthest: own cache,
    shared cache, memory.

    Only places that the chip has are listed.
    """
    found = []
    if v["core_cache_bytes"] > 0:
        found.append(one_chip.row_latency(row, v["core_cache_latency_s"], v["core_cache_bytes_per_s"]))
    channel = v["gm_bytes_per_s"] / v["channels"]
    if v["cache_bytes"] <= 0:
        return [*found, one_chip.row_latency(row, v["row_latency_s"], channel)]
    inside = v["cache_bytes_per_s"] / v["cache_slices"]
    near = one_chip.row_latency(row, v["cache_latency_s"], inside)
    return [*found, near, one_chip.row_latency(row, v["row_latency_s"], channel, inside)]


def _ratio(part: Array, of: Array) -> Array:
    """part / of, from 0 to 1; 1 for 0 / 0."""
    return np.clip(np.divide(part, of, out=np.ones_like(of), where=of > 0), 0, 1)
