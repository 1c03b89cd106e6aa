"""Local search: shards move between ranks, tables get other schemes, and the best change of many is made."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from perfmodel.engine.placement import Placement
from perfmodel.plan.searching.packing import Packing, Scale, balance, place

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_FULLEST = 4  # ranks that shards leave in one round
_EMPTIEST = 32  # ranks that they go to
_MOST_SHARDS = 24  # of one rank
_LESS = 1e-9
_TOP = 3  # fullest ranks that are examined, as two of them may change
_TRIED = 3  # schemes of one table that are really placed
_COMPARED = 6  # schemes of one table of which the next best is chosen
_MOVES = 200


class Moves:
    """Rebalances a plan under search (``Packing``): a shard moves to another rank, or two ranks swap shards.

    A move is accepted if the step's time falls, or if it stays and the ranks' loads become more even
    (``Scale``): if several ranks are equally full, a single move does not change the time.
    Tables whose row parts fill domains stay where they are.
    """

    def __init__(self, state: Packing, scale: Scale) -> None:
        self.state, self.scale = state, scale
        o = state.options
        self.holds = np.zeros((state.option.size, o.gpus), dtype=bool)
        free = ~o.everywhere_held[state.option] & ~o.by_domain[state.option]
        self.movable = free
        for table in np.flatnonzero(free):
            self.holds[table, state.ranks[table]] = True

    def run(self, rounds: int, until: Callable[[], bool]) -> int:
        """Make moves until none helps; returns how many were made."""
        if not self.movable.any():
            return 0
        for made in range(rounds):
            if until() or not (self._move() or self._swap()):
                return made
        return rounds

    def _fullest(self) -> Ints:
        """Ranks that some step waits for, most expensive steps first."""
        held, weight = self.state.held, self.scale.weight
        order = [k for k in np.argsort(-weight, kind="stable") if weight[k] > 0 and held[:, k].any()]
        ranks = [int(np.argmax(held[:, k])) for k in order]
        ranks.append(int(np.argmax(self.scale.score(self.state.base + held))))
        return np.array(list(dict.fromkeys(ranks))[:_FULLEST])

    def _emptiest(self) -> Ints:
        score = self.scale.score(self.state.base + self.state.held)
        return np.argsort(score, kind="stable")[:_EMPTIEST]

    def _shards(self, rank: int) -> Ints:
        """Tables with a shard on a rank, largest shards first; of several equal shards only the first."""
        tables = np.flatnonzero(self.holds[:, rank])
        option = self.state.option[tables]
        _, first = np.unique(option, return_index=True)
        size = self.scale.score(self.state.options.own[option[first]])
        return tables[first[np.argsort(-size, kind="stable")]][:_MOST_SHARDS]

    def _move(self) -> bool:
        """Make the best move of one shard, if one helps."""
        to = self._emptiest()
        found = []
        for rank in self._fullest():
            tables = self._shards(int(rank))
            t, d = (x.reshape(-1) for x in np.meshgrid(tables, to, indexing="ij"))
            possible = ~self.holds[t, d] & (d != rank)
            t, d = t[possible], d[possible]
            found.append(np.stack([np.full(t.size, rank), t, d, np.full(t.size, -1)]))
        return self._best(np.concatenate(found, axis=1))

    def _swap(self) -> bool:
        """Make the best swap of two shards, if one helps."""
        found = []
        to = self._emptiest()
        for rank in self._fullest():
            tables = self._shards(int(rank))
            for other in to:
                if other == rank:
                    continue
                back = self._shards(int(other))
                t, s = (x.reshape(-1) for x in np.meshgrid(tables, back, indexing="ij"))
                differ = self.state.option[t] != self.state.option[s]
                possible = differ & ~self.holds[t, other] & ~self.holds[s, rank]
                t, s = t[possible], s[possible]
                found.append(np.stack([np.full(t.size, rank), t, np.full(t.size, other), s]))
        return bool(found) and self._best(np.concatenate(found, axis=1))

    def _best(self, moves: Ints) -> bool:
        """Make the best of the moves, if it helps; returns whether it does.

        moves  [4, n] rank that each leaves, table, rank that it reaches, table that comes back or -1
        """
        if not moves.size:
            return False
        state = self.state
        time, uneven, fits = self.value(moves)
        now = state.time_s
        faster = fits & (time < now * (1 - _LESS))
        better = faster if faster.any() else fits & (time <= now * (1 + _LESS)) & (uneven < 0)
        if not better.any():
            return False
        order = np.lexsort((uneven, np.where(better, time, np.inf)))
        self.make(*(int(x) for x in moves[:, order[0]]))
        return True

    def value(self, moves: Ints) -> tuple[Array, Array, NDArray[np.bool_]]:
        """(time of the step [s], change of unevenness, whether it fits) after each move of ``_best``.

        Only two ranks change: the busiest of the others is among the three busiest ranks now.
        """
        state, o = self.state, self.state.options
        source, table, target, back = moves
        load, weight = o.own[state.option[table]], o.own_memory[state.option[table]]
        returns = np.where(back >= 0, state.option[back], 0)
        load = load - o.own[returns] * (back >= 0)[:, np.newaxis]
        weight = weight - o.own_memory[returns] * (back >= 0)
        left, right = state.held[source] - load, state.held[target] + load
        most = state.base + np.maximum(others(state.held, source, target), np.maximum(left, right))
        uneven = np.zeros(table.size)
        for rank, after in ((source, left), (target, right)):
            uneven += self.scale.score(state.base + after)
            uneven -= self.scale.score(state.base + state.held[rank])
        fits = np.ones(table.size, dtype=bool)
        for rank, after, sign in ((source, left, -1), (target, right, 1)):
            needs = state.memory[rank] + sign * weight
            needs = needs + state.evaluator.times.count_buffers((state.base + after).T)
            fits &= needs <= state.limit_bytes
        scale = self.scale.weight.sum()
        return state.evaluator.estimate_times(most), np.where(np.abs(uneven) > 1e-9 * scale, uneven, 0), fits

    def make(self, source: int, table: int, target: int, back: int) -> None:
        """Make one move."""
        for shard, gone, new in ((table, source, target), (back, target, source)):
            if shard < 0:
                continue
            ranks = self.state.ranks[shard]
            assert ranks is not None
            self.state.move(shard, gone, new)
            self.holds[shard, gone], self.holds[shard, new] = False, True


def others(held: Array, one: Ints, other: Ints) -> Array:
    """For n pairs of ranks, the largest load of each resource over all ranks except the pair, [n, K].

    held  [G, K] loads of the ranks, of which at most the three largest matter;  one, other  [n] the pair
    Limits: no other rank -> 0
    """
    count = min(_TOP, len(held))
    top = np.argpartition(-held, count - 1, axis=0)[:count]
    values = np.take_along_axis(held, top, axis=0)
    taken = (top == one[:, np.newaxis, np.newaxis]) | (top == other[:, np.newaxis, np.newaxis])
    return np.asarray(np.where(taken, 0, values).max(axis=1))


def improve(state: Packing, mask: Mask, until: Callable[[], bool]) -> Packing:
    """A plan that is at least as fast, with options in ``mask``. ``state`` itself may change.

    until  returns whether to stop
    """
    while not until():
        before = state.time_s
        Moves(state, _scale(state)).run(_MOVES, until)
        changed = recut(state, mask, until)
        if not changed or state.time_s > before * (1 - _LESS):
            break
    return state


def _scale(state: Packing) -> Scale:
    return Scale.of(state.evaluator, balance(state.options, state.option))


def recut(state: Packing, mask: Mask, until: Callable[[], bool]) -> bool:
    """Give each table in turn the option in ``mask`` that makes the plan fastest; whether any changed."""
    changed = False
    for table in _by_size(state):
        if until():
            break
        changed |= _recut_one(state, int(table), mask)
    return changed


def _by_size(state: Packing) -> Ints:
    o = state.options
    size = _scale(state).score(o.average[state.option])
    return np.argsort(-size, kind="stable")


def _recut_one(state: Packing, table: int, mask: Mask) -> bool:
    own, ranks, now = int(state.option[table]), state.ranks[table], state.time_s
    assert ranks is not None
    state.clear(table)
    best: tuple[float, int, Ints] | None = None
    for option in promising(state, table, own, mask, now):
        time_s, at = placed(state, table, option)
        if at is not None and time_s < (best[0] if best else now) * (1 - _LESS):
            best = time_s, option, at
        state.clear(table)
    put_back(state, table, *((own, ranks) if best is None else best[1:]))
    return best is not None


def shake(state: Packing, mask: Mask, random: np.random.Generator, count: int) -> bool:
    """Remove ``count`` random tables and place them again; returns whether the plan is faster.

    A plan that is not faster is restored.

    mask  options that they may have
    """
    o, now = state.options, state.time_s
    size = _scale(state).score(o.average[state.option]) + 1e-3 * now
    kinds, of = np.unique(o.kind_of * o.group.size + state.option, return_inverse=True)
    chance = size / np.bincount(of, minlength=kinds.size)[of]  # equal tables count as one
    tables = random.choice(size.size, min(count, size.size), replace=False, p=chance / chance.sum())
    before = [(int(t), int(state.option[t]), state.ranks[t]) for t in tables]
    for table in tables:
        state.clear(int(table))
    done = all(_insert(state, int(table), mask) for table in random.permutation(tables))
    if done and state.fits and state.time_s < now * (1 - _LESS):
        return True
    for table, option, ranks in before:
        if state.option[table] >= 0:
            state.clear(table)
        assert ranks is not None
        put_back(state, table, option, ranks)
    return False


def _insert(state: Packing, table: int, mask: Mask) -> bool:
    """Place a table that has no ranks, with the option in ``mask`` that costs least; False if none fits."""
    best: tuple[float, int, Ints] | None = None
    for option in promising(state, table, -1, mask, np.inf):
        time_s, at = placed(state, table, option)
        if at is not None and (best is None or time_s < best[0]):
            best = time_s, option, at
        state.clear(table)
    if best is not None:
        put_back(state, table, *best[1:])
    return best is not None


def put_back(state: Packing, table: int, option: int, ranks: Ints) -> None:
    """Place a table that has no ranks, with this option on these ranks."""
    state.choose([table], np.array([option]))
    if state.ranks[table] is None:
        state.put(table, ranks)


def placed(state: Packing, table: int, option: int) -> tuple[float, Ints | None]:
    """(time of the plan, ranks of the table) if a table without ranks gets this option [s].

    Limits: it does not fit -> None as ranks
    """
    state.choose([table], np.array([option]))
    ranks = state.ranks[table]
    if ranks is None:
        target = np.maximum(state.most, state.base + state.options.own[option])
        ranks = place(state, option, Scale.of(state.evaluator, target))
        if ranks is None:
            return np.inf, None
        state.put(table, ranks)
    return (state.time_s, ranks) if state.fits else (np.inf, None)


def promising(
    state: Packing, table: int, own: int, mask: Mask, below_s: float, count: int = _TRIED
) -> list[int]:
    """Options of a table without ranks with which the plan may take less than ``below_s``, best first.

    own  its option before;  mask  allowed options;  count  of options, at most
    They are sorted by a lower bound on the time.
    """
    o, at = state.options, state.options.of(table)
    mean = state.held.mean(axis=0)
    spread = np.where(o.parts[at] > 0, o.parts[at] / o.gpus, 0)[:, np.newaxis] * o.own[at]
    least = np.maximum(np.maximum(state.held.max(axis=0), o.own[at]), mean + spread)
    time = state.evaluator.estimate_times(state.base + o.everywhere[at] + least)
    room = o.average_memory[at] + state.memory.mean()
    time = np.where(mask[at] & (room <= state.limit_bytes), time, np.inf)
    order = np.argsort(time, kind="stable")[: count + 1]
    return [at.start + int(i) for i in order if time[i] < below_s and at.start + i != own][:count]


def find_next_best(state: Packing, table: int) -> tuple[float, Placement] | None:
    """(time of the plan [s], placement of a table) with the table's next best scheme, all others as they are.

    Limits: no other scheme fits in memory -> None
    """
    own, ranks = int(state.option[table]), state.ranks[table]
    assert ranks is not None
    state.clear(table)
    best: tuple[float, Placement] | None = None
    mask = np.ones(state.options.group.size, dtype=bool)
    for option in promising(state, table, own, mask, np.inf, _COMPARED):
        time_s, at = placed(state, table, option)
        if at is not None and (best is None or time_s < best[0]):
            best = time_s, Placement(state.options.scheme(option), at)
        state.clear(table)
    put_back(state, table, own, ranks)
    return best
