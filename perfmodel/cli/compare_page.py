"""``perfmodel report --compare A B``: one page that compares two calibrations or two machines."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from perfmodel.cli.choices import other_keywords, texts_of, workload_selectors
from perfmodel.cli.output import emit
from perfmodel.cli.page_file import check_place, deliver, write, wrote
from perfmodel.cli.question import LISTS, Question, question_of
from perfmodel.cli.typed_line import TypedLine
from perfmodel.cli.waiting_line import Progress
from perfmodel.errors import BadInputError
from perfmodel.projections.comparison import whole
from perfmodel.question.pages import PICTURES
from perfmodel.report.figures.registry import COMPARED
from perfmodel.report.page.comparison_card import finding
from perfmodel.report.page.views import combinations
from perfmodel.report.terminal import paragraph
from perfmodel.schema.calibration import list_calibrations
from perfmodel.schema.files import unknown_name
from perfmodel.schema.home import LATEST
from perfmodel.schema.machine import list_machines
from perfmodel.units import counted, format_per_second

if TYPE_CHECKING:
    from perfmodel.report.figures.compare import Pair
    from perfmodel.report.page.comparison_page import Side
    from perfmodel.report.page.parts import Page

_DEFAULTS = {"html": "compare.html", "markdown": "compare.md", **dict.fromkeys(PICTURES, "compare")}
_NOT_OF_THE_PAGE = ("out", "force", "as_json", "compare")
_ONE_EACH = ("backend", "clock", "reduction")


def compare_page(context: typer.Context) -> None:
    """Write the page that compares two machines (names or files), or two calibrations (files, runs, ids).

    context  of the running ``perfmodel report``, whose options apply to both
    Limits: a machine and a calibration -> BadInputError;  no data for the question -> NoCalibrationError
    """
    typed = context.params
    names = typed["compare"]
    _refuse(names, typed)
    file_format = str(typed["file_format"])
    out = typed["out"] or Path(_DEFAULTS[file_format])
    check_place(out, file_format, COMPARED.shows, force=typed["force"])
    pair, page = comparison(typed, TypedLine.of(context).text(_NOT_OF_THE_PAGE, ("--compare", *names)))
    if typed["as_json"] or file_format in PICTURES:
        deliver(page, out, file_format, typed["as_json"], compare=list(names), **_record(pair))
        return
    size = write(page, out, file_format)
    said = [page.card.sentence, *_held(pair)]
    emit("\n\n".join([*map(paragraph, said), wrote(out, size, file_format)]))


def _held(pair: Pair) -> Iterator[str]:
    """A sentence if the sides use different numbers of GPUs: how many samples per second each processes."""
    if pair.a.gpus != pair.b.gpus:
        sides = [
            f"{letter} {counted(each.gpus, 'GPU')}, {format_per_second(each.samples_per_s, 'samples')}"
            for letter, _, each in pair.sides
        ]
        each_gpu = counted(int(pair.a.work.batch[0]), "sample")
        yield f"A batch has {each_gpu} on each GPU, so more GPUs process more in it: {'; '.join(sides)}."


def comparison(params: Mapping[str, Any], command: str) -> tuple[Pair, Page]:
    """The answers of both sides, and the page that compares them.

    params   options of ``perfmodel report`` or ``figure`` by name, as they were typed
    command  the command that makes the page again
    Limits: as ``compare_page``
    """
    from perfmodel.report.page.comparison_page import asked_pair, comparison_page, views

    names = params["compare"]
    kind = "machine" if _refuse(names, params) else "calibration"
    typed = {**params, **{name: texts_of(params[name]) for name in LISTS}, **_one_each(params)}
    sizes, workload = workload_selectors(typed)
    questions = [question_of({**typed, kind: name}) for name in names]
    for question in questions:
        question.check_gpus(*sizes.values)
    a, b = (_side(question, kind) for question in questions)
    if a.name == b.name:
        a, b = (replace(side, name=f"{side.name} ({name})") for side, name in zip((a, b), names, strict=True))
    selectors = (*workload, sizes)
    pair = asked_pair(
        (a, b), sizes.values[sizes.start], {one.name: one.values[one.start] for one in workload}
    )
    found = list(Progress(len(combinations(selectors)), "views").over(views((a, b), sizes, workload)))
    return pair, comparison_page((a, b), pair, selectors, found, command)


def _one_each(typed: Mapping[str, Any]) -> dict[str, str | None]:
    """The library, clock and exchange that apply to both sides; None: not typed.

    Limits: several values of an option were typed -> BadInputError
    """
    found: dict[str, str | None] = {}
    for name in _ONE_EACH:
        values = [part.strip() for text in texts_of(typed[name]) or [] for part in text.split(",")]
        if len(values) > 1:
            raise BadInputError(
                f"--compare and several of --{name} cannot be combined: {', '.join(values)}.",
                f"a page of two has one for both: --{name} {values[0]}.",
            )
        found[name] = values[0] if values else None
    return found


def _refuse(names: Sequence[str], typed: Mapping[str, Any]) -> bool:
    """Whether both names are machines; True: two machines, False: two calibrations.

    Limits: equal names, a machine and a calibration, --machine or --calibration -> BadInputError
    """
    first, second = map(_is_machine, names)
    for option in ("machine", "calibration"):
        if typed[option]:
            raise BadInputError(f"--compare and --{option} cannot be combined.", "--compare names A and B.")
    if names[0] == names[1]:
        raise BadInputError(f"--compare {' '.join(names)}: both are the same.", "name two to compare.")
    if first != second:
        machine, calibration = names if first else reversed(names)
        raise BadInputError(
            f"--compare {' '.join(names)}: {machine} is a machine and {calibration} a calibration.",
            "name two machines or two calibrations; perfmodel calibrations lists those of a machine.",
        )
    return first


def _is_machine(name: str) -> bool:
    """Whether a name is a machine's, not a calibration's. Limits: neither -> error with similar names"""
    if name in list_machines() or name.endswith(".toml"):
        return True
    known = [LATEST, *list_calibrations()]
    if name in known or name.endswith(".json") or os.path.exists(name):
        return False
    raise unknown_name("--compare machine or calibration", name, [*list_machines(), *known])


def _side(question: Question, kind: str) -> Side:
    from perfmodel.report.page.comparison_page import Side

    with question.advised():
        setting = question.setting()
    shown = question.machine.name if kind == "machine" else setting.links.calibrations[0]
    return Side(shown, question.machine, setting, other_keywords(question))


def _record(pair: Pair) -> dict[str, Any]:
    """The comparison for JSON: a and b (name, machine, times …), ratio with its band, verdict, finding."""
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
            "samples_per_s": answer.samples_per_s,
            "slowdown": answer.slowdown,
        }
        for side, label, answer in pair.sides
    }
    verdict = {"ratio": ratio, "ratio_low": low, "ratio_high": high, "verdict": str(batch.verdict)}
    return {**record, **verdict, "finding": finding(pair)}
