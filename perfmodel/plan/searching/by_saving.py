"""Chooses schemes by a rule: replicate the tables that save most time per byte, cut all others.

Three numbers decide: the share of the memory for replicas, the largest shard, and the exchange of tables
that must be cut by rows. If memory is scarce and tables are similar, this is fast and hard to beat.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray

from perfmodel.engine.cost import Evaluator
from perfmodel.engine.placement import COPY, WHOLE
from perfmodel.engine.timing import round_off
from perfmodel.plan.choices.options import Options, least_of
from perfmodel.plan.searching.packing import balance

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_COPIES = (0.0, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9, 0.97)
"""Shares of a rank's memory that replicas may take."""
_SHARDS = (np.inf, 2.0, 1.0, 0.5, 0.25)
"""Largest work of a shard, relative to a balanced rank."""
_ROOM = 0.5  # of the memory left by replicas: the largest shard
_STEP = 0.1  # of a load: step of the difference quotient
_COLUMN = 1e3  # row parts that a column part counts as: fewest columns first, then fewest rows that fit
_WORK, _MEMORY = 1e9, 1e18
"""Penalties in row parts: for a shard with twice the work, and for too many bytes."""


def by_saving(evaluator: Evaluator, options: Options, limit_bytes: float, count: int) -> list[Ints]:
    """Choices of an option for every table, by a rule: replicate the tables that save most time per byte.

    Returns the ``count`` fastest choices, fastest first, each with the index of an option for every table
    [T]; they are timed as if shards were spread evenly. A replica saves the time that the table takes if it
    is spread over the ranks, less the time of the replica. Other tables are cut until their shards are small.
    limit_bytes  memory of one rank
    """
    found: dict[bytes, tuple[float, Ints]] = {}
    for option in _choices(evaluator, options, limit_bytes):
        key = option.tobytes()
        if key not in found:
            found[key] = float(evaluator.estimate_times(balance(options, option))), option
    return [option for _, option in sorted(found.values(), key=lambda each: each[0])[:count]]


def _choices(evaluator: Evaluator, o: Options, limit_bytes: float) -> Iterator[Ints]:
    price = _price(evaluator, o)
    sample = evaluator.tables.kinds[0]
    whole = evaluator.count_shards(sample, WHOLE.kind, 1, 1)
    work = round_off(whole.own @ price)
    size = np.sum(evaluator.memories.count_shard(sample, 1, 1), axis=0)
    spread = round_off(work / o.gpus + whole.everywhere @ price)
    copied, copy = least_of(np.where(o.copied, round_off(o.everywhere @ price), np.inf), o.first)
    each, plain = work[o.group] / o.c, o.hot == 0
    for share in _COPIES:
        copies = _copies(
            np.where(np.isfinite(copied), spread - copied, 0), size, o.count, share * limit_bytes
        )
        room = limit_bytes - float(copies @ size)
        rest = float((o.count - copies) @ work)
        for shard, kind in product(_SHARDS, o.kinds):
            mask = plain & ((o.exchange == kind) | ((o.exchange == WHOLE.kind) & (o.r == 1)))
            most = shard * rest / o.gpus if rest > 0 else np.inf
            over = _WORK * np.maximum(each / most - 1, 0) + _MEMORY * (o.own_memory > _ROOM * room)
            parts = _COLUMN * o.c + o.r + over
            least, cut = least_of(np.where(mask, parts, np.inf), o.first)
            if np.isfinite(least[copies < o.count]).all():
                yield _of_tables(o, copies, copy, cut)


def _price(evaluator: Evaluator, o: Options) -> Array:
    """Seconds per byte of every resource, near the loads of whole tables that are spread evenly."""
    sample = evaluator.tables.kinds[0]
    whole = evaluator.count_shards(sample, WHOLE.kind, 1, 1)
    copy = evaluator.count_shards(sample, COPY.kind, 1, 1)
    mean = np.maximum(o.count @ (whole.own / o.gpus + whole.everywhere), o.count @ copy.everywhere)
    step = np.maximum(_STEP * mean, 1.0)
    more = evaluator.estimate_times(mean + np.diag(step))
    return np.asarray((more - evaluator.estimate_times(mean)) / step)


def _copies(saving: Array, size: Array, count: Ints, room_bytes: float) -> Ints:
    """Number of replicated tables of each kind: tables that save most time per byte, as many as fit.

    saving, size, count  for each kind of table: time saved [s] and memory [bytes] of a replica, number of
                         tables
    """
    copies = np.zeros_like(count)
    for q in np.argsort(-saving / size, kind="stable"):
        if saving[q] > 0:
            copies[q] = min(count[q], int(room_bytes // size[q]))
            room_bytes -= float(copies[q] * size[q])
    return copies


def _of_tables(o: Options, copies: Ints, copy: Ints, cut: Ints) -> Ints:
    """The option of every table: ``copy`` for the first ``copies`` tables of a kind, ``cut`` for others."""
    order = np.argsort(o.kind_of, kind="stable")
    begins = np.cumsum(o.count) - o.count
    of_kind = np.empty_like(order)
    of_kind[order] = np.arange(order.size) - np.repeat(begins, o.count)
    return np.asarray(np.where(of_kind < copies[o.kind_of], copy[o.kind_of], cut[o.kind_of]))
