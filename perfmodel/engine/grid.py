"""Projection of many configurations at once: the GPUs and the memory that they need, and their columns."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.engine.basis import PassBasis
from perfmodel.engine.cost import PassCost, cost_passes
from perfmodel.engine.memory import GpuMemory
from perfmodel.engine.row_wise import (
    CHUNK,
    Configs,
    build_times,
    choose_exchanges,
    cost_locally,
    count_loads,
    sum_tables,
)
from perfmodel.engine.steps import Times
from perfmodel.engine.tables import Array, row_bytes
from perfmodel.errors import BadInputError
from perfmodel.model import bands, capacity
from perfmodel.schema.gate import MOST_GPUS

_ROUNDS = 64
"""Most rounds of the search for the fewest GPUs; random configurations take at most 8."""
_NOISE = 1e-12  # of a number of GPUs, from rounding


def count_memory(basis: PassBasis, work: Configs, loads: Array | None = None) -> GpuMemory:
    """Memory that a GPU needs. If a library has two possible exchanges of bags, the larger buffers count.

    loads  of the pass, if computed before
    Limits: one GPU, or every table on every GPU -> no buffers
    """
    per_element, per_row = basis.state
    counts = [t.count * t.rows / np.where(t.rows >= work.gpus, work.gpus, 1.0) for t in work.stacked]
    groups = list(zip(work.stacked, counts, strict=True))
    rows = sum_tables(n * row_bytes(t.dtype, t.dim, training=basis.training) for t, n in groups)
    state = sum_tables(n * (t.dim * per_element + per_row) for t, n in groups)
    times, kinds = build_times(basis, work), [np.asarray(int(kind)) for kind in basis.exchanges]
    if loads is None or len(kinds) > 1:
        every = [count_loads(basis, work, kind, works=False) for kind in kinds]
    else:
        every = [loads]
    return GpuMemory(rows, state, reduce(np.maximum, (times.count_buffers(sent.T) for sent in every)))


def _count_in_chunks(basis: PassBasis, work: Configs) -> GpuMemory:
    """``count_memory`` of any number of configurations, on all cores."""
    if len(work) <= CHUNK:
        return count_memory(basis, work)
    chunks = [work.select(slice(start, start + CHUNK)) for start in range(0, len(work), CHUNK)]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:  # numpy releases the lock
        memories = list(pool.map(lambda chunk: count_memory(basis, chunk), chunks))
    parts = zip(*(vars(memory).values() for memory in memories), strict=True)
    return GpuMemory(*map(np.concatenate, parts))


def choose_gpus(basis: PassBasis, work: Configs, node: int) -> Configs:
    """The configurations with the number of GPUs whose memory is enough for rows and exchange buffers.

    node  GPUs of a node
    ``needed`` becomes the fewest GPUs that fit, if any number fits; if the user gave no number, ``gpus``
    becomes ``needed`` in whole nodes. Tables that fill the memory leave enough for the buffers.
    Limits: no number fits -> the GPUs that the rows and the optimizer state alone need
    """
    if work.filled:
        return _fill_memory(basis, work)
    if any(basis.state):
        alone = _count_in_chunks(basis, replace(work, gpus=np.ones_like(work.gpus))).kept_bytes
        work = replace(work, needed=capacity.gpus_needed(alone, np.float64(work.usable_bytes), 0.0))
    needed = _find_fewest(basis, work, node)
    if work.given_gpus:
        return replace(work, needed=needed)
    return replace(work, needed=needed, gpus=capacity.round_to_nodes(needed, np.float64(node)))


def _fill_memory(basis: PassBasis, work: Configs) -> Configs:
    """Configurations of equal tables that fill the memory which optimizer state and buffers leave.

    Limits: buffers fill all of it -> as without buffers
    """
    (group,), memory = work.groups, _count_in_chunks(basis, work)
    left = (1 - memory.buffer_bytes / work.usable_bytes) / (1 + memory.optimizer_bytes / memory.rows_bytes)
    room = np.where(left > 0, left, 1.0)
    rows = np.maximum(group.rows * room, work.gpus)
    return replace(work, table_bytes=work.table_bytes * room, groups=(replace(group, rows=rows),))


def _find_fewest(basis: PassBasis, work: Configs, node: int) -> Array:
    """The fewest GPUs that hold rows and buffers, by an iteration from below.

        n <- the larger of ceil(S / (U - b)) and the zero of the line through (n, S / n + b - U) of two rounds

    S  bytes of sharded tables;  b  buffers at n, in whole nodes, which grow with n
    The need S / n + b is convex in n while the same tables are cut, so the line's zero is never beyond the
    fewest GPUs; if it does not fall from one round to the next, no number fits.
    Limits: none fits -> the GPUs that the rows alone need
    """
    needed, places = np.array(work.needed, dtype=np.float64), np.arange(len(work))
    before = np.full((3, len(work)), np.nan)  # GPUs, bytes over the memory, tables that are cut
    for _ in range(_ROUNDS):
        unfinished = work if places.size == needed.size else work.select(places)
        taken = (
            needed[places] if work.given_gpus else capacity.round_to_nodes(needed[places], np.float64(node))
        )
        memory = _count_in_chunks(basis, replace(unfinished, gpus=taken))
        unfit = np.flatnonzero(~capacity.check_fits(memory.total_bytes, work.usable_bytes))
        cut = sum_tables(t.count * (t.rows >= taken) for t in unfinished.stacked)
        places, taken, cut = places[unfit], taken[unfit], cut[unfit]
        room = work.usable_bytes - memory.buffer_bytes[unfit]
        over = memory.total_bytes[unfit] - work.usable_bytes
        taken_before, over_before, cut_before = before[:, places]
        with np.errstate(all="ignore"):
            step = np.ceil(taken * memory.kept_bytes[unfit] / room * (1 - 2 * np.finfo(np.float64).eps))
            step = np.maximum(step, taken + 1)
            lost = (room <= 0) | (step > MOST_GPUS)
            as_cut = cut == cut_before
            slope = (over - over_before) / (taken - taken_before)
            zero = np.ceil((taken - over / slope) * (1 - _NOISE))
            step = np.where(as_cut & (slope < 0), np.maximum(step, zero), step)
            lost |= (as_cut & (slope >= 0)) | (step > MOST_GPUS)
        before[:, places] = taken, over, cut
        needed[places] = np.where(lost, work.needed[places], step)
        places = places[~lost]
        if not places.size:
            break
    needed[places] = work.needed[places]
    return needed


Columns = dict[str, NDArray[Any]]
"""Results of many configurations by name, arrays with one element each."""


def project_grid(basis: PassBasis, work: Configs) -> Columns:
    """Cost all configurations. Columns, in SI:

    gpus, gpus_needed, memory_bytes (of a GPU: rows, and buffer_bytes of its largest exchange), fits (whether
    memory_bytes is within the memory less the reserve), baseline_time_s (_low_s, _high_s), time_s, low_s,
    high_s, floor_time_s, slowdown, slowdown_low, slowdown_high, slowdown_floor_part +
    slowdown_bytes_part = slowdown, throughput_ratio (samples per second of all GPUs over those of one GPU),
    evidence (rank of the weakest step, or of the local look-up), main_evidence (rank of ``Evidence.main`` of
    the time), and <step>_time_s of every step.
    Limits: one GPU -> slowdown, low and high exactly 1
    """
    if len(work) <= CHUNK:
        return cost_grid(basis, work).columns
    key = work.gpus.astype(np.uint32).astype(np.uint16)  # sorted by their digits
    order = np.argsort(key, kind="stable")  # a chunk has few numbers of GPUs: few curves
    spans = [order[start : start + CHUNK] for start in range(0, len(work), CHUNK)]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:  # numpy releases the lock
        grids = list(pool.map(lambda span: cost_grid(basis, work.select(span)).columns, spans))
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    names = dict.fromkeys(name for grid in grids for name in grid)
    none = [np.zeros(span.size) for span in spans]  # of a step that no configuration of a chunk has
    return {
        name: np.concatenate([grid.get(name, zero) for grid, zero in zip(grids, none, strict=True)]).take(
            place
        )
        for name in names
    }


@dataclass(frozen=True)
class CostedGrid:
    """Configurations with the costs from which their columns are computed.

    columns  of ``project_grid``;  base, cost  of the batch in local memory, and of the sharded pass
    """

    columns: Columns
    base: PassCost
    cost: PassCost


@np.errstate(all="ignore")
def cost_grid(basis: PassBasis, work: Configs) -> CostedGrid:
    """Cost some configurations; refuses values so extreme that a time is not finite."""
    loads = count_loads(basis, work, choose_exchanges(basis, work))
    base, cost = cost_locally(basis, work), cost_passes(build_times(basis, work), loads)
    base_low, local, base_high = base.band
    low, time, high = cost.band
    slowdown_low, slowdown_high = slowdown_band(cost.causes, base.causes)
    held = count_memory(basis, work, loads)
    columns = {
        "gpus": work.gpus,
        "gpus_needed": work.needed,
        "memory_bytes": held.total_bytes,
        "buffer_bytes": held.buffer_bytes / basis.buffer_weight,
        "fits": capacity.check_fits(held.total_bytes, work.usable_bytes),
        "baseline_low_s": base_low,
        "baseline_high_s": base_high,
        "low_s": low,
        "high_s": high,
        "slowdown_low": slowdown_low,
        "slowdown_high": slowdown_high,
        "evidence": np.maximum(base.evidence, cost.evidence),
        "main_evidence": cost.main_evidence,
        **compare_with_local(time, local, cost.floor_s, work.gpus),
        **{f"{step.name}_time_s": step.timing.time_s for step in cost.steps},
    }
    for name in ("time_s", "slowdown"):
        if not np.isfinite(columns[name]).all():
            raise BadInputError(
                f"the {name.removesuffix('_s')} of this configuration is not a finite number.",
                "a value given with --set, or in the machine file, is too large or too small.",
            )
    return CostedGrid(columns, base, cost)


def compare_with_local(time: Any, local: Any, floor: Any, gpus: Any) -> dict[str, Any]:
    """Columns that compare a pass on G GPUs with the look-up of one GPU's batch in local memory.

    time, local  of the pass and of the local look-up [s];  floor  latency of the pass [s];  gpus  G [-]
    Limits: G = 1 -> slowdown and throughput_ratio 1
    """
    return {
        "time_s": time,
        "baseline_time_s": local,
        "floor_time_s": floor,
        "slowdown": time / local,
        "slowdown_floor_part": floor / local,
        "slowdown_bytes_part": (time - floor) / local,
        "throughput_ratio": gpus * local / time,
    }


def slowdown_band(causes: Mapping[str, Times], local: Mapping[str, Times]) -> tuple[Any, Any]:
    """(low, high) of the slowdown (``bands.compute_slowdown_band``).

    causes, local  times of the sharded and of the local pass, by cause of error
    """
    nothing = tuple(0.0 * time for time in next(iter(local.values())))
    apart = bands.sum_band(nothing, *(times for cause, times in causes.items() if cause not in local))
    return bands.compute_slowdown_band(
        apart, *((causes.get(cause, nothing), local_times) for cause, local_times in local.items())
    )
