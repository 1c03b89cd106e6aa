"""Gates for validation: the lowest bus bandwidth and the longest time that normal clusters show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.model.collectives import bus_factor
from perfmodel.schema.evidence import Evidence


class Gate(NamedTuple):
    """The slow end of the 95 % band of a collective at one size, with what it rests on.

    basis  what the band comes from, in words;  a normal cluster is slower in at most one of 40 cases
    """

    collective: str
    gpus: int
    gpus_per_node: int
    payload_bytes: float
    longest_time_s: float
    lowest_busbw_bytes_per_s: float
    evidence: str
    basis: str


def find_gates(
    model: CollectiveModel, collective: str, gpus: int, gpus_per_node: int, payload_bytes: Sequence[float]
) -> list[Gate]:
    """The gates of a collective on a group of ranks, by size; sizes as nccl-tests prints them [bytes].

    Limits: one rank sends nothing -> no gate
    """
    if gpus == 1:
        return []
    estimate = model.estimate(collective, np.asarray(payload_bytes, float), gpus, gpus_per_node)
    basis = model.table(collective, gpus, gpus_per_node).band[0].what
    factor = float(bus_factor(collective, gpus))
    return [
        Gate(
            collective, gpus, gpus_per_node, size, float(longest), size * factor / float(longest),
            str(Evidence.from_rank(int(rank))), basis,
        )
        for size, longest, rank in zip(payload_bytes, estimate.high_s, estimate.evidence, strict=True)
    ]  # fmt: skip
