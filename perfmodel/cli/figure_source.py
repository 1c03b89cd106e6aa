"""Which figures ``perfmodel figure`` offers: of the question, of a comparison, or over numbers of GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from perfmodel.cli.choices import FIRST, only, other_keywords, page_question
from perfmodel.cli.compare_page import comparison
from perfmodel.cli.pictures import check_folder, draw, draw_all
from perfmodel.cli.report import check_compared, over_gpus, share_batch
from perfmodel.cli.report_gpus import gpus_page
from perfmodel.cli.typed_line import TypedLine
from perfmodel.errors import NoCalibrationError
from perfmodel.question.pages import ReportOptions
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.registry import COMPARED, GPUS, QUESTION
from perfmodel.report.static import drawn

if TYPE_CHECKING:
    from perfmodel.report.page.parts import Page

_NOT_OF_THE_FIGURE = ("name", "out", "file_format", "force", "as_json", "width", "height", "scale")
_NOT_OF_THE_PAGE = (*_NOT_OF_THE_FIGURE, "draw")


@dataclass(frozen=True, eq=False)
class FoundFigure:
    """A figure. page  makes a page with only this figure, from its block"""

    block: Block
    page: Callable[[Block], Page]

    def drawn(self, label: str) -> FoundFigure:
        """The figure in the view of the button ``label``. Limits: an unknown label -> BadInputError"""
        return replace(self, block=drawn(self.block, label))


@dataclass(frozen=True, eq=False)
class FigureSource:
    """The figures that the typed options offer.

    figures  by name, a line that describes each;  line  the command as it was typed
    page     makes the page that holds them; None: each figure is made by itself
    """

    figures: Mapping[str, str]  # a line that describes each, by name
    line: TypedLine
    page: Callable[[], Page] | None  # makes the page that holds them; None: each is made by itself

    def command(self, name: str, file: str) -> str:
        """The command that draws the figure ``name`` into ``file``."""
        line = replace(self.line, command=("perfmodel", "figure", name))
        return line.text(_NOT_OF_THE_FIGURE, ["--out", file])

    def found(self, context: typer.Context, name: str, file: str) -> FoundFigure:
        """Make the figure ``name``.

        context  of the running command;  file  for the command that draws it again
        Limits: it cannot be drawn -> NoCalibrationError with the reason
        """
        command = self.command(name, file)
        if self.page is None:
            return _of_the_question(context.params, name, command)
        page = self.page()
        return FoundFigure(_drawable(page.block(name)), partial(page.alone, command=command))

    def draw_all(self, context: typer.Context, folder: Path, ending: str) -> None:
        """Draw all figures as pictures into a folder. ending  svg, png or pdf"""
        if self.page is None:
            draw_all(context, folder, ending)
            return
        check_folder(folder, ending, self.figures, force=context.params["force"])
        draw(self.page().blocks(), folder, ending, context.params["as_json"], "figure")


def source_of(context: typer.Context) -> FigureSource:
    """Which figures ``perfmodel figure`` offers for the options of ``context``."""
    params = context.params
    check_compared(params)
    share_batch(context)
    line = TypedLine.of(context).pinned()
    asked = line.to("report", ReportOptions)
    if params["compare"] is not None:
        command = asked.text(_NOT_OF_THE_PAGE)
        return FigureSource(COMPARED.shows, line, lambda: _compared(params, command))
    if over_gpus(params):
        options = tuple(one for one in line.options if one[0] not in _NOT_OF_THE_PAGE)
        return FigureSource(GPUS.shows, line, lambda: _over_gpus(params, replace(asked, options=options)))
    return FigureSource(QUESTION.shows, line, None)


def _compared(params: Mapping[str, Any], command: str) -> Page:
    return comparison(_one_workload(params), command)[1]


def _over_gpus(params: Mapping[str, Any], line: TypedLine) -> Page:
    return gpus_page(_one_workload(params), line)


def _one_workload(params: Mapping[str, Any]) -> dict[str, Any]:
    """The options with a single default for batch, pooling and dim where they were not typed.

    A page would have several defaults, but a figure shows a single value of each.
    """
    names = ("batch",) if params["model"] is not None else ("batch", "pooling", "dim")
    return {**params, **{name: params[name] or FIRST[name] for name in names}}


def _of_the_question(params: Mapping[str, Any], name: str, command: str) -> FoundFigure:
    """Make a single figure of the question. params  the options by name;  command  draws it again"""
    question = page_question(params)
    question.check_gpus()
    from perfmodel.report.page.alerts import alerts
    from perfmodel.report.page.question_page import one_figure

    with question.advised():
        said = alerts(None, question.calibration)
        page = one_figure(name, *only(question), question.machine, other_keywords(question), command, said)

    def with_figure(block: Block) -> Page:
        return replace(page, views=(replace(page.first, blocks=(block,)),))

    return FoundFigure(_drawable(page.block(name)), with_figure)


def _drawable(found: Block | Missing) -> Block:
    """The figure, or NoCalibrationError with the reason if it could not be made."""
    if isinstance(found, Missing):
        why, colon, line = found.why.partition(": ")
        raise NoCalibrationError(f"{found.name} cannot be drawn: {why}{'.' if colon else ''}", line)
    return found
