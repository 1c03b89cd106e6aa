"""``perfmodel explain STEP``: the equation of a step of ``project``, or of its slowdown."""

from __future__ import annotations

import typer

from perfmodel.cli.output import emit, emit_cited, emit_json
from perfmodel.cli.question import question_of
from perfmodel.cli.typed_line import TypedNames
from perfmodel.cli.workload import checked_sharding
from perfmodel.errors import BadInputError
from perfmodel.passes.schemes import ALL, ROW_WISE
from perfmodel.plan.as_projection import projection_of
from perfmodel.projections import Projection
from perfmodel.projections.explain_slowdown import WHOLE, explain_slowdown
from perfmodel.report.explanation_text import explanation_text, number_text
from perfmodel.report.projection_text import headline
from perfmodel.report.terminal import paragraph

_DEFAULT_TABLE_SIZE = "10TB"
_OTHERS = "--sharding NAME: of another, --plan FILE: of a plan."


def explain_the_step(context: typer.Context) -> None:
    """Print the equation of a step of ``perfmodel project``, or of the slowdown.

    context  holds the options of ``project``
    Limits: no such step -> BadInputError that lists the steps, or the sharding that has it
    """
    asked = dict(context.params)
    step, as_json = asked["step"], asked["as_json"]
    chosen = checked_sharding(asked["sharding"], asked["local_memory"], asked["remote_memory"])
    if chosen == ALL:
        raise BadInputError(
            "--sharding all has the steps of many shardings.", "name one of them, e.g. --sharding table-wise"
        )
    if all(asked[name] is None for name in ("table_size", "gpus", "model")):
        asked["table_size"] = _DEFAULT_TABLE_SIZE
    typed = TypedNames.of(asked["machine"], asked["calibration"], asked["backend"])
    question = question_of(asked)
    question.check_gpus()
    from perfmodel.cli.shardings import advising_enough, explain_way, shown_of

    whole = step.strip().lower() in WHOLE
    way = None if asked["sharding"] is None else chosen or ROW_WISE
    with question.advised(), advising_enough(question):
        base, shown = shown_of(question.answer(), question, way, typed.line)
        if whole:
            _emit_whole(shown.answer or base, shown.way, as_json)
            return
        found = explain_way(base, shown, step, typed.line)
    if as_json:
        emit_json("explain", sharding=shown.way, **found.to_dict())
        return

    first = "" if way else f"{paragraph(f'A step of {shown.way}, as project has it. {_OTHERS}')}\n"
    emit_cited(f"{first}{explanation_text(found)}")


def _emit_whole(answer: Projection, way: str, as_json: bool) -> None:
    """Print how the steps add up to the slowdown. way  the sharding"""
    numbers = explain_slowdown(answer, *([] if way == ROW_WISE else [projection_of] * 3))
    if as_json:
        title, *_ = headline(answer).split("  ")
        emit_json("explain", title=title, numbers=[each.to_dict() for each in numbers])
        return
    emit("\n\n".join([headline(answer), *map(number_text, numbers)]))
