"""Requests that wait, form batches and are served: closed forms for limiting cases; the slowest of G ranks.

Between these cases a simulation answers (``perfmodel.service``), which must agree with them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import digamma, polygamma

from perfmodel.model.recording import Number, exponential, larger, named, over_arrays, smaller, where

Array = NDArray[np.float64]


def _array(value: ArrayLike) -> Array:
    return np.asarray(value, dtype=np.float64)


@over_arrays
def batch_capacity(B: Number, gap: Number) -> Number:
    """Most requests per second that a server of batches can serve.

        mu = B / gap                                                          [1/s]

    B    requests of a full batch [-];  gap  time from the start of one full batch to the next start [s]: the
         whole pass where one follows the other, less where they overlap
    Source: definition; no rule of batching serves more, for a pass of fewer requests is no faster a request
    Limits: B = 1 and no overlap -> 1 / pass
    """
    return B / gap


@over_arrays
def utilisation(rate: Number, capacity: Number) -> Number:
    """Load of a server.

        rho = lambda / mu                                                     [-]

    rate  lambda, requests that arrive [1/s];  capacity  mu, requests that can be served [1/s]
    Source: definition
    Limits: no requests -> 0;  1 or more -> the queue grows without end
    """
    return rate / capacity


@over_arrays
def mean_wait(rate: Number, t: Number, variance: Number = 0) -> Number:
    """Mean time in the queue of requests that are served one at a time (M/G/1; M/D/1 where variance is 0).

        W = lambda (t^2 + s^2) / (2 (1 - rho)),   rho = lambda t              [s]

    rate      lambda, of Poisson arrivals [1/s];  t  mean time of a pass [s];  variance  s^2 of it [s^2]
    Source: Pollaczek-Khinchine formula (Kleinrock, Queueing Systems 1, 5.6)
    Limits: rate -> 0 -> 0;  variance 0 -> rho t / (2 (1 - rho));  variance t^2 (exponential) -> twice that;
            rho >= 1 -> infinite
    """
    rho = named("rho", rate * t, "load")
    return where(rho < 1, rate * (t**2 + variance) / (2 * (1 - rho)), np.inf)


@over_arrays
def unlimited_batch_wait(rate: Number, t: Number) -> Number:
    """Mean time in the queue where a pass serves all waiting requests, however many, and an idle server
    starts at once.

        W = (lambda t^2 / 2) / (lambda t + exp(-lambda t))                    [s]

    rate  lambda, of Poisson arrivals [1/s];  t  time of a pass, the same for any number of requests [s]
    A pass begins when the one before ends or, if nobody came meanwhile (chance exp(-lambda t)), with the next
    request. So a pass serves lambda t + exp(-lambda t) requests on average: lambda t that came during the
    pass before and waited t / 2 on average, and requests that met an idle server and did not wait.
    Source: derived here (renewal argument); the unlimited case of bulk service (Bailey 1954)
    Limits: rate -> 0 -> 0;  rate -> infinity -> t / 2: latency is at most 1.5 passes on average, 2 at most
    """
    asked = named("a", rate * t, "lambda t: requests that come while a pass runs")
    return asked * t / 2 / (asked + exponential(-asked))


@over_arrays
def unlimited_batch_quantile(rate: Number, t: Number, q: Number) -> Number:
    """Quantile of the latency where a pass serves all waiting requests, however many.

        x_q = t + t max(0, 1 - (1 - q) / (1 - p)),   p = exp(-lambda t) / (lambda t + exp(-lambda t))     [s]

    rate  lambda, of Poisson arrivals [1/s];  t  time of a pass, the same for any number of requests [s]
    q     share of the requests with a lower latency, 0 .. 1 [-]
    A share p of the requests meets an idle server. The others arrive at uniform moments of a pass and wait
    for the rest of it, uniform between 0 and t.
    Source: derived here, as ``unlimited_batch_wait``, whose mean it has
    Limits: rate -> 0 -> t;  rate -> infinity -> (1 + q) t;  q = 1 -> 2 t
    """
    asked = named("a", rate * t, "lambda t: requests that come while a pass runs")
    free = exponential(-asked)
    p = named("p", free / (asked + free), "share of the requests that find the server free")
    later = where(p < 1, 1 - (1 - q) / (1 - p), 0)
    return t + t * larger(later, 0)


@over_arrays
def fill_time(B: Number, rate: Number, wait: Number) -> Number:
    """Mean time for which a batch is collected: an upper limit, exact if requests arrived evenly.

        f = min((B - 1) / lambda, w)                                          [s]

    B  requests of a full batch [-];  rate  lambda, requests that arrive [1/s]
    wait  w, longest wait of the first request [s]
    Source: B - 1 further requests come in (B - 1) / lambda on average
    Limits: B = 1 -> 0;  rate -> 0 -> w;  rate -> infinity -> 0
    """
    return smaller(where(B > 1, (B - 1) / rate, 0), wait)


@over_arrays
def light_load_latency(B: Number, wait: Number, t: Number) -> Number:
    """Latency of a request that comes alone.

        s = w + t (B > 1);   t (B = 1)                                        [s]

    B  requests of a full batch [-];  wait  w, longest that the first request waits for others [s]
    t  time of a pass with one request [s]
    Source: nobody else comes, so the batch is closed when the wait ends
    Limits: w = 0 -> t
    """
    return where(B > 1, wait, 0) + t


@over_arrays
def requests_inside(rate: Number, latency: Number) -> Number:
    """Requests that wait or are being served, on average.

        N = lambda s                                                          [-]

    rate  lambda, requests that arrive [1/s];  latency  s, mean time from arrival to answer [s]
    Source: Little's law (Little 1961): for any arrivals, batches and order
    Limits: no requests -> 0
    """
    return rate * latency


def slowest_delay(scale: ArrayLike, G: ArrayLike) -> Array:
    """Mean of the largest of G exponential delays.

        m = s (1 + 1/2 + ... + 1/G) = s H_G                                   [s]

    scale  s, mean delay of one rank [s];  G  ranks that wait for one another [-]
    Source: order statistics (Renyi 1953): the gaps between ordered exponentials have means s/G, s/(G-1), ...
    Limits: G = 1 -> s;  G -> infinity -> s (ln G + 0.577): Gumbel
    """
    return _array(scale) * (digamma(_array(G) + 1) + np.euler_gamma)


def slowest_quantile(scale: ArrayLike, G: ArrayLike, q: ArrayLike) -> Array:
    """Quantile of the largest of G exponential delays.

        x_q = -s ln(1 - q^(1/G))                                              [s]

    scale  s, mean delay of one rank [s];  G  ranks [-];  q  share of the cases below the quantile, 0 .. 1 [-]
    Source: P(largest <= x) = (1 - exp(-x / s))^G
    Limits: G = 1 -> -s ln(1 - q);  G -> infinity -> s (ln G - ln(-ln q)): Gumbel;  q = 0 -> 0
    """
    G, q = _array(G), _array(q)
    with np.errstate(divide="ignore"):
        return -_array(scale) * np.log(-np.expm1(np.log(q) / G))


def delay_scale(sd: ArrayLike, G: ArrayLike) -> Array:
    """Mean delay of one rank, from the spread of times that each end with the slowest of G ranks.

        s = sd / sqrt(1 + 1/4 + ... + 1/G^2)                                  [s]

    sd  standard deviation of these times [s];  G  ranks [-]
    Source: variance of the largest of G exponentials (Renyi 1953), solved for s
    Limits: G = 1 -> sd;  G -> infinity -> sd sqrt(6) / pi
    """
    G = _array(G)
    return _array(sd) / np.sqrt(polygamma(1, 1) - polygamma(1, G + 1))
