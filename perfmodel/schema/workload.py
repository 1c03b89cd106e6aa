"""The look-ups: distributions of ids over rows, tables, and sets of tables."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from perfmodel.errors import BadInputError
from perfmodel.schema.files import find_file, looks_like_path, shown, unknown_name
from perfmodel.schema.gate import MOST_SKEW, read_csv
from perfmodel.units import parse_ratio

# bytes of one element of an embedding row; rows may have more: engine.tables
DTYPE_BYTES: dict[str, int] = {"fp64": 8, "fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}
DTYPES = tuple(DTYPE_BYTES)  # types of the elements of a row; arrays hold a type as its place here
ID_DTYPE_BYTES: dict[str, int] = {"int64": 8, "int32": 4}  # bytes of one id
WEIGHT_BYTES = 4  # bytes of the weight of an id: fp32 in TorchRec
# precisions of bags on the wire: plain numbers, without scales per bag
PAYLOADS = ("fp32", "fp16", "bf16", "fp8")
_WHAT = "distribution file"
_COLUMNS = ("row_share", "lookup_share")
_SUMS_TO_ONE = 1e-4  # tolerance for rounded shares
_MOST_BINS = 10_000
KINDS = "uniform, zipf:A (e.g. zipf:1.05), one-row, histogram:NAME, histogram:FILE.csv"


@dataclass(frozen=True)
class Distribution:
    """Popularity of the rows of a table of any size.

    name   as typed: uniform, zipf:1.05, one-row, histogram:fbgemm-t856
    skew   exponent of Zipf's law [-]; 0 for another law
    bins   of a histogram: (share of the rows, share of the look-ups) [-], most popular first; else ()
    """

    name: str
    skew: float = 0.0
    bins: tuple[tuple[float, float], ...] = ()

    @property
    def uniform(self) -> bool:
        """Whether all rows are equally popular."""
        return self.name == "uniform"


UNIFORM = Distribution("uniform")
ONE_ROW = Distribution("one-row")


@dataclass(frozen=True)
class Table:
    """One embedding table.

    pooling       rows of one bag;  weighted  whether each id comes with a weight for its row
    features      that look its rows up: each has a bag for each sample
    buckets       of rows that no cut divides; 0: rows are cut anywhere
    distribution  popularity of its rows; None: the default of all tables
    """

    name: str
    rows: int
    dim: int
    pooling: float
    dtype: str = "fp32"
    weighted: bool = False
    distribution: Distribution | None = None
    features: int = 1
    buckets: int = 0

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weight of an id; 0 if bags are not weighted."""
        return WEIGHT_BYTES if self.weighted else 0


@dataclass(frozen=True)
class TableSet:
    """Named tables that are looked up together, with the source of the list; no two have one name."""

    name: str
    tables: tuple[Table, ...]
    source: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        """Check that table names are unique."""
        names = [table.name for table in self.tables]
        if len(set(names)) < len(names):
            twice = Counter(names).most_common()[0][0]
            words = f"{self.name} has two tables of the name {twice!r}."
            raise BadInputError(words, "answers name tables: give each its own name.")


def element_bytes(name: str, kind: Literal["dtype", "payload", "id dtype"] = "dtype") -> int:
    """Bytes of an element of a row, of a bag on the wire, or of an id; an unknown name is BadInputError."""
    sizes = ID_DTYPE_BYTES if kind == "id dtype" else DTYPE_BYTES
    names = PAYLOADS if kind == "payload" else tuple(sizes)
    if name not in names:
        meant = name.lower().replace("bfloat", "bf").replace("float", "fp")  # as torch and numpy call it
        raise unknown_name(kind, name, names, meant=meant)
    return sizes[name]


def zipf(skew: float) -> Distribution:
    """Zipf's law. Limits: 0 -> uniform;  negative, above ``MOST_SKEW`` or not a number -> BadInputError"""
    if not 0 <= skew <= MOST_SKEW:
        step = f"the exponent is from 0 (uniform ids) to {MOST_SKEW} (as good as {ONE_ROW.name})."
        raise BadInputError(f"skew {skew:g} cannot be used.", step)
    return Distribution(f"zipf:{skew:g}", float(skew)) if skew else UNIFORM


def parse_distribution(text: str | None) -> Distribution:
    """The popularity of rows that ``--distribution`` means: zipf:1.05, histogram:FILE …; None: uniform."""
    kind, colon, name = (UNIFORM.name if text is None else text).strip().partition(":")
    kind = kind.strip().lower()
    name = name.strip()
    laws = {law.name: law for law in (UNIFORM, ONE_ROW)}
    if kind in laws and not colon:
        return laws[kind]
    if kind == "zipf" and colon:
        return zipf(parse_ratio(name, "the exponent of zipf", allow_zero=True))
    if kind != "histogram" or not name:
        raise BadInputError(f"distribution {shown(text)} is not known.", f"give one of: {KINDS}.")
    is_path = looks_like_path(name, [".csv"])
    path = find_file("histogram", name if is_path else name.lower(), "distributions", ".csv")
    return read_histogram(path, "" if is_path else path.stem)


def read_histogram(path: Path, name: str = "") -> Distribution:
    """Shares of rows and of look-ups from a CSV file, one bin of rows per line, in any order."""
    names, rows, numbers = read_csv(path, _WHAT, _MOST_BINS)
    if names != list(_COLUMNS):
        words = f"{_WHAT} {path} has the columns {shown(', '.join(names))}."
        raise BadInputError(words, f"give {', '.join(_COLUMNS)}.")
    bins: list[tuple[float, float]] = []
    for number, row in zip(numbers, rows, strict=True):
        try:
            row_share, lookup_share = map(float, row)
        except ValueError:
            row_share = lookup_share = -1.0
        if not (row_share >= 0 <= lookup_share) or (lookup_share and not row_share):  # they sum to 1, below
            words = f"{_WHAT} {path}, line {number}: {shown(','.join(row))} is not two shares."
            raise BadInputError(words, "give 0 to 1 each, and look-ups of some rows alone.")
        bins.append((row_share, lookup_share))
    for place, column in enumerate(_COLUMNS):
        total = sum(shares[place] for shares in bins)
        if abs(total - 1) > _SUMS_TO_ONE:
            raise BadInputError(
                f"{_WHAT} {path}: {column} sums to {total:.8g}.",
                "all shares of a column together are 1: add what is missing, or divide each by the sum.",
            )
    used = sorted((pair for pair in bins if pair[0]), key=lambda pair: -pair[1] / pair[0])
    return Distribution(f"histogram:{name or path}", 0.0, tuple(used))
