"""What the slower of two machines would need to be as fast as the other, one value at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from perfmodel.errors import PerfmodelError
from perfmodel.passes.schemes import BY_ROWS
from perfmodel.schema.evidence import Evidence
from perfmodel.schema.machine import Machine
from perfmodel.schema.machine_keys import KEYS

MOST = 64.0
"""The largest factor that is tried."""

_STEPS = 10
_TRIED = ("byte/s", "s")
_CAPACITY = "hbm_bytes"  # more of it needs fewer GPUs
_NOT_TRIED = ("hbm_bytes_per_s",)  # the kernels' own rates are tried


@dataclass(frozen=True)
class Need:
    """One value of the machine and what it would have to be, all others as they are.

    value, needed  in the SI unit of the machine's ``key``
    """

    key: str
    value: float
    needed: float | None  # None: not even ``MOST`` times as good is enough
    best_s: float  # time of a batch when it is ``MOST`` times as good
    evidence: Evidence  # of the value

    @property
    def factor(self) -> float:
        """How many times as good it has to be. Limits: never enough -> infinite"""
        if self.needed is None:
            return math.inf
        return max(self.needed / self.value, self.value / self.needed)


@dataclass(frozen=True)
class Remedy:
    """Another way to exchange bags on the same machine."""

    reduction: str
    time_s: float


def needs(machine: Machine, target_s: float, time_of: Callable[[Machine], float]) -> tuple[Need, ...]:
    """Which value of ``machine`` alone would bring a batch down to ``target_s``, the least change first.

    time_of  time of the batch on a changed machine [s]; a PerfmodelError: nothing is known for that
    A rate or the memory is raised, a floor is lowered, at most ``MOST`` times: the smallest change that is
    enough is found by halving the range of its logarithm, to within 1 %.
    Limits: as fast already -> none;  a value of 0 (no NVLink), or one that changes nothing -> left out
    """
    now = _time(machine, {}, time_of)
    if now <= target_s:
        return ()
    found = (_need(machine, key, now, target_s, time_of) for key in _keys(machine))
    return tuple(sorted((one for one in found if one), key=lambda one: (one.factor, one.best_s)))


def ways(target_s: float, time_of: Callable[[str], float]) -> tuple[Remedy, ...]:
    """Other exchanges that reach ``target_s``, the fastest first; ``time_of`` one of them [s]."""
    found = []
    for name in BY_ROWS:
        try:
            found.append(Remedy(name, time_of(name)))
        except PerfmodelError:
            continue
    return tuple(sorted((way for way in found if way.time_s <= target_s), key=lambda way: way.time_s))


def _keys(machine: Machine) -> Iterator[str]:
    for key, kind in KEYS.items():
        if machine.value(key) and key not in _NOT_TRIED and (kind.unit in _TRIED or key == _CAPACITY):
            yield key


def _need(
    machine: Machine, key: str, now: float, target_s: float, time_of: Callable[[Machine], float]
) -> Need | None:
    value, sign = machine.value(key), -1.0 if KEYS[key].unit == "s" else 1.0

    def at(log_factor: float) -> float:
        return _time(machine, {key: value * math.exp(sign * log_factor)}, time_of)

    low, high = 0.0, math.log(MOST)
    best = at(high)
    evidence = machine.quantity(key).evidence
    if not best < now * (1 - _WORTH_SAYING):
        return None
    if best > target_s:
        return Need(key, value, None, best, evidence)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if at(middle) <= target_s else (middle, high)
    return Need(key, value, value * math.exp(sign * high), best, evidence)


_WORTH_SAYING = 0.02


def _time(machine: Machine, values: dict[str, float | str], time_of: Callable[[Machine], float]) -> float:
    try:
        return time_of(machine.with_overrides(values))
    except PerfmodelError:
        return math.inf
