"""What names a kernel: its file, and its function as C++ writes it, with template arguments."""

from __future__ import annotations

from dataclasses import dataclass

SYMBOL_ENTRY = "pm_entry_"


@dataclass(frozen=True, order=True)
class Kernel:
    """One ``__global__`` function of one source.

    source  name of the file in ``kernels/``;  name  as C++ writes it: ``pm::gather_pool<float, int, 8>``
    sm_shared_bytes  shared memory that its blocks on one multiprocessor take together: what a GPU is asked to
            set aside of the memory that it shares with the L1 cache; 0: it is not asked [bytes]
    """

    source: str
    name: str
    sm_shared_bytes: int = 0

    def __str__(self) -> str:
        return f"{self.source}:{self.name}"
