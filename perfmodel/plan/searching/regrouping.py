"""Changes the schemes of many equal tables together, and places all tables again.

A rank holds whole shards. Of 70 equal shards on 64 ranks some rank holds two, so its load is nearly twice the
mean. Changing one table after the other never leaves such a plan, because each step in between is slower. So
several tables of one scheme, or of two, change at once: all, half, or the number that gives every rank
equally many shards. Two estimates of the time rank the changes: with loads spread evenly, and with whole
shards, so that a rank has its share of each scheme's shards rounded up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.passes.cost import Evaluator
from perfmodel.passes.memory import buffer_bytes
from perfmodel.passes.schemes import Exchange
from perfmodel.passes.steady import steady
from perfmodel.plan.choices.options import Options
from perfmodel.plan.searching.evening import Evening
from perfmodel.plan.searching.packing import Packing, pack
from perfmodel.plan.searching.schemes import least_few

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_PACKED = 24  # changes of a plan that are packed while none is faster
_PAIRED, _PAIRS = 200, 3_000  # changes of one scheme, the best of which are paired; pairs that are evaluated
_SLOPE = 0.05  # of a load: step of the difference quotient
_NEAR = 1.05  # of the plan's time: a packed plan this near is rebalanced
_LESS = 1e-6


@dataclass(frozen=True, eq=False)
class _Changes:
    """n changes, each of some tables from an option to another, or two such changes together (second axis).

    old, new  options;  tables  number of tables; arrays [n, 1] or [n, 2]
    """

    old: Ints
    new: Ints
    tables: Ints


class Regrouping:
    """Changes how many tables of each kind have each scheme, for the plans of one search.

    packed  number of plans whose tables were placed on ranks
    """

    def __init__(
        self, evaluator: Evaluator, options: Options, limit_bytes: float, random: np.random.Generator
    ) -> None:
        self.evaluator, self.options, self.limit_bytes, self.random = evaluator, options, limit_bytes, random
        o = options
        self.order = np.argsort(o.kind_of, kind="stable")
        self.parts = np.where(o.everywhere_held, 0, o.parts)
        apart = self.parts[:, np.newaxis] > 0
        self.base = np.where(apart, o.everywhere, o.average)  # of every rank, but for shards of some
        self.segment = o.group * len(Exchange) + o.exchange
        self.seen: set[bytes] = set()
        self.packed = 0

    def better(self, state: Packing, until: Callable[[], bool]) -> Packing | None:
        """A faster plan than this. Limits: no change that is tried is faster, or no time -> None"""
        o, best_s = self.options, state.time_s
        count = np.bincount(state.option, minlength=o.group.size)
        self.seen.add(count.tobytes())
        for number, changed in enumerate(self._promising(count, best_s)):
            if number == _PACKED or until():
                break
            self.packed += 1
            other = pack(self.evaluator, o, self._option(changed), self.limit_bytes)
            if other is None:
                continue
            if best_s <= other.time_s < _NEAR * best_s:
                Evening(other, self.random, quick=True).run(until)
            if other.time_s < best_s * (1 - _LESS):
                return other
        return None

    def _option(self, count: Ints) -> Ints:
        """The option of every table, if ``count`` tables have each option."""
        option = np.empty_like(self.order)
        option[self.order] = np.repeat(np.arange(count.size), count)
        return option

    def _promising(self, count: Ints, best_s: float) -> Iterator[Ints]:
        """Yields new numbers of tables per option, for plans that may be faster than ``best_s``, best first.

        count  the present numbers
        """
        one = self._changes(count)
        if not one.old.size:
            return
        spread_s, rounds_s, needs = self._estimated(count, one)
        two = self._pairs(one, spread_s, needs)
        both = [(one, spread_s, rounds_s, needs), (two, *self._estimated(count, two))]
        value = np.concatenate([self._value(*of[1:], best_s) for of in both])
        for at in np.argsort(value, kind="stable"):
            if not np.isfinite(value[at]):
                return
            of, row = (one, at) if at < len(one.old) else (two, at - len(one.old))
            changed = count.copy()
            np.subtract.at(changed, of.old[row], of.tables[row])
            np.add.at(changed, of.new[row], of.tables[row])
            key = changed.tobytes()
            if changed.min() >= 0 and key not in self.seen:
                self.seen.add(key)
                yield changed

    def _value(self, spread_s: Array, rounds_s: Array, needs: Array, best_s: float) -> Array:
        """Sort key of changes: the sum of both estimates of the time; infinite if a change is useless.

        spread_s, rounds_s, needs  as returned by ``_estimated``
        """
        possible = (spread_s < best_s * (1 - _LESS)) & (needs <= self.limit_bytes)
        return np.where(possible, spread_s + rounds_s, np.inf)

    def _changes(self, count: Ints) -> _Changes:
        """Changes of tables from their options to options of their kind that are cheap at present.

        count  number of tables with each option
        """
        o, gpus = self.options, self.options.gpus
        few = self._cheap(count)
        used = np.flatnonzero(count)
        begin, end = (np.searchsorted(o.group[few], o.group[used], side) for side in ("left", "right"))
        old = np.repeat(used, end - begin)
        place = np.arange(old.size) - np.repeat(np.cumsum(end - begin) - (end - begin), end - begin)
        new = few[np.repeat(begin, end - begin) + place]
        old, new = old[old != new], new[old != new]
        have, parts, others = count[old], np.maximum(self.parts[old], 1), np.maximum(self.parts[new], 1)
        over = -(-(have * self.parts[old] % gpus) // parts)  # shards of the old scheme beyond whole rounds
        short = np.where(self.parts[new] > 0, -count[new] * self.parts[new] % gpus // others, 0)
        turn, back = np.maximum(gpus // others, 1), np.maximum(gpus // parts, 1)
        tables = [have, have // 2, have // 4, have // 8, np.ones_like(have), over, over + back]
        tables += [short, short + turn, short + 2 * turn]
        each = np.stack(tables, axis=1)
        pair, at = np.nonzero((each >= 1) & (each <= have[:, np.newaxis]))
        rows = np.unique(np.stack([old[pair], new[pair], each[pair, at]], axis=1), axis=0)
        return _Changes(*(rows[:, n : n + 1] for n in range(3)))

    def _cheap(self, count: Ints) -> Ints:
        """For each kind of table and exchange, its cheapest options at present, by their indices in order."""
        average = count @ self.options.average
        step = np.maximum(average, average.max() * 1e-6) * _SLOPE
        time = self.evaluator.step_times(np.vstack([average + np.diag(step), average]))
        price = steady(self.options.average @ ((time[:-1] - time[-1]) / step))
        return np.sort(least_few(self.segment, price))

    def _pairs(self, one: _Changes, spread_s: Array, needs: Array) -> _Changes:
        """Random pairs of single changes: a fast change with another that is fast or frees most memory.

        one  the single changes, with the times and the memory of each
        """
        fast, lean = (np.argsort(value, kind="stable")[:_PAIRED] for value in (spread_s, needs))
        first = self.random.choice(fast, _PAIRS)
        other = np.where(
            self.random.random(_PAIRS) < 0.5,
            self.random.choice(lean, _PAIRS),
            self.random.choice(fast, _PAIRS),
        )
        old, new, tables = (
            np.concatenate([of[first], of[other]], axis=1) for of in (one.old, one.new, one.tables)
        )
        apart = (old[:, 0] != old[:, 1]) & (new[:, 0] != new[:, 1])
        apart &= (old[:, 0] != new[:, 1]) & (new[:, 0] != old[:, 1])
        return _Changes(old[apart], new[apart], tables[apart])

    def _estimated(self, count: Ints, changes: _Changes) -> tuple[Array, Array, Array]:
        """Estimates for each change: (time with shards spread evenly, with whole shards [s], memory).

        With whole shards: a rank has its share of each option's shards, rounded up.
        """
        o, gpus = self.options, self.options.gpus
        rounds = -(-count * self.parts // gpus)
        spread = np.repeat((count @ o.average)[np.newaxis], len(changes.old), axis=0)
        whole = np.repeat((count @ self.base + rounds @ o.own)[np.newaxis], len(changes.old), axis=0)
        memory = np.full(len(changes.old), float(count @ o.average_memory))
        for old, new, tables in zip(changes.old.T, changes.new.T, changes.tables.T, strict=True):
            for at, sign in ((old, -1), (new, 1)):
                more = (sign * tables)[:, np.newaxis]
                spread += more * o.average[at]
                after = -(-(count[at] + sign * tables) * self.parts[at] // gpus) - rounds[at]
                whole += more * self.base[at] + after[:, np.newaxis] * o.own[at]
                memory += sign * tables * o.average_memory[at]
        memory = steady(memory + buffer_bytes(spread.T, self.evaluator.times))
        return self.evaluator.step_times(spread), self.evaluator.step_times(np.maximum(spread, whole)), memory
