"""Which payloads are measured, and about how long a call will take before anyone has timed it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from calibrate.planning.presets import Preset
from calibrate.running.stopping import Target, calls_for
from perfmodel.errors import BadInputError
from perfmodel.schema.runs import Point, PointKind
from perfmodel.units import format_bytes

SMALLEST_BYTES = 128
SIZE_STEP = 2
"""Each payload of a plan is this many times the one before: protocols change between neighbours."""
ELEMENT_BYTES = 4  # fp32
ALIGNMENT_BYTES = {"nccl": 16, "nvshmem": 16, "symmetric_memory": 16}
"""Bytes a peer below which a library sends nothing, or refuses."""

_SPLIT = ("all_to_all", "reduce_scatter", "all_gather")  # a payload is one part for each rank
_BUFFERS = 8  # of the payload's size that an operation may hold: sent, received, expected, rotated
_UNEVEN_ELEMENTS = 16  # elements a peer from which an uneven split has something to vary

# Guesses that only choose how many calls the first visit has and what a plan says it will take.
_FLOOR_S = {"cpu": 8e-6, "cuda": 15e-6}
_PEER_S = {"cpu": 3e-6, "cuda": 1e-6}
_BYTES_PER_S = {"cpu": 1.5e9, "cuda": 5e10}
_COMPOSED_FLOORS = 20
_OVERHEAD_S = {PointKind.COLLECTIVE: 0.008, PointKind.KERNEL: 0.035, PointKind.COMPOSED: 0.035}
_CHECKED_BYTES_PER_S = {"cpu": 3e8, "cuda": 1e10}
PILOT_CALLS = 10


class Memory(Protocol):
    """What sizes depend on; ``calibrate.planning.measurement_plan.World`` is one."""

    @property
    def device(self) -> str: ...
    @property
    def memory_bytes(self) -> float: ...


def unit_bytes(backend: str, operation: str, ranks: int) -> int:
    """Payloads are whole multiples of this, so that every peer gets whole, aligned elements."""
    part = ALIGNMENT_BYTES.get(backend, ELEMENT_BYTES)
    return part * ranks if operation in _SPLIT else part


def payloads(
    backend: str, operation: str, ranks: int, preset: Preset, world: Memory, asked: Sequence[int] | None
) -> list[int]:
    """Payload sizes [bytes], rising: those asked for, or the preset's from 128 B to what memory allows.

    A size that is no whole multiple of ``unit_bytes`` is rounded down to one.
    Limits: asked below one unit -> BadInputError with the smallest; more than memory allows -> BadInputError
    """
    unit = unit_bytes(backend, operation, ranks)
    most = int(world.memory_bytes / _BUFFERS)
    if asked is not None:
        for size_bytes in asked:
            _check(size_bytes, unit, most, backend, operation, ranks)
        return sorted({size_bytes // unit * unit for size_bytes in asked})
    most = min(most, preset.most_bytes[world.device])
    size_bytes, grid = SMALLEST_BYTES, set()
    while size_bytes <= most:
        grid.add(max(size_bytes // unit, 1) * unit)
        size_bytes *= SIZE_STEP
    return sorted(grid)


def _check(size_bytes: int, unit: int, most: int, backend: str, operation: str, ranks: int) -> None:
    if size_bytes < unit:
        part = ALIGNMENT_BYTES.get(backend, ELEMENT_BYTES)
        below = (
            f"{backend.upper()}'s {part} B alignment"
            if backend in ALIGNMENT_BYTES
            else f"one element of {part} B"
        )
        a_peer = f" over {ranks} ranks is {size_bytes // ranks} B per peer," if operation in _SPLIT else " is"
        raise BadInputError(
            f"--sizes: {size_bytes} B{a_peer} below {below}: {operation} would time an empty call.",
            f"the smallest size here is {unit} B.",
        )
    if size_bytes > most:
        raise BadInputError(
            f"--sizes: {format_bytes(size_bytes)} needs about {_BUFFERS} buffers of that size on each rank.",
            f"the largest size here is {format_bytes(most)}.",
        )


def spread(grid: Sequence[int], count: int) -> list[int]:
    """About ``count`` sizes, evenly over ``grid``, both ends included. Limits: a short grid -> all of it."""
    if len(grid) <= count:
        return list(grid)
    return sorted({grid[round(k * (len(grid) - 1) / (count - 1))] for k in range(count)})


def uneven(grid: Sequence[int], ranks: int, count: int) -> list[int]:
    """Sizes for an uneven all-to-all: those with enough elements for each peer to differ."""
    return spread([size for size in grid if size >= _UNEVEN_ELEMENTS * ELEMENT_BYTES * ranks], count)


def guess_call_s(point: Point, device: str) -> float:
    """About what one call takes [s], before anyone timed it; may be wrong by a factor of three."""
    floor_s = _FLOOR_S[device] + _PEER_S[device] * (
        point.gpus - 1 if point.kind is PointKind.COLLECTIVE else 0
    )
    payload_bytes = float(point.payload_bytes)
    if point.kind is PointKind.COMPOSED:
        floor_s *= _COMPOSED_FLOORS
        work = point.work
        if work is not None:
            payload_bytes = work.batch * work.tables * work.dim * ELEMENT_BYTES * (work.pooling + point.gpus)
    return floor_s + payload_bytes / _BYTES_PER_S[device]


def guess_overhead_s(point: Point, device: str) -> float:
    """About what a visit takes besides its timed calls [s]: filling, warm-up, checking, writing down."""
    return _OVERHEAD_S[point.kind] + point.payload_bytes / _CHECKED_BYTES_PER_S[device]


def guess_visit_s(point: Point, device: str, target: Target) -> float:
    """About how long the timed calls of one visit take together [s]."""
    call_s = guess_call_s(point, device)
    return call_s * calls_for(target, call_s)
