"""Nodes, energy and money that samples take, and what must change for them to take less."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

SECONDS_PER_HOUR, WATTS_PER_KILOWATT, BYTES_PER_TB = 3600.0, 1e3, 1e12
HOURS_PER_DAY, DAYS_PER_YEAR, MONTHS_PER_YEAR = 24, 365, 12
HOURS_PER_MONTH = HOURS_PER_DAY * DAYS_PER_YEAR / MONTHS_PER_YEAR
"""730 h, an average month, as clouds bill it; a leap year has 0.3 % more."""


def _array(value: ArrayLike) -> Array:
    return np.asarray(value, dtype=np.float64)


def samples_per_s(S: ArrayLike, t: ArrayLike) -> Array:
    """Samples per second, batch after batch.

        S / t                                                                 [1/s]

    S  samples of a batch, of all GPUs [-];  t  time of a batch [s]
    Source: the next batch begins when one ends
    Limits: t -> inf -> 0;  twice the samples at one time -> twice
    """
    return _array(S) / _array(t)


def hours_paid(t: ArrayLike, S: ArrayLike, N: ArrayLike, n: ArrayLike) -> Array:
    """GPU-hours or machine-hours that are paid to process N samples.

        N t n / (3600 S)                                                      [h]

    t  time of a batch [s];  S  samples of it, of all GPUs [-];  N  samples [-]
    n  GPUs or machines that are paid for, whether they work or not [-]
    Source: N / S batches of t each
    Limits: t = 3600 s, N = S, n = 1 -> 1;  twice the GPUs at half the time -> the same
    """
    return _array(N) * _array(t) * _array(n) / (SECONDS_PER_HOUR * _array(S))


def energy_kwh(hours: ArrayLike, power_w: ArrayLike) -> Array:
    """Upper limit of the energy: machines draw their highest power all the time.

        h P / 1000                                                            [kWh]

    hours  machine-hours [h];  power_w  P, highest power of a machine [W]
    Source: datasheet power is an upper limit of the machine; network switches and cooling are not in it
    Limits: 1 h of 1000 W -> 1
    """
    return _array(hours) * _array(power_w) / WATTS_PER_KILOWATT


def copies_in_machine(G: ArrayLike, g: ArrayLike, whole: bool) -> Array:
    """Replicas of a service that fit one machine.

        k = 1   where a replica has its machines to itself,   max(floor(g / G), 1)   else      [-]

    G  GPUs of a replica [-];  g  GPUs of a machine [-]
    whole  whether rows are in the machines' host memory or on their SSDs: then no other replica fits
    Source: counting
    Limits: G >= g -> 1;  G = 1 in HBM -> g
    """
    return np.where(whole, 1.0, np.maximum(np.floor(_array(g) / _array(G)), 1.0))


def machines_in_use(R: ArrayLike, G: ArrayLike, g: ArrayLike, whole: bool) -> Array:
    """Machines that R replicas occupy. A machine is paid as a whole, even if a replica uses one of its GPUs.

        ceil(R / k) ceil(G / g)                                               [-]

    R  replicas [-];  G  GPUs of a replica [-];  g  GPUs of a machine [-]
    k  ``copies_in_machine``, with ``whole`` as there
    Source: counting
    Limits: G a multiple of g -> R G / g;  10 replicas of 1 GPU of 8 -> 10 with rows below the HBM, else 2
    """
    each = np.ceil(_array(G) / _array(g))
    return np.ceil(_array(R) / copies_in_machine(G, g, whole)) * each


def storage_cost(x: ArrayLike, hours: ArrayLike, price: ArrayLike) -> Array:
    """Money for memory that is rented by the month.

        (x / 10^12) (h / 730) c                                               [money]

    x  bytes held;  hours  h, for how long [h];  price  c, money for a TB and a month
    Source: a month is ``HOURS_PER_MONTH``, a twelfth of 365 days
    Limits: 1 TB for 730 h -> c
    """
    return _array(x) / BYTES_PER_TB * _array(hours) / HOURS_PER_MONTH * _array(price)


def speedup_to_match(step: ArrayLike, t: ArrayLike, best: ArrayLike) -> Array:
    """Factor by which one step must be faster for its pass to take no longer than another pass.

        f = s / (t* - (t - s)),   inf where t - s >= t*                       [-]

    step  s, time of the step, or the part of it that grows with its bytes [s]
    t     time of the pass [s];  best  t*, time of the other pass [s]
    Source: t - s + s/f = t* solved for f: a crossing in closed form, for the time is linear in s
    Limits: t = t* -> 1;  the rest alone takes t* -> inf
    """
    part, left = _array(step), _array(best) - (_array(t) - _array(step))
    return np.asarray(np.divide(part, left, out=np.full(np.shape(left), np.inf), where=left > 0))


def crossing_batch(a: ArrayLike, b: ArrayLike, a2: ArrayLike, b2: ArrayLike) -> Array:
    """Batch at which two passes take equal time, each with a latency and a time per sample.

        a + b B = a' + b' B  ->  B = (a' - a) / (b - b'),   nan where none is above 0      [-]

    a, b    latency [s] and time per sample of one GPU [s] of the first pass;  a2, b2  a', b' of the second
    Source: two straight lines
    Limits: b = b' -> nan;  a = a' -> nan (they meet at no batch above 0)
    """
    more, less = _array(a2) - _array(a), _array(b) - _array(b2)
    found = np.divide(more, less, out=np.full(np.broadcast(more, less).shape, np.nan), where=less != 0)
    return np.where(found > 0, found, np.nan)
