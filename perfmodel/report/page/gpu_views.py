"""The views of a page over numbers of GPUs: a table of how the same tables scale, and a figure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from perfmodel.answer import Answer, project_each
from perfmodel.answer.ranking import answer_shardings
from perfmodel.answer.uniform_plans import Impossible
from perfmodel.engine.schemes import ROW_WISE
from perfmodel.errors import BadInputError
from perfmodel.report.figures.block import Missing
from perfmodel.report.figures.line_traces import SlowdownLine
from perfmodel.report.figures.over_gpus import samples_words, sentence
from perfmodel.report.figures.registry import OVER_GPUS
from perfmodel.report.figures.words import library_name
from perfmodel.report.page.lines import Lines, frame_of
from perfmodel.report.page.parts import View
from perfmodel.report.page.setups import Setup
from perfmodel.report.page.views import Across, ViewsAsked
from perfmodel.report.projection_text import band
from perfmodel.units import counted, format_bytes, format_count, format_fraction, format_ratio, format_time

if TYPE_CHECKING:
    pass

_HEAD = ("GPUs", "time", "95 % band", "slowdown", "samples/s", "per GPU", "memory per GPU", "longest step")


class GpuLines(Lines):
    """As ``Lines``, but the slowdown is over numbers of GPUs, and ``sizes`` are numbers of GPUs."""

    axis = "gpus"

    def grid(self, way: Setup, options: Mapping[str, Any]) -> list[float]:
        """Numbers of GPUs at which a line is computed: the selectable numbers, and powers of two between.

        way, options  as in ``Lines.grid``, not used here
        """
        low, high = int(min(self._sizes)), int(max(self._sizes))
        return [*map(float, sorted({*self._sizes, *(1 << k for k in range(20) if low < 1 << k < high)}))]


def across_gpus(first: Answer, way: str | None, selected: tuple[str, ...]) -> Across:
    """How a page over numbers of GPUs is made.

    first     the row-wise projection of the question;  way  another sharding; None: row-wise
    selected  options for which the page has selectors
    """
    view = partial(gpu_view, way=way)
    return Across(first.gpu_count.table_bytes, GpuLines, view, lambda asked, options, lead: (), 0, selected)


def gpu_view(
    chosen: tuple[int, ...], workload: Mapping[str, Any], setup: Setup, asked: ViewsAsked, way: str | None
) -> View:
    """The view of a page over numbers of GPUs: headlines, the figure, and a table of how the tables scale.

    chosen    positions in the selectors;  workload, setup  the values at these positions
    way       the sharding option; None: row-wise, or the fastest if options are compared
    Limits: the sharding is not possible on one of the numbers of GPUs -> BadInputError
    """
    machine, known = setup.machine, {**asked.options, **setup.options, **asked.said(workload)}
    setting = asked.loaded.of(machine, setup.curves)
    told = known if machine.overrides else {**known, "setting": setting}  # as in ``view_of``
    own = project_each("gpus", asked.sizes.values, machine, **told)
    found = asked.rank_answers(chosen, own)
    answers = tuple(
        lead.answer if lead else sharded(base, way) for base, lead in zip(own, found, strict=True)
    )
    lines = list(asked.lines.of(setup, workload))
    if way is not None or any(found):
        label = f"{library_name(setup.curves.backend)} {way or 'best sharding'}"
        lines = [SlowdownLine(label, frame_of(answers), style=1), *lines[:1]]
    first = OVER_GPUS.draw(lines=lines, asked=answers[asked.sizes.start])
    titles = {} if isinstance(first, Missing) else {first.name: tuple(sentence(lines, a) for a in answers)}
    cards = asked.cards(chosen, answers, found)
    rows = [_HEAD, *map(_scaling, answers)]
    if any(found):
        ways = ["sharding", *(lead.answer.sharding if lead else ROW_WISE for lead in found)]
        rows = [(*row[:-1], each, row[-1]) for row, each in zip(rows, ways, strict=True)]
    return View(chosen, cards, (first,), titles, answers, found, tuple(rows))


def sharded(base: Answer, way: str | None) -> Answer:
    """The projection of the same tables on the same GPUs with the sharding ``way``; None: ``base`` itself.

    Limits: the sharding is not possible -> BadInputError that says why
    """
    if way is None or base.gpus == 1:
        return base
    (answer,) = answer_shardings(base, [way])
    if isinstance(answer, Impossible):
        raise BadInputError(
            f"{way} is not possible on {counted(base.gpus, 'GPU')}: {answer.why}.",
            "give other numbers with --gpus, or another --sharding; project --sharding all compares them.",
        )
    return answer


def _scaling(answer: Answer) -> tuple[str, ...]:
    """A row of the table ``_HEAD``: GPUs, time, band, slowdown, samples per second, memory, longest step."""
    longest, count = max(answer.steps, key=lambda step: step.time_s), answer.gpu_count
    rate = answer.samples_per_s
    return (
        format_count(answer.gpus),
        format_time(answer.time_s),
        band(answer.totals["low_s"], answer.totals["high_s"]),
        format_ratio(answer.slowdown),
        samples_words(rate),
        samples_words(rate / answer.gpus),
        format_bytes(count.memory_bytes, binary=False) + ("" if count.fits else ": does not fit"),
        f"{longest.label}, {format_fraction(longest.share)}",
    )
