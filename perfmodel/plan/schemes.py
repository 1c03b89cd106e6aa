"""A scheme for every table at loads that are spread evenly: what packing starts from."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from perfmodel.model.exchanges import Exchange
from perfmodel.plan.cost import Evaluator
from perfmodel.plan.memory import buffer_bytes
from perfmodel.plan.options import Options

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_ROUNDS = 100
_FEW = 6  # schemes of a table and an exchange that are tried in a round
_SLOPE = 0.05
_NEARLY = 0.95
_TOO_MUCH_S = 1e3  # for a rank that would need twice its memory


class Descent:
    """Improves schemes in rounds: the best change of every table, as many as pay together.

    A plan's time is estimated from loads that are spread evenly, or that one shard has where that is more.
    room_bytes  of a rank, for rows, optimizer state and buffers
    """

    def __init__(self, evaluator: Evaluator, options: Options, room_bytes: float) -> None:
        self.evaluator, self.options, self.room_bytes = evaluator, options, room_bytes

    def estimate(self, average: Array, everywhere: Array, largest: Array, memory: Array) -> Array:
        """Times [...] with what does not fit made dear; loads [..., K], memory [...]."""
        over = self.over(average, memory)
        return np.asarray(self.time(average, everywhere, largest) + _TOO_MUCH_S * over)

    def time(self, average: Array, everywhere: Array, largest: Array) -> Array:
        """Times [...] alone."""
        return self.evaluator.step_times(np.maximum(average, everywhere + largest))

    def over(self, average: Array, memory: Array) -> Array:
        """What does not fit, as a share of the room [...]."""
        buffers = buffer_bytes(
            np.moveaxis(average, -1, 0).reshape(average.shape[-1], -1), self.evaluator.times
        )
        needs = memory + buffers.reshape(np.shape(memory))
        return np.asarray(np.maximum(needs - self.room_bytes, 0) / self.room_bytes)

    def value(self, option: Ints) -> float:
        """Of a scheme for every table [T]."""
        o = self.options
        return float(
            self.estimate(
                o.average[option].sum(axis=0),
                o.everywhere[option].sum(axis=0),
                o.own[option].max(axis=0),
                o.average_memory[option].sum(),
            )
        )

    def run(self, option: Ints, mask: Mask, until: Callable[[], bool]) -> Ints:
        """Better schemes [T] than ``option``, of those in ``mask`` [O]."""
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
        """Tables by what their best change alone gains, and that change."""
        o = self.options
        average, everywhere = o.average[option].sum(axis=0), o.everywhere[option].sum(axis=0)
        memory, own = o.average_memory[option].sum(), o.own[option]
        now = self.time(average, everywhere, own.max(axis=0))
        over = self.over(average, memory)
        alike = o.kind_of * o.group.size + option  # equal tables that are cut alike: one stands for all
        _, sample, of = np.unique(alike, return_index=True, return_inverse=True)
        which, to = self._candidates(option[sample], o.kind_of[sample], mask, average, memory)
        away = option[sample][which]
        first, second = largest_two(own)
        rest = np.where(o.own[away] >= first, second, first)
        loads = average - o.average[away] + o.average[to]
        gain = now - self.time(
            loads, everywhere - o.everywhere[away] + o.everywhere[to], np.maximum(rest, o.own[to])
        )
        still = self.over(loads, memory - o.average_memory[away] + o.average_memory[to])
        if over > 0:  # what frees memory at the least cost
            freed = over - still
            gain = np.where(
                freed > 0, np.where(gain < 0, gain / np.where(freed > 0, freed, 1), gain), -np.inf
            )
            good = freed > 0
        else:
            good = (gain > now * 1e-9) & (still <= 0)
        order = np.lexsort((-gain, which))
        order = order[good[order]]
        best = order[np.unique(which[order], return_index=True)[1]]  # of each sample that has candidates
        place = np.full(sample.size, -1)
        place[which[best]] = best
        tables = np.flatnonzero(place[of] >= 0)
        change = place[of[tables]]
        by_gain = np.argsort(-gain[change], kind="stable")
        return tables[by_gain], to[change[by_gain]]

    def _candidates(
        self, option: Ints, kind: Ints, mask: Mask, average: Array, memory: float
    ) -> tuple[Ints, Ints]:
        """(which sample, option to try): of every exchange those that cost least at present slopes."""
        o = self.options
        most = np.repeat(average[np.newaxis], average.size + 1, axis=0)
        step = np.maximum(average, average.max() * 1e-6) * _SLOPE
        most[np.arange(average.size), np.arange(average.size)] += step
        time = self.evaluator.step_times(most)
        price = o.average @ ((time[:-1] - time[-1]) / step)
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
        """Times after the first change, the first two ..."""
        if not tables.size:
            return np.zeros(0)
        o, now = self.options, option[tables]
        change = [
            getattr(o, name)[option].sum(axis=0)
            + np.cumsum(getattr(o, name)[better] - getattr(o, name)[now], axis=0)
            for name in ("average", "everywhere", "average_memory")
        ]
        left = np.ones(option.size, dtype=bool)
        left[tables] = False
        rest = np.vstack([o.own[option[left]], np.zeros((1, o.own.shape[1]))]).max(axis=0)
        new = np.maximum.accumulate(o.own[better], axis=0)
        later = np.vstack([np.maximum.accumulate(o.own[now[::-1]], axis=0)[::-1][1:], rest[np.newaxis]])
        return self.estimate(change[0], change[1], np.maximum(np.maximum(new, later), rest), change[2])


def largest_two(own: Array) -> tuple[Array, Array]:
    """The largest and the second largest of each column [K]; 0 where there is none."""
    padded = np.concatenate([own, np.zeros((2, own.shape[1]))])
    top = np.partition(padded, -2, axis=0)[-2:]
    return top[1], top[0]


def least_few(segment: Ints, value: Array) -> Ints:
    """Where the ``_FEW`` least values of every segment are."""
    order = np.lexsort((value, segment))
    sorted_segment = segment[order]
    start = np.searchsorted(sorted_segment, sorted_segment)
    return order[np.arange(order.size) - start < _FEW]
