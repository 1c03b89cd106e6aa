"""Chooses a scheme for every table as if loads were spread evenly, before shards are placed on ranks."""

from __future__ import annotations

import numpy as np

from perfmodel.engine.cost import Evaluator
from perfmodel.engine.tables import Array, Ints
from perfmodel.engine.timing import round_off
from perfmodel.plan.choices.listing import Mask
from perfmodel.plan.choices.scheme_options import Options, price_loads
from perfmodel.plan.searching.packing import Until, is_faster

_ROUNDS = 100
_NEARLY = 0.95
_TOO_MUCH_S = 1e3  # penalty for a rank that needs twice its memory


class Descent:
    """Improves the tables' options in rounds: the best change of every table, as many together as help.

    A plan's time is estimated from loads spread evenly, or from the largest shard if that takes longer; its
    memory likewise. Memory is a further column beside the loads of K resources: arrays [..., K + 1].
    room_bytes  memory of a rank, for rows, optimizer state and buffers
    """

    def __init__(self, evaluator: Evaluator, options: Options, room_bytes: float) -> None:
        self.evaluator = evaluator
        self.options = options
        self.room_bytes = room_bytes
        self.average, self.everywhere, self.shard = options.beside_memory

    def estimate(self, average: Array, everywhere: Array, largest: Array) -> tuple[Array, Array]:
        """(time of a pass [s], memory beyond ``room_bytes`` as a share of it), from arrays [..., K + 1].

        average  of a rank;  everywhere  the part that every rank has;  largest  of a shard
        """
        busiest = np.maximum(average, everywhere + largest)
        held = busiest[..., -1]
        columns = np.moveaxis(average[..., :-1], -1, 0)
        buffers = self.evaluator.times.count_buffers(columns.reshape(len(columns), held.size))
        over = np.maximum(held + buffers.reshape(held.shape) - self.room_bytes, 0) / self.room_bytes
        return self.evaluator.estimate_times(busiest[..., :-1]), np.asarray(over)

    def rate(self, option: Ints) -> float:
        """Time of a pass with these options of all tables, plus a penalty for too much memory [s]."""
        average = self.average[option].sum(axis=0)
        everywhere = self.everywhere[option].sum(axis=0)
        time, over = self.estimate(average, everywhere, self.shard[option].max(axis=0))
        return float(time + _TOO_MUCH_S * over)

    def run(self, option: Ints, mask: Mask, until: Until) -> Ints:
        """Improve the choice of one option for each table, until no change of a table helps.

        option  index of the option of each table [tables];  mask  options that may be chosen [options]
        until   returns whether to stop early
        """
        option = option.copy()
        best_s = self.rate(option)
        for _ in range(_ROUNDS):
            if until():
                break
            tables, better = self._find_changes(option, mask)
            times = self._rate_prefixes(option, tables, better)
            if not times.size or not is_faster(times.min(), best_s):
                break
            last_change = int(np.argmin(times))
            option[tables[: last_change + 1]] = better[: last_change + 1]
            best_s = self.rate(option)
        return option

    def _find_changes(self, option: Ints, mask: Mask) -> tuple[Ints, Ints]:
        """(tables whose best change helps, largest gain first; the option that each changes to).

        A change is of one table, or of all equal tables with one option, so that an exchange may fall away.
        """
        o = self.options
        _, sample, number, count = np.unique(  # of equal tables with equal options one is the sample
            option, return_index=True, return_inverse=True, return_counts=True
        )
        average = self.average[option].sum(axis=0)
        place, to = self._list_candidates(option[sample], o.kind_of[sample], mask, average)
        # Each change of a sample is tried for that table alone, and again for all of its equals.
        again = np.flatnonzero(count[place] > 1)
        tables = np.concatenate([np.ones(place.size), count[place[again]]])
        place = np.concatenate([place, place[again]])
        to = np.concatenate([to, to[again]])
        gain, freed, over = self._compute_gains(option, sample, count, place, to, tables)
        gain /= tables
        if over:  # changes that free memory at the least cost
            good = freed > 0  # below 0 a gain becomes a cost per byte
            gain = np.maximum(gain, 0) + np.minimum(gain, 0) / np.maximum(freed / tables, 1e-12)
        else:
            good = (gain > 0) & (freed >= 0)
        order = np.lexsort((-gain, place))
        order = order[good[order]]
        best = order[np.unique(place[order], return_index=True)[1]]  # of each sample with candidates
        change_of = np.full(sample.size, -1)
        change_of[place[best]] = best
        changed = np.flatnonzero(change_of[number] != -1)
        change = change_of[number[changed]]
        by_gain = np.lexsort((number[changed], -gain[change]))
        return changed[by_gain], to[change[by_gain]]

    def _compute_gains(
        self, option: Ints, sample: Ints, count: Ints, place: Ints, to: Ints, tables: Array
    ) -> tuple[Array, Array, float]:
        """(time that each change saves [s], excess memory that it frees, present excess), as ``estimate``.

        option  of every table, before the change
        sample, count  tables that stand for equal tables with equal options, and how many there are
        place, to, tables  for each change: index in ``sample``, new option, number of tables that change
        """
        away = option[sample][place]
        shard = self.shard[option[sample]]
        average = self.average[option].sum(axis=0)
        everywhere = self.everywhere[option].sum(axis=0)
        now, over = self.estimate(average, everywhere, shard.max(axis=0))
        second, largest = np.partition([*shard, *np.zeros_like(shard)], -2, axis=0)[-2:]  # of all shards
        all_change = (tables == count[place])[:, np.newaxis]  # none of its kind keeps the old scheme
        left = np.where(all_change & (self.shard[away] >= largest), second, largest)
        number = tables[:, np.newaxis]
        time, still = self.estimate(
            average + number * (self.average[to] - self.average[away]),
            everywhere + number * (self.everywhere[to] - self.everywhere[away]),
            np.maximum(left, self.shard[to]),
        )
        gain = np.asarray(now - time)
        return np.where(gain > now * 1e-9, gain, np.minimum(gain, 0)), over - still, float(over)

    def _list_candidates(self, option: Ints, kind: Ints, mask: Mask, average: Array) -> tuple[Ints, Ints]:
        """Changes to try, (index of the sample, new option): the cheapest options of every exchange.

        option, kind  of each sample: option, and kind of table;  average  [K + 1] loads of a rank, and memory
        """
        o = self.options
        memory = float(average[-1])
        average = average[:-1]
        price = price_loads(self.evaluator.estimate_times, average)
        cheap = o.select_least(round_off(o.average @ price), mask)
        if memory > self.room_bytes * _NEARLY:
            cheap = np.union1d(cheap, o.select_least(o.average_memory, mask))
        cheap = np.sort(cheap)
        begin = np.searchsorted(o.group[cheap], kind)
        count = np.searchsorted(o.group[cheap], kind, "right") - begin
        place = np.repeat(np.arange(kind.size), count)  # a sample is beside each cheap option of its kind
        index = np.arange(place.size) - np.repeat(np.cumsum(count) - count, count)
        to = cheap[begin[place] + index]
        changes = to != option[place]
        return place[changes], to[changes]

    def _rate_prefixes(self, option: Ints, tables: Ints, better: Ints) -> Array:
        """Times after the first change, after the first two, and so on, with the penalty for memory [s].

        tables  in the order in which they change;  better  the new option of each
        """
        if not tables.size:
            return np.zeros(0)
        now = option[tables]
        average = self.average[better] - self.average[now]
        average = self.average[option].sum(axis=0) + np.cumsum(average, axis=0)
        everywhere = self.everywhere[better] - self.everywhere[now]
        everywhere = self.everywhere[option].sum(axis=0) + np.cumsum(everywhere, axis=0)
        # The largest shard after each change: of tables that never change, that have, and that have yet to.
        unchanged = np.delete(option, tables)
        fixed = self.shard[unchanged].max(axis=0, initial=0.0)
        new = np.maximum.accumulate(self.shard[better], axis=0)
        later = np.maximum.accumulate(self.shard[now[::-1]], axis=0)[::-1][1:]
        later = np.vstack([later, fixed[np.newaxis]])
        time, over = self.estimate(average, everywhere, np.maximum(np.maximum(new, later), fixed))
        return np.asarray(time + _TOO_MUCH_S * over)
