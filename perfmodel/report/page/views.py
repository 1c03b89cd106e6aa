"""What the page shows: one view for every combination of the selectors, computed before it is written."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from perfmodel.errors import BadInputError, NoCalibrationError
from perfmodel.project import Projection, project, project_one
from perfmodel.project.scenarios import CLUSTER, Setting, load_setting
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.breakdown import breakdown
from perfmodel.report.figures.slowdown import Line, Mark, sentence, slowdown
from perfmodel.schema.machine import Machine
from perfmodel.validate.verdicts import load_claims

if TYPE_CHECKING:
    import pandas as pd

MOST_VIEWS = 64
_POINTS = 21
_LARGEST_BYTES = 100e12
_PAPER_BYTES = 10e12
_LEAST, _MOST = "10a", "10b"  # of the claims: the smallest and the largest slowdown of the paper's Fig 9
_BAR_SIZES = (160e9, 640e9, 1e12, 2.5e12, 5e12, 10e12, 25e12, 100e12)


@dataclass(frozen=True)
class Selector:
    """One thing that the reader of the page may choose."""

    name: str  # batch, pooling, dim, machine: a keyword of ``perfmodel.project``
    label: str
    values: tuple[Any, ...]  # increasing
    words: tuple[str, ...]  # of the values
    start: int = 0  # position of the value that was asked for


@dataclass(frozen=True, eq=False)
class View:
    """What is shown for one value of every selector: blocks in order, and the answer at each table size."""

    chosen: tuple[int, ...]  # position of the value of every selector
    answers: tuple[Projection, ...]  # of the table sizes that may be chosen
    blocks: tuple[Block | Missing, ...]
    titles: Mapping[str, tuple[str, ...]]  # of blocks whose sentence depends on the table size, one a size


def combinations(selectors: Sequence[Selector]) -> list[tuple[int, ...]]:
    """Every choice. Limits: more than ``MOST_VIEWS`` -> BadInputError"""
    found = list(itertools.product(*(range(len(selector.values)) for selector in selectors)))
    if len(found) > MOST_VIEWS:
        raise BadInputError(
            f"{len(found)} combinations of {', '.join(s.label for s in selectors)} are too many for a page.",
            f"at most {MOST_VIEWS}: give fewer values.",
        )
    return found


class Settings:
    """The libraries of a machine under a scenario, loaded once: they keep the tables that they have made."""

    def __init__(self, machine: Machine, options: Mapping[str, Any]) -> None:
        self.machine, self._options = machine, options
        self._known: dict[str, Setting] = {}

    def of(self, scenario: str) -> Setting:
        """Limits: nothing for the library under this scenario -> NoCalibrationError"""
        if scenario not in self._known:
            given = (self._options.get(name) for name in ("backend", "clock", "calibration"))
            backend, clock, calibration = given
            library = backend or self.machine.default_backend
            self._known[scenario] = load_setting(self.machine, library, clock, scenario, calibration)
        return self._known[scenario]


def view(
    chosen: tuple[int, ...],
    selectors: Sequence[Selector],
    sizes: Selector,
    settings: Settings,
    options: Mapping[str, Any],
) -> View:
    """The view of one choice.

    sizes    bytes of all tables that may be chosen
    options  of ``perfmodel.project``, without the selected ones
    """
    machine = settings.machine
    asked = {**options, **{s.name: s.values[at] for s, at in zip(selectors, chosen, strict=True)}}
    answers = tuple(project_one(machine=machine, table_bytes=size, **asked) for size in sizes.values)
    known = {**asked, "setting": settings.of(str(asked.get("scenario", CLUSTER)))}
    bars = list(answerable(machine, known, bar_sizes(answers[0], sizes.values)))
    grid = line_sizes(answers[0].gpu_count.usable_bytes, sizes.values)
    lines = list(_lines(grid, settings, asked))
    first = slowdown(lines, answers[sizes.start], marks())
    titles = {} if isinstance(first, Missing) else {first.name: tuple(sentence(lines, a) for a in answers)}
    return View(chosen, answers, (first, breakdown(bars)), titles)


def answerable(machine: Machine, options: Mapping[str, Any], sizes: Sequence[float]) -> Iterator[Projection]:
    """Answers at those table sizes that the calibration reaches: one of a run knows its own ranks."""
    for size in sizes:
        with contextlib.suppress(NoCalibrationError):
            yield project_one(machine=machine, table_bytes=size, **options)


def line_sizes(one_gpu_bytes: float, sizes: Sequence[float]) -> list[float]:
    """Table sizes of the lines: from what one GPU holds to 100 TB, and those that were asked for."""
    last = max([_LARGEST_BYTES, *sizes])
    even = np.geomspace(min([one_gpu_bytes, *sizes]), last, _POINTS).tolist()
    return sorted({float(f"{size:.4g}") for size in even} | {float(size) for size in sizes})


def bar_sizes(answer: Projection, sizes: Sequence[float]) -> list[float]:
    """Table sizes of the bars: round ones, those of a few small GPUs, and those that were asked for."""
    return sorted({*_BAR_SIZES, *small_sizes(answer), *map(float, sizes)})


def small_sizes(answer: Projection) -> list[float]:
    """What 2, 4 and 8 GPUs of this machine hold, where that is less than the smallest round size."""
    usable = answer.gpu_count.usable_bytes
    return [count * usable for count in (2, 4, 8) if count * usable < min(_BAR_SIZES)]


def _lines(grid: Sequence[float], settings: Settings, asked: Mapping[str, Any]) -> Iterator[Line]:
    """The way that was asked for first; then the other exchanges, and the paper's assumption."""
    scenario = str(asked.get("scenario", CLUSTER))
    own = str(asked.get("reduction", "auto"))
    changes: list[tuple[str, dict[str, str]]] = [(_name(own, scenario), {})]
    others = [(way, scenario) for way in ("auto", "two-level", "sparse")]
    if settings.machine.nvlink_domain_gpus > 1:
        others.append((own, _ONE_DOMAIN))
    for way, where in others:
        if (way, where) != (own, scenario):
            changes.append((_name(way, where), {"reduction": way, "scenario": where}))
    for label, change in changes:
        where = change.get("scenario", scenario)
        try:
            known = {**asked, **change, "setting": settings.of(where)}
        except NoCalibrationError:
            continue
        frame = _frame(grid, settings.machine, known)
        if frame is not None:
            yield Line(label, frame, where != CLUSTER)


