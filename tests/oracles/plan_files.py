"""Any plan that a plan file may say, as a document: row and column parts, hot rows, ranks.

Nothing of the search is used: documents are read by the reader of plan files.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from perfmodel.engine.cost import Evaluator
from perfmodel.engine.placement import Plan
from perfmodel.engine.tables import PlanTables
from perfmodel.plan.plan_files import plan_from

Entry = dict[str, Any]

_HOT = ("rb", "sparse", "ub")
_CUT = ("rb", "rs", "sparse", "two_level", "ub")


@dataclass(frozen=True, eq=False)
class Case:
    """Tables on GPUs, for which plans are drawn."""

    evaluator: Evaluator

    @property
    def tables(self) -> PlanTables:
        """Of the plans."""
        return self.evaluator.tables

    def document(self, entries: list[Entry]) -> dict[str, Any]:
        """A plan file that places the tables so."""
        tables = self.tables
        return {
            "schema_version": 1,
            "model": tables.model,
            "tables_fingerprint": tables.fingerprint,
            "gpus": self.evaluator.gpus,
            "domain_gpus": self.evaluator.domain,
            "placements": [
                {"table": name, **entry} for name, entry in zip(tables.names, entries, strict=True)
            ],
        }

    def plan(self, entries: list[Entry]) -> Plan:
        """What a plan file with these entries says."""
        return plan_from(self.document(entries), self.tables)


def list_schemes(case: Case, table: int) -> list[tuple[str, int, int]]:
    """(exchange, row parts, column parts) of a table that a plan file may say."""
    G, g = case.evaluator.gpus, case.evaluator.domain
    rows, dim = int(case.tables.rows[table]), int(case.tables.dim[table])
    kinds = [("dp", 1, 1)]
    for r, c in product(range(1, min(G, rows) + 1), range(1, min(G, dim) + 1)):
        for kind in _CUT if r * c <= G else ():
            barred = kind == "rs" and (r, c) != (G, 1)
            if not barred and not (kind == "two_level" and (G % g or r % g)):
                kinds.append((kind, r, c))
    return kinds


def draw_hot(rows: int, kind: str, r: int, random: np.random.Generator) -> int:
    """Hot rows that go with a scheme: none, or any number, each size as likely as another."""
    limit = rows - r
    if kind not in _HOT or limit < 1 or random.random() < 0.4:
        return 0
    return int(np.clip(np.exp(random.uniform(0, np.log(limit + 1))), 1, limit))


def draw_ranks(case: Case, kind: str, r: int, c: int, random: np.random.Generator) -> list[int]:
    """Ranks for the shards of a scheme; the column parts of a two-level one fill domains."""
    G, g = case.evaluator.gpus, case.evaluator.domain
    if kind == "dp":
        return []
    if kind != "two_level":
        return [int(x) for x in random.permutation(G)[: r * c]]
    domains, count = random.permutation(G // g)[: r * c // g].tolist(), r // g
    columns = [[d * g + i for d in domains[j * count : (j + 1) * count] for i in range(g)] for j in range(c)]
    return [columns[j][i] for i in range(r) for j in range(c)]


def draw_entry(case: Case, table: int, random: np.random.Generator) -> Entry:
    """Any way to place a table in a plan file, each exchange as likely as another."""
    ways = list_schemes(case, table)
    kinds = sorted({kind for kind, _, _ in ways})
    kind = kinds[int(random.integers(len(kinds)))]
    of_kind = [scheme for scheme in ways if scheme[0] == kind]
    _, r, c = of_kind[int(random.integers(len(of_kind)))]
    hot = draw_hot(int(case.tables.rows[table]), kind, r, random)
    ranks = draw_ranks(case, kind, r, c, random)
    return {"exchange": kind, "row_parts": r, "col_parts": c, "hot_rows": hot, "ranks": ranks}
