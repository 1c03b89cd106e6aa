"""Distribution of ids over rows: uniform, Zipf's law, one row, or a histogram of reuse."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from perfmodel.errors import BadInputError
from perfmodel.resources import data_names, data_path
from perfmodel.schema.files import looks_like_path, shown, unknown_name
from perfmodel.schema.gate import MOST_SKEW, read_csv_lines
from perfmodel.units import parse_ratio

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


def zipf(skew: float) -> Distribution:
    """Zipf's law. Limits: 0 -> uniform;  negative, above ``MOST_SKEW`` or not a number -> BadInputError"""
    if not 0 <= skew <= MOST_SKEW:
        step = f"the exponent is from 0 (uniform ids) to {MOST_SKEW} (as good as {ONE_ROW.name})."
        raise BadInputError(f"skew {skew:g} cannot be used.", step)
    return Distribution(f"zipf:{skew:g}", float(skew)) if skew else UNIFORM


def shipped() -> list[str]:
    """Names of the shipped histograms."""
    return data_names(_FOLDER, ".csv")


def parse_distribution(text: str | None) -> Distribution:
    """The distribution that ``--distribution`` means; None: uniform.

    Limits: an unknown law or name, a negative exponent, a file without shares -> BadInputError
    """
    if text is None:
        return UNIFORM
    kind, colon, rest = text.strip().partition(":")
    kind = kind.strip().lower()
    if not colon and kind in (UNIFORM.name, ONE_ROW.name):
        return UNIFORM if kind == UNIFORM.name else ONE_ROW
    if colon and kind == "zipf":
        return zipf(parse_ratio(rest, "the exponent of zipf", allow_zero=True))
    if not colon or kind != "histogram" or not (name := rest.strip()):
        raise BadInputError(f"distribution {shown(text)} is not known.", f"give one of: {KINDS}.")
    if looks_like_path(name, [".csv"]):
        return read_histogram(Path(name))
    known = {each.lower(): each for each in shipped()}
    if name.lower() not in known:
        raise unknown_name("histogram", name, shipped())
    return read_histogram(data_path(_FOLDER, f"{known[name.lower()]}.csv"), known[name.lower()])


def read_histogram(path: Path, name: str = "") -> Distribution:
    """Shares of rows and of look-ups from a CSV file, one bin of rows per line.

    Columns row_share and lookup_share, both from 0 to 1 with sums of 1. Bins without rows and look-ups are
    left out; the order does not matter.
    Limits: other columns, negative shares, look-ups of no rows, sums that are not 1 within 0.0001
            -> BadInputError that states the sum
    """
    (_, header), *lines = read_csv_lines(path, _WHAT, _MOST_BINS)
    if [column.strip() for column in header] != list(_COLUMNS):
        raise BadInputError(
            f"{_WHAT} {path} has the columns {shown(', '.join(header))}.", f"give {', '.join(_COLUMNS)}."
        )
    if not lines:
        raise BadInputError(f"{_WHAT} {path} has 0 bins.", f"give 1 to {_MOST_BINS}.")
    bins = [_read_bin(f"{_WHAT} {path}, line {line}", row) for line, row in lines]
    for column, total in zip(_COLUMNS, map(sum, zip(*bins, strict=True)), strict=True):
        if abs(total - 1) > _SUMS_TO_ONE:
            raise BadInputError(
                f"{_WHAT} {path}, line {lines[-1][0]}: {column} sums to {total:.8g} up to here.",
                "all shares of a column together are 1: add what is missing, or divide each by the sum.",
            )
    looked_up = sorted((pair for pair in bins if pair[0] > 0), key=lambda pair: -pair[1] / pair[0])
    return Distribution(f"histogram:{name or path}", 0.0, tuple(looked_up))


def _read_bin(where: str, row: list[str]) -> tuple[float, float]:
    if len(row) != len(_COLUMNS):
        raise BadInputError(f"{where}: {len(row)} fields instead of {len(_COLUMNS)}.", "check the line.")
    for column, text in zip(_COLUMNS, row, strict=True):
        try:
            share = float(text)
        except ValueError:
            share = math.nan
        if not 0 <= share <= 1:
            raise BadInputError(f"{where}: {column} {shown(text)} is not a share.", "give 0 to 1.")
    rows, looked_up = map(float, row)
    if looked_up > 0 and rows == 0:
        raise BadInputError(f"{where}: look-ups of no rows.", "give the share of the rows that they ask for.")
    return rows, looked_up
