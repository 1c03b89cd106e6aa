"""Projection of many configurations at once: arrays in, arrays out, in chunks on all cores."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.collectives.library import Codes
from perfmodel.errors import BadInputError
from perfmodel.model import bands, capacity
from perfmodel.passes.steps import Times, added_by_cause
from perfmodel.projections.costs import Forward
from perfmodel.projections.fitting import gpu_memory
from perfmodel.projections.inputs import CHUNK, Configs
from perfmodel.projections.timed import TimedStep, sum_time
from perfmodel.schema.evidence import MAIN_SHARE, Evidence

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
    """Configurations with the times from which their columns are computed.

    base, steps  steps of the batch in local memory, and of the sharded pass"""

    grid: Grid
    base: tuple[TimedStep, ...]
    steps: tuple[TimedStep, ...]


@np.errstate(all="ignore")
def costed(forward: Forward, work: Configs) -> CostedGrid:
    """Cost some configurations; refuses values so extreme that a time is not finite."""
    loads = forward.loads(work, forward.kinds(work))
    base, steps = forward.local_steps(work), forward.steps(work, loads)
    total = totals(base, steps, own_rate=forward.memory is not None)
    low, local, high = bands.sum_band(*causes_of(base).values())
    time = total["time_s"]
    light = forward.light_time(work, loads, steps, local)
    held = gpu_memory(forward, work)
    columns = {
        "gpus": work.gpus,
        "gpus_needed": work.needed,
        "memory_bytes": held.total_bytes,
        "buffer_bytes": held.buffer_bytes,
        "fits": capacity.fits(held.total_bytes, work.usable_bytes),
        "baseline_time_s": local,
        "baseline_low_s": low,
        "baseline_high_s": high,
        **total,
        "light_time_s": light,
        "slowdown_floor_part": total["floor_time_s"] / local,
        "slowdown_bytes_part": (time - total["floor_time_s"]) / local,
        "slowdown_light": light / local,
        "throughput_ratio": work.gpus * local / time,
        **{f"{step.name}_time_s": step.timing.time_s for step in steps},
    }
    _check_finite(time=time, slowdown=total["slowdown"])
    return CostedGrid(Grid(columns, tuple(step.name for step in steps)), tuple(base), tuple(steps))


@np.errstate(all="ignore")
def timed(forward: Forward, work: Configs) -> tuple[list[TimedStep], Times]:
    """(steps, (low, centre, high) of the sum of their times [s]), computed as in ``costed`` but without a
    slowdown.

    Limits: a time that is not finite -> BadInputError
    """
    steps = forward.steps(work, forward.loads(work, forward.kinds(work)))
    low, time, high = bands.sum_band(*causes_of(steps).values())
    _check_finite(time=time)
    return steps, (low, time, high)


def _check_finite(**columns: Array) -> None:
    for name, values in columns.items():
        if not np.isfinite(values).all():
            raise BadInputError(
                f"the {name} of this configuration is not a finite number.",
                "a value given with --set, or in the machine file, is too large or too small.",
            )


def causes_of(steps: Iterable[TimedStep]) -> dict[str, Times]:
    """Times of steps, added up by cause of error: (low, centre, high) of each cause [s]."""
    timed = ((each.step.cause, each.timing) for each in steps)
    return added_by_cause((cause, (t.low_s, t.time_s, t.high_s)) for cause, t in timed)


def slowdown_band(causes: Mapping[str, Times], local: Mapping[str, Times]) -> tuple[Any, Any]:
    """(low, high) of the slowdown (``bands.slowdown_band``).

    causes, local  times of the sharded and of the local pass, by cause of error
    """
    nothing = tuple(0.0 * time for time in next(iter(local.values())))
    apart = bands.sum_band(nothing, *(times for cause, times in causes.items() if cause not in local))
    return bands.slowdown_band(apart, *((causes.get(cause, nothing), own) for cause, own in local.items()))


def totals(
    base: Sequence[TimedStep], steps: Sequence[TimedStep], *, own_rate: bool = False
) -> dict[str, NDArray[Any]]:
    """Sum of the steps, its band, and the slowdown with its band (see ``bands.slowdown_band``).

    base      steps of the same batch in local memory;  steps  steps of the sharded pass
    own_rate  whether the pass gathers from its own memory, whose assumed rate errs independently of the
              baseline's: the kernels' errors then do not cancel in the slowdown
    """
    causes, its_causes = causes_of(steps), causes_of(base)
    least, time, most = bands.sum_band(*causes.values())
    local = sum_time(base)
    exact = {"exact": (local, local, local)}
    low, high = slowdown_band(causes, exact if own_rate else its_causes)
    floor = np.zeros_like(time)
    for step in steps:
        floor = floor + step.timing.floor_s
    rank = reduce(np.maximum, (step.timing.evidence for step in (*base, *steps)))
    return {
        "time_s": time,
        "low_s": least,
        "high_s": most,
        "floor_time_s": floor,
        "slowdown": time / local,
        "slowdown_low": low,
        "slowdown_high": high,
        "evidence": rank,
        "main_evidence": _main(steps, time),
    }


def _main(steps: Sequence[TimedStep], time: Array) -> Codes:
    """Rank of the weakest evidence behind a large share of the time. Source: ``Evidence.main``"""
    rests: dict[int, Array] = {}
    for step in steps:
        ranks, seconds = step.timing.evidence, step.timing.time_s
        least, most = int(ranks.min(initial=len(Evidence))), int(ranks.max(initial=0))
        for rank in range(least, most + 1):
            part = seconds if least == most else np.where(ranks == rank, seconds, 0)
            rests[rank] = rests[rank] + part if rank in rests else part
    found, weaker, enough = np.zeros(time.shape, dtype=np.int8), np.zeros_like(time), MAIN_SHARE * time
    for rank in sorted(rests, reverse=True):
        weaker = weaker + rests[rank]
        np.maximum(found, np.int8(rank), out=found, where=weaker > enough)
    return found
