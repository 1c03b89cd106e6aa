"""From timed rounds of host calls to the time of one Python call, operator, kernel launch and graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from perfmodel.fit.links import rounded
from perfmodel.schema.evidence import Backend, Clock
from perfmodel.schema.host_fits import IssueTimes
from perfmodel.schema.intervals import Interval
from perfmodel.schema.run_files import Run

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]

_NORMAL_95 = 1.959964
_LEAST_S = 1e-9
"""Least time of a launch, where rounds of kernels take no longer than rounds of other operators [s]."""
_SMALL_BYTES = 2**20
"""Payloads up to which an eager collective of a GPU takes the host's time, whatever its size [bytes]."""


def fit_host(run: Run) -> IssueTimes | None:
    """Host time of one Python call, one operator, one launch, one graph, and one collective of NCCL.

        t = exp(mean of ln(T / n)),      95 % interval: exp(mean ± 1.96 sd of ln(T / n))          [s]

    T  time of a round of n calls of one kind, after work of the other kinds;  for NCCL, of one small call
    A launch of a kernel takes T / n of rounds of kernels, less the t of an operator. The interval covers
    short rounds, whose code the processor reads from memory, and long rounds, whose code is in its caches.
    Limits: a run without rounds of host calls -> None
    """
    samples = run.kernel_samples()
    rows = samples[(samples["clock"] == str(Clock.EAGER)) & (samples["flag"] != "throttled")]
    each = {name: _of_one(rows[rows["operation"] == name]) for name in rows["operation"].unique()}
    values: dict[str, Interval] = {}
    for operation, key in (
        ("python_calls", "host_call_s"),
        ("operator_calls", "host_operator_s"),
        ("graph_calls", "graph_launch_s"),
    ):
        if operation in each:
            values[key] = _interval(each[operation])
    if {"kernel_calls", "operator_calls"} <= each.keys():
        launch = each["kernel_calls"] - np.exp(np.mean(np.log(each["operator_calls"])))
        values["host_launch_s"] = _interval(np.maximum(launch, _LEAST_S))
    if not values:
        return None
    collectives = list(_eager_collectives(run))
    if collectives:
        values["host_collective_s"] = _interval(np.array(collectives))
    count = sum(times.size for name, times in each.items() if name.endswith("_calls"))
    return IssueTimes(
        values=values, processor=run.header.stack.get("cpu", ""), sample_count=count + len(collectives)
    )


def _of_one(rows: pd.DataFrame) -> Floats:
    """Time of one call at each point [s]: time of a round, divided by its number of calls."""
    times, calls = (np.asarray(rows[name], dtype=float) for name in ("time_s", "batch"))
    return np.asarray(times / calls)


def _eager_collectives(run: Run) -> Iterator[float]:
    """Times of small eager calls of NCCL, each the median of its visits [s]."""
    samples = run.collective_samples()
    keep = (samples["backend"] == str(Backend.NCCL)) & (samples["clock"] == str(Clock.EAGER))
    keep &= (samples["payload_bytes"] <= _SMALL_BYTES) & (samples["variant"] == "default")
    cells = ["collective", "payload_bytes", "gpus", "nodes"]
    yield from samples[keep & (samples["nodes"] == 1)].groupby(cells)["time_s"].median()


def _interval(times: Floats) -> Interval:
    logs = np.log(times)
    value = rounded(float(np.exp(logs.mean())))
    wide = _NORMAL_95 * float(logs.std(ddof=1)) if logs.size > 1 else 0.0
    low, high = (rounded(float(np.exp(logs.mean() + sign * wide)), 3) for sign in (-1, 1))
    return Interval(value=value, low=min(low, value), high=max(high, value))
