"""Choices for the reader of a page, from the options: table sizes, workloads, libraries, …."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from perfmodel.answer import Question
from perfmodel.cli.chosen import library_of, load_calibration_file, machine_of
from perfmodel.cli.options import check_distinct, count_values, size_values, split_values
from perfmodel.cli.question import LISTS, question_of, short_below
from perfmodel.engine.schemes import ALL, AUTO, ROW_WISE
from perfmodel.question.pages import LISTED
from perfmodel.report.page.parts import Selector
from perfmodel.report.page.setups import Curves, Wanted
from perfmodel.schema.calibration import list_calibrations, load_calibration
from perfmodel.schema.evidence import LAW_BACKENDS, Clock
from perfmodel.schema.files import unknown_name
from perfmodel.schema.run_folders import calibrations_of, measured_groups, run_folder
from perfmodel.units import format_bytes, format_count, parse_bytes, parse_number

Texts = list[str] | None

FIRST = {name: texts.split(",")[0] for name, texts in LISTED.items()}


def workload_selectors(texts: Mapping[str, Texts]) -> tuple[Selector, tuple[Selector, ...]]:
    """Selectors of the table size, and of batch, pooling and dim; each starts at the value typed first.

    texts  for table_size, batch, pooling and dim, the texts as typed; None: default values
    """
    first = _selector("table_bytes", "table size", "table_size", texts, size_values, _size_words)
    return first, (
        _selector("batch", "batch", "batch", texts, count_values, format_count),
        _selector("pooling", "pooling", "pooling", texts, _poolings, "{:g}".format),
        _selector("dim", "dim", "dim", texts, count_values, format_count),
    )


def _poolings(given: list[str], option: str) -> list[float]:
    return [parse_number(text, option) for text in split_values(given, option)]


def _size_words(value: float) -> str:
    return format_bytes(value, binary=False)


def page_question(typed: Mapping[str, Any]) -> Question:
    """The question that a page or a figure opens with: of every typed list, the first value.

    typed  all options by name
    Without a table size: the largest table that fits on the measured ranks, else the default size.
    """
    texts = {name: typed[name] or text for name, text in FIRST.items()}
    if typed.get("global_batch") is not None:
        texts["batch"] = typed["batch"]
    question = question_of({**typed, **texts})
    measured = [] if typed["table_size"] else measured_sizes(question)
    return page_question({**typed, "table_size": f"{measured[0]:.0f}"}) if measured else question


def measured_sizes(question: Question) -> list[float]:
    """Default table sizes [byte] with the user's own calibration: the capacity of its groups of ranks.

    The largest group comes first.
    Limits: no calibration, a library with laws for any number of GPUs, no group of ranks -> []
    """
    known = load_calibration(question.calibration) if question.calibration else None
    if known is None or known.backend in LAW_BACKENDS:
        return []
    groups = [n for n in measured_groups(known) or measured_groups(known, ("all_to_all",)) if n > 1]
    usable = question.machine.value("hbm_bytes") * (1 - question.reserve)
    return [short_below(count * usable) for count in reversed(groups)]


def _selector(
    name: str,
    label: str,
    key: str,
    texts: Mapping[str, Texts],
    parse: Callable[[list[str], str], Any],
    words: Callable[[float], str],
) -> Selector:
    option = f"--{key.replace('_', '-')}"
    given = texts.get(key) or [LISTED[key]]
    values = sorted(set(parse(given, option)))
    first = parse([given[0].split(",")[0].split("..")[0]], option)[0]
    shown, plain = tuple(words(v) for v in values), tuple(f"{v:.15g}" for v in values)
    if key == "table_size":
        plain = tuple(_short_size(v, text) for v, text in zip(values, shown, strict=True))
    start = values.index(first)
    return Selector(name, label, tuple(values), shown, start, option, plain, bool(texts.get(key)))


def _short_size(value: float, words: str) -> str:
    """A size as the option takes it: ``10TB`` if ``words``, its text, is exact, else the number of bytes."""
    text = words.replace(" ", "")
    return text if parse_bytes(text, "--table-size") == value else f"{value:.0f}"


def texts_of(value: object) -> Texts:
    """The texts of an option as a list, also for an option with a single value; None: it was not typed."""
    if isinstance(value, (list, tuple)):
        return [str(item) for item in value] or None
    return None if value is None else [str(value)]


def lists_of(typed: Mapping[str, Any]) -> dict[str, Texts]:
    """The options that become selectors, as lists of texts by name. None: not typed.

    Limits: an unknown clock -> error with similar names
    """
    lists = {name: texts_of(typed[name]) for name in (*LISTS, "sharding")}
    known = [str(clock) for clock in Clock]
    for value in _names("clock", lists):
        if value.replace("_", "-") not in known:
            raise unknown_name("clock", value, known)
    return lists


def wanted(question: Question, texts: Mapping[str, Texts], typed: Mapping[str, Any]) -> Wanted:
    """Machines, libraries, clocks and exchanges that the page shall offer; the question's come first.

    texts  for machine, backend and clock, the texts as typed;  typed  all options by name
    """
    given = {name: tuple(dict.fromkeys(_names(name, texts))) for name in ("backend", "clock")}
    machine, file = question.machine, question.calibration
    machines = [machine_of(name, typed["settings"], file) for name in _names("machine", texts)[1:]]
    check_distinct([machine.name, *(one.name for one in machines)], "--machine")
    libraries = [library_of(machine, name, file) for name in given["backend"][1:]]
    listed = frozenset(name for name in ("machine", *given) if texts.get(name))
    return Wanted(
        (machine, *machines),
        (question.backend, *libraries),
        given["clock"],
        own=_own(typed["calibration"], file),
        listed=listed,
        best=typed["sharding"] in (None, ALL),
    )


def _names(name: str, texts: Mapping[str, Texts]) -> list[Any]:
    given = texts.get(name)
    if not given:
        return []
    if name == "machine" and len(given) == 1 and os.path.isfile(given[0]):
        return list(given)  # a path may hold a comma
    return split_values(given, f"--{name}")


def _own(calibration: str | None, file: str | None) -> tuple[Curves, ...]:
    """Libraries and clocks for which the user's calibration or run has curves, the requested one first.

    calibration  as typed;  file  the calibration file that it means; None: no such calibration
    """
    if file is None:
        return ()
    one = load_calibration_file(file)
    first = Curves(str(one.backend), str(one.clock), file)
    folder = None if calibration in list_calibrations() else run_folder(str(calibration))
    if folder is None:
        return (first,)
    more = [Curves(str(c.backend), str(c.clock), str(path)) for path, c in calibrations_of(folder).items()]
    return tuple(dict.fromkeys([first, *more]))


def with_options(selectors: Sequence[Selector], typed: Mapping[str, Texts]) -> tuple[Selector, ...]:
    """The selectors of setups, each with the command-line option that sets it, and its texts.

    A machine file is named by its path. typed  the texts of each option, as typed
    """
    names = _names("machine", typed)
    values = {selector.name: selector.values for selector in selectors}
    machines = [*names, *(machine.name for machine in values["machine"][len(names) :])]
    own = (typed["sharding"] or [ROW_WISE])[0]
    texts = {
        "machine": tuple(map(shlex.quote, machines)),
        "sharding": tuple(own if way == AUTO else way for way in values["sharding"]),
    }
    return tuple(
        replace(
            selector,
            option=f"--{selector.name}",
            texts=texts.get(selector.name, selector.values),
            typed=bool(typed.get(selector.name)),
        )
        for selector in selectors
    )
