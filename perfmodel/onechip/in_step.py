"""A slice of the batch of every table on every core: what it takes, for many tables and ways in one go.

Cores have one of two numbers of bags, so that two pieces of a table stand for those of all cores. The times
are those of ``batch.batch_of`` with the piece of every core, which is asked where cores have caches.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from perfmodel.model.one_chip import chip_time, in_order_time, uneven
from perfmodel.model.slowest import slowest_of_alike
from perfmodel.onechip.batch import LIMITS
from perfmodel.onechip.cost import ChipCost
from perfmodel.onechip.work import Batch, CoreStep, CoreWork

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_AT_ONCE = 32  # kinds of tables of one call: each looks for its own among all pieces of the call
_PARTS = (("gm", "channels", "gm_bytes_per_s"), ("cache", "cache_slices", "cache_bytes_per_s"))


def slices(cost: ChipCost) -> Ints:
    """[N] bags of each core. Source: definition; the first cores have one more"""
    least, more = divmod(int(cost.batch), cost.chip.cores)
    return np.array([least + (core < more) for core in range(cost.chip.cores)])


def two_slices(cost: ChipCost) -> tuple[Array, Array]:
    """Bags of a slice, [2], and cores that have one, [2]: those with one bag more, the others."""
    least, more = divmod(int(cost.batch), cost.chip.cores)
    return np.array([least + 1.0, least]), np.array([more, cost.chip.cores - more], dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Slices:
    """Each of K tables alone in its way, all cores in step: arrays [K].

    work     of the two sizes of slices, [K, 2];  cores  that have each [2]
    seconds  inf: buffers are too small;  limit  what decides: index of ``batch.LIMITS``
    """

    work: CoreWork
    cores: Array
    seconds: Array
    limit: Ints

    def take(self, index: Ints) -> Slices:
        """Those of an index array."""
        return Slices(self.work.take(index), self.cores, self.seconds[index], self.limit[index])


_KNOWN: WeakKeyDictionary[ChipCost, dict[int, Slices]] = WeakKeyDictionary()


def slices_of(cost: ChipCost, way: int) -> Slices:
    """Each kind of table [Q] in one way.

    Limits: a buffer that is too small -> inf seconds
    """
    known = _KNOWN.setdefault(cost, {})
    if int(way) not in known:
        known[int(way)] = _alone(cost, int(way))
    return known[int(way)]


def _joined(many: list[Slices]) -> Slices:
    seconds, limit = (np.concatenate([getattr(one, name) for one in many]) for name in ("seconds", "limit"))
    return Slices(_joined_work([one.work for one in many]), many[0].cores, seconds, limit)


def _joined_work(many: list[CoreWork]) -> CoreWork:
    """Pieces of several calls, one after the other."""
    steps = tuple(
        CoreStep(
            **{f.name: np.concatenate([getattr(step, f.name) for step in same]) for f in fields(CoreStep)}
        )
        for same in zip(*(one.steps for one in many), strict=True)
    )
    names = ("preload_s", "local_bytes", "vector_bytes", "fits")
    column = {name: np.concatenate([getattr(one, name) for one in many]) for name in names}
    return CoreWork(steps=steps, **column, lockstep=many[0].lockstep)


def _alone(cost: ChipCost, way: int) -> Slices:
    """Every kind of table in one way."""
    bags, cores = two_slices(cost)
    found = []
    for begin in range(0, cost.sample.size, _AT_ONCE):
        table = cost.sample[begin : begin + _AT_ONCE, np.newaxis]
        rows, dim = cost.tables.rows[table], cost.tables.dim[table]
        found.append(cost.work(table, way, rows, dim, bags, lockstep=True))
    work = _joined_work(found)
    seconds, limit = _in_step(cost, work, cores)
    return Slices(work, cores, seconds, limit)


def _in_step(cost: ChipCost, work: CoreWork, cores: Array) -> tuple[Array, Ints]:
    """Time of each table alone [s], and what decides it. Source: ``one_chip.chip_time``"""
    waits: list[Array] = []
    busiest: list[Array] = []
    evens: list[Array] = []
    alone = np.zeros((len(LIMITS), work.fits.shape[0]))
    for step in work.steps:
        wait = np.max(step.wait_s, axis=1, where=cores > 0, initial=0)
        core = slowest_of_alike(step.wait_s + step.busy_s, step.variance_s2, cores)
        took = _steady(cost, (step,), cores)
        even = took.max(axis=0)
        decides = np.where(core >= wait + even, 0, 1 + np.argmax(took, axis=0))
        alone[decides, np.arange(even.size)] += np.maximum(core, wait + even)
        waits, busiest, evens = [*waits, wait], [*busiest, core], [*evens, even]
    wait, core, even = (np.stack(each, axis=-1) for each in (waits, busiest, evens))
    chance = _by_chance(cost, [_total(work, name, cores) for name in _CHANCE])
    seconds = chip_time(wait, core, even, chance.max(axis=0))
    steady = seconds <= chip_time(wait, core, even, 0.0)
    lucky = np.array([LIMITS.index("channel"), LIMITS.index("slice")])[np.argmax(chance, axis=0)]
    limit = np.where(steady, np.argmax(alone, axis=0), lucky)
    fits = np.all(work.fits | (cores == 0), axis=1)
    for at in np.flatnonzero(fits & _of_other_kind(work)).tolist():
        batch = _each_core(cost, work, np.array([at]), lockstep=True)
        seconds[at], limit[at] = batch.seconds, LIMITS.index(batch.limit)
    return np.where(fits, seconds, np.inf), np.where(fits, limit, 0).astype(np.int64)


_SUMMED = (
    *("wait_s", "busy_s", "variance_s2", "gm_bytes", "hot_gm_bytes", "gm_spread"),
    *("cache_bytes", "hot_cache_bytes", "cache_spread"),
)


def _of_other_kind(work: CoreWork) -> NDArray[np.bool_]:
    """[K] whether a piece takes what is not summed here: ``batch.batch_of`` knows what that does."""
    other = [f.name for f in fields(CoreStep) if f.name not in _SUMMED]
    found = np.zeros(work.fits.shape[0], dtype=bool)
    for step in work.steps:
        for name in other:
            found |= np.any(getattr(step, name) != 0, axis=1)
    return found


def _each_core(cost: ChipCost, work: CoreWork, table: Ints, *, lockstep: bool) -> Batch:
    """``batch.batch_of`` of slices [K, 2] of tables with a piece on every core; table  rows of ``work``."""
    cores, size = _cores_of(cost)
    if not lockstep or table.size > 1:
        some = slices(cost)[cores] > 0
        cores, size = cores[some], size[some]
    index = (2 * table[:, np.newaxis] + size).ravel()
    of = np.repeat(np.arange(table.size), cores.size)
    return cost.batch_s(np.tile(cores, table.size), of, _flat(work).take(index))


def _cores_of(cost: ChipCost) -> tuple[Ints, Ints]:
    """[N] cores, and which of the two sizes each has."""
    number = two_slices(cost)[1].astype(np.int64)
    return np.arange(cost.chip.cores), np.repeat([0, 1], number)


def _flat(work: CoreWork) -> CoreWork:
    """[2 K] of [K, 2]."""
    steps = tuple(
        CoreStep(**{f.name: getattr(step, f.name).reshape(-1) for f in fields(CoreStep)})
        for step in work.steps
    )
    names = ("preload_s", "local_bytes", "vector_bytes", "fits")
    return CoreWork(
        steps=steps, **{name: getattr(work, name).reshape(-1) for name in names}, lockstep=work.lockstep
    )


_CHANCE = ("gm_bytes", "gm_spread", "cache_bytes", "cache_spread")


def _total(work: CoreWork, name: str, cores: Array) -> Array:
    """Sum over steps and cores, [K]."""
    return np.asarray(work.total(name) @ cores)


def _steady(cost: ChipCost, steps: tuple[CoreStep, ...], cores: Array) -> Array:
    """Time of what is shared, [4, K] in the order of ``LIMITS``, without chance [s]."""
    mean, full = [], []
    for prefix, parts, rate in _PARTS:
        many, per_s = cost.chip.value(parts), cost.chip.value(rate)
        every, hot = (
            np.sum([getattr(step, f"{name}{prefix}_bytes") @ cores for step in steps], axis=0)
            for name in ("", "hot_")
        )
        mean.append(every / per_s if many else np.zeros_like(every))
        full.append((every + many * hot) / per_s if many else np.zeros_like(every))
    return np.stack([*mean, *full])


def _part(cost: ChipCost) -> int:
    """What has the hottest row that cores ask for: 0 a channel, 1 a slice."""
    return int(cost.chip.value("cache_bytes") > 0)


def _late(cost: ChipCost, step: CoreStep, cores: Array, wait: Array, least: Array, took: Array) -> Array:
    """[K] time of a step for the last core that gets its hottest row, where cores ask for it once each [s].

    least  where they do not;  took  time of what has the hottest row. Source: ``batch.batch_of``
    """
    quick, after = (np.max(a, axis=1, where=cores > 0, initial=0) for a in (step.quick_s, step.after_s))
    prefix, parts, rate = _PARTS[_part(cost)]
    many, per_s = cost.chip.value(parts), cost.chip.value(rate)
    out = least.copy()
    every, spread, cubes = (
        getattr(step, name) @ cores for name in (f"{prefix}_bytes", f"{prefix}_spread", "cubes")
    )
    for at in np.flatnonzero(quick > 0).tolist():
        beyond = float(uneven(spread[at], many, float(cubes[at])))
        queue = max(float(took[at]), float(every[at] + many * beyond) / per_s)
        out[at] = max(float(wait[at]), float(quick[at]) + queue) + float(after[at])
    return out


def _by_chance(cost: ChipCost, totals: list[Array], cubes: float = 0.0) -> Array:
    """Time of the channel, and of the slice, to which chance deals most, [2, ...] [s].

    cubes  of rows that cores with caches ask for once each
    """
    found = []
    for at, ((_, parts, rate), every, spread) in enumerate(
        zip(_PARTS, totals[::2], totals[1::2], strict=True)
    ):
        many = cost.chip.value(parts)
        if many:
            heavy = cubes if at == _part(cost) else 0.0
            found.append((every + many * uneven(spread, many, heavy)) / cost.chip.value(rate))
        else:
            found.append(np.zeros_like(every))
    return np.stack(found)


def in_any_order(cost: ChipCost, way: Ints) -> Batch:
    """All tables in one order on all cores that do not wait for each other between tables.

    way  [T]
    Source: ``one_chip.in_order_time``
    """
    kinds, number = ways_of_kinds(cost, way)
    work = slices_of_pairs(cost, *kinds).work
    if number.sum() == 1:
        return _each_core(cost, work, np.zeros(1, dtype=np.int64), lockstep=False)
    bags, cores = two_slices(cost)
    cores = np.where(bags > 0, cores, 0)
    alone, sums, waits = np.zeros(3), np.zeros(number.size), np.zeros(number.size)
    hot = np.zeros((2, number.size))
    for step in work.steps:
        wait = np.max(step.wait_s, axis=1, where=cores > 0, initial=0)
        core = np.max(step.wait_s + step.busy_s, axis=1, where=cores > 0, initial=0)
        took = _steady(cost, (step,), cores)
        slot = np.maximum(core, wait + took[:2].max(axis=0))
        decides = np.where(slot <= core, 0, 1 + np.argmax(took[:2], axis=0))
        np.add.at(alone, decides, number * slot)
        waits, sums = waits + wait, sums + slot
        least = wait + took[2:]
        least[_part(cost)] = _late(cost, step, cores, wait, least[_part(cost)], took[2 + _part(cost)])
        hot = np.maximum(hot, least - slot)
    cubes = float(_total(work, "cubes", cores) @ number)
    chance = _by_chance(cost, [np.asarray(_total(work, name, cores) @ number) for name in _CHANCE], cubes)
    most = hot.max(axis=1)
    seconds = float(in_order_time(sums @ number, most.max(), waits @ number, chance.max()))
    told = dict(zip(LIMITS, (*alone, *most), strict=True))
    every = _steady(cost, work.steps, cores)
    total = every[:2] @ number
    shared = dict(zip(LIMITS[1:], (*total, *(total + (every[2:] - every[:2]).max(axis=1))), strict=True))
    limit = max(told, key=lambda name: float(told[name]))
    own = core_seconds(cost, work, number)
    return Batch(seconds, limit, own, {name: float(value) for name, value in shared.items()})


def core_seconds(cost: ChipCost, work: CoreWork, number: Array) -> Array:
    """[N] time of each core alone, of slices [K, 2] of so many tables [K] [s]. Limits: no bags -> 0"""
    bags, cores = two_slices(cost)
    return np.repeat(np.where(bags > 0, number @ work.core_s, 0.0), cores.astype(np.int64))


def ways_of_kinds(cost: ChipCost, way: Ints) -> tuple[tuple[Ints, Ints], Array]:
    """(kind, way) that occur, and how many tables have each."""
    both = np.stack([cost.kind_of, np.asarray(way, dtype=np.int64)])
    found, number = np.unique(both, axis=1, return_counts=True)
    return (found[0], found[1]), number.astype(np.float64)


def slices_of_pairs(cost: ChipCost, kind: Ints, way: Ints) -> Slices:
    """Of given pairs of a kind of table and a way, arrays [K]."""
    used = np.unique(way).tolist()
    pool = _joined([slices_of(cost, each) for each in used])
    return pool.take(np.searchsorted(used, way) * cost.sample.size + kind)
