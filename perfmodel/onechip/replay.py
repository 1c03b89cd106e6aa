"""Predicted beside simulated: tables in each way, and whole mappings, on the same ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfmodel.onechip.answer import ChipAnswer
from perfmodel.onechip.cost import ChipCost
from perfmodel.onechip.layout import BURST_BYTES
from perfmodel.onechip.programs import simulate_pieces, symmetric_pieces
from perfmodel.onechip.simulate import Simulated
from perfmodel.onechip.traces import Trace, draw
from perfmodel.onechip.work import CoreWork, TablePiece, Way

EVERY_CORE, ONE_CORE = "every core", "one core"
PLACES = (EVERY_CORE, ONE_CORE)
"""A slice of the batch on every core, or all of it on one."""

MOST_REQUESTS = 1_000_000


@dataclass(frozen=True, eq=False)
class Replayed:
    """One thing that was predicted and simulated.

    what       a table, or a mapping;  way  ``Way.label``, "" of a mapping
    predicted_s  [s], inf where buffers are too small
    simulated  None where buffers are too small, or more than ``most`` requests would go out
    """

    what: str
    way: str
    predicted_s: float
    simulated: Simulated | None

    @property
    def error(self) -> float:
        """Predicted over simulated, less 1 [-]; nan where nothing was simulated."""
        return self.predicted_s / self.simulated.seconds - 1 if self.simulated else float("nan")

    def to_dict(self) -> dict[str, Any]:
        """For ``--json``, SI units."""
        found = self.simulated
        return {
            "what": self.what,
            "way": self.way,
            "predicted_s": self.predicted_s,
            "simulated_s": found.seconds if found else None,
            "error": self.error,
            "gm_bytes": found.gm_bytes if found else None,
            "requests": found.requests if found else None,
            "hits": found.hits if found else None,
            "in_core": found.in_core if found else None,
        }


def replay_table(
    cost: ChipCost,
    trace: Trace,
    table: int,
    way: Way,
    place: str = EVERY_CORE,
    *,
    name: str = "",
    seed: int = 0,
    most: float = MOST_REQUESTS,
) -> Replayed:
    """One table of a set in one way, predicted and simulated.

    seed  where tables begin in memory;  most  requests: nothing is simulated beyond
    Limits: buffers too small -> predicted inf, not simulated
    """
    rows, dim = int(cost.tables.rows[table]), int(cost.tables.dim[table])
    if place == EVERY_CORE:
        pieces = _only(symmetric_pieces(cost.chip, cost.tables, int(cost.batch), _all(cost, way)), table)
    else:
        pieces = [[TablePiece(table, way, (0, rows), (0, dim), (0, int(cost.batch)))]]
    bags = np.array([piece.bags[1] - piece.bags[0] for core in pieces for piece in core])
    work = cost.work(table, way, rows, dim, bags, lockstep=place == EVERY_CORE)
    predicted = cost.batch_s(np.arange(bags.size), np.full(bags.size, table), work).seconds
    if not np.isfinite(predicted) or requests(cost, [way], [table], work) > most:
        return Replayed(name, way.label, predicted, None)
    return Replayed(name, way.label, predicted, simulate_pieces(cost.chip, cost.tables, trace, pieces, seed))


def requests(cost: ChipCost, ways: Sequence[int], tables: Sequence[int], work: CoreWork) -> float:
    """About how many requests go out for some work."""
    gathered = sum(
        cost.batch * float(cost.tables.pooling[table])
        for table, way in zip(tables, ways, strict=True)
        if way == Way.GM
    )
    streams = float(np.sum(work.core_s)) * cost.chip.value("dma_bytes_per_s") / BURST_BYTES
    return gathered + (streams if any(Way(way).streams for way in ways) else 0)


def replay_mappings(found: ChipAnswer, *, seed: int = 0, most: float = MOST_REQUESTS) -> list[Replayed]:
    """The mappings that a plan compares, on ids drawn from its distribution.

    Every core has a slice of every table: all GM, or the best ways, cores meeting after each table; or all
    GM in one order without meeting. Last the mapping that was found, where it is another one.
    Popular rows come first in their tables where the mapping cuts tables by popularity, else anywhere.
    Limits: more than ``most`` requests -> predicted only
    """
    cost = found.cost
    rows = cost.tables.rows
    whole = all(piece.rows == (0, int(rows[piece.table])) for piece in found.mapping.pieces)
    trace = draw(cost.tables, int(cost.batch), cost.popular, seed, scattered=whole)
    few = trace.look_ups <= most

    def run(cores: Sequence[Sequence[TablePiece]], lockstep: bool) -> Simulated | None:
        return simulate_pieces(cost.chip, cost.tables, trace, cores, seed, lockstep=lockstep) if few else None

    def symmetric(ways: Sequence[int]) -> list[list[TablePiece]]:
        return symmetric_pieces(cost.chip, cost.tables, int(cost.batch), [Way(way) for way in ways])

    gm, best = found.global_memory, found.best_symmetric
    answers = [
        Replayed("every core, GM", "", gm.time_s, run(symmetric(gm.way.tolist()), True)),
        Replayed("every core, best ways", "", best.time_s, run(symmetric(best.way.tolist()), True)),
        Replayed(
            "every core, GM, one order",
            "",
            found.in_any_order.seconds,
            run(symmetric(gm.way.tolist()), False),
        ),
    ]
    if not found.symmetric:
        lists: list[list[TablePiece]] = [[] for _ in range(cost.chip.cores)]
        for core, piece in zip(found.mapping.core.tolist(), found.mapping.pieces, strict=True):
            lists[core].append(piece)
        answers.append(Replayed("cores own tables", "", found.time_s, run(lists, False)))
    return answers


def _all(cost: ChipCost, way: Way) -> list[Way]:
    return [way] * cost.tables.rows.size


def _only(cores: list[list[TablePiece]], table: int) -> list[list[TablePiece]]:
    return [[piece for piece in pieces if piece.table == table] for pieces in cores if pieces]


def chosen(ways: Sequence[Replayed]) -> tuple[Replayed, Replayed] | None:
    """Of what was simulated: what is predicted fastest, and what is. None: fewer than two to choose from."""
    seen = [one for one in ways if one.simulated is not None]
    if len(seen) < 2:
        return None
    return (
        min(seen, key=lambda one: one.predicted_s),
        min(seen, key=lambda one: one.simulated.seconds if one.simulated else np.inf),
    )
