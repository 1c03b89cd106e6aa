"""Makes the page of ``perfmodel report --gpus`` or ``--model``: fixed tables over numbers of GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from perfmodel.answer import Answer, Question, answer_on, answer_row_wise
from perfmodel.answer.question import read_sharding
from perfmodel.answer.ranking import Ranking, is_ranked, rank_on_fewest
from perfmodel.cli.build_page import page_of
from perfmodel.cli.choices import lists_of, wanted, workload_selectors
from perfmodel.cli.options import count_values, size_values
from perfmodel.cli.question import LISTS, advised, check_model, check_size, question_of
from perfmodel.cli.typed_line import TypedLine
from perfmodel.engine.schemes import ALL, AUTO, ROW_WISE
from perfmodel.errors import BadInputError, PerfmodelError
from perfmodel.report.page.gpu_views import across_gpus, sharded
from perfmodel.report.page.parts import Page, Selector
from perfmodel.report.page.views import said
from perfmodel.units import format_count

_SELECTED = ("gpus", "sharding", *(name for name in LISTS if name != "table_size"))
_TIMES, _NODES = 8, 16
"""Without a list, the numbers of GPUs double up to 8 times the first number or 16 nodes."""


def gpus_page(params: Mapping[str, Any], line: TypedLine, lead: Ranking | None = None) -> Page:
    """The page of fixed tables over numbers of GPUs, for ``perfmodel report`` or ``perfmodel project``.

    params  the options by name, as typed;  line  the command of ``report`` that makes the page
    lead    the fastest sharding of the question; None: it is not known yet
    Limits: several table sizes, or tables that do not fit the fewest GPUs -> BadInputError
    """
    lists = lists_of(params)
    way = read_sharding(params["sharding"])
    way = None if way == ROW_WISE else way
    if way == ALL:
        raise BadInputError(
            "--sharding all: a page over numbers of GPUs is of one sharding.",
            "name one, e.g. --sharding grid; perfmodel project --sharding all compares them.",
        )
    if params["model"] is not None:
        check_model({**params, **lists})
    question = question_of({**params, "gpus": None})
    asked, numbers = wanted(question, lists, params), numbers_of(params["gpus"])
    question = _with_tables(question, lists["table_size"], numbers)
    _, workload = workload_selectors({**lists, "table_size": None})
    if params["model"] is not None:
        workload = workload[:1]
    if way is not None:
        asked = replace(asked, ways=(AUTO,))
    with advised(question):
        chosen = {selector.name: selector.values[selector.start] for selector in workload}
        start = replace(question, **said(workload, chosen), gpus=next(iter(numbers), None))
        first = answer_row_wise(start)
        if asked.best and is_ranked(first):
            lead = lead or rank_on_fewest(first)
            first = lead.base
        found = _possible(start, first, numbers, way)
        selector = _selector(found, typed=bool(numbers))
        across = across_gpus(first, way, _SELECTED)
        page = page_of(question, selector, workload, asked, lists, line, across, lead)
    return page if way is None else _named(page, way)


def numbers_of(typed: str | None) -> list[int]:
    """The numbers of GPUs in ``--gpus``: the first typed number, then the others, fewest first.

    Limits: no ``--gpus`` -> []
    """
    if typed is None:
        return []
    first = count_values([typed.split(",")[0].split("..")[0]], "--gpus")[0]
    return [first, *(number for number in count_values([typed], "--gpus") if number != first)]


def _with_tables(question: Question, sizes: list[str] | None, numbers: list[int]) -> Question:
    """The question with the tables of the page: the model, the typed size, or what the fewest GPUs hold.

    sizes    table sizes as typed; None: not typed;  numbers  of GPUs
    """
    if question.tables is not None:
        return question
    if sizes is None:
        if not numbers:
            raise BadInputError(
                "--sharding of which tables?", "give --table-size, --gpus or --model, e.g. --table-size 10TB"
            )
        with advised(question):
            filled = answer_row_wise(replace(question, gpus=min(numbers))).gpu_count
        return replace(question, table_bytes=filled.table_bytes)
    found = size_values(sizes, "--table-size")
    if len(found) > 1:
        raise BadInputError(
            f"{len(found)} table sizes are given: a page over numbers of GPUs is of one.",
            "give one --table-size, or leave out --gpus and --sharding.",
        )
    check_size(question)
    return question


def _possible(asked: Question, first: Answer, numbers: list[int], way: str | None) -> list[int]:
    """The numbers of GPUs on which the tables fit, the number of ``first`` first.

    numbers  as typed; fewer than two: they double from the number of ``first``;  way  the sharding
    Limits: a typed number is impossible -> BadInputError;  a doubled number is impossible -> left out
    """
    top = max(_TIMES * first.gpus, _NODES * first.gpu_count.gpus_per_node)
    doubled = [first.gpus << k for k in range(top.bit_length()) if first.gpus << k <= top]
    found = []
    for gpus in numbers if len(numbers) > 1 else doubled:
        try:
            sharded(answer_on(asked, gpus), way)
            found.append(gpus)
        except PerfmodelError:
            if gpus in numbers or gpus == first.gpus:
                raise
    return found


def _selector(numbers: list[int], *, typed: bool) -> Selector:
    values = tuple(sorted(numbers))
    words, texts = tuple(map(format_count, values)), tuple(map(str, values))
    return Selector("gpus", "GPUs", values, words, values.index(numbers[0]), "--gpus", texts, typed)


def _named(page: Page, way: str) -> Page:
    """The page, whose selector of exchanges shows the sharding ``way`` instead."""
    shown = (replace(s, words=(way,), texts=(way,)) if s.name == "sharding" else s for s in page.selectors)
    return replace(page, selectors=tuple(shown))
