"""Shardings and exchanges: the only place with their names and properties.

A *sharding* says how a table is cut, an *exchange* how its rows or bags get to the GPUs that need them. A
*way* (sharding option) is a sharding with its exchange, for all tables alike: ``row-wise-sparse``.
Other code asks for a property of a scheme (``copied``, ``by_domain`` ...), not for its name or code. Its
costs are in ``model.exchanges``; a ``Placement`` says which GPUs hold which part of a table.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any

from perfmodel.schema.files import unknown_name


@dataclass(frozen=True)
class Facts:
    """Properties of an exchange.

    word       its word on screens and in constraints on tables;  label  its words in a sentence
    reduction  its name in ``REDUCTIONS``, if it reduces partial bags; else ""
    also       other accepted names;  hot  whether the most popular rows may be replicated with it
    torchrec   why TorchRec cannot run it for pooled tables; "" if TorchRec can
    """

    word: str
    label: str = ""
    reduction: str = ""
    also: tuple[str, ...] = ()
    hot: bool = False
    torchrec: str = ""


class Exchange(IntEnum):
    """How looked-up rows or bags get to the GPUs of their samples. Arrays hold its integers, as codes."""

    DP = 0
    RB = 1
    RS = 2
    SPARSE = 3
    TWO_LEVEL = 4
    UB = 5

    @property
    def facts(self) -> Facts:
        """Properties of this exchange."""
        return _FACTS[self]

    @property
    def key(self) -> str:
        """Its name in plan files and JSON documents: dp, rb, rs, sparse, two_level, ub."""
        return self.name.lower()

    @property
    def legend(self) -> str:
        """Line of a legend: ``bags: bags or their parts go to the samples' GPUs``"""
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
        "two-level", "parts of bags are reduced inside scale-up domains, then sent across", "two-level"
    ),
    Exchange.UB: Facts(
        "unique",
        "each GPU fetches the different rows that it needs, and pools them",
        hot=True,
        torchrec="of pooled tables TorchRec exchanges bags, not unique rows; of unpooled ones it sends them "
        "(EmbeddingCollection with use_index_dedup)",
    ),
}
EXCHANGED = (Exchange.RB, Exchange.SPARSE, Exchange.UB, Exchange.TWO_LEVEL, Exchange.RS)
"""Exchanges in which something is sent, in the order in which they are tried."""
PARTIAL = tuple(kind for kind in Exchange if kind.facts.reduction)
"""Exchanges of bags or partial bags, for which lengths and ids go to the holders."""
HOT = tuple(kind for kind in Exchange if kind.facts.hot)
"""Exchanges of tables whose hot rows may be replicated."""
AUTO = "auto"
ALL = "all"
"""The name of all sharding options together."""
REDUCTIONS: dict[str, Exchange | None] = {AUTO: None} | {
    kind.facts.reduction: kind for kind in (Exchange.RS, Exchange.RB, Exchange.TWO_LEVEL, Exchange.SPARSE)
}
"""How a row-wise pass reduces partial bags to bags, by the names of ``perfmodel.project``'s ``reduction``."""


FLAT = Exchange.RS
"""Usual exchange for rows over all GPUs."""


def exchanges_of(library: str) -> tuple[Exchange, ...]:
    """Exchanges that a library can run to add up partial bags from row parts on all GPUs.

    NVSHMEM 2.9 has no reduce-scatter; ``best`` chooses the library, and so the exchange, by size.
    """
    known = {"best": (Exchange.RS, Exchange.RB), "nvshmem": (Exchange.RB,)}
    return known.get(library, (Exchange.RS,))


def copied(exchange: Any) -> Any:
    """Whether the table is replicated on every rank; for a code or an array of codes."""
    return exchange == Exchange.DP


def by_domain(exchange: Any) -> Any:
    """Whether row parts fill whole scale-up domains that reduce first; for a code or an array of codes."""
    return exchange == Exchange.TWO_LEVEL


def over_all(exchange: Any) -> Any:
    """Whether row parts are on all ranks, which reduce together; for a code or an array of codes."""
    return exchange == Exchange.RS


def sends_rows(exchange: Any) -> Any:
    """Whether rows are sent, not bags or partial bags; for a code or an array of codes."""
    return exchange == Exchange.UB


def asks_once(exchange: Any) -> Any:
    """Whether a rank requests a row once, however many samples need it; for a code or an array of codes."""
    return exchange == Exchange.UB


def unfilled(exchange: Any, row_parts: Any) -> Any:
    """The exchange codes, with sparse bags replaced by all bags where a table has one row part: no bag is
    empty.

    exchange  codes of exchanges;  row_parts  number of row parts of each table
    """
    return exchange - (Exchange.SPARSE - Exchange.RB) * ((exchange == Exchange.SPARSE) & (row_parts == 1))


