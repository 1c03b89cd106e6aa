"""Time of a batch on all cores, each with its pieces of tables, and what limits it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.model.one_chip import (
    chip_time,
    in_order_time,
    queue_waits,
    slowest_core,
    staggered_time,
    uneven,
)
from perfmodel.onechip.work import Batch, CoreStep, CoreWork
from perfmodel.schema.chip import Chip

Ints = NDArray[np.intp]

LIMIT_WORDS = {
    "core": "the busiest core",
    "memory": "global memory",
    "cache": "the cache",
    "channel": "the fullest channel of global memory",
    "slice": "the fullest slice of the cache",
}
"""What may limit the time of a batch, by its name in answers."""
LIMITS = tuple(LIMIT_WORDS)
_MORE = 1 + 1e-9


def batch_of(chip: Chip, core: ArrayLike, table: ArrayLike, work: CoreWork) -> Batch:
    """Time of a batch: all cores work at the same time, each on its pieces one after the other.

    core, table  of each piece, arrays of the shape of ``work``
    In lockstep all cores are at the same step of the same table; through several tables they go in one order
    without synchronizing. Without lockstep, cores are at different steps: only the first wait is common, and
    cores that copy the same rows queue at the cache slice, or memory channel, that holds them (``_queued``).
    Source: ``one_chip.chip_time``
    Limits: one core, nothing shared is slower -> the sum of its pieces;  buffers too small -> inf
    """
    owner, of = np.asarray(core, dtype=np.intp).ravel(), np.asarray(table, dtype=np.intp).ravel()
    own = np.bincount(owner, work.core_s.ravel(), chip.cores).astype(np.float64)
    if not work.fits.all():
        return Batch(float("inf"), "core", own, dict.fromkeys(LIMITS[1:], 0.0))
    if work.lockstep and np.unique(of).size > 1:
        return _in_order(chip, owner, of, work, own)
    groups = [(step,) for step in work.steps] if work.lockstep else [work.steps]
    waits, cores, evens = np.zeros(len(groups)), np.zeros(len(groups)), np.zeros(len(groups))
    mine, late = np.zeros(len(groups)), np.zeros(len(groups))
    alone, part = dict.fromkeys(LIMITS, 0.0), _part(chip)
    for at, steps in enumerate(groups):
        wait = np.asarray(sum(step.wait_s for step in steps)).ravel()
        busy = np.asarray(sum(step.busy_s for step in steps)).ravel()
        waits[at] = np.max(wait, initial=0)
        varies = np.asarray(sum(step.variance_s2 for step in steps)).ravel()
        queued = np.zeros(owner.size) if work.lockstep else _queued(chip, owner, of, work)
        each = np.bincount(owner, wait + busy + queued, 1)
        cores[at] = slowest_core(each, np.bincount(owner, varies, 1))
        took = _steady(chip, of, steps)
        if work.lockstep and np.max(steps[0].quick_s, initial=0) > 0:
            queue = max(took.pop(part), _by_chance(chip, steps)[part])
            mine[at], late[at] = cores[at], _late(steps[0], waits[at], queue)
        else:
            mine[at] = np.max(each)
        evens[at] = max(took.values())
        most = max(took, key=lambda name: took[name])
        busiest, queue_s = "core", float(np.max(each) - np.max(own))
        if queue_s > np.max(own) * (_MORE - 1):  # the largest time by itself: a queue may be a small part
            longest = {**took, "core": float(np.max(own)), part: max(queue_s, took.get(part, 0.0))}
            busiest = max(longest, key=lambda name: longest[name])
        slot = max(cores[at], waits[at] + evens[at])
        alone[busiest if slot <= cores[at] else most] += slot
    by_chance = _by_chance(chip, work.steps)
    if late.any():
        by_chance.pop(part)
    seconds = float(chip_time(waits, cores, evens, max(by_chance.values())))
    decides = alone if seconds <= float(chip_time(waits, cores, evens, 0.0)) else by_chance
    if (staggered := float(staggered_time(np.maximum(cores, waits + evens), mine, late))) > seconds:
        seconds, decides = staggered, {part: staggered}
    shared = _steady(chip, of, work.steps)
    return Batch(seconds, max(decides, key=lambda name: decides[name]), own, shared)


def _queued(chip: Chip, owner: Ints, of: Ints, work: CoreWork) -> NDArray[np.float64]:
    """Time that each piece waits at the cache slice, or channel, of rows that several cores request [s].

    Such rows are copies of whole tables, which are not spread at random, and rows that cores with caches
    request once. A core requests them after its earlier pieces. While it waits, the first row comes from
    memory anyway.
    owner, of  core and table of each piece
    Source: ``one_chip.queue_waits``
    Limits: one piece of a table -> 0
    """
    name = "cache" if _part(chip) == "slice" else "gm"
    rate = chip.value(f"{name}_bytes_per_s") / chip.value("cache_slices" if name == "cache" else "channels")
    service = np.zeros(owner.size)
    for step in work.steps:
        at_once = (getattr(step, f"{name}_spread") == 0) | (step.quick_s > 0)
        service += np.where(at_once, getattr(step, f"hot_{name}_bytes"), 0).ravel() / rate
    if not service.any():
        return service
    spare = chip.value("row_latency_s") - chip.value("cache_latency_s") if name == "cache" else 0.0
    order = np.argsort(owner, kind="stable")
    took = work.core_s.ravel()[order]
    began = np.cumsum(took) - took
    first = np.append(True, np.diff(owner[order]) > 0)
    came = np.empty(owner.size)
    came[order] = began - np.maximum.accumulate(np.where(first, began, 0))
    waits = np.zeros(owner.size)
    for table in np.unique(of[service > 0]):
        mine = np.flatnonzero((of == table) & (service > 0))
        waits[mine] = np.maximum(queue_waits(came[mine], service[mine]) - spare, 0)
    return waits


def _in_order(chip: Chip, owner: Ints, of: Ints, work: CoreWork, own: NDArray[np.float64]) -> Batch:
    """Time of several tables that all cores process in the same order without synchronizing.

    owner, of  core and table of each piece;  own  time of each core alone [s]
    Source: ``one_chip.in_order_time``
    """
    alone = dict.fromkeys(LIMITS, 0.0)
    waits, sums, hot = 0.0, 0.0, {"channel": 0.0, "slice": 0.0}
    order = np.argsort(of, kind="stable")
    for mine in np.split(order, np.flatnonzero(np.diff(of[order])) + 1):
        part, none = work.take(mine), np.zeros(mine.size, dtype=np.intp)
        for step in part.steps:
            took = _steady(chip, none, [step])
            wait = float(np.max(step.wait_s))
            core = float(np.max(np.bincount(owner[mine], (step.wait_s + step.busy_s).ravel())))
            most = max(("memory", "cache"), key=lambda name: took[name])
            slot = max(core, wait + took[most])
            alone["core" if slot <= core else most] += slot
            waits, sums = waits + wait, sums + slot
            least = {name: wait + took[name] for name in hot}
            if np.max(step.quick_s, initial=0) > 0:
                queue = max(took[_part(chip)], _by_chance(chip, [step])[_part(chip)])
                least[_part(chip)] = _late(step, wait, queue)
            hot = {name: max(hot[name], least[name] - slot) for name in hot}
    chance = max(_by_chance(chip, work.steps).values())
    seconds = float(in_order_time(sums, max(hot.values()), waits, chance))
    decides = {**alone, **{name: alone[name] + hot[name] for name in hot}}
    return Batch(seconds, max(decides, key=lambda name: decides[name]), own, _steady(chip, of, work.steps))


def _part(chip: Chip) -> str:
    """Where the hottest row of a table is requested: ``slice`` of the shared cache,
    or ``channel`` without a cache.
    """
    return "slice" if chip.value("cache_bytes") else "channel"


def _late(step: CoreStep, wait: float, queue: float) -> float:
    """Time of a step on the core that is last to receive a row
    which all cores request once at its beginning [s].

    wait  until data arrives without a queue;  queue  time to serve all cores [s]
    """
    quick, after = (float(np.max(a, initial=0)) for a in (step.quick_s, step.after_s))
    return max(wait, quick + queue) + after


def _steady(chip: Chip, table: Ints, steps: Sequence[CoreStep]) -> dict[str, float]:
    """Time of each shared resource by name: memory, cache,
    and the channel and slice with a table's hottest row [s].
    """
    memory, channel = _times(steps, "gm", chip.value("channels"), chip.value("gm_bytes_per_s"), table)
    cache, part = _times(steps, "cache", chip.value("cache_slices"), chip.value("cache_bytes_per_s"), table)
    return {"memory": memory, "cache": cache, "channel": channel, "slice": part}


def _times(
    steps: Sequence[CoreStep], prefix: str, parts: float, rate: float, table: Ints
) -> tuple[float, float]:
    if not parts:
        return 0.0, 0.0
    every = sum(float(np.sum(getattr(step, f"{prefix}_bytes"))) for step in steps)
    hot = sum(np.bincount(table, getattr(step, f"hot_{prefix}_bytes").ravel(), 1) for step in steps)
    return every / rate, (every + parts * float(np.max(hot))) / rate


def _by_chance(chip: Chip, steps: Sequence[CoreStep]) -> dict[str, float]:
    """Time of the fullest channel and the fullest slice, if requests are spread over them at random [s]."""
    found = {}
    for name, prefix, parts, rate in (
        ("channel", "gm", "channels", "gm_bytes_per_s"),
        ("slice", "cache", "cache_slices", "cache_bytes_per_s"),
    ):
        many = chip.value(parts)
        every = sum(float(np.sum(getattr(step, f"{prefix}_bytes"))) for step in steps)
        spread = sum(float(np.sum(getattr(step, f"{prefix}_spread"))) for step in steps)
        cubes = sum(float(np.sum(step.cubes)) for step in steps) if name == _part(chip) else 0.0
        found[name] = (every + many * float(uneven(spread, many, cubes))) / chip.value(rate) if many else 0.0
    return found