def _frame(grid: Sequence[float], machine: Machine, options: Mapping[str, Any]) -> pd.DataFrame | None:
    """A line at all sizes at once; where the calibration does not reach one, at those that it reaches."""
    try:
        return project({"table_bytes": np.array(grid)}, machine, **options)
    except NoCalibrationError:
        reached = [a.gpu_count.table_bytes for a in answerable(machine, options, grid)]
        return project({"table_bytes": np.array(reached)}, machine, **options) if reached else None


_ONE_DOMAIN = "nvlink-everywhere"
_WAYS = {
    "auto": "row-wise",
    "two-level": "row-wise with a two-level exchange",
    "sparse": "row-wise sending only non-empty bags",
}


def _name(way: str, scenario: str) -> str:
    name = _WAYS.get(way, f"row-wise, {way}")
    return name if scenario == CLUSTER else f"{name}, NVLink between all GPUs"


@lru_cache(maxsize=1)
def _published() -> dict[str, float]:
    found = {claim.id: claim.expected for claim in load_claims().claim}
    return {name: float(found[name].rstrip("x")) for name in (_LEAST, _MOST)}


def marks() -> tuple[Mark, ...]:
    """The two slowdowns that the paper has for 10 TB on 128 GPUs: ends of the range of its workloads."""
    words = {_LEAST: "the least slowed of its workloads", _MOST: "the most slowed of its workloads"}
    where = "arXiv 2512.05831, Fig 9: 10 TB on 128 GPUs, NVLink between all of them"
    return tuple(
        Mark(_PAPER_BYTES, value, f"{value:g}×, {words[name]}<br>{where}")
        for name, value in _published().items()
    )
