"""Histograms of ``--distribution`` from published traces: what is shipped, and how well it repeats them.

python benchmarks/reuse_histograms.py            a table: distinct rows said and counted
python benchmarks/reuse_histograms.py --write    and data/distributions/*.csv

A count is not a popularity. Of rows with an expected count of 1 in a trace, e^-1 do not appear in it, and
as many appear once by chance and look like rarer or more frequent rows. Popularities equal to counts would
repeat that chance: a trace drawn from them has 15 to 27 % fewer distinct rows than the published ones. So
the fit seeks rates whose random counts match the trace; rows that the trace lacks are among them.
"""

from __future__ import annotations

import csv
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.resources import data_path

Array = NDArray[np.float64]

TRACES = {
    "fbgemm-t856": "fbgemm_t856_bs65536.pt",
    "fbgemm-t788": "fbgemm_t788_bs131072_0.pt",
    "reuse-low": "reuse_low_table_500K",
    "reuse-medium": "reuse_medium_table_500K",
}
"""Name of each shipped histogram, and of its trace in data/reference/reuse_histograms.csv."""

LOWEST_RATE = 0.25
"""Expected look-ups of the rarest rows in the whole trace; rarer rows look like absent ones."""
_HIGHEST_RATE = 2.0**17
_RATES_PER_OCTAVE = 4
_ROUNDED = 0.0005  # rounding of published shares
_RELATIVE = 0.01
_LEAST_SHARE = 1e-6
_EVEN = 0.1
"""Weight of the evenness term, in errors of a published share: hardly any."""


@dataclass(frozen=True)
class Reuse:
    """How often a trace asked for its rows, in buckets of counts.

    low, high   bounds of each bucket: rows that were asked for more than ``low``, at most ``high`` times [b]
    row_share, lookup_share   share of the trace's distinct rows, and of its look-ups, in each bucket [-]
    lookups     N, look-ups of the trace;  unique  U, its distinct rows
    """

    low: Array
    high: Array
    row_share: Array
    lookup_share: Array
    lookups: float
    unique: float


@dataclass(frozen=True)
class Rates:
    """Rates that a trace was drawn from: ``rows`` [n] rows have an expected count of ``rate`` [n] each."""

    rate: Array
    rows: Array

    @property
    def table_rows(self) -> float:
        """Rows of the table, including rows that the trace does not contain [rows]."""
        return float(self.rows.sum())

    @property
    def unique(self) -> float:
        """U, expected distinct rows of such a trace: sum of rows (1 - e^-rate) [rows]."""
        return float(np.sum(self.rows * -np.expm1(-self.rate)))

    def shares(self) -> tuple[Array, Array]:
        """(share of the rows, share of the look-ups), the most popular rows first."""
        order = np.argsort(-self.rate, kind="stable")
        asked = (self.rows * self.rate)[order]
        return self.rows[order] / self.table_rows, asked / asked.sum()


def counted_rates(reuse: Reuse) -> Rates:
    """Popularities equal to counts, ignoring chance: the baseline for ``rates_of``.

        rate = a_b N / (r_b U) of r_b U rows                                  [-]

    Limits: buckets rounded to no rows are left out;  its ``unique`` is below U
    """
    used = (reuse.row_share > 0) & (reuse.lookup_share > 0)
    rows = reuse.row_share[used] * reuse.unique
    return Rates(reuse.lookup_share[used] * reuse.lookups / rows, rows)


def rates_of(reuse: Reuse) -> Rates:
    """Rates whose Poisson counts fall into the buckets as the trace's counts do.

        min over y >= 0:  sum_b ((P rows - r U) / (U e))^2 + ((Q rows - a N) / (N e))^2 + 0.01 sum y^2
        y = rows rate / N, share of the look-ups at each rate
        P = chance that a count at this rate is in bucket b,   Q = mean look-ups from such counts
        e = 0.0005 + 0.01 share: how well a published share is known

    There are more rates than shares, so many answers fit equally well: without the last term rounding would
    choose among them. With it the sum is strictly convex: the minimum is unique on every machine, and moves
    little when the shares do. Of the answers that fit, it is the one with the most even look-ups.
    Source: derived; Fisher, Corbet, Williams (1943) have counts of species as mixed Poisson variables; the
            last term: Tikhonov (1963). Four rates an octave, from ``LOWEST_RATE``. Bounded-variable least
            squares (Stark, Parker 1995): scipy's ``nnls`` stops short of the least (scipy issue 25389)
    Limits: rows much rarer than the lowest rate are as few as fit: the table may have more of them
            rates of less than 1e-6 of the look-ups are left out
    """
    from scipy.optimize import lsq_linear

    rate, matrix, wanted = fit_system(reuse)
    share = lsq_linear(matrix, wanted, bounds=(0, np.inf), method="bvls", tol=1e-14, max_iter=1000).x
    used = share > _LEAST_SHARE
    return Rates(rate[used], share[used] * reuse.lookups / rate[used])


