"""The page of a question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perfmodel.answer import Answer
from perfmodel.answer.ranking import Ranking
from perfmodel.report.page.contents import question
from perfmodel.report.page.parts import Page, Selector, View
from perfmodel.report.page.provenance import provenance
from perfmodel.units import format_bytes, format_ratio


def question_page(
    asked: Answer,
    selectors: Sequence[Selector],
    views: Sequence[View],
    command: str,
    lead: Ranking | None,
    **rest: Any,
) -> Page:
    """The HTML page of a question: headline, lists to choose from (``selectors``), a view for each choice.

    asked  the projection that it opens with;  command  makes the page
    lead   the fastest sharding of ``asked``; None: shardings are not compared
    rest   further fields of ``Page``
    """
    size, answer = format_bytes(asked.gpu_count.table_bytes, binary=False), lead.answer if lead else asked
    where = f"{size} of embedding tables on {asked.setting.machine.name}"
    return Page(
        f"{where}: {format_ratio(answer.slowdown)}" if lead is None or lead.best else where,
        provenance(answer, command),
        tuple(views),
        command,
        tuple(selectors),
        question=question(lead.base if lead else asked, lead),
        **rest,
    )
