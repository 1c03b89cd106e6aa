"""What a plan specifies: for every table its cut, its exchange, and the rank of each part."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from perfmodel.engine.schemes import (
    COLUMN_WISE,
    DATA_PARALLEL,
    GRID,
    HOT,
    IN_3D,
    ROW_WISE,
    SHARDINGS,
    TABLE_COLUMN_WISE,
    TABLE_ROW_WISE,
    TABLE_WISE,
    WAYS,
    Exchange,
)
from perfmodel.engine.tables import Array, Ints, PlanTables
from perfmodel.errors import BadInputError
from perfmodel.schema.files import unknown_name
from perfmodel.units import counted

Ranks = NDArray[np.int64]


@dataclass(frozen=True, order=True)
class Scheme:
    """How one table is cut and exchanged; a ``Placement`` adds the ranks that hold the parts.

    kind        ``Exchange`` of the looked-up rows or bags
    row_parts, col_parts  r and c, numbers of row parts and of column parts [-]
    hot_rows    h, number of its most popular rows that every rank replicates; the parts hold the rest
    """

    kind: Exchange
    row_parts: int = 1
    col_parts: int = 1
    hot_rows: int = 0

    @property
    def copied(self) -> bool:
        """Whether the table is replicated on every rank."""
        return self.kind == Exchange.DP

    @property
    def by_domain(self) -> bool:
        """Whether its row parts fill whole scale-up domains."""
        return self.kind == Exchange.TWO_LEVEL

    def sharding(self, gpus: int, domain: int, *, inside: bool = False) -> str:
        """Name of the sharding in ``SHARDINGS``. inside  whether all parts are in one scale-up domain"""
        r, c = self.row_parts, self.col_parts
        if self.copied:
            return DATA_PARALLEL
        if (r, c) == (1, 1):
            return TABLE_WISE
        if r == 1:
            return TABLE_COLUMN_WISE if inside and domain < gpus else COLUMN_WISE
        if (r, c) == (gpus, 1):
            return ROW_WISE
        if self.by_domain and r == domain:
            return TABLE_ROW_WISE if c == 1 else GRID
        return IN_3D

    @property
    def parts(self) -> int:
        """Number of shards, r c; 0 for a replicated table."""
        return 0 if self.copied else self.row_parts * self.col_parts

    @staticmethod
    def from_name(name: str, gpus: int, domain: int, row_parts: int = 1, col_parts: int = 1) -> Scheme:
        """The scheme that a name of ``SHARDINGS`` stands for, with its usual exchange.

        gpus  G;  domain  g, ranks of one scale-up domain (G where one domain holds all)
        row_parts  used by 3d only;  col_parts  used by column-wise, table-column-wise, grid and 3d
        Limits: unknown name -> BadInputError;  one domain -> table-row-wise is row-wise
        """
        if name not in SHARDINGS:
            raise unknown_name("sharding", name, SHARDINGS)
        cut = SHARDINGS[name]
        return Scheme(
            cut.exchange, cut.count_row_parts(gpus, domain, row_parts), col_parts if cut.columns else 1
        )


COPY = Scheme(Exchange.DP)  # scheme of a replicated table
WHOLE = Scheme(Exchange.RB)  # scheme of a table that is whole on one rank


@dataclass(frozen=True, eq=False)
class Placement:
    """A table's scheme and the ranks that hold its shards.

    ranks  [r c] of r row parts and c column parts: the rank of row part i and column part j is
           ``ranks[i c + j]``; empty for data-parallel
    """

    scheme: Scheme
    ranks: Ranks

    @staticmethod
    def of(scheme: Scheme, ranks: Iterable[int] = ()) -> Placement:
        """A placement whose ranks are given as any integers."""
        return Placement(scheme, np.fromiter(ranks, dtype=np.int64))

    def sharding(self, gpus: int, domain: int) -> str:
        """Name of the sharding in ``SHARDINGS``."""
        inside = self.ranks.size and np.ptp(self.ranks // domain) == 0
        return self.scheme.sharding(gpus, domain, inside=bool(inside))


@dataclass(frozen=True, eq=False)
class Plan:
    """Placements of all tables on G ranks, checked on construction.

    gpus    G;  domain  g, ranks of one scale-up domain: ranks d g .. d g + g - 1 are domain d
    Limits: more row parts than rows, more column parts than columns, a rank that does not exist or holds two
            shards of one table, a reduce-scatter that is not over all ranks, or not over whole
            domains -> BadInputError that names the table
    """

    tables: PlanTables
    placements: tuple[Placement, ...]
    gpus: int
    domain: int

    def __post_init__(self) -> None:
        """Raise BadInputError if there cannot be such a plan."""
        if len(self.placements) != len(self.tables):
            raise BadInputError(
                f"{counted(len(self.placements), 'placement')} for the "
                f"{counted(len(self.tables), 'table')} of {self.tables.model}.",
                "give one for every table.",
            )
        # Equal tables that share a placement object are checked once; thousands may.
        checked = set()
        placed = set[int]()
        shapes = zip(self.tables.rows.tolist(), self.tables.dim.tolist(), strict=True)
        for table, (shape, placement) in enumerate(zip(shapes, self.placements, strict=True)):
            if (shape, id(placement)) not in checked:
                check_scheme(self.tables, table, placement.scheme, self.gpus, self.domain)
                checked.add((shape, id(placement)))
            if id(placement) not in placed:
                self._check_ranks(table, placement)
                placed.add(id(placement))

    def _check_ranks(self, table: int, placement: Placement) -> None:
        """Raise BadInputError, with the table's name, if ranks cannot hold the shards of its scheme."""
        name = self.tables.names[table]
        ranks = placement.ranks
        scheme = placement.scheme
        if ranks.shape != (scheme.parts,):
            raise BadInputError(
                f"table {name!r}: {counted(ranks.size, 'rank')} for {counted(scheme.parts, 'shard')}.",
                "give the rank of every shard (none for data-parallel).",
            )
        if not ranks.size:
            return
        wrong = ranks[(ranks < 0) | (ranks >= self.gpus)]
        if wrong.size:
            raise BadInputError(
                f"table {name!r}: rank {wrong[0]} does not exist.", f"ranks are 0 to {self.gpus - 1}."
            )
        if np.bincount(ranks).max() > 1:
            raise BadInputError(
                f"table {name!r}: one rank holds two of its shards.", "give every shard a rank of its own."
            )
        if scheme.by_domain:
            for column in ranks.reshape(scheme.row_parts, scheme.col_parts).T:
                _, counts = np.unique(column // self.domain, return_counts=True)
                if (counts != self.domain).any():
                    raise BadInputError(
                        f"table {name!r}: {scheme.kind.key} has {counts.min()} of the {self.domain} ranks "
                        "of a domain.",
                        "its row parts must fill whole scale-up domains, for all of them reduce together.",
                    )

    @cached_property
    def schemes(self) -> tuple[Ranks, Ranks, Ranks, Ranks]:
        """(``Exchange``, row parts, column parts, replicated hot rows) of every table, each [T]."""
        schemes = (placement.scheme for placement in self.placements)
        columns = [(x.kind, x.row_parts, x.col_parts, x.hot_rows) for x in schemes]
        kinds, row_parts, col_parts, hot_rows = np.array(columns, dtype=np.int64).T.copy()
        return kinds, row_parts, col_parts, hot_rows

    @property
    def kinds(self) -> Ranks:
        """``Exchange`` of every table, shape [T]."""
        return self.schemes[0]

    @property
    def hot_rows(self) -> Ranks:
        """How many rows of each table are replicated on all ranks, shape [T]."""
        return self.schemes[3]

    @cached_property
    def shards(self) -> tuple[Ranks, Ranks]:
        """(table, rank) of every shard, each [S]; replicated tables have no shards."""
        sizes = [p.ranks.size for p in self.placements]
        return np.repeat(np.arange(len(sizes)), sizes), np.concatenate([p.ranks for p in self.placements])


def check_scheme(tables: PlanTables, table: int, scheme: Scheme, gpus: int, domain: int) -> None:
    """Raise BadInputError, with the reason, if a table, by its index, cannot have a scheme on these GPUs."""
    rows, dim = int(tables.rows[table]), int(tables.dim[table])
    r, c = scheme.row_parts, scheme.col_parts
    kind = scheme.kind
    hot = scheme.hot_rows
    problem: tuple[str, str] | None = None
    if r < 1 or c < 1:
        problem = f"{r} row parts and {c} column parts", "give 1 or more of each."
    elif c > dim:
        problem = f"{c} column parts of {dim} columns", f"give at most {dim} column parts."
    elif hot < 0:
        problem = f"{hot} hot rows", "give 0 or more."
    elif hot and kind not in HOT:
        names = ", ".join(exchange.key for exchange in HOT)
        problem = f"{kind.key} with {hot} hot rows", f"hot rows go with {names}."
    elif hot and r > rows - hot:
        problem = f"{r} row parts beside {hot} hot rows of {rows}", "give fewer hot rows or row parts."
    elif r > rows:
        problem = (
            f"{r} row parts of {rows} rows",
            f"give fewer row parts, or place it {DATA_PARALLEL} or {TABLE_WISE}.",
        )
    elif scheme.copied and (r, c) != (1, 1):
        problem = f"{kind.key} in {r} x {c} parts", "a table on every GPU is not cut."
    elif r * c > gpus:
        problem = f"{r} x {c} shards on {gpus} GPUs", "every shard needs a GPU of its own."
    elif kind == Exchange.RS and (r, c) != (gpus, 1):
        problem = (
            f"{kind.key} with {r} x {c} parts",
            f"a reduce-scatter over all needs {gpus} row parts and 1 column part.",
        )
    elif scheme.by_domain and gpus % domain:
        problem = f"{kind.key} on {gpus} GPUs in domains of {domain}", "it needs whole scale-up domains."
    elif scheme.by_domain and r % domain:
        problem = f"{kind.key} with {r} row parts", f"give a multiple of the {domain} GPUs of a domain."
    if problem:
        raise BadInputError(f"table {tables.names[table]!r} cannot be cut so: {problem[0]}.", problem[1])


def deal_shards(
    sharding: str, cut: list[Scheme], kind_of: Ints, weight: Array, gpus: int, domain: int
) -> list[Placement]:
    """Placements of all tables [T]: heaviest shards first, each to the ranks or domains with least weight.

    cut, weight   scheme of each kind of table [Q], and weight of one of its shards, in any unit [Q]
    kind_of       kind of each table [T];  sharding  of ``WAYS``;  gpus, domain  G and g
    Tables of one kind that begin with equal weight on every rank are dealt in rounds, each like the first.
    Equal placements are one object.
    """
    held = np.zeros(gpus)
    placed: dict[int, Placement] = {}
    placements: dict[tuple[Scheme, bytes], Placement] = {}
    order = np.argsort(-weight[kind_of], kind="stable")
    for run in np.split(order, np.flatnonzero(np.diff(kind_of[order])) + 1):
        kind = kind_of[run[0]]
        scheme = cut[kind]
        shard_weight = float(weight[kind])
        even = run[1:].size and not np.ptp(held)  # all ranks hold as much, so that rounds repeat
        dealt: list[Placement] = []
        while len(dealt) < run.size:
            ranks = find_lightest(sharding, scheme, held, gpus, domain)
            held[ranks] += shard_weight
            key = scheme, ranks.tobytes()
            if key not in placements:
                placements[key] = Placement(scheme, ranks)
            dealt.append(placements[key])
            if even and not np.ptp(held):
                break
        placed |= {table: dealt[n % len(dealt)] for n, table in enumerate(run.tolist())}
        for n in range(len(dealt), run.size):
            held[dealt[n % len(dealt)].ranks] += shard_weight
    return [placed[table] for table in range(order.size)]


def find_lightest(sharding: str, scheme: Scheme, held: Array, gpus: int, domain: int) -> Ints:
    """Rank of each shard of the next table [r c]: the ranks, or the domains, that hold the least so far.

    held  weight of the shards that each rank has so far, in any unit [gpus];  sharding  of ``WAYS``
    Limits: a table over all ranks -> ranks in order
    """
    if not scheme.copied and scheme.row_parts == gpus:
        return np.arange(gpus)
    if scheme.by_domain:
        domains = scheme.row_parts // domain
        chosen = np.argsort(held.reshape(-1, domain).sum(axis=1), kind="stable")[: domains * scheme.col_parts]
        # [column parts, domains of a column, ranks of a domain], of ranks d g + 0 ... d g + g - 1.
        ranks = np.sort(chosen).reshape(-1, domains)[:, :, np.newaxis] * domain + np.arange(domain)
        return np.asarray(ranks.reshape(scheme.col_parts, -1).T.ravel())
    if scheme.parts == 1:
        return np.array([np.argmin(held)])
    start = 0
    if WAYS[sharding].inside:
        start = int(np.argmin(held.reshape(-1, domain).sum(axis=1))) * domain
        held = held[start : start + domain]
    return np.sort(np.argsort(held, kind="stable")[: scheme.parts]) + start
