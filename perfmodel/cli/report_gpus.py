"""``perfmodel report --gpus`` and ``--model``: the page of the same tables on more and more GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from perfmodel.cli.build_page import page_of
from perfmodel.cli.choices import OF_SELECTORS, lists_of, texts_of, wanted, workload_selectors
from perfmodel.cli.options import count_values, size_values
from perfmodel.cli.output import warn
from perfmodel.cli.question import Question, question_of
from perfmodel.cli.suggest import Typed
from perfmodel.cli.typed_line import TypedLine
from perfmodel.cli.workload import ALL, check_model, checked_sharding
from perfmodel.collectives.estimate import LARGEST_GPUS
from perfmodel.errors import BadInputError, PerfmodelError
from perfmodel.report.page.gpu_views import sharded
from perfmodel.report.page.parts import Page, Selector
from perfmodel.units import counted, format_count

if TYPE_CHECKING:
    from perfmodel.project import Projection

_SELECTED = ("gpus", "sharding", *(name for name in OF_SELECTORS if name != "table_size"))
_NODES = (1, 2, 8, 16)
"""Of the numbers of GPUs to choose from where nobody lists them."""


def gpus_page(params: Mapping[str, Any], line: TypedLine) -> Page:
    """The page, from the options of ``perfmodel report`` or of ``perfmodel project``.

    params  by name, as they were typed;  line  the command of ``report`` that makes the page
    Limits: several table sizes, or tables that do not fit the fewest GPUs -> BadInputError
    """
    from perfmodel.report.page.gpu_contents import across_gpus

    lists = lists_of(params, line)
    named = checked_sharding(params["sharding"], (lists["reduction"] or ["auto"])[0], tier=params.get("tier"))
    way = None if named == ALL else named
    if params["model"] is not None:
        check_model({**params, **lists})
    question = question_of({**params, "gpus": None})
    asked, numbers = wanted(question, lists, params), _numbers(params["gpus"])
    question = _with_tables(question, lists["table_size"], numbers)
    _, workload = workload_selectors({**lists, "table_size": None})
    if params["model"] is not None:
        workload = workload[:1]
    with question.advised():
        first, numbers, left_out = _possible(question, workload, numbers, way)
        selector = _selector(numbers or _default_numbers(first), typed=bool(numbers))
        if way is not None:
            asked = replace(asked, reductions=("auto",), listed=asked.listed | {"reduction"})
        across = across_gpus(first, selector, way, _planning(params, first), _SELECTED)
        page = page_of(question, selector, workload, asked, lists, line, across)
    for text in left_out:
        warn(text)
    page = replace(page, alerts=(*page.alerts, *left_out))
    return page if way is None else _named(page, way)


def _numbers(typed: str | None) -> list[int]:
    """Numbers of GPUs as they were typed, the asked one first; empty: as many as the tables need."""
    if typed is None:
        return []
    first = count_values([typed.split(",")[0].split("..")[0]], "--gpus")[0]
    found = count_values([typed], "--gpus")
    _check_most(max(found))
    return [first, *(number for number in found if number != first)]


def _check_most(gpus: int) -> None:
    if gpus > LARGEST_GPUS:
        raise BadInputError(
            f"--gpus {format_count(gpus)} is more than this model covers.",
            f"at most {format_count(LARGEST_GPUS)}.",
        )


def _with_tables(question: Question, sizes: list[str] | None, numbers: list[int]) -> Question:
    """With the model, or the size of equal tables: what was typed, or what the fewest GPUs hold."""
    if question.tables is not None:
        return question
    if sizes is None:
        if not numbers:
            raise BadInputError(
                "--sharding of which tables?", "give --table-size, --gpus or --model, e.g. --table-size 10TB"
            )
        with question.advised():
            filled = replace(question, gpus=min(numbers)).answer().gpu_count
        return replace(question, table_bytes=filled.table_bytes)
    found = size_values(sizes, "--table-size")
    if len(found) > 1:
        raise BadInputError(
            f"{len(found)} table sizes are given: a page over numbers of GPUs is of one.",
            "give one --table-size, or leave out --gpus and --sharding.",
        )
    question.check_gpus()
    return question


def _possible(
    question: Question, workload: tuple[Selector, ...], numbers: list[int], way: str | None
) -> tuple[Projection, list[int], list[str]]:
    """The row-wise answer, the numbers of GPUs that have one, and what is said of those that are left out.

    Limits: several numbers, and none of them is possible -> the error of the first
    """
    asked = replace(question, **{selector.name: selector.values[selector.start] for selector in workload})
    if len(numbers) < 2:
        return replace(asked, gpus=next(iter(numbers), None)).answer(), numbers, []
    found: dict[int, Projection] = {}
    refused: dict[int, PerfmodelError] = {}
    for gpus in numbers:
        try:
            found[gpus] = replace(asked, gpus=gpus).answer()
            sharded(found[gpus], way)
        except PerfmodelError as error:
            found.pop(gpus, None)
            refused[gpus] = error
    if not found:
        raise refused[numbers[0]]
    said = [f"{counted(n, 'GPU')} left out: {error.message}" for n, error in refused.items()]
    return next(iter(found.values())), list(found), said


def _default_numbers(first: Projection) -> list[int]:
    """What the tables need first, and then more."""
    node = first.gpu_count.gpus_per_node
    more = [nodes * node for nodes in _NODES if nodes * node > first.gpus]
    if len(more) < 2:
        more = [2 * first.gpus, 4 * first.gpus]
    return [first.gpus, *(number for number in more if number <= LARGEST_GPUS)]


def _selector(numbers: list[int], *, typed: bool) -> Selector:
    values = tuple(sorted(numbers))
    words, texts = tuple(map(format_count, values)), tuple(map(str, values))
    return Selector("gpus", "GPUs", values, words, values.index(numbers[0]), "--gpus", texts, typed)


def _planning(params: Mapping[str, Any], first: Projection) -> str:
    """The command that plans each table of the model."""
    names = {name: texts_of(params[name]) for name in ("machine", "calibration", "backend")}
    typed = Typed.of(*(texts[0].split(",")[0] if texts else None for texts in names.values()))
    forward = replace(first.forward, reduction="auto")
    asked = first.question
    given = {**asked.given, "gpus": first.gpus} if asked else {}
    shown = replace(first, question=replace(asked, forward=forward, given=given) if asked else None)
    kept = ("--reserve", "0") if asked and not asked.reserve else ()
    return " ".join([typed.line(("perfmodel", "plan"), shown), *kept, "--report", "plan.html"])


def _named(page: Page, way: str) -> Page:
    """The page with its sharding where exchanges of row-wise would be chosen."""
    own: dict[str, Any] = {"words": (way,), "option": "--sharding", "texts": (way,), "typed": True}
    shown = (replace(s, **own) if s.name == "reduction" else s for s in page.selectors)
    return replace(page, selectors=tuple(shown))
