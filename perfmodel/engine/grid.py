"""Projection of many configurations at once: arrays in, arrays out, in chunks on all cores."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.engine.configurations import CHUNK, Configs
from perfmodel.engine.fitting import gpu_memory
from perfmodel.engine.pass_cost import PassCost
from perfmodel.engine.row_wise import Forward
from perfmodel.engine.steps import Times
from perfmodel.errors import BadInputError
from perfmodel.model import bands, capacity

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Grid:
    """Results for many configurations, arrays with one element each.

    columns  by name (``project_grid``);  step_names  steps that any configuration has"""

    columns: dict[str, NDArray[Any]]
    step_names: tuple[str, ...]

    def __len__(self) -> int:
        return int(self.columns["time_s"].size)


def project_grid(forward: Forward, work: Configs) -> Grid:
    """Cost all configurations. Columns, in SI:

    gpus, gpus_needed, memory_bytes (of a GPU: rows, and buffer_bytes of its largest exchange), fits (whether
    memory_bytes is within the memory less the reserve), baseline_time_s (_low_s, _high_s), time_s, low_s,
    high_s, floor_time_s, light_time_s, slowdown, slowdown_low, slowdown_high, slowdown_floor_part +
    slowdown_bytes_part = slowdown, slowdown_light (the least slowdown that datasheet rates allow: at least 1,
    at most slowdown), throughput_ratio (samples per second of all GPUs over samples per second of one GPU),
    evidence (rank of the weakest step, or of the local look-up), main_evidence (rank of ``Evidence.main`` of
    the time), and <step>_time_s of every step.
    Limits: one GPU -> slowdown, low and high exactly 1
    """
    if len(work) <= CHUNK:
        return costed(forward, work).grid
    order = np.argsort(work.gpus, kind="stable")  # a chunk has few numbers of GPUs: few curves
    spans = [order[at : at + CHUNK] for at in range(0, len(work), CHUNK)]
    out: dict[str, NDArray[Any]] = {}
    names: tuple[str, ...] = ()
    with ThreadPoolExecutor(min(len(spans), os.cpu_count() or 1)) as pool:  # numpy releases the lock
        parts = pool.map(lambda span: costed(forward, work.part(span)).grid, spans)
        for span, grid in zip(spans, parts, strict=True):
            names = grid.step_names
            for name, values in grid.columns.items():
                if name not in out:
                    out[name] = np.empty(len(work), dtype=values.dtype)
                out[name][span] = values
    return Grid(out, names)


@dataclass(frozen=True)
class CostedGrid:
    """Configurations with the costs from which their columns are computed.

    base, cost  of the batch in local memory, and of the sharded pass"""

    grid: Grid
    base: PassCost
    cost: PassCost


@np.errstate(all="ignore")
def costed(forward: Forward, work: Configs) -> CostedGrid:
    """Cost some configurations; refuses values so extreme that a time is not finite."""
    loads = forward.loads(work, forward.kinds(work))
    base, cost = forward.local_cost(work), forward.cost(work, loads)
    base_low, local, base_high = base.band
    low, time, high = cost.band
    exact = {"exact": (local, local, local)}  # an assumed rate errs apart from the baseline's
    slowdown_low, slowdown_high = slowdown_band(cost.causes, exact if forward.memory else base.causes)
    light, floor = forward.light_time(work, loads, cost, local), cost.floor_s
    held = gpu_memory(forward, work)
    columns = {
        "gpus": work.gpus,
        "gpus_needed": work.needed,
        "memory_bytes": held.total_bytes,
        "buffer_bytes": held.buffer_bytes,
        "fits": capacity.fits(held.total_bytes, work.usable_bytes),
        "baseline_time_s": local,
        "baseline_low_s": base_low,
        "baseline_high_s": base_high,
        "time_s": time,
        "low_s": low,
        "high_s": high,
        "floor_time_s": floor,
        "slowdown": time / local,
        "slowdown_low": slowdown_low,
        "slowdown_high": slowdown_high,
        "evidence": np.maximum(base.evidence, cost.evidence),
        "main_evidence": cost.main_evidence,
        "light_time_s": light,
        "slowdown_floor_part": floor / local,
        "slowdown_bytes_part": (time - floor) / local,
        "slowdown_light": light / local,
        "throughput_ratio": work.gpus * local / time,
        **{f"{step.name}_time_s": step.timing.time_s for step in cost.steps},
    }
    _check_finite(time=time, slowdown=columns["slowdown"])
    return CostedGrid(Grid(columns, tuple(step.name for step in cost.steps)), base, cost)


def _check_finite(**columns: Array) -> None:
    for name, values in columns.items():
        if not np.isfinite(values).all():
            raise BadInputError(
                f"the {name} of this configuration is not a finite number.",
                "a value given with --set, or in the machine file, is too large or too small.",
            )


def slowdown_band(causes: Mapping[str, Times], local: Mapping[str, Times]) -> tuple[Any, Any]:
    """(low, high) of the slowdown (``bands.slowdown_band``).

    causes, local  times of the sharded and of the local pass, by cause of error
    """
    nothing = tuple(0.0 * time for time in next(iter(local.values())))
    apart = bands.sum_band(nothing, *(times for cause, times in causes.items() if cause not in local))
    return bands.slowdown_band(apart, *((causes.get(cause, nothing), own) for cause, own in local.items()))
