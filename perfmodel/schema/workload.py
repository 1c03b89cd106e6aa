"""The look-ups: distributions of ids over rows, tables, and sets of tables."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from perfmodel.errors import BadInputError
from perfmodel.resources import data_names, data_path
from perfmodel.schema.files import looks_like_path, shown, unknown_name
from perfmodel.schema.gate import MOST_SKEW, read_csv_lines
from perfmodel.units import parse_ratio

DTYPE_BYTES: dict[str, int] = {"fp64": 8, "fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}
"""Bytes of one element of an embedding row. Rows may have more: ``engine.tables``."""

DTYPES = tuple(DTYPE_BYTES)
"""Types of the elements of a row; arrays hold a type as its place here."""

ID_DTYPE_BYTES: dict[str, int] = {"int64": 8, "int32": 4}
"""Bytes of one id."""

WEIGHT_BYTES = 4
"""Bytes of the weight of an id: fp32 in TorchRec."""

PAYLOADS = ("fp32", "fp16", "bf16", "fp8")
"""Precisions of bags on the wire: plain numbers, without scales per bag."""

_BYTES = {
    "dtype": DTYPE_BYTES,
    "payload": {name: DTYPE_BYTES[name] for name in PAYLOADS},
    "id dtype": ID_DTYPE_BYTES,
}
_WHAT = "distribution file"
_FOLDER = "distributions"
_COLUMNS = ("row_share", "lookup_share")
_SUMS_TO_ONE = 1e-4  # tolerance for rounded shares
_MOST_BINS = 10_000
KINDS = "uniform, zipf:A (e.g. zipf:1.05), one-row, histogram:NAME, histogram:FILE.csv"
"""Possible distributions, in words."""


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
    """Named tables that are looked up together, with the source of the list.

    Limits: two tables of one name -> BadInputError
    """

    name: str
    tables: tuple[Table, ...]
    source: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        """Check that table names are unique."""
        names = [table.name for table in self.tables]
        if len(set(names)) < len(names):
            twice = Counter(names).most_common(1)[0][0]
            words = f"{self.name} has two tables of the name {twice!r}."
            raise BadInputError(words, "answers name tables: give each its own name.")


def element_bytes(name: str, kind: Literal["dtype", "payload", "id dtype"] = "dtype") -> int:
    """Bytes of an element of a row, of a bag on the wire, or of an id; an unknown name is BadInputError."""
    if name not in _BYTES[kind]:
        error = unknown_name(kind, name, _BYTES[kind])
        meant = name.lower().replace("bfloat", "bf").replace("float", "fp")
        if meant in _BYTES[kind]:  # as torch and numpy call it
            error.next_step = f"did you mean {meant}? {error.next_step}"
        raise error
    return _BYTES[kind][name]


def zipf(skew: float) -> Distribution:
    """Zipf's law. Limits: 0 -> uniform;  negative, above ``MOST_SKEW`` or not a number -> BadInputError"""
    if not 0 <= skew <= MOST_SKEW:
        step = f"the exponent is from 0 (uniform ids) to {MOST_SKEW} (as good as {ONE_ROW.name})."
        raise BadInputError(f"skew {skew:g} cannot be used.", step)
    return Distribution(f"zipf:{skew:g}", float(skew)) if skew else UNIFORM


def list_histograms() -> list[str]:
    """Names of the shipped histograms."""
    return data_names(_FOLDER, ".csv")


def parse_distribution(text: str | None) -> Distribution:
    """The distribution that ``--distribution`` means; None: uniform.

    Limits: an unknown law or name, a negative exponent, a file without shares -> BadInputError
    """
    if text is None:
        return UNIFORM
    kind, _, tail = text.strip().partition(":")
    kind, name = kind.strip().lower(), tail.strip()
    fixed = {law.name: law for law in (UNIFORM, ONE_ROW)}
    if kind in fixed and ":" not in text:
        return fixed[kind]
    if kind == "zipf" and ":" in text:
        return zipf(parse_ratio(tail, "the exponent of zipf", allow_zero=True))
    if kind != "histogram" or not name:
        raise BadInputError(f"distribution {shown(text)} is not known.", f"give one of: {KINDS}.")
    if looks_like_path(name, [".csv"]):
        return read_histogram(Path(name))
    shipped = next((x for x in list_histograms() if x.lower() == name.lower()), None)
    if shipped is None:
        raise unknown_name("histogram", name, list_histograms())
    return read_histogram(data_path(_FOLDER, f"{shipped}.csv"), shipped)


def read_histogram(path: Path, name: str = "") -> Distribution:
    """Shares of rows and of look-ups from a CSV file, one bin of rows per line.

    Columns row_share and lookup_share, both from 0 to 1 with sums of 1. Bins without rows and look-ups are
    left out; the order does not matter.
    Limits: other columns, negative shares, look-ups of no rows, sums that are not 1 within 0.0001
            -> BadInputError that states the sum
    """
    (_, header), *lines = read_csv_lines(path, _WHAT, _MOST_BINS)
    if [column.strip() for column in header] != list(_COLUMNS):
        named = shown(", ".join(header))
        raise BadInputError(f"{_WHAT} {path} has the columns {named}.", f"give {', '.join(_COLUMNS)}.")
    bins: list[tuple[float, float]] = []
    for line, row in lines:
        where = f"{_WHAT} {path}, line {line}"
        try:
            rows, looked_up = map(float, row)
        except ValueError:
            rows = looked_up = -1.0
        if not (0 <= rows <= 1 and 0 <= looked_up <= 1):
            raise BadInputError(f"{where}: {shown(','.join(row))} is not two shares.", "give 0 to 1 each.")
        if looked_up > 0 and rows == 0:
            raise BadInputError(
                f"{where}: look-ups of no rows.", "give the share of the rows that they ask for."
            )
        bins.append((rows, looked_up))
    for column, total in zip(_COLUMNS, (sum(share) for share in zip(*bins, strict=True)), strict=False):
        if abs(total - 1) > _SUMS_TO_ONE:
            raise BadInputError(
                f"{_WHAT} {path}, line {lines[-1][0]}: {column} sums to {total:.8g} up to here.",
                "all shares of a column together are 1: add what is missing, or divide each by the sum.",
            )
    if not bins:
        raise BadInputError(f"{_WHAT} {path} has 0 bins.", f"give 1 to {_MOST_BINS}.")
    used = sorted((pair for pair in bins if pair[0] > 0), key=lambda pair: -pair[1] / pair[0])
    return Distribution(f"histogram:{name or path}", 0.0, tuple(used))
