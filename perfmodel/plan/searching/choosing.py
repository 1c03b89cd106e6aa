"""A scheme for every table at Lagrangian prices: time per byte of each resource and of memory.

At the optimum with loads spread evenly, each table has its cheapest scheme, if loads cost the slopes of the
steps' times, and memory the price (multiplier) at which the chosen schemes just fit. The slopes depend on the
choice, so slopes and choice are computed in turn.
Source: Everett, Operations Research 11 (1963): multipliers; Frank and Wolfe (1956): repeated slopes
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from perfmodel import effort
from perfmodel.engine.cost import Evaluator
from perfmodel.engine.tables import Array, Ints
from perfmodel.engine.timing import round_off
from perfmodel.plan.choices.listing import Mask
from perfmodel.plan.choices.scheme_options import Options, find_least, price_loads
from perfmodel.plan.searching.packing import Until, is_faster

_ROUNDS = 8  # in each of which slopes are computed
_TRIALS = 30  # of the price of memory
_STEP = 1.5  # its factor at first
_NEAR = 2e-4  # of it: in the end
_SLOPE = 0.01  # of a load: step of the difference quotient
_UNEVEN = 1.1  # busiest over mean load of shards: decides which side of an exchange is waited for
_LEAST = 1e-3  # of the largest load: smaller loads are priced as if they were this large
_OF_MEMORY = 0.2  # of a rank's memory: a shard may need this much if it may have all of its work
_EXCEPT = 1.001  # of a table's smallest shard, so that every table keeps a scheme


@dataclass(frozen=True, eq=False)
class Choice:
    """An option for every table.

    option  [T] of each table;  time_s  with shards spread evenly, or if longer with the largest on one rank
    loads   [2, K] by resource: loads that every rank has, and mean loads from shards [bytes]
    """

    option: Ints
    time_s: float
    loads: Array


@dataclass(frozen=True, eq=False)
class _Mix:
    """Options, by their places among the allowed ones, and how many tables of its kind have each."""

    places: Ints
    tables: Array


class Choosing:
    """Chooses an option for every table by prices, among allowed options.

    mask  the allowed options; each kind of table must have at least one
    Arrays of loads have the J resources that these options use; those of the evaluator have all K.
    """

    def __init__(self, evaluator: Evaluator, options: Options, mask: Mask) -> None:
        """Take what is needed of the allowed options alone; all arrays have an entry for each of them."""
        self.evaluator = evaluator
        self.options = options
        allowed = self.option = np.flatnonzero(mask)
        self.group = options.group[allowed]
        self.begin = np.searchsorted(self.group, np.arange(options.count.size + 1))
        self.used = np.flatnonzero([load[allowed].any() for load in options.average.T])
        self.shard = self._take(options.shard)
        self.everywhere = self._take(options.everywhere)
        self.average = self._take(options.average)
        self.memory = options.average_memory[allowed]
        self.shard_memory = options.shard_memory[allowed]
        self.apart = ~options.everywhere_held[allowed]
        self.spread = options.parts[allowed] / options.gpus * self.apart  # shards over ranks
        self.count = options.count.astype(np.float64)
        self.memory_s = 0.0  # the last price of a byte

    def _take(self, values: Array) -> Array:
        """Columns of the resources in use, one after the other, for the allowed options [allowed, J]."""
        columns = np.array([values[self.option, k] for k in self.used])
        return columns.reshape(self.used.size, self.option.size).T

    def run(self, room_bytes: float, shard: float, start: Array | None, until: Until) -> Choice | None:
        """The fastest choice of all rounds that fits ``room_bytes`` of a rank.

        shard  largest load of a shard, relative to the load of a balanced rank [-]
        start  [2, K] loads for the first prices, as ``Choice.loads``; None: of the choice with least memory
        until  returns whether to stop after this round, once there is a choice
        Limits: even the choice of least memory does not fit -> None
        """
        best: Choice | None = None
        leanest = _Mix(find_least(self.memory, self.begin)[1], self.count)
        loads = self._sum_loads(leanest) if start is None else start[:, self.used]
        held = np.inf
        for turn in range(_ROUNDS):
            slope = self._price_loads(loads)
            self.evaluator.work.add(effort.PRICED, 2 * self.average.size)
            price = round_off(self.average @ slope)
            shard_s = round_off(self.shard @ slope)
            buffers = self.evaluator.times.count_buffers(self._widen(loads.sum(axis=0))[:, np.newaxis])
            room = room_bytes - float(buffers[0])
            small = self._find_small(shard_s, shard * held, shard * room * _OF_MEMORY)
            mix = self._fit_memory(np.where(small, price, np.inf), np.where(small, self.memory, np.inf), room)
            if mix is None and not turn:  # the buffers of these loads leave no room for any choice
                buffers_bytes = self.evaluator.times.count_buffers(self.options.average[self.option].T)
                leanest = _Mix(find_least(self.memory + buffers_bytes, self.begin)[1], self.count)
                loads = self._sum_loads(leanest)
                continue
            if mix is None:
                return best
            now = self._sum_loads(mix)
            choice = self._build_choice(mix, now)
            # In the first turn no load of a rank is known that could limit shards.
            if (best is None or is_faster(choice.time_s, best.time_s)) and (turn or not np.isfinite(shard)):
                best = choice
            balance = float((shard_s * self.spread)[mix.places] @ mix.tables)
            held = balance if np.isinf(held) else (held + balance) / 2  # time of a rank's shards [s]
            loads = loads + (now - loads) * (2 / (turn + 2))  # Frank and Wolfe's step
            if best is not None and until():
                break
        return best

    def _sum_loads(self, mix: _Mix) -> Array:
        """Loads of a choice [2, J]: loads that every rank has, mean load of shards."""
        everywhere = mix.tables @ self.everywhere[mix.places]
        return np.stack([everywhere, mix.tables @ self.average[mix.places] - everywhere])

    def _widen(self, loads: Array) -> Array:
        """Loads of all resources [..., K] from those in use [..., J]; others are 0."""
        wide = np.zeros((*loads.shape[:-1], self.options.shard.shape[1]))
        wide[..., self.used] = loads
        return wide

    def _price_loads(self, loads: Array) -> Array:
        """Time per byte of each resource in use [J], at loads [2, J] as of ``_sum_loads`` [s/byte]."""
        busiest = loads[0] + _UNEVEN * loads[1]
        busiest = np.maximum(busiest, _LEAST * busiest.max())
        estimate = self.evaluator.estimate_times
        return price_loads(lambda passes: estimate(self._widen(passes)), busiest, _SLOPE)

    def _find_small(self, shard_s: Array, limit_s: float, limit_bytes: float) -> Mask:
        """Mask of the allowed options whose shards are small enough, or nearly the smallest of their table.

        shard_s  time of a shard of each option [s];  limit_s, limit_bytes  limits of its time and memory
        Options that every rank holds alike are always small enough.
        """
        if not np.isfinite(limit_s) or not limit_s:
            return np.ones(shard_s.size, dtype=bool)
        size = np.maximum(shard_s / limit_s, self.shard_memory / limit_bytes)
        size = np.where(self.apart, size, np.inf)
        least = np.minimum.reduceat(size, self.begin[:-1]) * _EXCEPT
        return np.asarray(~self.apart | (size <= np.maximum(1, least[self.group])))

    def _fit_memory(self, price: Array, memory: Array, room: float) -> _Mix | None:
        """The cheapest options that fit together in ``room``: the price of memory is raised until they fit.

        price, memory  of each allowed option; infinite: it may not be chosen. Limits: nothing fits -> None
        free, dear     options if memory costs less, or more, than the price at which all just fit
        """
        _, free = find_least(price, self.begin)
        if float(memory[free] @ self.count) <= room:
            return _Mix(free, self.count)
        _, dear = find_least(memory, self.begin)
        if float(memory[dear] @ self.count) > room:
            return None
        low, high = 0.0, np.inf
        step = _STEP
        middle = self.memory_s or float(price[free] @ self.count) / room
        middle = middle or float(price[dear] @ self.count) / room or 1 / room  # 0 if options are free
        for _ in range(_TRIALS):
            self.evaluator.work.add(effort.PRICED, price.size)
            _, now = find_least(price + middle * self.memory, self.begin)
            if float(self.memory[now] @ self.count) > room:
                low, free = middle, now
            else:
                high, dear = middle, now
            if math.isclose(high, low, rel_tol=_NEAR):
                break
            if low and np.isfinite(high):
                middle = np.sqrt(low * high)
            else:
                middle = low * step if low else high / step
                step *= step
        self.memory_s = middle
        return self._fill_memory(price, free, dear, room - float(self.memory[dear] @ self.count))

    def _fill_memory(self, price: Array, free: Ints, dear: Ints, left: float) -> _Mix:
        """Uses the memory that is left: as many tables as fit get faster options.

        free, dear  option of each kind of table, as in ``_fit_memory``;  left  memory beside ``dear`` [bytes]
        Their prices of memory are so near that hardly more than one kind of table differs.
        """
        differ = np.flatnonzero(free != dear)
        order = differ[self.memory[free[differ]] > self.memory[dear[differ]]]
        tables = np.zeros(self.count.size)
        for q in order:
            table_bytes = self.memory[free[q]] - self.memory[dear[q]]
            tables[q] = min(self.count[q], left // table_bytes)
            left -= tables[q] * table_bytes
        return _Mix(np.concatenate([dear, free[order]]), np.concatenate([self.count - tables, tables[order]]))

    def _build_choice(self, mix: _Mix, loads: Array) -> Choice:
        """The option of every table, equal tables in order. loads  of the mix [2, J]"""
        some = np.flatnonzero(mix.tables)
        places = mix.places[some]
        tables = mix.tables[some]
        apart = self.shard[places] * self.apart[places][:, np.newaxis]
        busiest = loads[0] + np.maximum(loads[1], apart.max(axis=0))
        time = float(self.evaluator.estimate_times(self._widen(busiest)))
        order = np.argsort(self.group[places], kind="stable")
        # By kind of table: the options of its tables in a row, then each at its table.
        chosen = np.repeat(self.option[places[order]], tables[order].astype(np.int64))
        option = np.empty(self.options.kind_of.size, dtype=np.int64)
        option[np.argsort(self.options.kind_of, kind="stable")] = chosen
        return Choice(option, time, self._widen(loads))
