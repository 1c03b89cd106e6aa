"""The greedy that people write: copies by saving per byte, then the largest shard to the emptiest rank.

Three numbers decide: the share of the memory for copies, how large a shard may be, and how bags of tables
travel that must be cut by rows. All combinations of a few values are tried, and the fastest by our model is
the plan; nothing of the search's code is used.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray

from perfmodel.engine.cost import Evaluator
from perfmodel.engine.placement import Placement, Plan, Scheme
from perfmodel.engine.schemes import Exchange

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_COPIES = (0.0, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9, 0.97)
"""Shares of a rank's memory that copies may take."""
_TARGETS = (np.inf, 2.0, 1.0, 0.5, 0.25)
"""Work of a shard over that of a rank in balance: columns are halved while a shard has more."""
_NARROWEST = 4
_ROUND = 1.0001


class PerByte:
    """The greedy for one evaluator and a memory limit.

    work  [T] time that a rank needs to look a whole table up and to send its bags to all others
    copied  [T] the time if every rank has a copy: its own look-ups alone
    """

    def __init__(self, evaluator: Evaluator, limit_bytes: float) -> None:
        self.evaluator, self.limit = evaluator, limit_bytes
        tables = evaluator.tables
        t = np.arange(len(tables))
        self.size = np.sum(evaluator.memories.count_shard(t, 1, 1), axis=0)
        sharded = evaluator.count_shards(t, Exchange.RB, 1, 1)
        copy = evaluator.count_shards(t, Exchange.DP, 1, 1)
        mean = (sharded.own / evaluator.gpus + sharded.everywhere).sum(axis=0)
        price = self._price(np.maximum(mean, copy.everywhere.sum(axis=0)))
        self.work, self.sent, self.copied = (
            sharded.own @ price,
            sharded.everywhere @ price,
            copy.everywhere @ price,
        )

    def _price(self, loads: Array) -> Array:
        """Seconds a byte of every resource [K] near these loads."""
        step = np.maximum(loads * 0.1, 1.0)
        times_after = self.evaluator.estimate_times(loads + np.diag(step))
        return np.asarray((times_after - self.evaluator.estimate_times(loads)) / step)

    def plans(self) -> Iterator[Plan]:
        """One for each combination, where all of it fits."""
        for share, target in product(_COPIES, _TARGETS):
            copies = self._copies(share)
            for kind in (Exchange.RB, Exchange.SPARSE, Exchange.TWO_LEVEL):
                planned = self._plan(copies, target, kind)
                if planned is None:
                    continue
                plan, by_rows = planned
                yield plan
                if not by_rows:  # the kind did not matter
                    break

    def _copies(self, share: float) -> NDArray[np.bool_]:
        """Tables that save most per byte, as many as fit into this share of the memory."""
        saving = self.sent + self.work / self.evaluator.gpus - self.copied
        order = np.argsort(-saving / self.size, kind="stable")
        order = order[saving[order] > 0]
        chosen = np.zeros(saving.size, dtype=bool)
        chosen[order[np.cumsum(self.size[order]) <= share * self.limit]] = True
        return chosen

    def _plan(self, copies: NDArray[np.bool_], target: float, kind: Exchange) -> tuple[Plan, bool] | None:
        gpus, domain, tables = self.evaluator.gpus, self.evaluator.domain, self.evaluator.tables
        room = self.limit - float(self.size[copies].sum())
        sharded = np.flatnonzero(~copies)
        limit = target * float(self.work[sharded].sum()) / gpus
        schemes = {int(t): self._cut(int(t), limit, room, kind) for t in sharded}
        by_rows = any(scheme.row_parts > 1 for scheme in schemes.values())
        if by_rows and kind == Exchange.TWO_LEVEL and gpus % domain:
            return None
        ranks = self._dealt(schemes, room)
        if ranks is None:
            return None
        placements = tuple(
            Placement.of(schemes[t], ranks[t]) if t in ranks else Placement.of(Scheme(Exchange.DP))
            for t in range(len(tables))
        )
        plan = Plan(tables, placements, gpus, domain)
        fits = float(self.evaluator.memory(plan).total_bytes.max()) <= self.limit * _ROUND
        return (plan, by_rows) if fits else None

    def _cut(self, t: int, most: float, room: float, kind: Exchange) -> Scheme:
        """Columns halved while a shard has more work than ``most``, then rows where it has no room."""
        tables, gpus = self.evaluator.tables, self.evaluator.gpus
        r, c, dim = 1, 1, int(tables.dim[t])
        while (
            self.work[t] / c > most and dim % (2 * c) == 0 and dim // (2 * c) >= _NARROWEST and 2 * c <= gpus
        ):
            c *= 2
        while self.size[t] / (r * c) > room / 2 and 2 * r * c <= gpus and 2 * r <= tables.rows[t]:
            r *= 2
        if r > 1 and kind == Exchange.TWO_LEVEL:
            r = -(-r // self.evaluator.domain) * self.evaluator.domain
            c = min(c, gpus // r)
        return Scheme(Exchange.RB if r == 1 else kind, r, c)

    def _dealt(self, schemes: dict[int, Scheme], room: float) -> dict[int, list[int]] | None:
        """Ranks of all shards, the largest first, each to the rank with the least work that has room."""
        gpus, domain = self.evaluator.gpus, self.evaluator.domain
        work, held = np.zeros(gpus), np.zeros(gpus)
        ranks_of: dict[int, list[int]] = {}
        for t in sorted(schemes, key=lambda t: -self.work[t] / schemes[t].parts):
            scheme = schemes[t]
            share, needs = self.work[t] / scheme.parts, self.size[t] / scheme.parts
            free = held + needs <= room
            if scheme.kind == Exchange.TWO_LEVEL:
                ranks = self.find_domains(scheme, np.where(free, work, np.inf), domain)
            else:
                ranks = heapq.nsmallest(scheme.parts, np.flatnonzero(free).tolist(), key=work.__getitem__)
            if len(ranks) < scheme.parts:
                return None
            work[ranks] += share
            held[ranks] += needs
            ranks_of[t] = ranks
        return ranks_of

    @staticmethod
    def find_domains(scheme: Scheme, work: Array, domain: int) -> list[int]:
        """Whole domains for each column part."""
        by_domain = work.reshape(-1, domain).sum(axis=1)
        domains = scheme.row_parts // domain
        chosen = np.argsort(by_domain, kind="stable")[: domains * scheme.col_parts]
        if np.isinf(by_domain[chosen]).any():
            return []
        ranks = chosen.reshape(scheme.col_parts, domains)[:, :, np.newaxis] * domain + np.arange(domain)
        return [int(rank) for rank in ranks.reshape(scheme.col_parts, -1).T.reshape(-1)]


def per_byte(evaluator: Evaluator, limit_bytes: float) -> Plan | None:
    """The fastest plan of the greedy by our model; None where none of them fits."""
    plans = PerByte(evaluator, limit_bytes).plans()
    return min(plans, key=lambda plan: evaluator.cost(plan).time_s, default=None)
