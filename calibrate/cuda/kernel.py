"""A kernel: its source file, and its function as written in C++, with template arguments."""

from __future__ import annotations

from dataclasses import dataclass

SYMBOL_ENTRY = "pm_entry_"


@dataclass(frozen=True, order=True)
class Kernel:
    """One ``__global__`` function of one source.

    source  name of the file in ``kernels/``;  name  as C++ writes it: ``pm::gather_pool<float, int, 8>``
    sm_shared_bytes  shared memory that all its blocks on one multiprocessor need together [bytes]; the GPU is
            asked to take it from the memory that it shares with the L1 cache. 0: no request
    """

    source: str
    name: str
    sm_shared_bytes: int = 0

    def __str__(self) -> str:
        return f"{self.source}:{self.name}"
