"""Popularity of the rows of a table from how often a trace asked for each of them.

A count is not a popularity. Of rows that are asked for once in a trace on average, e^-1 are not in it, and
as many that look like rows of one look-up are there once by chance; taking counts for popularities repeats
the chance: drawn anew, such a trace has 15 to 27 % fewer distinct rows than the published ones have. So rates
are looked for whose counts, by chance, are those of the trace; rows that it does not have are among them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

LOWEST_RATE = 0.25
"""Look-ups of the rarest rows in the whole trace, on average: rarer ones cannot be told from none."""
_HIGHEST_RATE = 2.0**17
_RATES_PER_OCTAVE = 4
_ROUNDED = 0.0005  # of published shares
_RELATIVE = 0.01
_LEAST_SHARE = 1e-6
_EVEN = 0.1
"""Cost of look-ups that all ask for rows of one rate, in errors of a published share: hardly anything."""


@dataclass(frozen=True)
class Reuse:
    """Counts of a trace.

    low, high   of each bucket: rows that were asked for more than ``low`` times, up to ``high``, arrays [b]
    row_share, lookup_share   of the trace's distinct rows, and of its look-ups, in each bucket [-]
    lookups     N of the trace;  unique  U, its distinct rows
    """

    low: Array
    high: Array
    row_share: Array
    lookup_share: Array
    lookups: float
    unique: float


@dataclass(frozen=True)
class Rates:
    """What the trace was drawn from: ``rows`` [n] rows of a table that are asked for ``rate`` [n] times."""

    rate: Array
    rows: Array

    @property
    def table_rows(self) -> float:
        """Rows of the table, those among them that the trace does not have [rows]."""
        return float(self.rows.sum())

    @property
    def unique(self) -> float:
        """U, distinct rows of such a trace: sum of rows (1 - e^-rate) [rows]."""
        return float(np.sum(self.rows * -np.expm1(-self.rate)))

    def shares(self) -> tuple[Array, Array]:
        """(share of the rows, share of the look-ups), the most popular rows first."""
        order = np.argsort(-self.rate)
        asked = (self.rows * self.rate)[order]
        return self.rows[order] / self.table_rows, asked / asked.sum()


def counted_rates(reuse: Reuse) -> Rates:
    """Counts taken for popularities, without chance: what ``rates_of`` is compared with.

        rate = a_b N / (r_b U) of r_b U rows                                  [-]

    Limits: buckets of rounded-off rows are left out;  its ``unique`` is below U
    """
    used = (reuse.row_share > 0) & (reuse.lookup_share > 0)
    rows = reuse.row_share[used] * reuse.unique
    return Rates(reuse.lookup_share[used] * reuse.lookups / rows, rows)


def rates_of(reuse: Reuse) -> Rates:
    """Rates whose Poisson counts fall into the buckets as the trace's did.

        min over y >= 0:  sum_b ((P rows - r U) / (U e))^2 + ((Q rows - a N) / (N e))^2 + 0.01 sum y^2
        y = rows rate / N, share of the look-ups that each rate has
        P = chance that a count of this rate is in b,   Q = mean look-ups that it then brings
        e = 0.0005 + 0.01 share: how well a published share is known

    There are more rates than shares, so many answers fit alike: without the last term rounding chooses
    among them. With it the sum is strictly convex, so that one answer is the least on every machine, and it
    moves little when the shares do: of those that fit, the one whose look-ups are spread most evenly.
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
    """(rates [n], matrix [2 b + n, n], right side [2 b + n]) of the least squares of ``rates_of``."""
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
    """Chance that a Poisson variable is at most ``count`` [b, n]; 0 below 0, 1 of infinitely many."""
    from scipy.special import pdtr

    most = np.asarray(count, dtype=np.float64)[:, np.newaxis]
    inside = np.asarray(pdtr(np.where(np.isfinite(most), np.maximum(most, 0), 0), rate))
    return np.where(most < 0, 0.0, np.where(np.isfinite(most), inside, 1.0))
