"""Host memory that a GPU reads in place: page-locked, mapped, and limited to what is free.

It is plain page-locked memory (cudaHostAlloc), not managed memory: more managed memory than a card has free
can hang the GPU of a shared server. FBGEMM's MANAGED tables stay in host memory and are read over the link
too (cudaMemAdviseSetPreferredLocation: the CPU), so these reads represent theirs.
"""

from __future__ import annotations

from typing import Any

from perfmodel.errors import BadInputError

_PINNED = 1
"""cudaMemoryTypeHost, of ``cudaPointerAttributes``."""

LARGEST_PART = 0.25
"""Share of the memory that a rank may use."""

_PIECE_BYTES = 64 * 2**20


def mapped_address(rows: Any) -> int:
    """Address at which a GPU sees a tensor in page-locked host memory.

    Limits: memory that no GPU can read -> BadInputError
    """
    import cupy

    found = cupy.cuda.runtime.pointerGetAttributes(rows.data_ptr())
    if found.type != _PINNED or not found.devicePointer:
        raise BadInputError("these rows are not in memory of the host that a GPU can read.", "pin them.")
    return int(found.devicePointer)


class PinnedRows:
    """Pattern rows in page-locked host memory; rows of all widths reuse one allocation.

    device  GPU that writes them, or a CPU, for which nothing is page-locked;  most_bytes  limit
    """

    def __init__(self, device: Any, most_bytes: float) -> None:
        self._device, self._most = device, most_bytes
        self._memory: Any = None
        self._holds: tuple[int, int] | None = None

    def rows(self, count: int, dim: int) -> Any:
        """Pattern rows 0 … ``count`` - 1 as an fp32 tensor [count, dim]; valid until the next call.

        Limits: more than ``most_bytes`` -> BadInputError
        """
        import torch

        needed = 4 * count * dim
        if needed > self._most:
            raise BadInputError(
                f"{needed / 2**20:.0f} MiB of page-locked host memory, of {self._most / 2**20:.0f} MiB "
                "that may be taken.",
                "free memory of the host.",
            )
        if self._memory is None or self._memory.numel() < needed:
            self._memory = self._holds = None  # before a larger allocation
            self._memory = torch.empty(needed, dtype=torch.uint8, pin_memory=self._device.type == "cuda")
        rows = self._memory[:needed].view(torch.float32).view(count, dim)
        if self._holds != (count, dim):
            self._holds = None
            self._write(rows)
            self._holds = count, dim
        return rows

    def _write(self, rows: Any) -> None:
        """Write them on the GPU in pieces: a host needs seconds per gigabyte."""
        import torch

        from calibrate.passes.pattern_rows import fill_rows

        step = max(1, _PIECE_BYTES // (4 * rows.shape[1]))
        piece = torch.empty(min(step, rows.shape[0]), rows.shape[1], device=self._device)
        for first in range(0, rows.shape[0], step):
            part = piece[: min(step, rows.shape[0] - first)]
            fill_rows(part, first)
            rows[first : first + part.shape[0]].copy_(part)

    def clear(self) -> None:
        """Free the memory."""
        self._memory = self._holds = None
