"""Setups of a page: machine, library, clock and exchange, and which combinations the page can show."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from perfmodel.collectives.choose import choose_calibration
from perfmodel.engine.schemes import AUTO, BY_ROWS, ROW_WISE
from perfmodel.engine.settings import BEST, Setting, load_setting
from perfmodel.errors import NoCalibrationError, PerfmodelError
from perfmodel.report.figures.words import library_name
from perfmodel.report.page.parts import Selector
from perfmodel.schema.evidence import LAW_BACKENDS, Backend
from perfmodel.schema.gate import MOST_GPUS
from perfmodel.schema.machine import Machine, load_machine
from perfmodel.schema.run_folders import CLOCK_ORDER
from perfmodel.units import format_bytes, format_count

WAYS = (AUTO, *BY_ROWS)
"""Exchanges of a page, by the names of ``--sharding``; ``auto`` is that of row-wise."""
_OTHERS = ("h200-sxm-ib", "h100-sxm-ib")
_BOTH = (str(Backend.NCCL), str(Backend.NVSHMEM))


@dataclass(frozen=True)
class Curves:
    """The collective times that a page uses: a library, its clock, and the calibration.

    clock        None: the preferred clock
    calibration  a user's own file; None: a shipped calibration
    """

    backend: str
    clock: str | None = None
    calibration: str | None = None


@dataclass(frozen=True, eq=False)
class Setup:
    """Values that a page can vary beside table size and workload: machine, library with clock, exchange.

    reduction  the exchange of bags, as ``perfmodel.project`` takes it
    """

    machine: Machine
    curves: Curves
    reduction: str

    @property
    def options(self) -> dict[str, Any]:
        """The setup as keywords of ``perfmodel.project``."""
        named = {"reduction": self.reduction, **vars(self.curves)}
        return {name: value for name, value in named.items() if value is not None}


@dataclass(frozen=True)
class Wanted:
    """The machines, libraries, clocks and exchanges to offer; lists begin with the question's value.

    own     libraries and clocks of the user's own calibration; others are not offered then
    listed  options that were typed: machine, backend, clock
    best    whether shardings are compared with the exchange ``auto``.  Empty lists get defaults
    """

    machines: tuple[Machine, ...]  # at least one
    backends: tuple[str, ...]  # at least one: the question's
    clocks: tuple[str, ...] = ()
    ways: tuple[str, ...] = WAYS
    own: tuple[Curves, ...] = ()
    listed: frozenset[str] = frozenset()
    best: bool = True


class Loaded:
    """Machines with their calibrations, each loaded once, since they keep tables of times that they compute.

    kernels  the library of the look-up kernels; None: as in ``load_setting``
    """

    def __init__(self, kernels: str | None = None) -> None:
        self._kernels = kernels
        self._known: dict[tuple[Any, ...], Setting | PerfmodelError] = {}

    def of(self, machine: Machine, curves: Curves) -> Setting:
        """The machine with the calibration for ``curves``.

        Limits: no such calibration -> NoCalibrationError
        """
        key = (id(machine), curves)
        if key not in self._known:
            try:
                asked = curves.backend, curves.clock, curves.calibration, self._kernels
                self._known[key] = load_setting(machine, *asked)
            except PerfmodelError as error:
                self._known[key] = error
        found = self._known[key]
        if isinstance(found, PerfmodelError):
            raise found
        if curves.clock is None and curves.backend != BEST:  # shares its tables
            self._known.setdefault((key[0], replace(curves, clock=clock_words(found))), found)
        return found


@dataclass(frozen=True, eq=False)
class Offer:
    """The setups that a page has.

    selectors  for machine, backend, clock and sharding
    setups     by positions in the selectors; the first is the question's
    refused    by positions (machine, backend, clock), why there is no such setup
    """

    selectors: tuple[Selector, ...]
    setups: Mapping[tuple[int, ...], Setup]
    refused: Mapping[tuple[int, ...], str] = field(default_factory=dict)


def offer(wanted: Wanted, loaded: Loaded, most: int, largest_bytes: float, reserve: float = 0.0) -> Offer:
    """Choose the setups of a page: the question's first, then setups that differ from it in one value.

    If several lists were typed, all their combinations.
    most           the largest number of setups; further ones are left out
    largest_bytes  of the tables: a machine that cannot hold them is not offered
    reserve        share of the HBM that tables may not use
    Limits: no calibration for the question -> NoCalibrationError
    """
    machines = wanted.machines if "machine" in wanted.listed else _with_another(wanted)
    asked = Curves(wanted.backends[0], next(iter(wanted.clocks), None), _file(wanted))
    word = clock_words(loaded.of(machines[0], asked))
    backends = wanted.backends if "backend" in wanted.listed else _backends(wanted)
    clocks = wanted.clocks if "clock" in wanted.listed else _clocks(wanted, backends, word)
    ways = wanted.ways
    known: dict[tuple[int, ...], Curves] = {}
    refused: dict[tuple[int, ...], str] = {}
    for at in itertools.product(range(len(machines)), range(len(backends)), range(len(clocks))):
        machine, curves = machines[at[0]], _curves(wanted, backends[at[1]], clocks[at[2]])
        try:
            if any(at):
                _check(machine, largest_bytes, reserve)
                found = loaded.of(machine, curves)
                if clock_words(found) != clocks[at[2]]:
                    refused[at] = f"its clock is {clock_words(found)}"
                    continue
            known[at] = curves if any(at) else asked
        except PerfmodelError as error:
            refused[at] = reason(error)
    several = {"machine": machines, "backend": backends, "clock": clocks, "sharding": ways}
    lists = [name for name, values in several.items() if name in wanted.listed and len(values) > 1]
    places = [(*at, way) for at in known for way in range(len(ways))]
    if len(lists) < 2 or len(places) > most:
        places = list(_one_at_a_time(known, len(ways), len(machines)))
    setups = {at: Setup(machines[at[0]], known[at[:3]], ways[at[3]]) for at in places[:most]}
    first = "the best" if wanted.best else ROW_WISE
    shown_ways = [first if way == AUTO else f"{ROW_WISE}, {way}" for way in ways]
    words = ([m.name for m in machines], [library_name(name) for name in backends], clocks, shown_ways)
    selectors = [
        Selector(name, _LABELS[name], tuple(values), tuple(shown))
        for (name, values), shown in zip(several.items(), words, strict=True)
    ]
    return Offer(tuple(selectors), setups, refused)


_LABELS = {"machine": "machine", "backend": "library", "clock": "clock", "sharding": "sharding"}


def _one_at_a_time(
    known: Mapping[tuple[int, ...], Any], ways: int, machines: int
) -> Iterator[tuple[int, ...]]:
    """Positions of the question's setup, then of its other libraries and clocks, exchanges, machines.

    known     positions (machine, backend, clock) with a calibration
    ways, machines  how many exchanges and machines there are
    """
    yield (0, 0, 0, 0)
    yield from ((*at, 0) for at in known if at[0] == 0 and any(at))
    yield from ((0, 0, 0, way) for way in range(1, ways))
    for machine in range(1, machines):
        own = [at for at in known if at[0] == machine]
        if own:
            yield (*own[0], 0)


def with_reasons(
    selectors: Sequence[Selector], shown: Sequence[tuple[int, ...]], refused: Mapping[tuple[int, ...], str]
) -> tuple[Selector, ...]:
    """The selectors; each gets in ``off`` its values that no view has, with the reason.

    shown    positions of the views;  refused  positions without an answer, and why
    """

    def off(index: int, count: int) -> dict[int, str]:
        left = set(range(count)) - {at[index] for at in shown}
        whys = {
            value: [why for at, why in refused.items() if at[index : index + 1] == (value,)] for value in left
        }
        return {value: (why or [_FULL])[0] for value, why in sorted(whys.items())}

    return tuple(replace(s, off=off(index, len(s.values))) for index, s in enumerate(selectors))


_FULL = "left out: the page has reached its limit of combinations"


def reason(error: PerfmodelError) -> str:
    """The error's message cut at the first semicolon or bracket."""
    return error.message.partition(";")[0].partition("(")[0].strip().rstrip(".")


