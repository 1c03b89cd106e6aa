"""Plans by trying what a plan file may say: what a bound is judged by.

Nothing of search and bound is used: plans are made as documents, read by the reader of plan files, and cost
what the public evaluation of a plan says. Any row and column parts, any hot rows, any ranks; of listed plans
the numbers of hot rows that are listed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.engine.schemes import exchange_named
from perfmodel.plan import Evaluator, Plan, PlanTables, Scheme, plan_from
from perfmodel.plan.choices.options import Options, hot_rows, options_of

Entry = dict[str, Any]

_HOT = ("rb", "sparse", "ub")
_CUT = ("rb", "rs", "sparse", "two_level", "ub")


@dataclass(frozen=True, eq=False)
class Case:
    """Tables on GPUs with so much memory; what plans are tried for.

    listed  whether only plans of the listed schemes are tried, as docs/commands.md says which those are
    """

    evaluator: Evaluator
    limit_bytes: float
    listed: bool = False

    @cached_property
    def options(self) -> Options:
        """What a search may choose, if memory has no end."""
        return options_of(self.evaluator, np.inf)

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

    def needs_bytes(self, entries: list[Entry]) -> NDArray[np.float64]:
        """Memory of every rank [G]."""
        return self.evaluator.memory(self.plan(entries)).total_bytes

    def plan(self, entries: list[Entry]) -> Plan:
        """What a plan file with these entries says."""
        return plan_from(self.document(entries), self.tables)

    def time_s(self, entries: list[Entry]) -> float:
        """What ``plan --plan`` says that it takes [s]; infinite where it does not fit."""
        plan = self.plan(entries)
        loads = self.evaluator.loads(plan)
        if self.evaluator.memory(plan, loads).total_bytes.max() > self.limit_bytes:
            return np.inf
        return self.evaluator.step(loads).time_s


def schemes(case: Case, table: int) -> list[tuple[str, int, int]]:
    """(exchange, row parts, column parts) of a table that a plan file may say."""
    G, g = case.evaluator.gpus, case.evaluator.domain
    rows, dim = int(case.tables.rows[table]), int(case.tables.dim[table])
    found = [("dp", 1, 1)]
    for r, c in product(range(1, min(G, rows) + 1), range(1, min(G, dim) + 1)):
        if r * c > G:
            continue
        for kind in _CUT:
            if kind == "rs" and (r, c) != (G, 1):
                continue
            if kind == "two_level" and (G % g or r % g):
                continue
            if not case.listed or is_listed(kind, r, c, dim, G, g):
                found.append((kind, r, c))
    return found


def is_listed(kind: str, r: int, c: int, dim: int, gpus: int, domain: int) -> bool:
    """Whether a search may choose these parts."""

    def power(x: int) -> bool:
        return x & (x - 1) == 0

    rows = power(r) or r == gpus or (r % domain == 0 and power(r // domain))
    columns = c == 1 or (dim // c >= 4 and (dim % c == 0 or power(c)))
    return (
        rows and columns and not (kind == "sparse" and r == 1) and not (kind == "two_level" and domain == 1)
    )


def listed_hot(case: Case, table: int, scheme: tuple[str, int, int]) -> list[int]:
    """Numbers of hot rows that a search may choose with a scheme."""
    rows = int(case.tables.rows[table])
    kind, r, c = scheme
    found = hot_rows(case.tables.ids[table], float(rows)) if 1 in (r, c) else ()
    each = ((h, Scheme(exchange_named(kind), r, c, h)) for h in found if h <= rows - r)
    return [h for h, of in each if case.options.find(table, of) is not None]


def entry(scheme: tuple[str, int, int], hot: int, ranks: list[int]) -> Entry:
    """One table of a plan file."""
    kind, r, c = scheme
    return {"exchange": kind, "row_parts": r, "col_parts": c, "hot_rows": hot, "ranks": ranks}


def any_hot(case: Case, table: int, scheme: tuple[str, int, int], random: np.random.Generator) -> int:
    """Hot rows that go with a scheme: none, or any number, each size as likely as another."""
    most = int(case.tables.rows[table]) - scheme[1]
    if scheme[0] not in _HOT or most < 1 or random.random() < 0.4:
        return 0
    if case.listed:
        return int(random.choice([0, *listed_hot(case, table, scheme)]))
    return int(np.clip(np.exp(random.uniform(0, np.log(most + 1))), 1, most))


def any_ranks(case: Case, scheme: tuple[str, int, int], random: np.random.Generator) -> list[int]:
    """Ranks for the shards of a scheme."""
    kind, r, c = scheme
    G, g = case.evaluator.gpus, case.evaluator.domain
    if kind == "dp":
        return []
    if kind != "two_level":
        return [int(x) for x in random.permutation(G)[: r * c]]
    return _in_domains([int(d) for d in random.permutation(G // g)[: r * c // g]], r, c, g)


def any_entry(case: Case, table: int, random: np.random.Generator) -> Entry:
    """Any way to place a table, each exchange as likely as another."""
    found = schemes(case, table)
    kinds = sorted({kind for kind, _, _ in found})
    kind = kinds[int(random.integers(len(kinds)))]
    of_kind = [scheme for scheme in found if scheme[0] == kind]
    scheme = of_kind[int(random.integers(len(of_kind)))]
    return entry(scheme, any_hot(case, table, scheme, random), any_ranks(case, scheme, random))


def changed(case: Case, table: int, now: Entry, random: np.random.Generator) -> Entry:
    """The same table a little otherwise: another exchange, parts, hot rows or ranks."""
    known = schemes(case, table)
    scheme = (now["exchange"], now["row_parts"], now["col_parts"])
    hot, ranks = now["hot_rows"], now["ranks"]
    what = random.integers(5)
    if what == 0:
        return any_entry(case, table, random)
    if what == 1 and ranks:
        return entry(scheme, hot, any_ranks(case, scheme, random))
    if what == 2 and scheme[0] in _HOT:
        return entry(scheme, any_hot(case, table, scheme, random), ranks)
    step = [s for s in known if s[0] == scheme[0] and abs(s[1] - scheme[1]) + abs(s[2] - scheme[2]) <= 2]
    if what == 3:
        step = [s for s in known if s[1:] == scheme[1:]]
    if not step:
        return any_entry(case, table, random)
    to = step[int(random.integers(len(step)))]
    return entry(to, any_hot(case, table, to, random), any_ranks(case, to, random))


def starts(case: Case, random: np.random.Generator, count: int) -> Iterator[list[Entry]]:
    """Tables alike in every way there is, then any plans."""
    T = len(case.tables)
    per_table = [schemes(case, table) for table in range(T)]
    for scheme in dict.fromkeys(scheme for of_table in per_table for scheme in of_table):
        at, G, plan = 0, case.evaluator.gpus, []
        for table in range(T):
            one = scheme if scheme in per_table[table] else ("dp", 1, 1)
            ranks = any_ranks(case, one, random)
            if one[0] not in ("dp", "two_level"):
                ranks = [(at + i) % G for i in range(len(ranks))]
                at += len(ranks)
            plan.append(entry(one, 0, ranks))
        yield plan
    for _ in range(count):
        yield [any_entry(case, table, random) for table in range(T)]


def descended(case: Case, random: np.random.Generator, plans: int, steps: int) -> tuple[float, list[Entry]]:
    """The best plan of a descent from the best few of many: any change of a table that helps.

    plans  that are drawn at random;  steps  changes that are tried
    Limits: nothing fits -> infinite
    """
    drawn = [(case.time_s(plan), plan) for plan in starts(case, random, plans)]
    best = sorted(drawn, key=lambda pair: pair[0])[:2]
    for _ in range(steps):
        at = int(random.integers(len(best)))
        time_s, plan = best[at]
        other = list(plan)
        for table in random.permutation(len(plan))[: random.choice([1, 1, 2, 3])]:
            other[table] = changed(case, int(table), plan[table], random)
        tried = case.time_s(other)
        if tried < time_s:
            best[at] = tried, other
    return min(best, key=lambda pair: pair[0])


def _in_domains(domains: Sequence[int], r: int, c: int, g: int) -> list[int]:
    """Ranks of the parts of a two-level table whose column parts fill these domains."""
    each = r // g
    columns = [[d * g + i for d in domains[j * each : (j + 1) * each] for i in range(g)] for j in range(c)]
    return [columns[j][i] for i in range(r) for j in range(c)]
