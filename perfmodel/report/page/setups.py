"""Where and how a batch is sent: machine, library, clock and exchange, and which of them a page can show."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from perfmodel.collectives.choose import choose_calibration
from perfmodel.collectives.estimate import Models
from perfmodel.errors import NoCalibrationError, PerfmodelError
from perfmodel.passes.schemes import AUTO, REDUCTIONS, ROW_WISE, over_all
from perfmodel.passes.settings import BEST, CLUSTER, Setting, load_setting
from perfmodel.report.figures.words import library_name
from perfmodel.report.page.parts import Selector
from perfmodel.schema.evidence import LAW_BACKENDS, Backend
from perfmodel.schema.machine import Machine, load_machine
from perfmodel.schema.prices import Prices
from perfmodel.schema.ranges import MOST_GPUS
from perfmodel.schema.run_folders import CLOCK_ORDER
from perfmodel.units import format_bytes, format_count

WAYS = tuple(name for name, kind in REDUCTIONS.items() if not over_all(kind))
"""Exchanges that a page offers where nobody lists them; ``auto`` of NCCL is its reduce-scatter."""
_OTHERS = ("h200-sxm-ib", "h100-sxm-ib")
_BOTH = (str(Backend.NCCL), str(Backend.NVSHMEM))


@dataclass(frozen=True)
class Curves:
    """A library at a clock. ``calibration``: the file of a user's own; None: a shipped one."""

    backend: str
    clock: str | None = None  # None: that of the preferred calibration
    calibration: str | None = None


@dataclass(frozen=True, eq=False)
class Setup:
    """One way to send a batch: what ``perfmodel.project`` is told besides the workload."""

    machine: Machine
    curves: Curves
    reduction: str

    @property
    def options(self) -> dict[str, Any]:
        """Of ``perfmodel.project``."""
        named = {"reduction": self.reduction, **vars(self.curves)}
        return {name: value for name, value in named.items() if value is not None}


@dataclass(frozen=True)
class Wanted:
    """What was asked for: of each list the first is asked, and empty ones are filled with what there is."""

    machines: tuple[Machine, ...]  # at least one
    backends: tuple[str, ...]  # at least one: that of the question
    clocks: tuple[str, ...] = ()
    reductions: tuple[str, ...] = ()
    own: tuple[Curves, ...] = ()  # of a user's own calibration or run: nothing else is looked for
    listed: frozenset[str] = frozenset()  # lists that were given: machine, backend, clock, reduction
    best: bool = True  # whether ways to shard are compared where no exchange is chosen
    prices: Prices | None = None


class Loaded:
    """Libraries of machines under scenarios, loaded once: they keep the tables that they have made.

    kernels  whose look-up kernels; None: as ``load_setting``
    """

    def __init__(self, kernels: str | None = None) -> None:
        self._kernels = kernels
        self._known: dict[tuple[Any, ...], Setting | PerfmodelError] = {}
        self._models = Models()

    def of(self, machine: Machine, curves: Curves, scenario: str = CLUSTER) -> Setting:
        """Limits: nothing for the library under this scenario -> NoCalibrationError"""
        key = (id(machine), curves, scenario)
        if key not in self._known:
            try:
                self._known[key] = load_setting(
                    machine,
                    curves.backend,
                    curves.clock,
                    scenario,
                    curves.calibration,
                    self._models,
                    self._kernels,
                )
            except PerfmodelError as error:
                self._known[key] = error
        found = self._known[key]
        if isinstance(found, PerfmodelError):
            raise found
        if curves.clock is None and curves.backend != BEST:  # one object for one thing: its tables are kept
            self._known.setdefault((key[0], replace(curves, clock=clock_words(found)), scenario), found)
        return found


@dataclass(frozen=True, eq=False)
class Offer:
    """The settings of a page: their selectors, what may be chosen, and why the rest may not."""

    selectors: tuple[Selector, ...]  # machine, backend, clock, reduction
    setups: Mapping[tuple[int, ...], Setup]  # by positions in the selectors; the first is what was asked
    refused: Mapping[tuple[int, ...], str] = field(default_factory=dict)  # (machine, backend, clock)


