"""Random changes of plans, in turns: annealing, or removing some tables and placing them anew.

A turn of annealing keeps to the exchanges that the plan has: a further one costs the latency of its
collectives until many tables use it. One turn of several tries other exchanges too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from perfmodel.plan.bounding.curves import StepCurves
from perfmodel.plan.searching.anneal import DOMAINS, SHAKE, Annealing, ways_to_change
from perfmodel.plan.searching.evening import Evening
from perfmodel.plan.searching.improve import improve, shake
from perfmodel.plan.searching.packing import Packing

Mask = NDArray[np.bool_]

_PATIENCE = 3  # turns of each plan in a row that do not help
_SHAKES, _SHAKEN, _ROUNDS = 40, 6, 300  # of a turn; tables of each; of a turn of annealing
_HEATS_LOG10 = ((-3.0, -2.4), (-1.7, -0.9), (-3.6, -3.0), (-2.4, -1.8))
"""Initial heats of annealing, by turn, as shares of the step's time: little heat moves shards to better
ranks, much heat leaves a local optimum."""
_HOT_FEW, _HOT_LOG10 = 12, (-1.2, -0.5)
"""(most tables, range of heats) for few tables, each a large share of the time: every other turn."""
_COOL_LOG10 = (-4.0, -2.7)
"""Range of heats for many tables, each a small share of the step's time."""
_OTHERS = 3  # turns, of which one also tries exchanges that a plan does not have


class Changing:
    """Changes the plans of a search at random to find faster ones.

    curves  times of the steps, from the bound;  keep  is called with every improved plan
    until   returns whether to stop;  cool  whether to allow only small slowdowns, for many tables
    """

    def __init__(
        self,
        curves: StepCurves,
        random: np.random.Generator,
        keep: Callable[[Packing], None],
        until: Callable[[], bool],
        *,
        cool: bool,
    ) -> None:
        self.curves, self.random, self.keep, self.until = curves, random, keep, until
        self.heats = (_COOL_LOG10,) if cool else _HEATS_LOG10

    def run(self, states: Sequence[Packing]) -> None:
        """Change plans in turn until none has improved for long: every other turn the fastest, else another.

        The slowdown that annealing allows alternates between small and large from turn to turn of a plan.
        """
        turns, idle, turn = [0] * len(states), 0, 0
        while states and idle < _PATIENCE * len(states) * len(_HEATS_LOG10) and not self.until():
            at = 1 + turn // 2 % (len(states) - 1) if turn % 2 and len(states) > 1 else _fastest(states)
            state = states[at]
            if not turns[at]:
                self._improved(state)
            idle = 0 if self._changed(state, turns[at]) else idle + 1
            turns[at] += 1
            turn += 1

    def _changed(self, state: Packing, turn: int) -> bool:
        """Make the change of a plan's turn with this number; returns whether it became faster."""
        ways = ways_to_change(state)
        way, again = ways[turn % len(ways)], turn // len(ways)
        better = self._shaken(state) if way == SHAKE else self._annealed(state, again, domains=way == DOMAINS)
        if better:
            self._improved(state)
        return better

    def _annealed(self, state: Packing, again: int, *, domains: bool) -> bool:
        hot = state.option.size <= _HOT_FEW and again % 2 == 0
        heat = 10 ** self.random.uniform(*(_HOT_LOG10 if hot else self.heats[again % len(self.heats)]))
        mask = _any(state) if hot or again % _OTHERS == _OTHERS - 1 else list_exchanges(state)
        annealing = Annealing(state, self.curves, self.random, mask, domains=domains)
        return annealing.run(3 * _ROUNDS if hot else _ROUNDS, self.until, heat)

    def _shaken(self, state: Packing) -> bool:
        better = False
        for count in self.random.integers(2, 2 + _SHAKEN, size=_SHAKES):
            better |= not self.until() and shake(state, _any(state), self.random, int(count))
        return better

    def _improved(self, state: Packing) -> None:
        """Improve a plan's schemes, rebalance its ranks, and repeat while that helps; keep the best.

        Better schemes may unbalance the ranks, and balanced ranks leave room for other schemes.
        """
        self.keep(improve(state, _any(state), self.until))
        while not self.until() and Evening(state, self.random).run(self.until):
            self.keep(improve(state, _any(state), self.until))


def list_exchanges(state: Packing) -> Mask:
    """Mask of the options that replicate a table or use a kind of exchange that the plan already uses."""
    o = state.options
    return o.exchanged_by(np.unique(o.exchange[state.option]).tolist())


def _any(state: Packing) -> Mask:
    return np.ones(state.options.group.size, dtype=bool)  # every option is allowed


def _fastest(states: Sequence[Packing]) -> int:
    return min(range(len(states)), key=lambda at: states[at].time_s)
