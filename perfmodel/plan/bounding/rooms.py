"""A bound that knows that shards are whole: plans by how much room each step's busiest rank has for shards.

Mean loads say nothing of unevenness: two large shards are on one rank or on two. So all plans are split by
the kinds of exchange that they use, by the sizes of their steps, where a curve is above its hull, and by
their rooms: the most that the shards of one rank bring to a step. Plans with little room need many ranks
(``shard_patterns``); those with much have a rank that takes as long. Each part is a linear program
(``room_program``), to which rows of patterns are added while its shards cannot be on the ranks. The bound is
the least of the parts that are left.

Source: branch and cut; sizes of steps are narrowed by the least and the largest that a program finds for
plans that take less than a time (Caprara and Locatelli, Mathematical Programming 125, 2010)
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perfmodel.model.exchanges import Exchange
from perfmodel.plan.bounding.mixed_integer import undominated
from perfmodel.plan.bounding.problem import Problem
from perfmodel.plan.bounding.room_program import RoomProgram, Rooms, Solved
from perfmodel.plan.bounding.shard_patterns import OnRanks, PatternRow, ShardSizes, on_ranks
from perfmodel.plan.bounding.tangents import TO_US

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_TOLERANCES = 1e-4  # of a bound: HiGHS keeps to rows and multipliers within 1e-7
_TURNS, _RISE = 2, 3e-4  # rows of patterns for one part, and of its bound what one must bring for another
_KEPT = 25  # rows that a part hands on: the last
_EVERY = 15  # splits, after which the sizes of steps are narrowed again
_CURVE = 0.1  # of what a room may cost: what a size must promise to be split instead
_LEAST_ROOM = 1e-3  # of the room that there is: where to split if shards bring hardly anything
_NARROW = 1e-3  # of a room: it is not split further
_USED = 1e-6  # of a table
_NONE = 1e-6  # of the largest size of a step: HiGHS may take it for 0
_WORTH = 1e-5  # of the bound: what a split must promise


@dataclass(frozen=True, eq=False)
class _Part:
    """rows  of patterns that its plans fulfil;  narrowed  splits until its sizes are narrowed again"""

    rooms: Rooms
    rows: tuple[PatternRow, ...] = ()
    narrowed: int = 0


@dataclass(frozen=True, eq=False)
class NearRooms:
    """An optimum of shares that is nearly a plan.

    option, tables  [n] options that are used, and how many tables have each
    shard           [m] options whose shards have ranks of their own
    number, ranks   [U, m], [U] shards of each in a pattern, and how many ranks have the pattern
    """

    option: Ints
    tables: Array
    shard: Ints
    number: Ints
    ranks: Array

    @property
    def key(self) -> bytes:
        """The same of optima that make the same plan."""
        return b"".join(
            of.tobytes() for of in (self.option, self.tables.round(3), self.number, self.ranks.round(3))
        )


class RoomBound:
    """The bound of plans of one problem that take less than ``stop_us``; ``run`` raises it.

    bound_us  no plan takes less [us], up to ``stop_us``
    found     is called with the optimum of every part whose shards can be on the ranks
    Limits: no plan takes less -> ``stop_us``;  one GPU, or copies alone -> the linear program
    """

    def __init__(
        self, problem: Problem, stop_us: float, found: Callable[[NearRooms], None] = lambda near: None
    ) -> None:
        self.problem, self.stop_us, self.found = problem, stop_us, found
        alive = problem.order
        self.program = RoomProgram(problem, alive[undominated(problem, alive)])
        self.solved = self.number = 0
        self.closed_us = stop_us
        self.solving_us = np.inf
        self.open: list[tuple[float, int, _Part]] = [(0.0, 0, _Part(self._whole()))]

    @property
    def bound_us(self) -> float:
        """No plan takes less, unless it takes ``stop_us``."""
        return min(self.closed_us, self.solving_us, self.open[0][0] if self.open else np.inf)

    @property
    def ended(self) -> bool:
        """Whether the bound rises no more."""
        return not self.open or self.open[0][0] >= self.closed_us

    def run(self, until: Callable[[], bool]) -> None:
        """Split the lowest part until none is below ``stop_us``, or ``until`` says that it is enough."""
        while not self.ended and not until():
            above_us, _, part = heapq.heappop(self.open)
            self.solving_us = above_us
            bound, children = self._solve(above_us, part, until)
            for child in children:
                self.number += 1
                heapq.heappush(self.open, (bound, self.number, child))
            if not children:
                self.closed_us = min(self.closed_us, bound)
            self.solved, self.solving_us = self.solved + 1, np.inf

    def _whole(self) -> Rooms:
        """All plans."""
        allowed = np.isin(np.arange(len(Exchange)), self.program.exchange)
        steps = len(self.problem.curves.times)
        none = np.zeros(len(Exchange), dtype=bool)
        zero = np.zeros(steps)
        options = np.ones(self.program.options.size, dtype=bool)
        first, most = np.zeros(steps, dtype=np.int64), np.full(steps, np.inf)
        return Rooms(allowed, none, first, self.program.last, zero, most, options)

    def _solve(
        self, above_us: float, part: _Part, until: Callable[[], bool]
    ) -> tuple[float, Sequence[_Part]]:
        """The bound of a part [us], and parts that hold its plans between them.

        Limits: none takes less than ``stop_us`` -> that
        """
        found = self._value(part)
        if found is None:
            return self.stop_us, []
        bound = max(above_us, self._sure(found.value))
        if bound >= self.stop_us:
            return bound, []
        if not part.narrowed:
            narrow = self._narrowed(part, until)
            if narrow is None:
                return self.stop_us, []
            rooms = self._cheap(narrow, found)
            if not self.number:  # all plans
                rooms = self._without_dear(rooms)
            return bound, [replace(part, rooms=rooms, narrowed=_EVERY)]
        placed = self._placed(part, found)
        for _ in range(_TURNS):
            if placed.row is None or until():
                break
            part = replace(part, rows=(*part.rows, placed.row)[-_KEPT:])
            before, now = found.value, self._value(part)
            if now is None:
                return self.stop_us, []
            found = now
            bound = max(bound, self._sure(found.value))
            if bound >= self.stop_us:
                return bound, []
            placed = self._placed(part, found)
            if found.value < before * (1 + _RISE):
                break
        if placed.row is None:
            self.found(self._near(found, placed))
        children = self._split(part, found, placed.most, bound)
        again = not children and part.narrowed < _EVERY
        return bound, [replace(part, narrowed=0)] if again else children

    def _value(self, part: _Part) -> Solved | None:
        empty = (part.rooms.first > part.rooms.last).any()
        return None if empty else self.program.solve(part.rooms, part.rows)

    def _sure(self, value: float) -> float:
        return min(value * (1 - _TOLERANCES), self.stop_us)

    def _steps_of(self, kind: int) -> Mask:
        """[P] steps that take time whenever a kind of exchange is in use."""
        curves, program = self.problem.curves, self.program
        steps = np.zeros(len(curves.times), dtype=bool)
        used = (program.average[program.exchange == kind] > 0).all(axis=0)
        steps[curves.step[used]] = True
        return steps & (curves.times[:, 1] > curves.times[:, 0])

    def _without_dear(self, rooms: Rooms) -> Rooms:
        """All plans with a smaller program, of the options that are left."""
        found = self.program.solve(rooms, ())
        if found is not None:
            rooms = self._cheap(rooms, found)
        left = self.program.possible(rooms)
        self.program = RoomProgram(self.problem, self.program.options[left])
        return replace(rooms, options=left[left])

    def _narrowed(self, part: _Part, until: Callable[[], bool]) -> Rooms | None:
        """The same plans: sizes of steps between the least and the largest of those below ``stop_us``."""
        sizes, rooms = self.problem.curves.sizes, part.rooms
        for at, p in enumerate(self.program.steps.tolist()):
            for sign in (1.0, -1.0):
                if until():
                    return rooms
                found = self.program.solve(rooms, part.rows, self.stop_us, (at, sign))
                if found is None:
                    return None
                if not np.isfinite(found.value):
                    continue
                u = found.size[p] * (1 - sign * _TOLERANCES) - sign * _NONE * self.program.scale[at]
                place, one = int(np.searchsorted(sizes, u)), np.arange(rooms.first.size) == p
                if sign > 0:
                    least = np.minimum(np.maximum(rooms.first, place), rooms.last)
                    rooms = replace(rooms, first=np.where(one, least, rooms.first))
                else:
                    most = np.maximum(np.minimum(rooms.last, place), rooms.first)
                    rooms = replace(rooms, last=np.where(one, most, rooms.last))
        return rooms

    def _near(self, found: Solved, placed: OnRanks) -> NearRooms:
        used = np.flatnonzero(found.share > _USED)
        options, shard = self.program.options, self.program.used(found)
        return NearRooms(options[used], found.share[used], options[shard], placed.number, placed.ranks)

    def _placed(self, part: _Part, found: Solved) -> OnRanks:
        """Whether the shards of an optimum can be on the ranks."""
        program = self.program
        at, room = program.used(found), program.room(part.rooms)
        if not at.size:
            return OnRanks(None, np.zeros(room.size), np.zeros((0, 0), dtype=np.int64), np.zeros(0))
        load = np.column_stack([program.own, program.memory])
        kind, shards = program.group[at], found.share[at] * program.parts[at]
        sizes = ShardSizes(load[at], kind, shards, self.problem.count[kind])
        possible = program.apart & program.possible(part.rooms)
        others = np.where(possible[:, np.newaxis], load, np.inf)
        return on_ranks(sizes, room, program.gpus, others, program.group)

    def _split(self, part: _Part, found: Solved, most: Array, bound: float) -> list[_Part]:
        """By the size of a step whose time is above its hull, by a kind of exchange whose latency is, or by
        the room that costs most; most [J + 1] that a rank has of shards."""
        rooms, curves, program = self._cheap(part.rooms, found), self.problem.curves, self.program
        steps = program.steps
        above = np.zeros(rooms.first.size)
        above[steps] = curves.between(steps, found.size[steps]) * TO_US - found.time[steps]
        held, mean = np.zeros(above.size), np.zeros(above.size)
        np.maximum.at(held, program.step, most[:-1])
        np.maximum.at(mean, program.step, (found.share * program.parts / program.gpus) @ program.own)
        mean = np.maximum(mean, rooms.low)
        dear, some = np.zeros(above.size), program.roomy
        large = np.minimum(
            found.size[some] + np.maximum(held - mean, 0)[some], curves.sizes[rooms.last[some]]
        )
        dear[some] = np.maximum(curves.between(some, large) * TO_US - found.time[some], 0)
        dear[held <= mean * (1 + _NARROW)] = 0
        kind, latency = self._latency(rooms, found, above)
        place = np.clip(np.searchsorted(curves.sizes, found.size), rooms.first, rooms.last)
        place = np.where(rooms.first == 0, 0, place)  # whether it runs, before anything else
        above[place >= rooms.last] = 0
        p, d = int(np.argmax(above)), int(np.argmax(dear))
        if max(above[p], dear[d], latency) <= _WORTH * bound:
            return []
        if latency > max(above[p], _CURVE * dear[d]):
            ways = self._by_kind(rooms, kind)
        elif above[p] > _CURVE * dear[d]:
            one = np.arange(above.size) == p
            ways = (
                replace(rooms, last=np.where(one, place, rooms.last)),
                replace(rooms, first=np.where(one, place + 1, rooms.first)),
            )
        else:
            one = np.arange(above.size) == d
            least = max(mean[d], held[d] * _LEAST_ROOM)
            middle = float(np.sqrt(least * held[d]))
            ways = (
                replace(rooms, high=np.where(one, middle, rooms.high)),
                replace(rooms, low=np.where(one, np.maximum(rooms.low, middle), rooms.low)),
            )
        return [replace(part, rooms=way, narrowed=part.narrowed - 1) for way in ways]

    def _cheap(self, rooms: Rooms, found: Solved) -> Rooms:
        """Without the options of which one table alone would cost all that is left to ``stop_us``."""
        left = self.stop_us - found.value * (1 - _TOLERANCES)
        return replace(rooms, options=rooms.options & (found.more <= left))

    def _latency(self, rooms: Rooms, found: Solved, above: Array) -> tuple[int, float]:
        """The kind of exchange in use that has most to pay to begin with, and how much [us]."""
        used = np.bincount(self.program.exchange, found.share, len(Exchange))
        worth = np.zeros(len(Exchange))
        for kind in np.flatnonzero((used > _USED) & ~rooms.forced):
            worth[kind] = above[self._steps_of(int(kind)) & (rooms.first == 0)].sum()
        return int(np.argmax(worth)), float(worth.max())

    def _by_kind(self, rooms: Rooms, kind: int) -> tuple[Rooms, Rooms]:
        """Without, and with a kind of exchange."""
        one = np.arange(len(Exchange)) == kind
        first = np.where(self._steps_of(kind), np.maximum(rooms.first, 1), rooms.first)
        return (
            replace(rooms, allowed=rooms.allowed & ~one),
            replace(rooms, forced=rooms.forced | one, first=first),
        )
