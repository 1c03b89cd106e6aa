"""The page that compares two calibrations or two machines: which is faster, where, and by which step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from perfmodel.errors import NoCalibrationError
from perfmodel.passes.settings import Setting
from perfmodel.projections import Projection, project_one, project_row_wise
from perfmodel.projections.inputs import DEFAULT_RESERVE
from perfmodel.report.figures.compare import Pair
from perfmodel.report.figures.registry import COMPARED, COMPARED_STEPS, COMPARED_TIME
from perfmodel.report.page import lines
from perfmodel.report.page.alerts import alerts
from perfmodel.report.page.comparison_card import comparison_card, finding, step_table
from perfmodel.report.page.parts import Card, Page, Selector, View
from perfmodel.report.page.provenance import calibrations, equations
from perfmodel.report.page.sources import code, named, values, versions
from perfmodel.report.page.views import combinations
from perfmodel.schema.machine import Machine
from perfmodel.schema.ranges import MOST_GPUS

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Side:
    """A side of the comparison, A or B.

    name     as it is shown, distinct from the other side's
    setting  its machine with a calibration
    options  of ``perfmodel.project``, without workload and setting
    """

    name: str
    machine: Machine
    setting: Setting
    options: Mapping[str, Any]

    def answer(self, table_bytes: float, workload: Mapping[str, Any]) -> Projection:
        """The projection of this side for a table size and a workload (keywords of ``perfmodel.project``).

        Limits: no calibration for it -> NoCalibrationError
        """
        known = {**self.options, **workload, "setting": self.setting}
        return project_one(machine=self.machine, table_bytes=table_bytes, **known)

    def frame(self, sizes: Sequence[float], workload: Mapping[str, Any]) -> pd.DataFrame:
        """Projections of this side at several table sizes, a row for each. Limits: as ``answer``"""
        known = {**self.options, **workload, "setting": self.setting}
        return project_row_wise({"table_bytes": np.array(sizes)}, self.machine, **known)

    @property
    def usable_bytes(self) -> float:
        """Bytes of HBM that tables may take on each GPU."""
        return self.machine.value("hbm_bytes") * (1 - float(self.options.get("reserve", DEFAULT_RESERVE)))

    @property
    def node(self) -> int:
        """How many GPUs of a node are in use."""
        return int(self.options.get("gpus_per_node") or self.machine.gpus_per_node)


Sides = tuple[Side, Side]


def asked_pair(sides: Sides, table_bytes: float, workload: Mapping[str, Any]) -> Pair:
    """The answers of both sides to the question.

    workload  keywords of ``perfmodel.project``
    Limits: a side has no calibration -> NoCalibrationError that names the side
    """
    answers = []
    for letter, side in zip("AB", sides, strict=True):
        try:
            answers.append(side.answer(table_bytes, workload))
        except NoCalibrationError as error:
            raise NoCalibrationError(f"{letter}, {side.name}: {error.message}", error.next_step) from None
    return Pair(answers[0], answers[1], sides[0].name, sides[1].name)


def comparison_page(
    sides: Sides, pair: Pair, selectors: Sequence[Selector], views: Sequence[View], command: str
) -> Page:
    """The page that compares two sides.

    pair       the answers that it opens with;  command  makes the page again
    selectors  for table size, batch, pooling and dim;  views  from the function ``views``
    """
    words = ", ".join(f"{letter} {side.name}" for letter, side in zip("AB", sides, strict=True))
    both = Selector("compared", "compared", (0,), (words,))  # the first selector selects no view
    plain = [Selector(s.name, s.label, s.values, s.words, s.start) for s in selectors]
    said = [
        f"{letter}: {text}"
        for side, (letter, _, answer) in zip(sides, pair.sides, strict=True)
        for text in alerts(answer, side.options.get("calibration"))
    ]
    title = f"{' and '.join(side.name for side in sides)}: {finding(pair)}"
    sources = _provenance(sides, pair, command)
    return Page(title, sources, tuple(views), command, (both, *plain), alerts=tuple(said))


def _provenance(sides: Sides, pair: Pair, command: str) -> str:
    """The sources as HTML: both machines with values, calibrations and equations, and the command."""
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


def views(sides: Sides, sizes: Selector, workload: tuple[Selector, ...]) -> Iterator[View]:
    """Yield the view for each combination of the selectors ``workload`` and each table size.

    sizes  the selector of the table size
    """
    for chosen in combinations(workload):
        asked = {s.name: s.values[at] for s, at in zip(workload, chosen, strict=True)}
        drawn = None
        for at, size in enumerate(sizes.values):
            try:
                pair = asked_pair(sides, float(size), asked)
            except NoCalibrationError as error:
                first = Card(
                    f"Cannot say for {sizes.words[at]}: one of the two has no answer.", error.message
                )
                none = tuple(figure.missing(error.message) for figure in COMPARED.figures)
                yield View((*chosen, at), (first,), none)
                continue
            if drawn is None:
                frames = _frames(sides, line_sizes(sides, sizes.values), asked)
                drawn = COMPARED_TIME.draw(pair=pair, frames=frames)
            blocks = (drawn, COMPARED_STEPS.draw(pair=pair))
            yield View((*chosen, at), (comparison_card(pair),), blocks, table=step_table(pair))


def _frames(
    sides: Sides, sizes: Sequence[float], asked: Mapping[str, Any]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Projections of A and of B at the table sizes for which both sides have a calibration.

    asked  the workload, for which there must be such a size
    """
    try:
        return sides[0].frame(sizes, asked), sides[1].frame(sizes, asked)
    except NoCalibrationError:
        known = [size for size in sizes if _known(sides, size, asked)]
    return sides[0].frame(known, asked), sides[1].frame(known, asked)


def _known(sides: Sides, size: float, asked: Mapping[str, Any]) -> bool:
    try:
        asked_pair(sides, size, asked)
    except NoCalibrationError:
        return False
    return True


def line_sizes(sides: Sides, sizes: Sequence[float]) -> list[float]:
    """Table sizes at which lines are computed, from one full GPU of either side to 100 TB.

    They include sizes just around a full GPU and a full node of A and of B, so that steps there are vertical.
    """
    most = MOST_GPUS * min(side.usable_bytes for side in sides)
    found = {size for side in sides for size in lines.line_sizes(side.usable_bytes, side.node, sizes)}
    first = min(*(side.usable_bytes for side in sides), *sizes)
    return sorted(size for size in found if float(f"{first:.6g}") <= size <= max(most, *sizes))
