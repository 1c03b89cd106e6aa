"""Shardings and exchanges: the one place where each has its names, and what is true of each.

Code elsewhere asks what a scheme has (``copied``, ``by_domain`` ...), not for its name or its code. What it
costs is in ``model.exchanges``; which GPUs hold which part of a table is in a ``Placement``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any

from perfmodel.schema.files import unknown_name


@dataclass(frozen=True)
class Facts:
    """What is true of an exchange.

    word       on screens, and in rules of what a table may be;  label  the same in a sentence
    reduction  in ``--reduction``, of partial bags; "": it is none;  also  other names that are read
    hot        the most popular rows may be on every rank as well
    torchrec   why TorchRec does not have it; "": it has
    """

    word: str
    label: str = ""
    reduction: str = ""
    also: tuple[str, ...] = ()
    hot: bool = False
    torchrec: str = ""


class Exchange(IntEnum):
    """How looked-up rows or bags reach the samples' owners; arrays hold the codes."""

    DP = 0
    RB = 1
    RS = 2
    SPARSE = 3
    TWO_LEVEL = 4
    UB = 5

    @property
    def facts(self) -> Facts:
        """What is true of it."""
        return _FACTS[self]

    @property
    def key(self) -> str:
        """Its name in plan files and JSON documents: dp, rb, rs, sparse, two_level, ub."""
        return self.name.lower()

    @property
    def legend(self) -> str:
        """``bags: bags or their parts go to the samples' GPUs``"""
        return f"{self.facts.word}: {self.facts.label}"


_FACTS = {
    Exchange.DP: Facts("none", also=("copies", "copy", "data-parallel")),
    Exchange.RB: Facts("bags", "bags or their parts go to the samples' GPUs", "all-to-all", hot=True),
    Exchange.RS: Facts("reduced", "parts of bags are reduce-scattered over all GPUs", "reduce-scatter"),
    Exchange.SPARSE: Facts(
        "sparse",
        "only parts of bags that are not empty are sent",
        "sparse",
        hot=True,
        torchrec="TorchRec exchanges all partial bags, not only the non-empty ones",
    ),
    Exchange.TWO_LEVEL: Facts(
        "two-level", "parts of bags are reduced inside NVLink domains, then sent across", "two-level"
    ),
    Exchange.UB: Facts(
        "unique",
        "each GPU fetches the different rows that it needs, and pools them",
        hot=True,
        torchrec="TorchRec exchanges bags, not unique rows",
    ),
}
EXCHANGED = (Exchange.RB, Exchange.SPARSE, Exchange.UB, Exchange.TWO_LEVEL, Exchange.RS)
"""Exchanges in which something is sent, in the order in which they are tried."""
PARTIAL = tuple(kind for kind in Exchange if kind.facts.reduction)
"""Exchanges of bags or their parts, of which lengths and ids go to the holders."""
HOT = tuple(kind for kind in Exchange if kind.facts.hot)
"""Exchanges of tables whose hot rows may be on every rank as well."""
AUTO = "auto"
REDUCTIONS: dict[str, Exchange | None] = {AUTO: None} | {
    kind.facts.reduction: kind for kind in (Exchange.RS, Exchange.RB, Exchange.TWO_LEVEL, Exchange.SPARSE)
}
"""How partial bags of a row-wise pass become bags, by the names of ``--reduction``."""


FLAT = Exchange.RS
"""Of rows over all GPUs, the usual exchange."""


def exchanges_of(library: str) -> tuple[Exchange, ...]:
    """How partial bags of rows over all GPUs may become bags with a library's collectives.

    NVSHMEM 2.9 has no reduce-scatter; of ``best`` the library, and so the exchange, is chosen by size.
    """
    known = {"best": (Exchange.RS, Exchange.RB), "nvshmem": (Exchange.RB,)}
    return known.get(library, (Exchange.RS,))


def copied(exchange: Any) -> Any:
    """Whether every rank has the table, of one code or each of an array."""
    return exchange == Exchange.DP


def by_domain(exchange: Any) -> Any:
    """Whether row parts fill whole NVLink domains, whose ranks reduce together; one code or an array."""
    return exchange == Exchange.TWO_LEVEL


def over_all(exchange: Any) -> Any:
    """Whether row parts are on all ranks, which reduce together; one code or an array."""
    return exchange == Exchange.RS


def sends_rows(exchange: Any) -> Any:
    """Whether rows travel, not bags or their parts; one code or an array."""
    return exchange == Exchange.UB