def fits(exchange: Exchange, row_parts: int, col_parts: int, gpus: int, domain: int) -> bool:
    """Whether a table in r x c parts can have this exchange on G GPUs in scale-up domains of g."""
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
    """The exchange that has this name, with or without hyphens; None if no exchange has it."""
    return _BY_NAME.get(_plain(text).removeprefix("row-wise-"))


def usual_reduction(text: str) -> str:
    """The name in ``REDUCTIONS`` for a ``reduction`` as given; an unknown text is returned as given."""
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
    """Rule that gives the number of row parts of a sharding."""

    ONE = "one"
    DOMAIN = "one for each GPU of a scale-up domain"
    ALL = "one for each GPU"
    ANY = "any number"


TORCHREC = "TorchRec"
_EMBARK = "EMBark"


@dataclass(frozen=True)
class Sharding:
    """A sharding: a way to cut a table, as TorchRec and EMBark name it.

    label     its meaning, in words;  exchange  its usual exchange
    rows      rule for its number of row parts
    columns   where its column parts may be: gpus, domain, domains or any; "" if it has no column parts
    torchrec  TorchRec's ShardingType; "" if TorchRec has none;  also  other accepted names
    other     who runs it, if not TorchRec; "" if nobody has published such a run
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
        """Who runs this sharding; "" if nobody has published such a run."""
        return TORCHREC if self.torchrec else self.other

    @property
    def summary(self) -> str:
        """What distinguishes this sharding from others, in a few words: ``unique rows are sent``."""
        _, special, exchange = self.label.partition("; ")
        return exchange.partition(",")[0] if special else self.label

    @property
    def of_domains(self) -> bool:
        """Whether it needs whole scale-up domains."""
        return by_domain(self.exchange) or self.inside

    @property
    def inside(self) -> bool:
        """Whether all column parts are in one scale-up domain."""
        return self.columns == "domain"

    def row_parts(self, gpus: int, domain: int, asked: int = 1) -> int:
        """Number of row parts on some GPUs in scale-up domains of ``domain`` GPUs.

        asked  the number that the user wants, used where the sharding allows any number
        """
        return {RowParts.ONE: 1, RowParts.DOMAIN: domain, RowParts.ALL: gpus, RowParts.ANY: asked}[self.rows]

    def most_columns(self, gpus: int, domain: int) -> int:
        """Largest number of column parts that the GPUs have space for, with the fewest row parts."""
        return {"": 1, "gpus": gpus, "domain": domain, "domains": gpus // domain, "any": gpus // 2}[
            self.columns
        ]


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
        "rows inside one scale-up domain",
        Exchange.TWO_LEVEL,
        RowParts.DOMAIN,
        torchrec="table_row_wise",
    ),
    Sharding(
        "table-column-wise",
        "columns inside one scale-up domain",
        Exchange.RB,
        columns="domain",
        torchrec="table_column_wise",
    ),
    Sharding(
        "grid",
        "columns over scale-up domains, rows inside each",
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
    Exchange.TWO_LEVEL: ("bags reduced inside each scale-up domain, then across", _EMBARK),
    Exchange.SPARSE: ("only bags that are not empty are sent", ""),
    Exchange.UB: ("unique rows are sent, and pooled where they arrive", _EMBARK),
}
SHARDINGS = {each.name: each for each in _CUTS}
"""Ways to cut a table, by name."""
BY_DOMAIN = Exchange.TWO_LEVEL.facts.reduction
BY_ROWS = tuple(kind.facts.reduction for kind in _ROWS_OVER_ALL if kind.facts.reduction)
"""Names in ``REDUCTIONS`` of row-wise exchanges, without ``auto``."""
SHORT = {kind: kind.key.replace("_", "-") for kind in _ROWS_OVER_ALL}
"""Exchanges of row-wise besides its usual one, with the suffix that names them in ``--sharding``."""
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
"""Sharding options of all tables: each sharding with its usual exchange, row-wise also with three others."""
ROWS_ONCE = f"{ROW_WISE}-{SHORT[Exchange.UB]}"
"""The sharding option in which unique rows are sent."""
UNIQUE_ROWS = f"unique rows ({WAYS[ROWS_ONCE].other}'s {Exchange.UB.name})"
"""What ``ROWS_ONCE`` sends, and whose it is, in words."""
_WAY_BY_NAME = {_plain(name): each for each in WAYS.values() for name in (each.name, *each.also)}
OF_TORCHREC = {each.torchrec: each for each in _CUTS if each.torchrec}
"""Shardings by TorchRec's ShardingType."""


def way_named(text: str, more: str = ALL) -> str:
    """The canonical name, in ``WAYS``, of a sharding option that a user typed.

    more  a further name that the caller accepts, for the error message
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


def sharding_of(
    exchange: Exchange, row_parts: int, col_parts: int, gpus: int, domain: int, *, inside: bool
) -> str:
    """The name, among ``SHARDINGS``, of the sharding of a table with these numbers of row and column parts.

    inside  whether all parts are in one scale-up domain
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
