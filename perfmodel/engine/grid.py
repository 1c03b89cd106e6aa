"""Projection of many configurations at once: the GPUs and the memory that they need, and their columns."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.engine.memory import buffer_bytes
from perfmodel.engine.pass_cost import PassCost
from perfmodel.engine.row_wise import CHUNK, Configs, Forward, all_tables
from perfmodel.engine.steps import Times
from perfmodel.engine.tables import row_bytes
from perfmodel.errors import BadInputError
from perfmodel.model import bands, capacity, sharding
from perfmodel.schema.ranges import MOST_GPUS

Array = NDArray[np.float64]
_ROUNDS = 64
"""Most rounds of the search for the fewest GPUs: a limit in case it converges slowly."""


@dataclass(frozen=True)
class GpuMemory:
    """HBM of a GPU in each configuration [bytes].

    rows_bytes, optimizer_bytes  rows and optimizer state;  buffer_bytes  buffers of the largest exchange
    """

    rows_bytes: Array
    optimizer_bytes: Array
    buffer_bytes: Array

    @property
    def kept_bytes(self) -> Array:
        """Memory in use between exchanges."""
        return self.rows_bytes + self.optimizer_bytes

    @property
    def total_bytes(self) -> Array:
        """All memory together."""
        return self.kept_bytes + self.buffer_bytes


def gpu_memory(forward: Forward, work: Configs) -> GpuMemory:
    """Memory that a GPU needs. If a library has two possible exchanges of bags, the larger buffers count.

    Limits: one GPU, or every table on every GPU -> no buffers;  one memory for all -> all rows, no buffers
    """
    per_element, per_row = forward.state
    held = [(t, t.count * t.rows / np.where(t.rows >= work.gpus, work.gpus, 1.0)) for t in work.stacked]
    rows = all_tables(count * row_bytes(t.dtype, t.dim, training=forward.training) for t, count in held)
    state = all_tables(count * (t.dim * per_element + per_row) for t, count in held)
    largest = np.zeros(work.gpus.shape)
    for at in range(0, len(work), CHUNK):
        span = slice(at, at + CHUNK)
        part = work.part(span) if len(work) > CHUNK else work
        sent = (forward.exchanged(part, forward.even(part, kind)).T for kind in forward.exchanges)
        largest[span] = np.max([buffer_bytes(values, forward.times(part)) for values in sent], axis=0)
    return GpuMemory(rows, state, largest)


def sized(forward: Forward, work: Configs, node: int) -> Configs:
    """The configurations with the number of GPUs whose memory is enough for rows and exchange buffers.

    node  GPUs of a node
    ``needed`` becomes the fewest GPUs that fit, if any number fits; if the user gave no number, ``gpus``
    becomes ``needed`` in whole nodes. Tables that fill the memory leave enough for the buffers.
    Limits: no number fits -> the GPUs that the rows and the optimizer state alone need
    """
    if work.filled:
        return _filled(forward, work)
    if any(forward.state):
        alone = gpu_memory(forward, replace(work, gpus=np.ones_like(work.gpus))).kept_bytes
        work = replace(work, needed=sharding.gpus_needed(alone, np.float64(work.usable_bytes), 0.0))
    needed = fewest(forward, work, node)
    if work.given_gpus:
        return replace(work, needed=needed)
    return replace(work, needed=needed, gpus=sharding.whole_nodes(needed, np.float64(node)))


def _filled(forward: Forward, work: Configs) -> Configs:
    """Configurations of equal tables that fill the memory which optimizer state and buffers leave.

    Limits: buffers fill all of it -> as without buffers
    """
    (group,), held = work.groups, gpu_memory(forward, work)
    left = (1 - held.buffer_bytes / work.usable_bytes) / (1 + held.optimizer_bytes / held.rows_bytes)
    room = np.where(left > 0, left, 1.0)
    rows = np.maximum(group.rows * room, work.gpus)
    return replace(work, table_bytes=work.table_bytes * room, groups=(replace(group, rows=rows),))


def fewest(forward: Forward, work: Configs, node: int) -> Array:
    """The fewest GPUs that hold rows and buffers, by a fixed-point iteration from below.

        n <- ceil(S(n) / (U - b(n')) ), n' = n in whole nodes

    S  bytes of sharded tables;  b  buffers, which grow with n: the iteration ends at the least n that fits,
    or there is none if the buffers alone fill U.
    """
    needed = np.array(work.needed, dtype=np.float64)
    open_ = np.ones(needed.shape, dtype=bool)
    for _ in range(_ROUNDS):
        at = np.flatnonzero(open_)
        if not at.size:
            return needed
        some = work if at.size == open_.size else work.part(at)
        taken = needed[at] if work.given_gpus else sharding.whole_nodes(needed[at], np.float64(node))
        held = gpu_memory(forward, replace(some, gpus=taken))
        good = capacity.fits(held.total_bytes, work.usable_bytes)
        room = work.usable_bytes - held.buffer_bytes
        with np.errstate(all="ignore"):
            more = np.ceil(taken * held.kept_bytes / room * (1 - 2 * np.finfo(np.float64).eps))
        step = np.maximum(more, taken + 1)
        lost = ~good & ((room <= 0) | (step > MOST_GPUS))
        open_[at[good | lost]] = False
        needed[at[lost]] = work.needed[at[lost]]
        going = ~good & ~lost
        needed[at[going]] = step[going]
    needed[open_] = work.needed[open_]
    return needed


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
