"""What samples take of GPUs, energy and money, and what would have to change for them to take less."""

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


def samples_per_s(G: ArrayLike, B: ArrayLike, t: ArrayLike) -> Array:
    """Samples a second of G GPUs, batch after batch.

        G B / t                                                               [1/s]

    G  GPUs [-];  B  samples of one GPU in a batch [-];  t  time of a batch [s]
    Source: every GPU brings its own samples (weak scaling); the next batch begins when one ends
    Limits: t -> inf -> 0;  twice the GPUs at one time -> twice
    """
    return _array(G) * _array(B) / _array(t)


def gpu_hours(t: ArrayLike, B: ArrayLike, N: ArrayLike) -> Array:
    """GPU-hours of N samples: how many GPUs share them does not matter but for t.

        N t / (3600 B)                                                        [h]

    t  time of a batch [s];  B  samples of one GPU in it [-];  N  samples [-]
    Source: N / (G B) batches of t each, G GPUs at work
    Limits: t = 3600 s, N = B -> 1
    """
    return _array(N) * _array(t) / (SECONDS_PER_HOUR * _array(B))


def energy_kwh(hours: ArrayLike, power_w: ArrayLike) -> Array:
    """Energy at most: boards that draw their highest power all the time.

        h P / 1000                                                            [kWh]

    hours  GPU-hours [h];  power_w  P, highest power of a board [W]
    Source: datasheet power is an upper limit of the board; hosts, network and cooling are not in it
    Limits: 1 h of 1000 W -> 1
    """
    return _array(hours) * _array(power_w) / WATTS_PER_KILOWATT


def machine_cost(hours: ArrayLike, G: ArrayLike, m: ArrayLike, price: ArrayLike) -> Array:
    """Money for the machines that GPUs keep busy.

        (h / G) m c                                                           [money]

    hours  h, GPU-hours [h];  G  GPUs in use [-];  m  machines in use, by ``machines_in_use`` [-]
    price  c, of a machine's hour [money/h]
    Source: the GPUs are in use at the same time, for h / G hours, and their machines as long
    Limits: m = G / g -> h c / g, each GPU at its share;  one GPU with a machine to itself -> h c
    """
    return _array(hours) / _array(G) * _array(m) * _array(price)


def machines_in_use(R: ArrayLike, G: ArrayLike, g: ArrayLike, whole: bool) -> Array:
    """Machines that a service keeps busy, each hour as many machine-hours.

        R ceil(G / g)   where a replica has its machines to itself,   R G / g   else      [-]

    R  replicas [-];  G  GPUs of one [-];  g  GPUs of one machine [-]
    whole  whether rows are in the host memory or on the SSDs of the machines: no other replica has room there
    Source: counting; in HBM the other GPUs of a machine are free for other work, as for ``machine_cost``
    Limits: G a multiple of g -> the same;  10 replicas of 1 GPU of 8 -> 10, or 1.25
    """
    each = _array(G) / _array(g)
    return _array(R) * (np.ceil(each) if whole else each)


def of_requests(hourly: ArrayLike, rate: ArrayLike, N: ArrayLike) -> Array:
    """Machine-hours or money of N requests, of what an hour takes.

        c N / (3600 lambda)                                                   [h or money]

    hourly  c, an hour of the service [h/h or money/h];  rate  lambda, its load [1/s];  N  requests [-]
    Source: N requests take N / lambda seconds
    Limits: lambda = N / 3600 s -> c
    """
    return _array(hourly) * _array(N) / (SECONDS_PER_HOUR * _array(rate))


def storage_cost(x: ArrayLike, hours: ArrayLike, price: ArrayLike) -> Array:
    """Money for memory that is rented by the month.

        (x / 10^12) (h / 730) c                                               [money]

    x  bytes [bytes];  hours  h, how long they are held [h];  price  c, of a TB for a month [money]
    Source: a month is ``HOURS_PER_MONTH``, a twelfth of 365 days
    Limits: 1 TB for 730 h -> c
    """
    return _array(x) / BYTES_PER_TB * _array(hours) / HOURS_PER_MONTH * _array(price)


def speedup_to_match(step: ArrayLike, t: ArrayLike, best: ArrayLike) -> Array:
    """How much faster one step must be for its pass to take no longer than another.

        f = s / (t* - (t - s)),   inf where t - s >= t*                       [-]

    step  s, time of the step, or the part of it that grows with its bytes [s]
    t     time of the pass [s];  best  t*, of the other [s]
    Source: t - s + s/f = t* solved for f: a crossing in closed form, for the time is linear in s
    Limits: t = t* -> 1;  the rest alone takes t* -> inf
    """
    part, left = _array(step), _array(best) - (_array(t) - _array(step))
    return np.asarray(np.divide(part, left, out=np.full(np.shape(left), np.inf), where=left > 0))


def crossing_batch(a: ArrayLike, b: ArrayLike, a2: ArrayLike, b2: ArrayLike) -> Array:
    """Batch at which two passes take as long, each with a latency and a time per sample.

        a + b B = a' + b' B  ->  B = (a' - a) / (b - b'),   nan where none is above 0      [-]

    a, b    latency [s] and time per sample of one GPU [s] of the one;  a2, b2  a', b' of the other
    Source: two straight lines
    Limits: b = b' -> nan;  a = a' -> nan (they meet at no batch above 0)
    """
    more, less = _array(a2) - _array(a), _array(b) - _array(b2)
    found = np.divide(more, less, out=np.full(np.broadcast(more, less).shape, np.nan), where=less != 0)
    return np.where(found > 0, found, np.nan)
