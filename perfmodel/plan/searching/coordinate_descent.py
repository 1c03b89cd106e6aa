"""Chooses a scheme for every table as if loads were spread evenly, before shards are placed on ranks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from perfmodel.engine.cost import Evaluator
from perfmodel.engine.schemes import Exchange
from perfmodel.engine.timing import round_off
from perfmodel.plan.choices.options import Options

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_ROUNDS = 100
_FEW = 6  # schemes per table and exchange that are tried in a round
_SLOPE = 0.05
_NEARLY = 0.95
_TOO_MUCH_S = 1e3  # penalty for a rank that needs twice its memory


class Descent:
    """Improves the tables' options in rounds: the best change of every table, as many together as help.

    A plan's time is estimated from loads spread evenly, or from the largest shard if that takes longer; its
    memory likewise. Memory is a further column beside the loads of K resources: arrays [..., K + 1].
    room_bytes  memory of a rank, for rows, optimizer state and buffers
    """

    def __init__(self, evaluator: Evaluator, options: Options, room_bytes: float) -> None:
        self.evaluator, self.options, self.room_bytes = evaluator, options, room_bytes
        self.average, self.everywhere, self.own = options.beside_memory

    def estimate(self, average: Array, everywhere: Array, largest: Array) -> tuple[Array, Array]:
        """(time of a pass [s], memory beyond ``room_bytes`` as a share of it), from arrays [..., K + 1].

        average  of a rank;  everywhere  the part that every rank has;  largest  of a shard
        """
        most = np.maximum(average, everywhere + largest)
        columns = np.moveaxis(average[..., :-1], -1, 0).reshape(average.shape[-1] - 1, -1)
        buffers = self.evaluator.times.count_buffers(columns).reshape(average.shape[:-1])
        over = np.maximum(most[..., -1] + buffers - self.room_bytes, 0) / self.room_bytes
        return self.evaluator.estimate_times(most[..., :-1]), np.asarray(over)

    def value(self, option: Ints) -> float:
        """Time of a pass with these options of all tables, plus a penalty for too much memory [s]."""
        time, over = self.estimate(
            self.average[option].sum(axis=0),
            self.everywhere[option].sum(axis=0),
            self.own[option].max(axis=0),
        )
        return float(time + _TOO_MUCH_S * over)

    def run(self, option: Ints, mask: Mask, until: Callable[[], bool]) -> Ints:
        """Improve the choice of one option for each table, until no change of a table helps.

        option  index of the option of each table [tables];  mask  options that may be chosen [options]
        until   returns whether to stop early
        """
        option, value = option.copy(), self.value(option)
        for _ in range(_ROUNDS):
            if until():
                break
            tables, better = self._best_changes(option, mask)
            tried = self._prefixes(option, tables, better)
            if not tried.size or tried.min() >= value * (1 - 1e-9):
                break
            at = int(np.argmin(tried))
            option[tables[: at + 1]] = better[: at + 1]
            value = self.value(option)
        return option

    def _best_changes(self, option: Ints, mask: Mask) -> tuple[Ints, Ints]:
        """(tables whose best change helps, largest gain first; the option that each changes to).

        A change concerns one table or all equal tables.
        """
        o = self.options
        alike = o.kind_of * o.group.size + option  # equal tables with equal schemes
        _, sample, of, count = np.unique(alike, return_index=True, return_inverse=True, return_counts=True)
        average = self.average[option].sum(axis=0)
        which, to = self._candidates(option[sample], o.kind_of[sample], mask, average)
        again = np.flatnonzero(count[which] > 1)
        tables = np.concatenate([np.ones(which.size), count[which[again]]])
        which, to = np.concatenate([which, which[again]]), np.concatenate([to, to[again]])
        gain, freed, over = self._gains(option, sample, count, which, to, tables)
        gain /= tables
        if over > 0:  # changes that free memory at the least cost
            good = freed > 0
            gain = np.where(gain < 0, gain / np.maximum(freed / tables, 1e-12), gain)
        else:
            good = (gain > 0) & (freed >= 0)
        order = np.lexsort((-gain, which))
        order = order[good[order]]
        best = order[np.unique(which[order], return_index=True)[1]]  # of each sample with candidates
        place = np.full(sample.size, -1)
        place[which[best]] = best
        changed = np.flatnonzero(place[of] >= 0)
        change = place[of[changed]]
        by_gain = np.lexsort((of[changed], -gain[change]))
        return changed[by_gain], to[change[by_gain]]

    def _gains(
        self, option: Ints, sample: Ints, count: Ints, which: Ints, to: Ints, tables: Array
    ) -> tuple[Array, Array, float]:
        """(gain of each change [s], excess memory that it frees, present excess), both of ``room_bytes`` [-].

        sample, count  tables that stand for equal tables with equal options, and how many there are
        which, to, tables  for each change: index in ``sample``, new option, number of tables that change
        """
        away, own = option[sample][which], self.own[option[sample]]
        average, everywhere = self.average[option].sum(axis=0), self.everywhere[option].sum(axis=0)
        now, over = self.estimate(average, everywhere, own.max(axis=0))
        first, second = largest_two(own)
        last = (tables == count[which])[:, np.newaxis]  # none of its kind keeps the old scheme
        rest = np.where(last & (self.own[away] >= first), second, first)
        many = tables[:, np.newaxis]
        time, still = self.estimate(
            average + many * (self.average[to] - self.average[away]),
            everywhere + many * (self.everywhere[to] - self.everywhere[away]),
            np.maximum(rest, self.own[to]),
        )
        gain = np.asarray(now - time)
        return np.where(gain > now * 1e-9, gain, np.minimum(gain, 0)), over - still, float(over)

    def _candidates(self, option: Ints, kind: Ints, mask: Mask, average: Array) -> tuple[Ints, Ints]:
        """Changes to try, (index of the sample, new option): the cheapest options of every exchange.

        kind  kind of table of each sample;  average  loads of a rank, and memory
        """
        o = self.options
        average, memory = average[:-1], float(average[-1])
        most = np.repeat(average[np.newaxis], average.size + 1, axis=0)
        step = np.maximum(average, average.max() * 1e-6) * _SLOPE
        most[np.arange(average.size), np.arange(average.size)] += step
        time = self.evaluator.estimate_times(most)
        price = round_off(o.average @ ((time[:-1] - time[-1]) / step))
        allowed = np.flatnonzero(mask)
        segment = o.group[allowed] * len(Exchange) + o.exchange[allowed]
        kept = np.union1d(
            allowed[least_few(segment, price[allowed])],
            allowed[least_few(segment, o.average_memory[allowed])]
            if memory > self.room_bytes * _NEARLY
            else allowed[:0],
        )
        begin, end = np.searchsorted(o.group[kept], kind), np.searchsorted(o.group[kept], kind, "right")
        which = np.repeat(np.arange(kind.size), end - begin)
        at = np.arange(which.size) - np.repeat(np.cumsum(end - begin) - (end - begin), end - begin)
        to = kept[begin[which] + at]
        other = to != option[which]
        return which[other], to[other]

    def _prefixes(self, option: Ints, tables: Ints, better: Ints) -> Array:
        """Times after the first change, after the first two, and so on, with the penalty for memory [s].

        tables  in the order in which they change;  better  the new option of each
        """
        if not tables.size:
            return np.zeros(0)
        now = option[tables]
        average, everywhere = (
            values[option].sum(axis=0) + np.cumsum(values[better] - values[now], axis=0)
            for values in (self.average, self.everywhere)
        )
        left = np.ones(option.size, dtype=bool)
        left[tables] = False
        rest = np.vstack([self.own[option[left]], np.zeros((1, self.own.shape[1]))]).max(axis=0)
        new = np.maximum.accumulate(self.own[better], axis=0)
        later = np.maximum.accumulate(self.own[now[::-1]], axis=0)[::-1][1:]
        later = np.vstack([later, rest[np.newaxis]])
        time, over = self.estimate(average, everywhere, np.maximum(np.maximum(new, later), rest))
        return np.asarray(time + _TOO_MUCH_S * over)


def largest_two(own: Array) -> tuple[Array, Array]:
    """(largest, second largest) value in each column; 0 if there is none."""
    padded = np.concatenate([own, np.zeros((2, own.shape[1]))])
    top = np.partition(padded, -2, axis=0)[-2:]
    return top[1], top[0]


def least_few(segment: Ints, value: Array) -> Ints:
    """Indices of the ``_FEW`` least values in each segment; ``segment`` has the segment of each value."""
    order = np.lexsort((value, segment))
    sorted_segment = segment[order]
    start = np.searchsorted(sorted_segment, sorted_segment)
    return order[np.arange(order.size) - start < _FEW]