def asks_once(exchange: Any) -> Any:
    """Whether a rank asks for a row once, however many of its samples need it; one code or an array."""
    return exchange == Exchange.UB


def unfilled(exchange: Any, row_parts: Any) -> Any:
    """Codes of exchanges; of a table in one row part every bag is full, so sparse bags count as all bags."""
    return exchange - (Exchange.SPARSE - Exchange.RB) * ((exchange == Exchange.SPARSE) & (row_parts == 1))


def fits(exchange: Exchange, row_parts: int, col_parts: int, gpus: int, domain: int) -> bool:
    """Whether a table in r x c parts on G GPUs in NVLink domains of g may be exchanged so."""
    r, c = row_parts, col_parts
    return {
        Exchange.DP: (r, c) == (1, 1),
        Exchange.RB: True,
        Exchange.RS: (r, c) == (gpus, 1) and gpus > 1,
        Exchange.SPARSE: r > 1,
        Exchange.TWO_LEVEL: domain > 1 and gpus % domain == 0 and r % domain == 0,
        Exchange.UB: gpus > 1,
    }[exchange]


def exchange_named(text: str) -> Exchange | None:
    """The exchange that any of its names means, however it is hyphened; None: no name of one."""
    return _BY_NAME.get(_plain(text).removeprefix("row-wise-"))


def usual_reduction(text: str) -> str:
    """A name of ``--reduction`` as ``REDUCTIONS`` has it; what names none of them stays as it was typed."""
    kind = exchange_named(text)
    return (kind.facts.reduction if kind else "") or text


def _plain(text: str) -> str:
    return text.strip().lower().replace("_", "-")


_BY_NAME = {
    _plain(name): kind
    for kind in Exchange
    for name in (kind.key, kind.facts.word, kind.facts.reduction, *kind.facts.also)
    if name not in ("", Exchange.DP.facts.word)
}


class RowParts(Enum):
    """How many row parts a sharding has."""

    ONE = "one"
    DOMAIN = "one for each GPU of an NVLink domain"
    ALL = "one for each GPU"
    ANY = "any number"


@dataclass(frozen=True)
class Sharding:
    """A way to cut a table, as TorchRec and EMBark call it.

    label     what it means;  exchange  its usual one;  rows  how many row parts
    columns   GPUs that column parts may be on: "" where there are none, else gpus, domain, domains or any
    torchrec  TorchRec's ShardingType; "": none;  also  other names that are read
    other     who runs it where TorchRec does not; "": nobody has published that
    """

    name: str
    label: str
    exchange: Exchange
    rows: RowParts = RowParts.ONE
    columns: str = ""
    torchrec: str = ""
    also: tuple[str, ...] = ()
    other: str = ""

    @property
    def runs(self) -> str:
        """Who runs it; "": nobody has published that."""
        return "TorchRec" if self.torchrec else self.other

    @property
    def of_domains(self) -> bool:
        """Whether it needs whole NVLink domains."""
        return by_domain(self.exchange) or self.inside

    @property
    def inside(self) -> bool:
        """Whether column parts are in one NVLink domain."""
        return self.columns == "domain"

    def row_parts(self, gpus: int, domain: int, asked: int = 1) -> int:
        """r on G GPUs in domains of g. asked  where it may be any"""
        return {RowParts.ONE: 1, RowParts.DOMAIN: domain, RowParts.ALL: gpus, RowParts.ANY: asked}[self.rows]

    def most_columns(self, gpus: int, domain: int) -> int:
        """Column parts that there are GPUs for, each with the least row parts."""
        return {"": 1, "gpus": gpus, "domain": domain, "domains": gpus // domain, "any": gpus // 2}[
            self.columns
        ]


