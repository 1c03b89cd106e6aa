"""The page of two calibrations or two machines: which is faster, where, and because of what."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from perfmodel.collectives.estimate import LARGEST_GPUS
from perfmodel.errors import NoCalibrationError
from perfmodel.passes.settings import Setting
from perfmodel.project import Projection, project, project_one
from perfmodel.project.inputs import DEFAULT_RESERVE
from perfmodel.project.needs import needs, ways
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.compare import SLOWDOWN, TIME, Pair, slowdown_title, slowdowns, times
from perfmodel.report.figures.compare_axis import BY_SIZE, CompareAxis
from perfmodel.report.figures.compare_constants import constants, needed
from perfmodel.report.figures.compare_curves import curve_blocks
from perfmodel.report.figures.compare_steps import DIFFERENCES, STEPS, step_differences, steps, steps_title
from perfmodel.report.page import lines
from perfmodel.report.page.alerts import alerts
from perfmodel.report.page.comparison_card import cannot_say, comparison_card, finding
from perfmodel.report.page.contents import question
from perfmodel.report.page.parts import Page, Selector, View
from perfmodel.report.page.provenance import calibrations, equations
from perfmodel.report.page.sources import code, named, values, versions
from perfmodel.report.page.views import combinations
from perfmodel.schema.machine import Machine
from perfmodel.units import counted

if TYPE_CHECKING:
    import pandas as pd

_OF_A_VIEW = (TIME, SLOWDOWN, STEPS, DIFFERENCES)


@dataclass(frozen=True, eq=False)
class Side:
    """A or B: what answers the questions."""

    name: str  # as it is shown, not that of the other
    machine: Machine
    setting: Setting
    options: Mapping[str, Any]  # of ``perfmodel.project``, without those of the workload and the setting
    axis: CompareAxis = BY_SIZE

    def answer(self, value: float, workload: Mapping[str, Any]) -> Projection:
        """value  a table size, or a number of GPUs. Limits: nothing known for it -> NoCalibrationError"""
        known = {**self.options, **workload, "setting": self.setting, self.axis.key: value}
        return project_one(machine=self.machine, **known)

    def frame(self, sizes: Sequence[float], workload: Mapping[str, Any]) -> pd.DataFrame | None:
        """Answers at those sizes that the calibration reaches; None where it reaches none."""
        known = {**self.options, **workload, "setting": self.setting}
        key = self.axis.key
        try:
            return project({key: np.array(sizes)}, self.machine, **known)
        except NoCalibrationError:
            reached = [size for size in sizes if self._reaches(size, workload)]
        return project({key: np.array(reached)}, self.machine, **known) if reached else None

    def _reaches(self, value: float, workload: Mapping[str, Any]) -> bool:
        try:
            self.answer(value, workload)
        except NoCalibrationError:
            return False
        return True

    @property
    def usable_bytes(self) -> float:
        """Tables that one GPU holds."""
        return self.machine.value("hbm_bytes") * (1 - float(self.options.get("reserve", DEFAULT_RESERVE)))

    def with_memory(self, hbm_bytes: float) -> Side:
        """The same with another memory of a GPU."""
        machine = self.machine.with_overrides({"hbm_bytes": hbm_bytes})
        return replace(self, machine=machine, setting=replace(self.setting, machine=machine))

    @property
    def node(self) -> int:
        """GPUs of a node that are used."""
        return int(self.options.get("gpus_per_node") or self.machine.gpus_per_node)


def asked_pair(sides: tuple[Side, Side], sizes: Selector, workload: tuple[Selector, ...]) -> Pair:
    """The answers that the page is made for.

    Limits: nothing known of a side -> NoCalibrationError that says what is known of both
    """
    asked = {one.name: one.values[one.start] for one in workload}
    pair = _pair(sides, float(sizes.values[sizes.start]), asked)
    if isinstance(pair, NoCalibrationError):
        other = known_size(sides, asked) if sides[0].axis is BY_SIZE else ""
        raise NoCalibrationError(pair.message, other or pair.next_step)
    return pair


def comparison_page(
    sides: tuple[Side, Side],
    pair: Pair,
    selectors: Sequence[Selector],
    views: Sequence[View],
    fixed: Sequence[Block | Missing],
    command: str,
) -> Page:
    """All of it.

    pair   the answers that the page is made for;  selectors  batch, pooling, dim, table size
    views, fixed  of the functions below;  command  makes the page
    """
    words = ", ".join(f"{letter} {side.name}" for letter, side in zip("AB", sides, strict=True))
    both = Selector("compared", "compared", (0,), (words,))  # the first selector chooses no view
    plain = [Selector(s.name, s.label, s.values, s.words, s.start) for s in selectors]
    return Page(
        f"{' and '.join(side.name for side in sides)}: {finding(pair)}",
        _provenance(sides, pair, command),
        tuple(views),
        command,
        (both, *plain),
        tuple(fixed),
        _question(pair),
        tuple(_alerts(sides, pair)),
    )


def _question(pair: Pair) -> str:
    """What was asked, and over how many GPUs of which machine on each side."""
    a, b = (f"{counted(p.gpus, 'GPU')} of {p.setting.machine.name}" for p in (pair.a, pair.b))
    return question(pair.a).replace(f" on {a}", f" on {a} (A) and on {b} (B)", 1)


def _alerts(sides: tuple[Side, Side], pair: Pair) -> Iterator[str]:
    for side, (letter, _, answer) in zip(sides, pair.sides, strict=True):
        for text in alerts(answer, side.options.get("calibration")):
            yield f"{letter}: {text}"


def _provenance(sides: tuple[Side, Side], pair: Pair, command: str) -> str:
    """HTML of both machines with their values, calibrations and equations, and of the command."""
    parts = []
    for side, (letter, _, answer) in zip(sides, pair.sides, strict=True):
        machine = answer.setting.machine
        parts += [
            f"<h3>{letter}: {escape(side.name)}</h3>",
            f"<p>{named('Machine', machine)}. {calibrations(answer)}</p>",
            values(machine, "machine"),
            *equations(answer),
        ]
    return "\n".join([*parts, f"<p>{versions()} To reproduce this page exactly:</p>", code(command)])


def views(sides: tuple[Side, Side], sizes: Selector, workload: tuple[Selector, ...]) -> Iterator[View]:
    """A view for every choice of workload and table size, one at a time."""
    combinations((*workload, sizes))  # not too many
    for chosen in combinations(workload):
        asked = {s.name: s.values[at] for s, at in zip(workload, chosen, strict=True)}
        yield from _views_of(sides, sizes, chosen, asked)


def _views_of(
    sides: tuple[Side, Side], sizes: Selector, chosen: tuple[int, ...], asked: Mapping[str, Any]
) -> Iterator[View]:
    """Of one workload: lines are drawn once, the rest for every table size."""
    by_size = sides[0].axis is BY_SIZE
    grid = line_sizes(sides, sizes.values) if by_size else line_gpus(sides, sizes.values, asked)
    a, b = (side.frame(grid, asked) for side in sides)
    found = [_pair(sides, float(size), asked) for size in sizes.values]
    pairs = [pair for pair in found if isinstance(pair, Pair)]
    drawn: tuple[Block | Missing, ...] = ()
    for at, pair in enumerate(found):
        if isinstance(pair, NoCalibrationError) or a is None or b is None:
            why = (
                pair if isinstance(pair, NoCalibrationError) else NoCalibrationError("no size has an answer.")
            )
            none = tuple(Missing(name, why.message) for name in _OF_A_VIEW)
            yield View((*chosen, at), (cannot_say(sizes.words[at], why.message),), none)
            continue
        drawn = drawn or (times(pair, (a, b)), slowdowns(pair, (a, b)), steps(pairs, pair))
        first, second, third = drawn
        blocks = (
            first,
            _titled(second, slowdown_title(pair)),
            _titled(third, steps_title(pair)),
            step_differences(pair),
        )
        yield View((*chosen, at), (comparison_card(pair),), blocks)


def _titled(block: Block | Missing, title: str) -> Block | Missing:
    return block if isinstance(block, Missing) else replace(block, title=title)


def _pair(sides: tuple[Side, Side], value: float, asked: Mapping[str, Any]) -> Pair | NoCalibrationError:
    """Both answers, or which side has none and why."""
    answers = []
    for letter, side in zip("AB", sides, strict=True):
        try:
            answers.append(side.answer(value, asked))
        except NoCalibrationError as error:
            return NoCalibrationError(f"{letter}, {side.name}: {error.message}", error.next_step)
    return Pair(answers[0], answers[1], sides[0].name, sides[1].name, sides[0].axis)


def line_sizes(sides: Sequence[Side], sizes: Sequence[float]) -> list[float]:
    """Table sizes of the lines: those of a page of either, so that where one GPU or a node of A or of B is
    full the line of that one stands upright; from what one GPU of either holds to 100 TB."""
    most = LARGEST_GPUS * min(side.usable_bytes for side in sides)
    found = {size for side in sides for size in lines.line_sizes(side.usable_bytes, side.node, sizes)}
    first = min(*(side.usable_bytes for side in sides), *sizes)
    return sorted(size for size in found if float(f"{first:.6g}") <= size <= max(most, *sizes))


def line_gpus(sides: Sequence[Side], asked: Sequence[float], workload: Mapping[str, Any]) -> list[float]:
    """Numbers of GPUs of the lines: powers of two that both can hold the tables on, and those asked for."""
    least = max(least_gpus(side, workload) for side in sides)
    most = min(_BEYOND * max(asked), LARGEST_GPUS)
    powers = {float(2**k) for k in range(21)}
    return sorted({n for n in powers if least <= n <= most} | {float(n) for n in asked})


def least_gpus(side: Side, workload: Mapping[str, Any]) -> int:
    """GPUs that the tables of a side need."""
    known = {**side.options, **workload, "setting": side.setting}
    return project_one(machine=side.machine, **known).gpu_count.needed


_BEYOND = 4
"""Times the most GPUs that were asked for: how far the lines go."""


def known_size(sides: tuple[Side, Side], workload: Mapping[str, Any]) -> str:
    """Options with which both need two GPUs or more, on numbers that both know; that there are none.

    First the table size alone; then with the same smaller memory on both (``--set hbm_bytes``).
    """
    memory = _rounded(min(side.machine.value("hbm_bytes") for side in sides), 1)
    smaller = (sides[0].with_memory(memory), sides[1].with_memory(memory))
    for option, both in (("", sides), (f"--set hbm_bytes={_gigabytes(memory)} ", smaller)):
        full = {_rounded(n * side.usable_bytes, 4) for side in both for n in _RANKS}
        for size in sorted(full, reverse=True):
            with contextlib.suppress(NoCalibrationError):
                a, b = (side.answer(size, workload).gpus for side in both)
                if min(a, b) > 1:
                    words = f"both have an answer for {option}--table-size {_gigabytes(size)}"
                    return f"{words} ({counted(a, 'GPU')} of A, {counted(b, 'GPU')} of B)."
    return "no table size needs two or more GPUs of both and has an answer for both."


_RANKS = (2, 3, 4, 6, 8, 16)
"""GPUs that are tried: what a run on one or two hosts has measured."""


def _rounded(value: float, digits: int) -> float:
    """Down to so many digits: what was full still fits."""
    step = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return math.floor(value / step + 1e-9) * step


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.6g}GB"


FIXED = 7
"""About how many blocks ``fixed_blocks`` gives."""


def fixed_blocks(sides: tuple[Side, Side], pair: Pair) -> Iterator[Block | Missing]:
    """Blocks of the question as it was asked: curves, constants, and what the slower one would need."""
    yield from curve_blocks(pair)
    yield constants(pair)
    slow, fast = sorted(zip(sides, (pair.a, pair.b), strict=True), key=lambda one: -one[1].time_s)
    side, answer, target = slow[0], slow[1], fast[1].time_s
    asked = _workload(answer) if side.axis is BY_SIZE else _on_gpus(answer)

    def time_of(machine: Machine, **changed: Any) -> float:
        frame = project(asked, machine, **{**side.options, **changed})
        return float(frame["time_s"].iloc[0])

    found = needs(side.machine, target, time_of)
    free = str(side.options.get("reduction") or "auto") == "auto"
    others = ways(target, lambda name: time_of(side.machine, reduction=name)) if free else ()
    yield needed(pair, found, others)


def _on_gpus(answer: Projection) -> dict[str, Any]:
    """Of a model, whose tables are in the options."""
    return {"gpus": [float(answer.gpus)], "batch": [float(np.asarray(answer.work.batch).flat[0])]}


def _workload(answer: Projection) -> dict[str, Any]:
    """The workload of an answer as arrays of one element."""
    work, only = answer.work, answer.work.groups[0]
    named = {"batch": work.batch, "table_count": only.count, "pooling": only.pooling, "dim": only.dim}
    values = {name: [float(np.asarray(value).flat[0])] for name, value in named.items()}
    return {"table_bytes": [float(work.table_bytes[0])], **values}