def fit_system(reuse: Reuse) -> tuple[Array, Array, Array]:
    """The least-squares problem of ``rates_of`` as (rates [n], matrix [2 b + n, n], right side [2 b + n]).

    n rates, b buckets
    """
    octaves = np.log2(_HIGHEST_RATE / LOWEST_RATE)
    rate = LOWEST_RATE * 2.0 ** (np.arange(octaves * _RATES_PER_OCTAVE) / _RATES_PER_OCTAVE)
    inside = (_chance(reuse.high, rate) - _chance(reuse.low, rate)) * reuse.lookups / rate
    brought = (_chance(reuse.high - 1, rate) - _chance(reuse.low - 1, rate)) * reuse.lookups
    known = np.concatenate([reuse.row_share, reuse.lookup_share])
    whole = np.repeat([reuse.unique, reuse.lookups], reuse.low.size)
    error = _ROUNDED + _RELATIVE * known
    matrix = np.concatenate([inside, brought]) / (whole * error)[:, np.newaxis]
    return (
        rate,
        np.concatenate([matrix, _EVEN * np.eye(rate.size)]),
        np.concatenate([known / error, np.zeros(rate.size)]),
    )


def _chance(count: ArrayLike, rate: Array) -> Array:
    """Chance that a Poisson variable is at most ``count`` [b, n]; 0 for counts below 0, 1 for infinite."""
    from scipy.special import pdtr

    most = np.asarray(count, dtype=np.float64)[:, np.newaxis]
    inside = np.asarray(pdtr(np.where(np.isfinite(most), np.maximum(most, 0), 0), rate))
    return np.where(most < 0, 0.0, np.where(np.isfinite(most), inside, 1.0))


def reuse_of(dataset: str) -> Reuse:
    """Counts of one trace."""
    with data_path("reference", "reuse_histograms.csv").open(encoding="utf-8") as stream:
        rows = [row for row in csv.DictReader(stream) if row["dataset"] == dataset]
    total = next(row for row in rows if row["stat"] == "indices_unique")
    edges, shares = [], []
    for stat in ("row_fraction_by_reuse", "access_fraction_by_reuse"):
        found = {row["bucket"]: float(row["value"]) for row in rows if row["stat"] == stat}
        edges = [tuple(float(x) for x in bucket.strip("(]").split(",")) for bucket in found]
        shares.append(np.array(list(found.values())))
    low, high = np.array(edges).T
    return Reuse(low, high, *shares, float(total["ids"]), float(total["unique_ids"]))


def csv_text(rates: Rates) -> str:
    """A distribution file."""
    lines = [f"{rows:.6g},{asked:.6g}" for rows, asked in zip(*rates.shares(), strict=True)]
    return "\n".join(["row_share,lookup_share", *lines]) + "\n"


def table() -> str:
    """Distinct rows of every trace, as counted and as said."""
    lines = [
        "| histogram | look-ups | distinct rows | counts as popularities | rates | rows of the table |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, dataset in TRACES.items():
        reuse = reuse_of(dataset)
        rates = rates_of(reuse)
        counted, fitted = (each.unique / reuse.unique - 1 for each in (counted_rates(reuse), rates))
        lines.append(
            f"| {name} | {reuse.lookups:,.0f} | {reuse.unique:,.0f} | {counted:+.1%} | {fitted:+.2%} | "
            f"{float(f'{rates.table_rows:.4g}'):,.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Print, and write if asked."""
    print(table())  # the third and the fourth number: distinct rows, drawn anew
    if "--write" in sys.argv:
        folder = Path(data_path("distributions"))
        folder.mkdir(exist_ok=True)
        for name, dataset in TRACES.items():
            (folder / f"{name}.csv").write_text(csv_text(rates_of(reuse_of(dataset))), encoding="utf-8")


if __name__ == "__main__":
    main()