_EMBARK = "EMBark"
_CUTS = (
    Sharding(
        "data-parallel",
        "a copy on every GPU",
        Exchange.DP,
        torchrec="data_parallel",
        also=(Exchange.DP.key, *Exchange.DP.facts.also),
    ),
    Sharding("table-wise", "the whole table on one GPU", Exchange.RB, torchrec="table_wise"),
    Sharding("column-wise", "columns over any GPUs", Exchange.RB, columns="gpus", torchrec="column_wise"),
    Sharding("row-wise", "rows over all GPUs", Exchange.RS, RowParts.ALL, torchrec="row_wise"),
    Sharding(
        "table-row-wise",
        "rows inside one NVLink domain",
        Exchange.TWO_LEVEL,
        RowParts.DOMAIN,
        torchrec="table_row_wise",
    ),
    Sharding(
        "table-column-wise",
        "columns inside one NVLink domain",
        Exchange.RB,
        columns="domain",
        torchrec="table_column_wise",
    ),
    Sharding(
        "grid",
        "columns over NVLink domains, rows inside each",
        Exchange.TWO_LEVEL,
        RowParts.DOMAIN,
        "domains",
        torchrec="grid_shard",
    ),
    Sharding("3d", "row parts and column parts on any GPUs", Exchange.RB, RowParts.ANY, "any", other=_EMBARK),
)
DATA_PARALLEL, TABLE_WISE, COLUMN_WISE, ROW_WISE, TABLE_ROW_WISE, TABLE_COLUMN_WISE, GRID, IN_3D = (
    each.name for each in _CUTS
)
_ROWS_OVER_ALL = {
    Exchange.TWO_LEVEL: ("bags reduced inside each NVLink domain, then across", _EMBARK),
    Exchange.SPARSE: ("only bags that are not empty are sent", ""),
    Exchange.UB: ("unique rows are sent, and pooled where they arrive", _EMBARK),
}
SHARDINGS = {each.name: each for each in _CUTS}
"""Ways to cut a table."""
BY_DOMAIN = Exchange.TWO_LEVEL.facts.reduction
BY_ROWS = tuple(kind.facts.reduction for kind in _ROWS_OVER_ALL if kind.facts.reduction)
"""Of ``REDUCTIONS`` those that are not a flat exchange."""
SHORT = {kind: kind.key.replace("_", "-") for kind in _ROWS_OVER_ALL}
"""Exchanges that row-wise may have besides its usual one, by which ``--sharding`` names it too."""
WAYS = SHARDINGS | {
    f"{ROW_WISE}-{short}": Sharding(
        f"{ROW_WISE}-{short}",
        f"{SHARDINGS[ROW_WISE].label}; {_ROWS_OVER_ALL[kind][0]}",
        kind,
        RowParts.ALL,
        also=tuple(dict.fromkeys((short, kind.facts.word))),
        other=_ROWS_OVER_ALL[kind][1],
    )
    for kind, short in SHORT.items()
}
"""Ways to shard all tables alike: the cuts with their usual exchange, row-wise with three others."""
ROWS_ONCE = f"{ROW_WISE}-{SHORT[Exchange.UB]}"
"""The way of which unique rows are sent."""
_WAY_BY_NAME = {_plain(name): each for each in WAYS.values() for name in (each.name, *each.also)}
OF_TORCHREC = {each.torchrec: each for each in _CUTS if each.torchrec}
"""By TorchRec's ShardingType."""


def way_named(text: str, more: str = "all") -> str:
    """The way that a user typed, by its name in ``WAYS``.

    more  a name that is taken beside them where it is asked, for the refusal
    Limits: unknown name -> BadInputError
    """
    found = _WAY_BY_NAME.get(_plain(text))
    if found is None:
        raise unknown_name(
            "sharding",
            text,
            [*(each.also[0] if each.name not in SHARDINGS else each.name for each in WAYS.values()), more],
        )
    return found.name


def usual_way(exchange: Exchange, *, cut: bool) -> str:
    """The shortest name of a way to shard tables that has this exchange.

    cut  whether tables are in several parts
    """
    if exchange in SHORT:
        return SHORT[exchange]
    return next(
        each.name for each in _CUTS if each.exchange == exchange and (not cut or each.name != TABLE_WISE)
    )


def torchrec_type(exchange: Exchange, *, cut: bool) -> str:
    """TorchRec's ShardingType of tables that are exchanged so; "": none.

    cut  whether any of them has column parts
    """
    found = [each for each in _CUTS if each.exchange == exchange and each.torchrec and not each.inside]
    return next(
        (each.torchrec for each in found if bool(each.columns) == cut), found[0].torchrec if found else ""
    )


def sharding_of(
    exchange: Exchange, row_parts: int, col_parts: int, gpus: int, domain: int, *, inside: bool
) -> str:
    """The name among ``SHARDINGS`` of a table in r x c parts.

    inside  whether all of them are in one NVLink domain
    """
    if copied(exchange):
        return DATA_PARALLEL
    if (row_parts, col_parts) == (1, 1):
        return TABLE_WISE
    if row_parts == 1:
        return TABLE_COLUMN_WISE if inside and domain < gpus else COLUMN_WISE
    if (row_parts, col_parts) == (gpus, 1):
        return ROW_WISE
    if by_domain(exchange) and row_parts == domain:
        return TABLE_ROW_WISE if col_parts == 1 else GRID
    return IN_3D
