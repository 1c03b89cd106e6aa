"""``perfmodel report --gpus`` and ``--model``: the page of the same tables on more and more GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from perfmodel.cli.build_page import page_of
from perfmodel.cli.choices import OF_SELECTORS, texts_of, wanted, workload_selectors
from perfmodel.cli.ids import ids_of
from perfmodel.cli.options import advice, check_gpus, count_values, size_values
from perfmodel.cli.output import warn
from perfmodel.cli.shardings import ALL, checked_sharding
from perfmodel.cli.suggest import Typed
from perfmodel.cli.typed_line import TypedLine
from perfmodel.cli.workload import check_model, reserve_of
from perfmodel.errors import BadInputError, PerfmodelError

if TYPE_CHECKING:
    from perfmodel.project import Projection
    from perfmodel.report.page.parts import Page, Selector
    from perfmodel.report.page.setups import Wanted

_LISTS = ("table_size", "gpus", "batch", "pooling", "dim", "machine", "backend", "clock")
_SELECTED = ("gpus", "sharding", *(name for name in OF_SELECTORS if name != "table_size"))
_NODES = (1, 2, 8, 16)
"""Of the numbers of GPUs to choose from where nobody lists them."""


def gpus_page(params: Mapping[str, Any], line: TypedLine) -> Page:
    """The page, from the options of ``perfmodel report`` or of ``perfmodel project``.

    params  by name, as they were typed;  line  the command of ``report`` that makes the page
    Limits: several table sizes, or tables that do not fit the fewest GPUs -> BadInputError
    """
    from perfmodel.report.page.gpu_contents import across_gpus

    typed = {name: texts_of(params[name]) for name in _LISTS}
    typed["reduction"] = texts_of(params["reduction"]) if "reduction" in dict(line.options) else None
    reduction = (typed["reduction"] or ["auto"])[0]
    named = checked_sharding(params["sharding"], reduction)
    way = None if named == ALL else named
    if params["model"] is not None:
        check_model({**params, **typed})
    kept = reserve_of(params["reserve"])
    asked = wanted(typed, params["settings"], params["calibration"])
    options = {name: value for name, value in _options(params, kept).items() if value is not None}
    numbers = _numbers(typed)
    options |= _tables(typed, params["model"], asked, kept, numbers)
    _, workload = workload_selectors({**typed, "table_size": None})
    if params["model"] is not None:
        workload = workload[:1]
    with advice(asked.machines[0], asked.backends[0], next(iter(asked.clocks), None)):
        first, numbers, left_out = _possible(options, workload, asked, numbers, way)
        selector = _selector(numbers or _default_numbers(first), typed=bool(numbers))
        if way is not None:
            asked = replace(asked, reductions=("auto",), listed=asked.listed | {"reduction"})
        across = across_gpus(first, selector, way, _planning(params, first), _SELECTED)
        page = page_of(selector, workload, asked, options, typed, line, across)
    for text in left_out:
        warn(text)
    page = replace(page, alerts=(*page.alerts, *left_out))
    return page if way is None else _named(page, way)


def _options(params: Mapping[str, Any], kept: float) -> dict[str, Any]:
    """Keywords of ``perfmodel.project`` that no selector has."""
    from perfmodel.schema.workload import id_dtype_bytes
    from perfmodel.units import parse_count

    return {
        "reserve": kept,
        "gpus_per_node": params["gpus_per_node"],
        "scenario": params["scenario"],
        "payload": params["payload"],
        "distribution": ids_of(params["alpha"], params["distribution"]),
        "table_count": parse_count(params["tables"], "--tables") if params["tables"] is not None else None,
        "dtype": params["dtype"],
        "id_bytes": id_dtype_bytes(params["id_dtype"]),
    }


def _numbers(typed: Mapping[str, list[str] | None]) -> list[int]:
    """Numbers of GPUs as they were typed, the asked one first; empty: as many as the tables need."""
    given = typed["gpus"]
    if not given:
        return []
    first = count_values([given[0].split(",")[0].split("..")[0]], "--gpus")[0]
    found = count_values(given, "--gpus")
    _check_most(max(found))
    return [first, *(number for number in found if number != first)]


def _check_most(gpus: int) -> None:
    from perfmodel.collectives.estimate import LARGEST_GPUS
    from perfmodel.units import format_count

    if gpus > LARGEST_GPUS:
        raise BadInputError(
            f"--gpus {format_count(gpus)} is more than this model describes.",
            f"at most {format_count(LARGEST_GPUS)}.",
        )


def _tables(
    typed: Mapping[str, list[str] | None], model: str | None, asked: Wanted, kept: float, numbers: list[int]
) -> dict[str, Any]:
    """The model, or the size of equal tables: what was typed, or what the fewest GPUs hold."""
    if model is not None:
        return {"tables": model}
    machine = asked.machines[0]
    if typed["table_size"] is None:
        if not numbers:
            raise BadInputError(
                "--sharding of which tables?", "give --table-size, --gpus or --model, e.g. --table-size 10TB"
            )
        return {"table_bytes": min(numbers) * machine.value("hbm_bytes") * (1 - kept)}
    sizes = size_values(typed["table_size"], "--table-size")
    if len(sizes) > 1:
        raise BadInputError(
            f"{len(sizes)} table sizes are given: a page over numbers of GPUs is of one.",
            "give one --table-size, or leave out --gpus and --sharding.",
        )
    check_gpus(sizes[0], machine, kept)
    return {"table_bytes": sizes[0]}


def _possible(
    options: Mapping[str, Any],
    workload: tuple[Selector, ...],
    asked: Wanted,
    numbers: list[int],
    way: str | None,
) -> tuple[Projection, list[int], list[str]]:
    """The row-wise answer, the numbers of GPUs that have one, and what is said of those that are left out.

    Limits: several numbers, and none of them is possible -> the error of the first
    """
    from perfmodel.report.page.gpu_views import sharded
    from perfmodel.units import counted

    if len(numbers) < 2:
        return _first(options, workload, asked, numbers), numbers, []
    found: dict[int, Projection] = {}
    refused: dict[int, PerfmodelError] = {}
    for gpus in numbers:
        try:
            found[gpus] = _first(options, workload, asked, [gpus])
            sharded(found[gpus], way)
        except PerfmodelError as error:
            found.pop(gpus, None)
            refused[gpus] = error
    if not found:
        raise refused[numbers[0]]
    said = [f"{counted(n, 'GPU')} left out: {error.message}" for n, error in refused.items()]
    return next(iter(found.values())), list(found), said


def _first(
    options: Mapping[str, Any], workload: tuple[Selector, ...], asked: Wanted, numbers: list[int]
) -> Projection:
    """The row-wise answer of the question."""
    from perfmodel.project import project_one

    known = {selector.name: selector.values[selector.start] for selector in workload}
    own = asked.own[0] if asked.own else None
    known |= {**options, "backend": asked.backends[0], "clock": next(iter(asked.clocks), None)}
    known |= {"reduction": next(iter(asked.reductions), "auto"), "calibration": own and own.calibration}
    return project_one(machine=asked.machines[0], gpus=numbers[0] if numbers else None, **known)


def _default_numbers(first: Projection) -> list[int]:
    """What the tables need first, and then more."""
    from perfmodel.collectives.estimate import LARGEST_GPUS

    node = first.gpu_count.gpus_per_node
    more = [nodes * node for nodes in _NODES if nodes * node > first.gpus]
    if len(more) < 2:
        more = [2 * first.gpus, 4 * first.gpus]
    return [first.gpus, *(number for number in more if number <= LARGEST_GPUS)]


def _selector(numbers: list[int], *, typed: bool) -> Selector:
    from perfmodel.report.page.parts import Selector
    from perfmodel.units import format_count

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
    kept = () if asked and asked.reserve else ("--reserve", "0")
    return " ".join([typed.line(("perfmodel", "plan"), shown), *kept, "--report", "plan.html"])


def _named(page: Page, way: str) -> Page:
    """The page with its sharding where exchanges of row-wise would be chosen."""
    own: dict[str, Any] = {"words": (way,), "option": "--sharding", "texts": (way,), "typed": True}
    shown = (replace(s, **own) if s.name == "reduction" else s for s in page.selectors)
    return replace(page, selectors=tuple(shown))
