"""The state of a search: pieces on cores, with the time and buffers of every core kept up to date."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from perfmodel.effort import Work
from perfmodel.onechip.choices import Choices
from perfmodel.onechip.work_units import CORE, PLACED, ranked

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_SHARPNESS = 3  # cores are compared by the 2^3 th powers of their loads: the largest loads decide
MEAN_SHARE = 1e-3  # among equally fast mappings, the less busy mapping is better
_ROOM = 1 + 1e-9


class MappingState:
    """A mapping during the search; some tables may have no choice yet. T tables, N cores, R shared resources.

    choice  [T] of each table, -1: none yet;  where  cores of each part of each table's choice
    core_s  [N] time of the pieces on each core [s];  local  [N] bytes that they keep there [bytes]
    spread_s  time of one core for all look-ups that are spread [s];  shared_s  [R] time of each shared
              resource [s]
    vector    [N] largest number of bytes that a piece needs while it works [bytes]
    work      counts the work
    """

    def __init__(self, choices: Choices, work: Work | None = None) -> None:
        self.choices, self.work = choices, work or Work()
        self.choice: Ints = np.full(choices.kind_of.size, -1, dtype=np.int64)
        self.where: list[list[Ints]] = [[] for _ in range(choices.kind_of.size)]
        self.core_s, self.local = np.zeros(choices.cores), np.zeros(choices.cores)
        self.vector = np.zeros(choices.cores)
        self._working: list[list[float]] = [[] for _ in range(choices.cores)]
        self.spread_s = 0.0
        self.shared_s = np.zeros(choices.shared_s.shape[1])

    def put(self, table: int, choice: int, where: list[Ints]) -> None:
        """Give a table without a choice this choice, with each of its parts on the cores ``where``."""
        self.choice[table], self.where[table] = choice, where
        self._add(choice, where, 1.0)

    def clear(self, table: int) -> None:
        """Take a table off all cores."""
        self._add(int(self.choice[table]), self.where[table], -1.0)
        self.choice[table], self.where[table] = -1, []

    def _add(self, choice: int, where: list[Ints], sign: float) -> None:
        c = self.choices
        self.spread_s += sign * float(c.spread_s[choice])
        self.shared_s = self.shared_s + sign * c.shared_s[choice]
        for part, cores in zip(c.parts_of(choice), where, strict=True):
            self.core_s[cores] += sign * c.core_s[part]
            self.local[cores] += sign * c.local[part]
            if c.vector[part] > 0:
                self._work(cores, float(c.vector[part]), sign)

    def _work(self, cores: Ints, vector: float, sign: float) -> None:
        for core in cores.tolist():
            working = self._working[core]
            if sign > 0:
                working.append(vector)
            else:
                working.remove(vector)
            self.vector[core] = max(working, default=0.0)

    @property
    def time_s(self) -> float:
        """Time of a batch: of the busiest core or shared resource [s].
        Spread look-ups fill the least busy cores.
        """
        level = (float(self.core_s.sum()) + self.spread_s) / self.choices.cores
        c, taken = self.choices, self.choice[self.choice >= 0]
        shared = self.shared_s + c.hot_s[taken].max(axis=0, initial=0.0)
        alone = float(c.alone_s[taken].max(initial=0.0))
        return max(level, float(self.core_s.max()), float(shared.max(initial=0.0)), alone)

    @property
    def score(self) -> float:
        """Sort key: the time, plus a small multiple of the squared times of cores and shared resources.

        Among equally fast mappings, the mapping with fewer nearly busiest resources is better.
        """
        mean = (float(self.core_s.sum()) + self.spread_s) / self.choices.cores
        each = float(self.core_s @ self.core_s) / self.choices.cores
        work = mean * mean + each + float(self.shared_s @ self.shared_s)
        return self.time_s + MEAN_SHARE * work / max(self.time_s, 1e-300)

    def copy(self) -> MappingState:
        """An independent copy of the state."""
        other = MappingState(self.choices, self.work)
        other.choice, other.where = self.choice.copy(), [list(parts) for parts in self.where]
        other.core_s, other.local = self.core_s.copy(), self.local.copy()
        other.vector, other._working = self.vector.copy(), [list(all_) for all_ in self._working]
        other.spread_s, other.shared_s = self.spread_s, self.shared_s.copy()
        return other


def place(state: MappingState, choice: int, target_s: float) -> list[Ints] | None:
    """Cores for the pieces of a choice, by part: the cores that are least full once they have a piece.

    target_s  intended time of the cores [s]
    Limits: pieces without memory -> the least busy cores;  too few cores with memory -> None
    """
    c = state.choices
    parts = c.parts_of(choice)
    where: list[Ints] = [np.zeros(0, dtype=np.int64)] * len(parts)
    core_s, local, vector = state.core_s.copy(), state.local.copy(), state.vector.copy()
    state.work.add(PLACED, 1 + len(parts))
    state.work.add(CORE, c.cores * len(parts))
    for part in sorted(parts, key=lambda at: (-c.local[at], -c.core_s[at])):
        number = int(c.number[part])
        working = np.maximum(vector, c.vector[part])
        kept = local + c.local[part] + working if c.local[part] + c.vector[part] > 0 else 0 * local
        score = _fullness(core_s + c.core_s[part], kept, target_s, c.capacity)
        cores = np.argsort(ranked(score), kind="stable")[:number]
        if number > c.cores or np.isinf(score[cores[-1]]):
            return None
        core_s[cores] += c.core_s[part]
        local[cores] += c.local[part]
        vector[cores] = working[cores]
        where[part - parts.start] = np.sort(cores)
    return where


def _fullness(core_s: Array, local: Array, target_s: float, capacity: float) -> Array:
    """How full each core is, by time and memory; inf: it keeps more than fits.

    target_s, capacity  the time and the bytes that count as full
    """
    time = core_s / max(target_s, float(core_s.max()), 1e-300)
    room, over = local / max(capacity, float(local.max()), 1e-300), local > capacity * _ROOM
    for _ in range(_SHARPNESS):
        time, room = time * time, room * room
    return np.asarray(np.where(over, np.inf, time + room))


def pack(
    choices: Choices, options: Sequence[Sequence[int]], target_s: float, work: Work | None = None
) -> MappingState | None:
    """Places tables on the cores that become least full, largest tables first.

    options  for each table the choices to try; the first that fits is used
    target_s  intended time of the cores [s];  work  counts the work
    Limits: no choice of a table fits -> None
    """
    state = MappingState(choices, work)
    first = np.array([tried[0] for tried in options])
    longest = np.zeros(choices.spread_s.size)
    size = choices.core_s / max(target_s, 1e-300) + choices.local / max(choices.capacity, 1e-300)
    np.maximum.at(longest, choices.choice_of_part, size)
    for table in np.argsort(ranked(-longest[first]), kind="stable"):
        for choice in options[table]:
            where = place(state, choice, target_s)
            if where is not None:
                state.put(int(table), choice, where)
                break
        else:
            return None
    return state
