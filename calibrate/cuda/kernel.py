"""What names a kernel: its file, and its function as C++ writes it, with template arguments."""

from __future__ import annotations

from dataclasses import dataclass

SYMBOL_ENTRY = "pm_entry_"


@dataclass(frozen=True, order=True)
class Kernel:
    """One ``__global__`` function of one source.

    source  name of the file in ``kernels/``;  name  as C++ writes it: ``pm::gather_pool<float, int, 8>``
    """

    source: str
    name: str

    def __str__(self) -> str:
        return f"{self.source}:{self.name}"
