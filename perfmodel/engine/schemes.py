"""Shardings and exchanges: the only place with their names and properties.

A *sharding* says how a table is cut, an *exchange* how its rows or bags get to the GPUs that need them. A
*way* (sharding option) is a sharding with its exchange, for all tables alike: ``row-wise-sparse``.
Other code asks for a property of a scheme (``copied``, ``by_domain`` ...), not for its name or code. Its
costs are in ``model.exchanges``; a ``Placement`` says which GPUs hold which part of a table.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any, TypeAlias

from perfmodel.schema.files import unknown_name

if TYPE_CHECKING:
    from numpy.typing import NDArray  # ``--help`` reads this file, and waits for no numpy

Kinds: TypeAlias = "int | NDArray[Any]"  # the code of an exchange, or an array of codes


@dataclass(frozen=True)
class Facts:
    """Properties of an exchange.

    word       its word on screens and in constraints on tables;  label  its words in a sentence
    also       other accepted names;  hot  whether the most popular rows may be replicated with it
    torchrec   why TorchRec cannot run it for pooled tables; "" if TorchRec can
    """

    word: str
    label: str = ""
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
    Exchange.RB: Facts("bags", "bags or their parts go to the samples' GPUs", ("all-to-all",), hot=True),
    Exchange.RS: Facts("reduced", "parts of bags are reduce-scattered over all GPUs", ("reduce-scatter",)),
    Exchange.SPARSE: Facts(
        "sparse",
        "only parts of bags that are not empty are sent",
        hot=True,
        torchrec="TorchRec exchanges all partial bags, not only the non-empty ones",
    ),
    Exchange.TWO_LEVEL: Facts(
        "two-level", "parts of bags are reduced inside scale-up domains, then sent across"
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
PARTIAL = (Exchange.RB, Exchange.RS, Exchange.SPARSE, Exchange.TWO_LEVEL)
"""Exchanges of bags or partial bags, for which lengths and ids go to the holders."""
HOT = tuple(kind for kind in Exchange if kind.facts.hot)
"""Exchanges of tables whose hot rows may be replicated."""
ALL = "all"  # the name of all sharding options together
PLANNED = "planned"  # the sharding of an answer in which each table has its own
FLAT = Exchange.RS  # usual exchange for rows over all GPUs


def list_exchanges(library: str) -> tuple[Exchange, ...]:
    """Exchanges that a library can run to add up partial bags from row parts on all GPUs.

    NVSHMEM 2.9 has no reduce-scatter; ``best`` chooses the library, and so the exchange, by size.
    """
    exchanges = {"best": (Exchange.RS, Exchange.RB), "nvshmem": (Exchange.RB,)}
    return exchanges.get(library, (Exchange.RS,))


def copied(exchange: Kinds) -> Any:
    """Whether the table is replicated on every rank; like the next three, for a code or an array of codes."""
    return exchange == Exchange.DP


def by_domain(exchange: Kinds) -> Any:
    """Whether row parts fill whole scale-up domains that reduce first."""
    return exchange == Exchange.TWO_LEVEL


def sends_rows(exchange: Kinds) -> Any:
    """Whether rows are sent, not bags or partial bags."""
    return exchange == Exchange.UB


def asks_once(exchange: Kinds) -> Any:
    """Whether a rank requests a row once, however many samples need it."""
    return exchange == Exchange.UB


def replace_sparse(exchange: Kinds, row_parts: Kinds) -> Any:
    """Exchange codes, with sparse bags replaced by all bags where a table has one row part: none is empty."""
    return exchange - (Exchange.SPARSE - Exchange.RB) * ((exchange == Exchange.SPARSE) & (row_parts == 1))


def fits(exchange: Exchange, row_parts: int, col_parts: int, gpus: int, domain: int) -> bool:
    """Whether a table in r row parts x c column parts can have an exchange on G GPUs in domains of g."""
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
    return _BY_NAME.get(_normalize(text).removeprefix("row-wise-"))


def _normalize(text: str) -> str:
    """A name as it is looked up: in lower case, with hyphens."""
    return text.strip().lower().replace("_", "-")


_BY_NAME = {
    _normalize(name): kind
    for kind in Exchange
    for name in (kind.key, kind.facts.word, *kind.facts.also)
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
    runs      who runs it; "" if nobody has published such a run;  also  other accepted names
    inside    whether all column parts are in one scale-up domain
    of_domains  whether it needs whole scale-up domains
    """

    name: str
    label: str
    exchange: Exchange
    rows: RowParts = RowParts.ONE
    columns: str = ""
    runs: str = TORCHREC
    also: tuple[str, ...] = ()
    inside: bool = field(init=False)
    of_domains: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "inside", self.columns == "domain")
        object.__setattr__(self, "of_domains", self.inside or bool(by_domain(self.exchange)))

    @property
    def torchrec(self) -> str:
        """TorchRec's ShardingType; "" if TorchRec has none."""
        shard = "_shard" if self.name == GRID else ""
        return self.name.replace("-", "_") + shard if self.runs == TORCHREC else ""

    @property
    def summary(self) -> str:
        """What distinguishes this sharding from others, in a few words: ``unique rows are sent``."""
        _, special, exchange = self.label.partition("; ")
        return exchange.partition(",")[0] if special else self.label

    def count_row_parts(self, gpus: int, domain: int, asked: int = 1) -> int:
        """Number of row parts on some GPUs in scale-up domains of ``domain`` GPUs.

        asked  the number that the user wants, used where the sharding allows any number
        """
        return {RowParts.ONE: 1, RowParts.DOMAIN: domain, RowParts.ALL: gpus, RowParts.ANY: asked}[self.rows]

    def limit_columns(self, gpus: int, domain: int) -> int:
        """Most column parts for which the GPUs have space, beside the fewest row parts: one GPU each."""
        limits = {"": 1, "gpus": gpus, "domain": domain, "domains": gpus // domain, "any": gpus // 2}
        return limits[self.columns]


DATA_PARALLEL = "data-parallel"
TABLE_WISE = "table-wise"
COLUMN_WISE = "column-wise"
ROW_WISE = "row-wise"
TABLE_ROW_WISE = "table-row-wise"
TABLE_COLUMN_WISE = "table-column-wise"
GRID = "grid"
IN_3D = "3d"
_OVER_ALL = "rows over all GPUs"
_OPTIONS = (
    Sharding(
        DATA_PARALLEL, "a copy on every GPU", Exchange.DP, also=(Exchange.DP.key, *Exchange.DP.facts.also)
    ),
    Sharding(TABLE_WISE, "the whole table on one GPU", Exchange.RB),
    Sharding(COLUMN_WISE, "columns over any GPUs", Exchange.RB, columns="gpus"),
    Sharding(ROW_WISE, _OVER_ALL, Exchange.RS, RowParts.ALL),
    Sharding(TABLE_ROW_WISE, "rows inside one scale-up domain", Exchange.TWO_LEVEL, RowParts.DOMAIN),
    Sharding(TABLE_COLUMN_WISE, "columns inside one scale-up domain", Exchange.RB, columns="domain"),
    Sharding(
        GRID,
        "columns over scale-up domains, rows inside each",
        Exchange.TWO_LEVEL,
        RowParts.DOMAIN,
        columns="domains",
    ),
    Sharding(IN_3D, "row parts and column parts on any GPUs", Exchange.RB, RowParts.ANY, "any", runs=_EMBARK),
    Sharding(
        "row-wise-two-level",
        f"{_OVER_ALL}; bags reduced inside each scale-up domain, then across",
        Exchange.TWO_LEVEL,
        RowParts.ALL,
        runs=_EMBARK,
        also=("two-level",),
    ),
    Sharding(
        "row-wise-sparse",
        f"{_OVER_ALL}; only bags that are not empty are sent",
        Exchange.SPARSE,
        RowParts.ALL,
        runs="",
        also=("sparse",),
    ),
    Sharding(
        "row-wise-ub",
        f"{_OVER_ALL}; unique rows are sent, and pooled where they arrive",
        Exchange.UB,
        RowParts.ALL,
        runs=_EMBARK,
        also=("ub", "unique"),
    ),
)
WAYS = {option.name: option for option in _OPTIONS}
"""Sharding options of all tables: each sharding with its usual exchange, row-wise also with three others."""
SHARDINGS = {name: sharding for name, sharding in WAYS.items() if not name.startswith(f"{ROW_WISE}-")}
"""Ways to cut a table, by name."""
SHORT = {option.exchange: option.also[0] for name, option in WAYS.items() if name not in SHARDINGS}
"""Exchanges of row-wise besides its usual one, with the suffix that names them in ``--sharding``."""
BY_DOMAIN = SHORT[Exchange.TWO_LEVEL]
ROWS_ONCE = f"{ROW_WISE}-{SHORT[Exchange.UB]}"  # the sharding option in which unique rows are sent
SEQUENCES = (DATA_PARALLEL, TABLE_WISE, COLUMN_WISE, ROW_WISE, ROWS_ONCE)
"""Shardings of TorchRec's EmbeddingCollection, of unpooled rows; ``ROWS_ONCE`` with use_index_dedup."""
_WAY_BY_NAME = {_normalize(name): option for option in WAYS.values() for name in (option.name, *option.also)}
OF_TORCHREC = {sharding.torchrec: sharding for sharding in SHARDINGS.values() if sharding.torchrec}
"""Shardings by TorchRec's ShardingType."""


def find_way(text: str, more: str = ALL) -> str:
    """The canonical name, in ``WAYS``, of a sharding option that a user typed.

    more  a further name that the caller accepts, for the error message
    Limits: unknown name -> BadInputError
    """
    option = _WAY_BY_NAME.get(_normalize(text))
    if option is None:
        names = [name if name in SHARDINGS else option.also[0] for name, option in WAYS.items()]
        raise unknown_name("sharding", text, [*names, more])
    return option.name
