"""``perfmodel report --compare A B``: one page of two calibrations, or of two machines."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from perfmodel.cli.choices import OF_SELECTORS, other_keywords, texts_of, workload_selectors
from perfmodel.cli.options import check_most, count_values
from perfmodel.cli.output import ProgressBar, emit, emit_json
from perfmodel.cli.page_file import check_place, write
from perfmodel.cli.pictures import draw
from perfmodel.cli.question import Question, question_of
from perfmodel.cli.typed_line import TypedLine
from perfmodel.cli.workload import check_model
from perfmodel.collectives.choose import choose_calibration
from perfmodel.errors import BadInputError, PerfmodelError
from perfmodel.project.comparison import whole
from perfmodel.report.figures.compare_axis import BY_GPUS
from perfmodel.report.figures.names import COMPARED
from perfmodel.report.page.comparison_card import finding
from perfmodel.report.page.parts import Selector
from perfmodel.report.page.views import combinations
from perfmodel.report.picture_files import PICTURES
from perfmodel.schema.calibration import list_calibrations
from perfmodel.schema.evidence import Backend
from perfmodel.schema.files import unknown_name
from perfmodel.schema.home import LATEST
from perfmodel.schema.machine import list_machines, load_machine
from perfmodel.units import format_bytes, format_count

if TYPE_CHECKING:
    from perfmodel.report.figures.compare import Pair
    from perfmodel.report.page.comparison_page import Side
    from perfmodel.report.page.parts import Page

_DEFAULTS = {"html": "compare.html", "markdown": "compare.md", **dict.fromkeys(PICTURES, "compare")}
_NOT_OF_THE_PAGE = ("out", "force", "as_json", "compare")
_ONE_EACH = ("backend", "clock", "reduction")
_OF_BOTH = ("machine", "calibration")
_TOML = ".toml"


def compare_page(context: typer.Context) -> None:
    """Write the page of A and B: two machines (names or TOML files), or two calibrations (files, runs, ids,
    ``latest``). The other options are those of ``report``, of its running command.

    Limits: one of each -> BadInputError;  nothing known for what is asked -> NoCalibrationError
    """
    typed = context.params
    names = typed["compare"]
    _refuse(names, [_is_machine(name) for name in names], typed)
    file_format = str(typed["file_format"])
    out = typed["out"] or Path(_DEFAULTS[file_format])
    check_place(out, file_format, COMPARED.figures, force=typed["force"])
    pair, page = comparison(typed, TypedLine.of(context).text(_NOT_OF_THE_PAGE, ("--compare", *names)))
    if file_format in PICTURES:
        draw(page.blocks(), out, file_format, typed["as_json"])
        return
    size = write(page, out, file_format)
    if typed["as_json"]:
        record = {**_record(pair), "blocks": page.contents()}
        emit_json("report", compare=list(names), file=str(out), bytes=size, **record)
        return

    emit(f"{page.card.sentence}\n\nWrote {out} ({format_bytes(size, binary=False)}).")


def comparison(params: Mapping[str, Any], command: str) -> tuple[Pair, Page]:
    """Both answers, and the page of them.

    params   of ``perfmodel report`` or ``figure`` by name, as they were typed
    command  makes the page again
    Limits: as ``compare_page``
    """
    names = params["compare"]
    typed = {**params, **{name: texts_of(params[name]) for name in OF_SELECTORS}}
    one = _one_each(typed)
    kinds = [_is_machine(name) for name in names]
    _refuse(names, kinds, typed)
    own = {**typed, **one, "gpus": None}
    if params["model"] is not None:
        check_model(typed)
        own |= dict.fromkeys(("pooling", "dim", "table_size"))
    questions = [
        (question_of({**own, "machine" if is_machine else "calibration": name}), is_machine)
        for name, is_machine in zip(names, kinds, strict=True)
    ]
    sides = [_side(*each) for each in questions]
    if params["model"] is not None:
        both = tuple(replace(side, axis=BY_GPUS) for side in _told_apart(sides, names))
        _, (batches, *_) = workload_selectors({**typed, "table_size": None})
        return _page((both[0], both[1]), _gpus(both, params["gpus"], batches), (batches,), command)
    sizes, workload = workload_selectors(typed)
    for question, _ in questions:
        question.check_gpus(*sizes.values)
    return _page(_told_apart(sides, names), sizes, workload, command)


def _gpus(sides: Sequence[Side], typed: str | None, batches: Selector) -> Selector:
    """The numbers of GPUs to choose from; as many as the tables need on both, unless they are typed.

    Limits: fewer than the tables need on A or on B -> BadInputError
    """
    from perfmodel.report.page.comparison_page import least_gpus

    asked = {batches.name: batches.values[batches.start]}
    least = max(least_gpus(side, asked) for side in sides)
    numbers = count_values([typed], "--gpus") if typed is not None else [_whole(sides, least)]
    check_most("gpus", max(numbers), "--gpus")
    if min(numbers) < least:
        raise BadInputError(
            f"--gpus {min(numbers)}: the tables need {least} GPUs on A or on B.", f"at least --gpus {least}."
        )
    first = count_values([typed.split(",")[0].partition("..")[0]], "--gpus")[0] if typed else numbers[0]
    texts = tuple(map(str, numbers))
    words = tuple(map(format_count, numbers))
    return Selector(
        "gpus", "GPUs", tuple(numbers), words, numbers.index(first), "--gpus", texts, typed is not None
    )


def _whole(sides: Sequence[Side], least: int) -> int:
    """Whole nodes of both."""
    node = max(side.node for side in sides)
    return -(-least // node) * node


def _one_each(typed: Mapping[str, Any]) -> dict[str, str | None]:
    """Library, clock and exchange of both sides: one each."""
    found: dict[str, str | None] = {}
    for name in _ONE_EACH:
        values = [part.strip() for text in typed[name] or [] for part in text.split(",")]
        if len(values) > 1:
            raise BadInputError(
                f"--compare and several of --{name} cannot be combined: {', '.join(values)}.",
                f"a page of two has one for both: --{name} {values[0]}.",
            )
        found[name] = values[0] if values else None
    return found


def _refuse(names: Sequence[str], machines: Sequence[bool], typed: Mapping[str, Any]) -> None:
    """What a page of two cannot be of."""
    for option in _OF_BOTH:
        if typed[option]:
            raise BadInputError(f"--compare and --{option} cannot be combined.", "--compare names A and B.")
    if names[0] == names[1]:
        raise BadInputError(f"--compare {' '.join(names)}: both are the same.", "name two to compare.")
    if machines[0] == machines[1]:
        return
    machine, calibration = names if machines[0] else reversed(names)
    raise BadInputError(
        f"--compare {' '.join(names)}: {machine} is a machine and {calibration} a calibration.",
        "name two machines or two calibrations" + _instead(names, machines, machine),
    )


def _instead(names: Sequence[str], machines: Sequence[bool], machine: str) -> str:
    """The line with the calibration that the machine takes; nothing where it has none of its own."""
    try:
        found = load_machine(machine)
        chosen, borrowed = choose_calibration(found, Backend(found.default_backend), None)
    except (PerfmodelError, ValueError):
        return "."
    if borrowed:
        return "."
    words = [
        chosen.calibration_id if is_machine else name
        for name, is_machine in zip(names, machines, strict=True)
    ]
    return f"; {machine} takes this one:\n  {shlex.join(['perfmodel', 'report', '--compare', *words])}"


def _is_machine(name: str) -> bool:
    """Whether a name is a machine. Limits: neither that nor a calibration -> BadInputError"""
    if name in list_machines() or name.endswith(_TOML):
        return True
    known = [LATEST, *list_calibrations()]
    if name in known or name.endswith(".json") or _exists(name):
        return False
    raise unknown_name("--compare machine or calibration", name, [*list_machines(), *known])


def _exists(name: str) -> bool:
    try:
        return Path(name).exists()
    except (OSError, ValueError):
        return False


def _side(question: Question, is_machine: bool) -> Side:
    from perfmodel.report.page.comparison_page import Side

    with question.advised():
        setting = question.setting()
    shown = question.machine.name if is_machine else setting.links.calibrations[0]
    return Side(shown, question.machine, setting, other_keywords(question))


def _told_apart(sides: Sequence[Side], names: Sequence[str]) -> tuple[Side, Side]:
    """Both sides; where they are called alike, with what was typed."""
    a, b = sides
    if a.name != b.name:
        return a, b
    first, second = (
        replace(side, name=f"{side.name} ({name})") for side, name in zip(sides, names, strict=True)
    )
    return first, second


def _page(
    sides: tuple[Side, Side], sizes: Selector, workload: tuple[Selector, ...], command: str
) -> tuple[Pair, Page]:
    from perfmodel.report.page.comparison_page import (
        FIXED,
        asked_pair,
        comparison_page,
        fixed_blocks,
        views,
    )

    selectors = (*workload, sizes)
    bar = ProgressBar(len(combinations(selectors)) + FIXED, "report")
    pair = asked_pair(sides, sizes, workload)
    found = list(bar.over(views(sides, sizes, workload)))
    fixed = list(bar.over(fixed_blocks(sides, pair)))
    bar.close()
    return pair, comparison_page(sides, pair, selectors, found, fixed, command)


def _record(pair: Pair) -> dict[str, Any]:
    """The finding in numbers."""
    batch = whole(pair.a, pair.b)
    low, ratio, high = batch.ratio
    record: dict[str, Any] = {
        side.lower(): {
            "name": label.removeprefix(f"{side} "),
            "machine": answer.setting.machine.name,
            "calibrations": list(answer.calibrations),
            "gpus": answer.gpus,
            "time_s": answer.time_s,
            "low_s": answer.totals["low_s"],
            "high_s": answer.totals["high_s"],
            "slowdown": answer.slowdown,
        }
        for side, label, answer in pair.sides
    }
    verdict = {"ratio": ratio, "ratio_low": low, "ratio_high": high, "verdict": str(batch.verdict)}
    return {**record, **verdict, "finding": finding(pair)}
