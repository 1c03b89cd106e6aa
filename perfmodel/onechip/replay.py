"""Compares predicted with simulated times of mappings, on the same ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from perfmodel.onechip.answer import ChipAnswer
from perfmodel.onechip.mapping import Mapping
from perfmodel.onechip.programs import simulate_pieces
from perfmodel.onechip.simulate import Simulated
from perfmodel.onechip.traces import draw
from perfmodel.onechip.work import TablePiece

MOST_REQUESTS = 1_000_000


@dataclass(frozen=True, eq=False)
class Replayed:
    """A mapping with its predicted and its simulated time.

    what  its name;  simulated  the result; None if it takes more than ``most`` requests
    """

    what: str
    predicted_s: float
    simulated: Simulated | None

    @property
    def error(self) -> float:
        """Relative error, predicted over simulated minus 1 [-]; nan if not simulated."""
        return self.predicted_s / self.simulated.seconds - 1 if self.simulated else float("nan")

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, SI units."""
        found = self.simulated
        return {
            "what": self.what,
            "predicted_s": self.predicted_s,
            "simulated_s": found.seconds if found else None,
            "error": self.error,
            "gm_bytes": found.gm_bytes if found else None,
            "requests": found.requests if found else None,
            "hits": found.hits if found else None,
            "in_core": found.in_core if found else None,
        }


def replay_mappings(found: ChipAnswer, *, seed: int = 0, most: float = MOST_REQUESTS) -> list[Replayed]:
    """Simulates the mappings that an answer compares, on ids drawn from its distribution.

    First the symmetric mappings, in which every core has a slice of every table and all synchronize after
    each table: tables in global memory, then the best ``Way`` of each. Last the searched mapping, if it
    differs. Popular rows come first in their tables if the mapping cuts tables by popularity; else at random
    places.
    Limits: more than ``most`` requests -> predicted only
    """
    cost = found.cost
    rows = cost.tables.rows
    whole = all(piece.rows == (0, int(rows[piece.table])) for piece in found.mapping.pieces)
    trace = draw(cost.tables, int(cost.batch), cost.popular, seed, scattered=whole)

    def run(mapping: Mapping, lockstep: bool) -> Simulated | None:
        if trace.look_ups > most:
            return None
        cores = _of_cores(mapping, cost.chip.cores)
        return simulate_pieces(cost.chip, cost.tables, trace, cores, seed, lockstep=lockstep)

    gm, best = found.global_memory, found.best_symmetric
    answers = [
        Replayed("every core, GM", gm.time_s, run(gm.mapping(cost), True)),
        Replayed("every core, best ways", best.time_s, run(best.mapping(cost), True)),
    ]
    if not found.symmetric:
        answers.append(Replayed("cores own tables", found.time_s, run(found.mapping, False)))
    return answers


def _of_cores(mapping: Mapping, cores: int) -> Sequence[Sequence[TablePiece]]:
    """The pieces of each core, in their order. cores  number of cores"""
    lists: list[list[TablePiece]] = [[] for _ in range(cores)]
    for core, piece in zip(mapping.core.tolist(), mapping.pieces, strict=True):
        lists[core].append(piece)
    return lists
