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


def list_payloads(
    backend: str, operation: str, ranks: int, preset: Preset, world: World, wanted: Sequence[int] | None
) -> list[int]:
    """Payload sizes [bytes], increasing: as wanted, or the preset's from 128 B to the memory limit.

    Sizes are rounded down so that every peer gets whole, aligned elements.
    Limits: below one of them -> BadInputError with the smallest size; above the memory -> BadInputError
    """
    aligned = ALIGNMENT_BYTES.get(backend, ELEMENT_BYTES)
    unit = aligned * ranks if operation in PER_PEER else aligned
    limit = int(world.memory_bytes / _BUFFERS)
    if wanted is None:
        limit = min(limit, preset.most_bytes[world.device])
        sizes = [SMALLEST_BYTES * SIZE_STEP**k for k in range(64)]
        return sorted({max(size // unit, 1) * unit for size in sizes if size <= limit})
    for size_bytes in wanted:
        if size_bytes < unit:
            below = f"one element of {aligned} B"
            if backend in ALIGNMENT_BYTES:
                below = f"{backend.upper()}'s {aligned} B alignment"
            peers = f" over {ranks} ranks is {size_bytes // ranks} B per peer," if unit > aligned else " is"
            raise BadInputError(
                f"--sizes: {size_bytes} B{peers} below {below}: {operation} would time an empty call.",
                f"the smallest size here is {unit} B.",
            )
        if size_bytes > limit:
            raise BadInputError(
                f"--sizes: {format_bytes(size_bytes)} needs about {_BUFFERS} buffers of that size on each "
                "rank.",
                f"the largest size here is {format_bytes(limit)}.",
            )
    return sorted({size_bytes // unit * unit for size_bytes in wanted})