def offer(wanted: Wanted, loaded: Loaded, most: int, largest_bytes: float, reserve: float = 0.0) -> Offer:
    """The asked setup first, then others: one setting changed at a time, or all combinations where listed.

    most           how many setups there may be; of more, the last ones are left out
    largest_bytes  of the tables: a machine that cannot hold them is not offered
    Limits: nothing is known for what was asked -> NoCalibrationError
    """
    machines = wanted.machines if "machine" in wanted.listed else _with_another(wanted)
    asked = Curves(wanted.backends[0], next(iter(wanted.clocks), None), _file(wanted))
    word = clock_words(loaded.of(machines[0], asked))
    backends = wanted.backends if "backend" in wanted.listed else _backends(wanted)
    clocks = wanted.clocks if "clock" in wanted.listed else _clocks(wanted, backends, word)
    ways = wanted.reductions if "reduction" in wanted.listed else _ways(wanted)
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
    several = {"machine": machines, "backend": backends, "clock": clocks, "reduction": ways}
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


_LABELS = {"machine": "machine", "backend": "library", "clock": "clock", "reduction": "sharding"}


def _one_at_a_time(
    known: Mapping[tuple[int, ...], Any], ways: int, machines: int
) -> Iterator[tuple[int, ...]]:
    """What was asked, its other libraries and clocks, its other exchanges, and the other machines."""
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
    """The selectors of settings with what no view has, and why.

    shown  positions of the views;  refused  positions that have no answer, and why
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
    """Why something has no answer, in a few words."""
    return error.message.partition(";")[0].partition("(")[0].strip().rstrip(".")


def clock_words(setting: Setting) -> str:
    """``stream``; of two libraries at their own clocks ``stream+device``."""
    return "+".join(dict.fromkeys(str(clock) for clock in setting.links.clocks))


def _file(wanted: Wanted) -> str | None:
    return wanted.own[0].calibration if wanted.own else None


def _curves(wanted: Wanted, backend: str, clock: str) -> Curves:
    """Of the user's own those at this clock; else what is shipped."""
    for own in wanted.own:
        if (own.backend, own.clock) == (backend, clock):
            return own
    file = _file(wanted)
    return Curves(backend, None if "+" in clock else clock, file)


def _with_another(wanted: Wanted) -> tuple[Machine, ...]:
    """The asked machine, and a shipped one to compare it with, with the same what-ifs."""
    asked = wanted.machines[0]
    if wanted.own:
        return (asked,)
    other = load_machine(next(name for name in _OTHERS if name != asked.name))
    with contextlib.suppress(PerfmodelError):
        values = {key: asked.value(key) for key in asked.what_ifs}
        return (asked, other.with_overrides(values) if values else other)
    return (asked,)


def libraries(machine: Machine) -> list[Curves]:
    """Libraries and clocks of the shipped calibrations that a machine has or borrows."""
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


def _ways(wanted: Wanted) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*wanted.reductions[:1], *WAYS]))


def _check(machine: Machine, largest_bytes: float, reserve: float) -> None:
    usable = machine.value("hbm_bytes") * (1 - reserve)
    if largest_bytes > MOST_GPUS * usable:
        size = format_bytes(largest_bytes, binary=False)
        raise NoCalibrationError(f"{machine.name} needs more than {format_count(MOST_GPUS)} GPUs for {size}.")


def beside(setup: Setup, own: Sequence[Curves] = ()) -> list[Curves]:
    """One of each library that this machine has: at the clock of ``setup`` where it knows that one."""
    found: dict[str, Curves] = {}
    for one in own or libraries(setup.machine):
        if one.backend not in found or one.clock == setup.curves.clock:
            found[one.backend] = one
    return list(found.values())


def with_way(setup: Setup, curves: Curves, reduction: str) -> Setup:
    """The same machine with another library or exchange."""
    return replace(setup, curves=curves, reduction=reduction)
