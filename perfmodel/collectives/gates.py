"""Gates for validation: the lowest bus bandwidth and the longest time that normal clusters show."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.model.collectives import compute_bus_factor
from perfmodel.schema.evidence import Evidence


class Gate(NamedTuple):
    """The slow end of the 95 % band of a collective at one size, with what it rests on.

    basis  what the band comes from, in words;  a normal cluster is slower in at most one of 40 cases
    """

    machine: str
    calibration: str
    collective: str
    gpus: int
    gpus_per_node: int
    payload_bytes: float
    longest_time_s: float
    lowest_busbw_bytes_per_s: float
    evidence: str
    basis: str


def find_gates(groups: Iterable[tuple[CollectiveModel, str, int, int, Iterable[float]]]) -> list[Gate]:
    """The gates of each (model, collective, GPUs, GPUs per node, sizes as nccl-tests prints them [bytes]).

    Limits: one rank sends nothing -> no gate;  a size that comes twice -> one gate
    """
    gates = []
    for model, name, gpus, node, sizes in groups:
        for size in map(float, sizes if gpus > 1 else ()):
            estimate = model.estimate(name, size, gpus, node)
            longest, evidence = float(estimate.high_s), str(Evidence.from_rank(int(estimate.evidence)))
            busbw = size * float(compute_bus_factor(name, gpus)) / longest
            basis = model.table(name, gpus, node).band[0].what
            where = model.machine.name, model.calibration_id
            gates.append(Gate(*where, name, gpus, node, size, longest, busbw, evidence, basis))
    return list(dict.fromkeys(gates))
