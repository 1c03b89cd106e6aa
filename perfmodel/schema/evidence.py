"""How a number is known (Evidence) and how a time was taken (Clock); names of collectives and backends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

MAIN_SHARE = 0.2  # share of a time above which its evidence counts in Evidence.main


class Evidence(StrEnum):
    """Origin of a number, strongest first. A sum has the weakest evidence of its terms."""

    MEASURED = "measured"  # this machine, this cell (``calibration.Curve``)
    INTERPOLATED = "interpolated"  # this machine, between measured cells
    EXTRAPOLATED = "extrapolated"  # this machine, outside the measured range
    TRANSFERRED = "transferred"  # another machine or another software stack
    DATASHEET = "datasheet"  # a vendor's figure
    ASSUMED = "assumed"  # nobody measured or published it for this machine

    @property
    def rank(self) -> int:
        """0 for the strongest evidence, 5 for the weakest."""
        return _RANKS[self]

    @staticmethod
    def from_rank(rank: int) -> Evidence:
        """Inverse of ``rank``; raises IndexError outside 0..5."""
        return list(Evidence)[rank]

    @staticmethod
    def weakest(items: Iterable[Evidence]) -> Evidence:
        """The weakest of several; ``measured`` for none."""
        return max(items, key=lambda e: e.rank, default=Evidence.MEASURED)

    @staticmethod
    def main(shares: Mapping[Evidence, float]) -> Evidence:
        """The weakest class that makes up, with all weaker ones, more than ``MAIN_SHARE`` of a sum."""
        weaker = 0.0
        for evidence in reversed(Evidence):
            weaker += shares.get(evidence, 0.0)
            if weaker > MAIN_SHARE:
                return evidence
        return Evidence.MEASURED


_RANKS = {evidence: rank for rank, evidence in enumerate(Evidence)}


class Clock(StrEnum):
    """How a time was taken. A sum never mixes two clocks without a note."""

    DEVICE = "device"  # inside a running kernel, without launch
    GRAPH = "graph"  # replay of a captured CUDA graph
    STREAM = "stream"  # back-to-back launches on a stream (nccl-tests)
    EAGER = "eager"  # one host call each (PyTorch)


class Backend(StrEnum):
    """Communication library."""

    NCCL = "nccl"
    RCCL = "rccl"  # AMD's NCCL
    NVSHMEM = "nvshmem"
    MPI = "mpi"  # of imported CSV files: nothing here times it
    GLOO = "gloo"


RING_BACKENDS = (Backend.NCCL, Backend.RCCL)
"""Libraries of GPU vendors: rings and trees, or as many bytes; an all-to-all sends to each peer."""

LAW_BACKENDS = (*RING_BACKENDS, Backend.NVSHMEM)
"""Libraries whose times follow known laws of the links; others are known only where they were measured."""


COLLECTIVES = ("all_to_all", "reduce_scatter", "all_gather", "all_reduce", "broadcast")
"""Collectives of the model, by NCCL's names in Python style."""

PER_PEER = ("all_to_all", "all_gather", "reduce_scatter")
"""Collectives whose payload is divided among the ranks: below one byte per rank, nothing is sent."""

SAMPLES_ONLY = ("sendrecv",)  # operations that are measured to show the rate of one link, and not fitted
SAMPLE_OPERATIONS = (*COLLECTIVES, *SAMPLES_ONLY)  # operations that a sample may have
