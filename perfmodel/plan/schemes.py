"""A scheme for every table at loads that are spread evenly: what packing starts from."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from perfmodel.plan.cost import Evaluator
from perfmodel.plan.memory import buffer_bytes
from perfmodel.plan.options import Options

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_ROUNDS = 100
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
        most = np.maximum(average, everywhere + largest)
        buffers = buffer_bytes(
            np.moveaxis(average, -1, 0).reshape(average.shape[-1], -1), self.evaluator.times
        )
        over = np.maximum(memory + buffers.reshape(memory.shape) - self.room_bytes, 0) / self.room_bytes
        return np.asarray(self.evaluator.step_times(most) + _TOO_MUCH_S * over)

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
        sample = np.unique(np.stack([o.kind_of, option]), axis=1, return_index=True)[1]
        top = np.sort(own, axis=0)[-2:]  # the largest shards, without one table
        found_tables, found_options, gains = [], [], []
        now = float(self.estimate(average, everywhere, own.max(axis=0), memory))
        for t in sample:
            at = o.of(int(t))
            rest = (
                np.where((own[t] >= top[-1]) & (len(own) > 1), top[0], top[-1])
                if len(own) > 1
                else own[t] * 0
            )
            time = self.estimate(
                average - o.average[option[t]] + o.average[at],
                everywhere - o.everywhere[option[t]] + o.everywhere[at],
                np.maximum(rest, o.own[at]),
                memory - o.average_memory[option[t]] + o.average_memory[at],
            )
            time = np.where(mask[at], time, np.inf)
            best = int(np.argmin(time))
            if time[best] < now * (1 - 1e-9):
                same = np.flatnonzero((o.kind_of == o.kind_of[t]) & (option == option[t]))
                found_tables.append(same)
                found_options.append(np.full(same.size, at.start + best))
                gains.append(np.full(same.size, now - time[best]))
        if not gains:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        order = np.argsort(-np.concatenate(gains), kind="stable")
        return np.concatenate(found_tables)[order], np.concatenate(found_options)[order]

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
