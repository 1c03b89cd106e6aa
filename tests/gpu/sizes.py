"""Sizes of tests on a GPU; those of a rehearsal, whose GPU is a CPU, are small."""

from __future__ import annotations

import os

REHEARSAL = bool(os.environ.get("PERFMODEL_REHEARSAL"))
"""Whether the GPU is a stand-in (benchmarks/one_gpu.py --rehearse)."""


def sized(real: int, rehearsed: int) -> int:
    """``real`` on a GPU."""
    return rehearsed if REHEARSAL else real
