"""The page of tables that stay while the number of GPUs changes: its lines, its bars, and its views."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from perfmodel.collectives.estimate import LARGEST_GPUS
from perfmodel.errors import BadInputError, PerfmodelError
from perfmodel.passes.settings import CLUSTER
from perfmodel.plan.as_projection import compared
from perfmodel.project import Projection, project_each
from perfmodel.project.inputs import DEFAULT_RESERVE
from perfmodel.report.figures.block import Missing
from perfmodel.report.figures.breakdown import breakdown
from perfmodel.report.figures.line_traces import SlowdownLine
from perfmodel.report.figures.over import GPUS
from perfmodel.report.figures.over_gpus import over_gpus, sentence
from perfmodel.report.figures.style import PALETTE
from perfmodel.report.figures.words import library_name
from perfmodel.report.page.lines import Lines, Workload, answerable
from perfmodel.report.page.parts import View
from perfmodel.report.page.question_card import question_card
from perfmodel.report.page.setups import Curves, Loaded, Setup
from perfmodel.report.page.views import ViewsAsked
from perfmodel.schema.machine import Machine
from perfmodel.units import counted

if TYPE_CHECKING:
    import pandas as pd

_NODES, _TIMES = 16, 8
"""Lines reach this many nodes at least, and this many times what the tables need."""
_BARS = (1, 2, 4, 8, 16)
"""Times the fewest whole nodes."""


def numbers_of_gpus(least: int, node: int, asked: Sequence[int], most: float = LARGEST_GPUS) -> list[int]:
    """Numbers of GPUs of the lines: powers of two, whole nodes, and those that were asked for.

    least  what the tables need;  node  GPUs of a node;  most  of which each gets a row
    """
    first = least if least <= node else -(-least // node) * node
    top = max([_NODES * node, _TIMES * first, *asked])
    even = [1 << k for k in range(top.bit_length())]
    found = {first, *even, *(node * nodes for nodes in _BARS), *asked}
    return sorted(count for count in found if max(first, 2) <= count <= min(top, most) or count in asked)


def bar_numbers(least: int, node: int, asked: Sequence[int], most: float = LARGEST_GPUS) -> list[int]:
    """Numbers of GPUs of the bars: whole nodes, doubled from the fewest, and those that were asked for."""
    first = -(-least // node) * node
    found = {*(first * times for times in _BARS if first * times <= most), *asked}
    return sorted(count for count in found if count > 1 or count in asked)


@dataclass(frozen=True)
class FixedTables:
    """Tables that stay. most_gpus  of which each gets a row of every table, where they are not copied"""

    table_bytes: float
    most_gpus: float = LARGEST_GPUS

    def least(self, machine: Machine, reserve: float) -> int:
        """GPUs that hold them."""
        return max(int(-(-self.table_bytes // (machine.value("hbm_bytes") * (1 - reserve)))), 1)


class GpuLines(Lines):
    """Slowdowns over numbers of GPUs; otherwise as ``Lines``, whose ``sizes`` are the numbers asked for."""

    axis = "gpus"

    def __init__(
        self,
        numbers: Sequence[int],
        workloads: Sequence[Workload],
        loaded: Loaded,
        options: Mapping[str, Any],
        own: Sequence[Curves],
        tables: FixedTables,
    ) -> None:
        super().__init__(numbers, workloads, loaded, options, own)
        self.tables = tables

    def grid(self, way: Setup, options: Mapping[str, Any]) -> list[float]:
        """Numbers of GPUs that hold the tables."""
        least = self.tables.least(way.machine, float(options.get("reserve", DEFAULT_RESERVE)))
        node = options.get("gpus_per_node") or way.machine.gpus_per_node
        asked = [int(number) for number in self._sizes if number >= least]
        return [float(count) for count in numbers_of_gpus(least, node, asked, self.tables.most_gpus)]


@dataclass(frozen=True, eq=False)
class GpuViewsAsked(ViewsAsked):
    """All that the views of such a page are of; ``sizes`` are numbers of GPUs.

    sharding  a name of ``perfmodel.plan.pricing.alike.WAYS``; None: row-wise
    """

    tables: FixedTables
    sharding: str | None = None


def gpu_view(
    chosen: tuple[int, ...], workload: Mapping[str, Any], setup: Setup, asked: GpuViewsAsked
) -> View:
    """The view of one workload, sent in one way.

    Limits: a sharding that is not possible on a number of GPUs that was asked for -> BadInputError
    """
    machine, known = setup.machine, {**asked.options, **setup.options, **workload}
    setting = asked.loaded.of(machine, setup.curves, str(known.get("scenario", CLUSTER)))
    quick = {**known, "setting": setting}
    told = known if machine.overrides else quick  # which overrides change nothing is told without a setting

    own = project_each("gpus", asked.sizes.values, machine, **told)
    answers = tuple(sharded(base, asked.sharding) for base in own)
    least = asked.tables.least(machine, float(known.get("reserve", DEFAULT_RESERVE)))
    node = known.get("gpus_per_node") or machine.gpus_per_node
    numbers = bar_numbers(least, node, asked.sizes.values, asked.tables.most_gpus)
    others = [gpus for gpus in numbers if gpus not in asked.sizes.values]
    bars = [answer for answer in answers if answer.gpus in numbers]
    for base in answerable(machine, quick, others, "gpus", PerfmodelError):
        with contextlib.suppress(PerfmodelError):
            bars.append(sharded(base, asked.sharding))
    bars.sort(key=lambda answer: answer.gpus)
    lines = list(asked.lines.of(setup, workload))
    if asked.sharding is not None:
        lines = [*_beside(_line(bars, f"{library_name(setup.curves.backend)} {asked.sharding}"), lines)]
    first = over_gpus(lines, answers[asked.sizes.start])
    titles = {} if isinstance(first, Missing) else {first.name: tuple(sentence(lines, a) for a in answers)}
    blocks = (first, breakdown(bars, GPUS))
    return View(chosen, tuple(map(question_card, answers)), blocks, titles, answers)


def sharded(base: Projection, way: str | None) -> Projection:
    """The same tables on the same GPUs, sharded in another way. Limits: not possible -> BadInputError, why"""
    if way is None or base.gpus == 1:
        return base
    found = next(compared(base, [way]))
    if found.answer is None:
        raise BadInputError(
            f"{way} is not possible on {counted(base.gpus, 'GPU')}: {found.why}.",
            "give other numbers with --gpus, or another --sharding; --sharding all compares them.",
        )
    return found.answer


def _line(answers: Sequence[Projection], label: str) -> SlowdownLine:
    """A line through answers that were found one by one."""
    return SlowdownLine(label, _frame(answers))


def _beside(own: SlowdownLine, others: Sequence[SlowdownLine]) -> Iterator[SlowdownLine]:
    """The line of the asked sharding with the first colour, which row-wise gives up."""
    yield replace(own, style=0)
    taken = {line.style for line in others}
    free = [kind for kind in range(len(PALETTE)) if kind not in taken]
    for line in others:
        yield replace(line, style=free[0]) if line.style == 0 and free else line


def _frame(answers: Sequence[Projection]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(list(_rows(answers)))


def _rows(answers: Sequence[Projection]) -> Iterator[dict[str, Any]]:
    for answer in answers:
        own = {"gpus": answer.gpus, "table_bytes": answer.gpu_count.table_bytes}
        words = {"batch": float(answer.work.batch[0]), "evidence": str(answer.evidence)}
        words |= {"main_evidence": str(answer.main_evidence)}
        yield {**answer.totals, **own, **words}
