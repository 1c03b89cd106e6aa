"""A scheme for every table at Lagrangian prices: time per byte of each resource and of memory.

At the optimum with loads spread evenly, each table has its cheapest scheme, if loads cost the slopes of the
steps' times, and memory the price (multiplier) at which the chosen schemes just fit. The slopes depend on the
choice, so slopes and choice are computed in turn.
Source: Everett, Operations Research 11 (1963): multipliers; Frank and Wolfe (1956): repeated slopes
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel import effort
from perfmodel.engine.cost import Evaluator
from perfmodel.engine.timing import round_off
from perfmodel.plan.choices.options import Options, least_of

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_ROUNDS = 8  # in each of which slopes are computed
_TRIALS, _STEP, _NEAR = 30, 1.5, 1.0002  # of the price of memory; its factor at first, and in the end
_SLOPE = 0.01  # of a load: step of the difference quotient
_UNEVEN = 1.1  # busiest over mean load of shards: decides which side of an exchange is waited for
_LEAST = 1e-3  # of the largest load: smaller loads are priced as if they were this large
_OF_MEMORY = 0.2  # of a rank's memory: a shard may need this much if it may have all of its work
_EXCEPT = 1.001  # of a table's smallest shard, so that every table keeps a scheme


@dataclass(frozen=True, eq=False)
class Choice:
    """An option for every table.

    option  [T] of each table;  time_s  with shards spread evenly, or with the largest shard on one rank if
            longer
    loads   [2, K] by resource: loads that every rank has, and mean loads from shards [bytes]
    """

    option: Ints
    time_s: float
    loads: Array


@dataclass(frozen=True, eq=False)
class _Few:
    """Some options, and the number of tables that have each option.

    at  their indices among the allowed options;  tables  number of tables of each
    """

    at: Ints
    tables: Array


class Choosing:
    """Chooses an option for every table by prices, among allowed options.

    mask  the allowed options; each kind of table must have at least one
    """

    def __init__(self, evaluator: Evaluator, options: Options, mask: Mask) -> None:
        self.evaluator, self.options = evaluator, options
        o, at = options, np.flatnonzero(mask)
        self.option, self.group = at, o.group[at]
        self.first = np.searchsorted(self.group, np.arange(o.count.size + 1))
        self.used = np.flatnonzero([(load[at] > 0).any() for load in o.average.T])
        self.own, self.everywhere, self.average = (
            np.array([values[at, k] for k in self.used]).reshape(-1, at.size).T
            for values in (o.own, o.everywhere, o.average)
        )
        self.memory, self.own_memory = o.average_memory[at], o.own_memory[at]
        self.spread = np.where(o.everywhere_held[at], 0, o.parts[at] / o.gpus)
        self.count = o.count.astype(np.float64)
        self.memory_s = 0.0  # the last price of a byte
        self.leanest = _Few(least_of(self.memory, self.first)[1], self.count)

    def run(
        self, room_bytes: float, shard: float, start: Array | None, until: Callable[[], bool]
    ) -> Choice | None:
        """The fastest choice of all rounds that fits ``room_bytes`` of a rank.

        shard  largest load of a shard, relative to the load of a balanced rank [-]
        start  [2, K] loads for the first prices, as ``Choice.loads``; None: of the choice with least memory
        until  returns whether to stop after this round, once there is a choice
        Limits: even the choice of least memory does not fit -> None
        """
        best: Choice | None = None
        loads = self._loads(self.leanest) if start is None else start[:, self.used]
        held = np.inf
        for at in range(_ROUNDS):
            slope = self._slopes(loads)
            self.evaluator.work.add(effort.PRICED, 2 * self.average.size)
            price, each = round_off(self.average @ slope), round_off(self.own @ slope)
            room = room_bytes - self._buffers(loads)
            small = self._small(each, shard * held, shard * room * _OF_MEMORY)
            chosen = self._within(np.where(small, price, np.inf), np.where(small, self.memory, np.inf), room)
            if chosen is None:
                return best
            now = self._loads(chosen)
            found = self._choice(chosen, now)
            if (best is None or found.time_s < best.time_s) and (at or not np.isfinite(shard)):
                best = found
            balance = float((each * self.spread)[chosen.at] @ chosen.tables)
            held = balance if np.isinf(held) else (held + balance) / 2
            loads = loads + (now - loads) * (1.0 if at == 0 else 2 / (at + 2))
            if best is not None and until():
                break
        return best

    def _loads(self, chosen: _Few) -> Array:
        """Loads of a choice [2, J] by resource in use: loads that every rank has, mean load of shards."""
        everywhere = chosen.tables @ self.everywhere[chosen.at]
        return np.stack([everywhere, chosen.tables @ self.average[chosen.at] - everywhere])

    def _all(self, loads: Array) -> Array:
        """Loads of all K resources [..., K] from the J resources in use [..., J]; others are 0."""
        whole = np.zeros((*loads.shape[:-1], self.options.own.shape[1]))
        whole[..., self.used] = loads
        return whole

    def _slopes(self, loads: Array) -> Array:
        """Seconds per byte of each resource in use, at these loads [2, J]."""
        most = loads[0] + _UNEVEN * np.maximum(loads[1], 0)
        most = np.maximum(most, _LEAST * most.max())
        more = _SLOPE * most
        time = self.evaluator.estimate_times(self._all(np.vstack([most + np.diag(more), most])))
        return np.asarray((time[:-1] - time[-1]) / more)

    def _buffers(self, loads: Array) -> float:
        most = self._all(loads.sum(axis=0))
        return float(self.evaluator.times.count_buffers(most[:, np.newaxis])[0])

    def _small(self, each: Array, most: float, most_bytes: float) -> Mask:
        """Mask of the allowed options whose shards are small enough, or nearly the smallest of their table.

        each  time of a shard of each option [s];  most, most_bytes  limits of its time and memory
        """
        if not np.isfinite(most) or most <= 0:
            return np.ones(each.size, dtype=bool)
        size = np.where(self.spread > 0, np.maximum(each / most, self.own_memory / most_bytes), np.inf)
        least = np.minimum.reduceat(size, self.first[:-1]) * _EXCEPT
        return np.asarray((self.spread == 0) | (size <= np.maximum(1, least[self.group])))

    def _within(self, price: Array, memory: Array, room: float) -> _Few | None:
        """The cheapest options that fit together in ``room``: the price of memory is raised until they fit.

        price, memory  of each allowed option. Limits: nothing fits -> None
        """
        free, dear = least_of(price, self.first)[1], least_of(memory, self.first)[1]
        if float(memory[free] @ self.count) <= room:
            return _Few(free, self.count)
        if float(memory[dear] @ self.count) > room:
            return None
        finite = np.where(np.isfinite(price), self.memory, 0)
        low, high, step = 0.0, np.inf, _STEP
        middle = self.memory_s or float(price[free] @ self.count) / room
        middle = middle or float(price[dear] @ self.count) / room or 1 / room  # 0 if options are free
        for _ in range(_TRIALS):
            self.evaluator.work.add(effort.PRICED, price.size)
            _, now = least_of(price + middle * finite, self.first)
            if float(self.memory[now] @ self.count) > room:
                low, free = middle, now
            else:
                high, dear = middle, now
            if low > 0 and high < np.inf and high < low * _NEAR:
                break
            if np.isinf(high):
                middle, step = low * step, step * step
            elif not low:
                middle, step = high / step, step * step
            else:
                middle = np.sqrt(low * high)
        self.memory_s = middle
        return self._filled(price, free, dear, room - float(self.memory[dear] @ self.count))

    def _filled(self, price: Array, free: Ints, dear: Ints, left: float) -> _Few:
        """Uses the memory that is left: as many tables as fit get faster options.

        dear, free  option of each kind of table at a price of memory that is too high, and too low
        left  memory [bytes]. Tables with the largest gain in time per byte change first
        """
        differ = np.flatnonzero(free != dear)
        more = self.memory[free[differ]] - self.memory[dear[differ]]
        gain = price[dear[differ]] - price[free[differ]]
        good = (more > 0) & (gain > 0)
        order = differ[good][np.argsort(-(gain[good] / more[good]), kind="stable")]
        tables = np.zeros(self.count.size)
        for q in order:
            each = self.memory[free[q]] - self.memory[dear[q]]
            tables[q] = min(self.count[q], left // each)
            left -= tables[q] * each
        return _Few(np.concatenate([dear, free[order]]), np.concatenate([self.count - tables, tables[order]]))

    def _choice(self, chosen: _Few, loads: Array) -> Choice:
        some = chosen.tables > 0
        at = chosen.at[some]
        apart = self.own[at] * (self.spread[at] > 0)[:, np.newaxis]
        most = loads[0] + np.maximum(loads[1], apart.max(axis=0))
        time = float(self.evaluator.estimate_times(self._all(most)))
        return Choice(self._option(at, chosen.tables[some]), time, self._all(loads))

    def _option(self, at: Ints, tables: Array) -> Ints:
        """The option of every table if ``tables`` tables have the options ``at``; equal tables in order."""
        o = self.options
        order = np.argsort(self.group[at], kind="stable")
        each = np.repeat(self.option[at[order]], tables[order].astype(np.int64))
        option = np.empty(o.kind_of.size, dtype=np.int64)
        option[np.argsort(o.kind_of, kind="stable")] = each
        return option
