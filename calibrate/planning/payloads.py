"""Payloads of a collective that are measured, and reasons to refuse a size."""

from __future__ import annotations

from collections.abc import Sequence

from calibrate.patterns import ELEMENT_BYTES, PER_PEER
from calibrate.planning.presets import Preset
from calibrate.planning.world import World
from perfmodel.errors import BadInputError
from perfmodel.units import format_bytes

SMALLEST_BYTES = 128
SIZE_STEP = 2
"""Ratio of successive payloads in a plan, small enough to show where protocols change."""
ALIGNMENT_BYTES = {"nccl": 16, "rccl": 16, "nvshmem": 16}
"""Bytes per peer below which a library sends nothing, or refuses."""

_BUFFERS = 8  # buffers of the payload's size per operation: sent, received, expected, rotated


def unit_bytes(backend: str, operation: str, ranks: int) -> int:
    """Bytes of which every payload is a multiple, so that every peer gets whole, aligned elements."""
    part = ALIGNMENT_BYTES.get(backend, ELEMENT_BYTES)
    return part * ranks if operation in PER_PEER else part


def payloads(
    backend: str, operation: str, ranks: int, preset: Preset, world: World, asked: Sequence[int] | None
) -> list[int]:
    """Payload sizes [bytes], increasing: as requested, or the preset's from 128 B to the memory limit.

    Sizes are rounded down to multiples of ``unit_bytes``.
    Limits: below one unit -> BadInputError with the smallest size; above the memory limit -> BadInputError
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
        a_peer = (
            f" over {ranks} ranks is {size_bytes // ranks} B per peer," if operation in PER_PEER else " is"
        )
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
    """About ``count`` sizes of ``grid``, evenly spaced, with both ends; all of a shorter grid."""
    if len(grid) <= count:
        return list(grid)
    return sorted({grid[round(k * (len(grid) - 1) / (count - 1))] for k in range(count)})