def clock_words(setting: Setting) -> str:
    """The clock of the calibration: ``stream``; if two libraries have different clocks, ``stream+device``."""
    return "+".join(dict.fromkeys(str(clock) for clock in setting.links.clocks))


def _file(wanted: Wanted) -> str | None:
    return wanted.own[0].calibration if wanted.own else None


def _curves(wanted: Wanted, backend: str, clock: str) -> Curves:
    """The user's own curves at this clock, else the shipped curves."""
    for own in wanted.own:
        if (own.backend, own.clock) == (backend, clock):
            return own
    file = _file(wanted)
    return Curves(backend, None if "+" in clock else clock, file)


def _with_another(wanted: Wanted) -> tuple[Machine, ...]:
    """The typed machine, and a shipped machine to compare with, on which the same values are changed.

    Limits: the user's own calibration -> the typed machine alone
    """
    asked = wanted.machines[0]
    if wanted.own:
        return (asked,)
    other = load_machine(next(name for name in _OTHERS if name != asked.name))
    with contextlib.suppress(PerfmodelError):
        values = {key: asked.value(key) for key in asked.what_ifs}
        return (asked, other.with_overrides(values) if values else other)
    return (asked,)


def libraries(machine: Machine) -> list[Curves]:
    """The libraries with their clocks for which a shipped calibration applies to the machine.

    It may be a calibration of another machine of this kind.
    """
    found = []
    for backend, clock in itertools.product(LAW_BACKENDS, CLOCK_ORDER):
        with contextlib.suppress(NoCalibrationError):
            choose_calibration(machine, backend, clock)
            found.append(Curves(str(backend), str(clock)))
    return found


