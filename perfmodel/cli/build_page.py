"""A page for the reader to choose in: all its views, over table sizes or over numbers of GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfmodel.cli.choices import OF_SELECTORS, with_options
from perfmodel.cli.output import Progress
from perfmodel.cli.typed_line import TypedLine

if TYPE_CHECKING:
    from perfmodel.project import Projection
    from perfmodel.report.figures.block import Block, Missing
    from perfmodel.report.page.assemble import Page
    from perfmodel.report.page.lines import Lines
    from perfmodel.report.page.selectors import Selector
    from perfmodel.report.page.setups import Wanted
    from perfmodel.report.page.views import Asked, ViewOf

NOT_OF_THE_PAGE = ("out", "force", "as_json", "as_csv", "report")
"""Options without which its command makes the same page."""


def page_of(
    sizes: Selector,
    workload: tuple[Selector, ...],
    asked: Wanted,
    options: Mapping[str, Any],
    typed: Mapping[str, list[str] | None],
    line: TypedLine,
    kind: Kind | None = None,
) -> Page:
    """All of a page.

    sizes  of tables, or what else ``kind`` is over;  typed, line  options as they were given
    """
    from perfmodel.report.page.assemble import Page
    from perfmodel.report.page.setups import Loaded, offer, with_reasons
    from perfmodel.report.page.views import MOST_VIEWS, NoView, combinations, views, workloads

    known, loaded = {name: value for name, value in options.items() if value is not None}, Loaded()
    kind = kind or _over_sizes(sizes)
    room = MOST_VIEWS - len(combinations(workload)) + 1
    offered = offer(asked, loaded, room, kind.largest_bytes, known.get("reserve", 0.0))
    lines = kind.lines(sizes.values, workloads(workload), loaded, known, asked.own)
    all_of = kind.asked(sizes, workload, offered, loaded, lines, known)
    bar = Progress(len(all_of.places()) + kind.blocks, "report")
    found, refused = [], dict(offered.refused)
    for view in views(all_of, kind.view):
        if isinstance(view, NoView):
            refused[view.way] = view.why
        else:
            found.append(view)
        bar.advance(1)
    setup = next(iter(offered.setups.values()))
    start = tuple(selector.start for selector in workload)
    first = next(view for view in found if view.chosen == (*start, 0, 0, 0, 0))
    fixed = []
    chosen = {selector.name: selector.values[selector.start] for selector in workload}
    for block in kind.fixed(first.answers[sizes.start], {**known, **setup.options, **chosen}):
        fixed.append(block)
        bar.advance(1)
    bar.close()
    ways = with_reasons(offered.selectors, [view.chosen[len(workload) :] for view in found], refused)
    return Page(
        sizes,
        (*workload, *with_options(ways, typed)),
        tuple(found),
        tuple(fixed),
        line.text(without=NOT_OF_THE_PAGE),
        alerts(setup.curves.calibration, first.answers[sizes.start]),
        line.text(without=(*NOT_OF_THE_PAGE, *kind.selected)),
        refused,
    )


@dataclass(frozen=True, eq=False)
class Kind:
    """What a page is over: sizes of tables, or numbers of GPUs."""

    largest_bytes: float  # of the tables
    lines: Callable[..., Lines]
    asked: Callable[..., Asked]
    view: ViewOf | None  # None: of table sizes
    fixed: Callable[[Projection, Mapping[str, Any]], Iterable[Block | Missing]]
    blocks: int  # how many these are, for the progress bar
    selected: tuple[str, ...]  # options of the selectors


def _over_sizes(sizes: Selector) -> Kind:
    from perfmodel.report.page.contents import FIXED, fixed_blocks
    from perfmodel.report.page.lines import Lines
    from perfmodel.report.page.views import Asked

    return Kind(max(sizes.values), Lines, Asked, None, fixed_blocks, FIXED, OF_SELECTORS)


def alerts(calibration: str | None, asked: Projection | None = None) -> tuple[str, ...]:
    """What a page says about the measurements behind it."""
    from perfmodel.report.page.alerts import alerts as found

    return found(asked, calibration)
