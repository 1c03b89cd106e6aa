"""Builds the page of ``perfmodel report``: all its views, over table sizes or over numbers of GPUs."""

from __future__ import annotations

from collections.abc import Mapping

from perfmodel.answer import Question
from perfmodel.answer.ranking import Ranking
from perfmodel.cli.choices import with_options
from perfmodel.cli.question import LISTS
from perfmodel.cli.typed_line import TypedLine
from perfmodel.cli.waiting_line import Progress
from perfmodel.report.page.parts import Page, Selector, View
from perfmodel.report.page.setups import Loaded, Wanted, offer, with_reasons
from perfmodel.report.page.views import MOST_VIEWS, Across, NoView, ViewsAsked, combinations, views, workloads

NOT_OF_THE_PAGE = ("out", "force", "as_json", "as_csv", "report")
"""Options that do not change the content of a page; its command leaves them out."""


def page_of(
    question: Question,
    sizes: Selector,
    workload: tuple[Selector, ...],
    asked: Wanted,
    typed: Mapping[str, list[str] | None],
    line: TypedLine,
    across: Across | None = None,
    lead: Ranking | None = None,
) -> Page:
    """Make the page of ``perfmodel report``, with all its views.

    sizes, workload  selectors of the table size, and of batch, pooling and dim
    asked   machines, libraries, clocks and exchanges to offer
    typed   options that become selectors, as lists of texts;  line  the command as it was typed
    across  how views are made over numbers of GPUs; None: views are over ``sizes``
    lead    the fastest sharding of the question; None: it is not known yet
    """
    from perfmodel.report.page.alerts import alerts
    from perfmodel.report.page.contents import across_sizes
    from perfmodel.report.page.question_page import question_page

    chosen = {selector.name: selector.values[selector.start] for selector in workload}
    options = question.list_keywords("machine", *_OF_A_SETUP, sizes.name, *chosen)
    loaded = Loaded(question.kernels)
    across = across or across_sizes(sizes, (*LISTS, "sharding"))
    room = MOST_VIEWS - len(combinations(workload)) + 1
    offered = offer(asked, loaded, room, across.largest_bytes, question.reserve)
    lines = across.lines(sizes.values, workloads(workload), loaded, options, asked.own)
    all_of = ViewsAsked(sizes, workload, offered, loaded, lines, options, lead, asked.best)
    parts = Progress(len(all_of.places()) + across.blocks, "views and figures")
    made = list(parts.over(views(all_of, across.view)))
    found = [view for view in made if isinstance(view, View)]
    refused = {**offered.refused, **{none.way: none.why for none in made if isinstance(none, NoView)}}
    setup = next(iter(offered.setups.values()))
    start = tuple(selector.start for selector in workload)
    first = next(view for view in found if view.chosen == (*start, 0, 0, 0, 0))
    answer, lead = first.answers[sizes.start], first.leads[sizes.start]
    fixed = tuple(parts.over(across.fixed(answer, {**options, **setup.options, **chosen}, lead)))
    ways = with_reasons(offered.selectors, [view.chosen[len(workload) :] for view in found], refused)
    return question_page(
        answer,
        (sizes, *workload, *with_options(ways, typed)),
        found,
        line.text(without=NOT_OF_THE_PAGE),
        lead,
        fixed=fixed,
        alerts=alerts(lead.answer if lead else answer, setup.curves.calibration),
        again=line.text(without=(*NOT_OF_THE_PAGE, *across.selected)),
        refused=refused,
    )


_OF_A_SETUP = ("backend", "clock", "calibration")