def _backends(wanted: Wanted) -> tuple[str, ...]:
    found = [one.backend for one in wanted.own or libraries(wanted.machines[0])]
    both = [BEST] if not wanted.own and set(_BOTH) <= set(found) else []
    return tuple(dict.fromkeys([wanted.backends[0], *found, *both]))


def _clocks(wanted: Wanted, backends: Sequence[str], asked: str) -> tuple[str, ...]:
    drawn = (*backends, *_BOTH) if BEST in backends else backends
    known = {c.clock for c in wanted.own or libraries(wanted.machines[0]) if c.backend in drawn}
    return tuple(dict.fromkeys([asked, *(str(clock) for clock in CLOCK_ORDER if clock in known)]))


def _check(machine: Machine, largest_bytes: float, reserve: float) -> None:
    usable = machine.value("hbm_bytes") * (1 - reserve)
    if largest_bytes > MOST_GPUS * usable:
        size = format_bytes(largest_bytes, binary=False)
        raise NoCalibrationError(f"{machine.name} needs more than {format_count(MOST_GPUS)} GPUs for {size}.")


def beside(setup: Setup, own: Sequence[Curves] = ()) -> list[Curves]:
    """For each library, curves of the setup's machine, at the setup's clock if the library has it.

    own  libraries and clocks of the user's own calibration; (): the shipped ones
    """
    found: dict[str, Curves] = {}
    for one in own or libraries(setup.machine):
        if one.backend not in found or one.clock == setup.curves.clock:
            found[one.backend] = one
    return list(found.values())


def with_way(setup: Setup, curves: Curves, reduction: str) -> Setup:
    """The setup with the same machine, but another library (``curves``) and exchange (``reduction``)."""
    return replace(setup, curves=curves, reduction=reduction)
