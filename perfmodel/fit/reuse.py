"""Popularity of the rows of a table from how often a trace asked for each of them.

A count is not a popularity. Of rows with an expected count of 1 in a trace, e^-1 do not appear in it, and as
many appear once by chance and look like rarer or more frequent rows. Popularities equal to counts would
repeat that chance: a trace drawn from them has 15 to 27 % fewer distinct rows than the published traces. So
the fit seeks rates whose random counts match the trace; rows that the trace lacks are among them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

LOWEST_RATE = 0.25
"""Expected look-ups of the rarest rows in the whole trace; rarer rows look like absent rows."""
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
        order = np.argsort(-self.rate)
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

    There are more rates than shares, so many answers fit equally well, and without the last term rounding
    would decide. With it the sum is strictly convex: its minimum is unique on every machine, moves little
    with the shares, and is the answer with the most even look-ups among all that fit.
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
