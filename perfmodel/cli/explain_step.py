"""``perfmodel explain STEP``: the equation of a step of a projection, or of its slowdown."""

from __future__ import annotations

import typer

from perfmodel.cli.output import emit, emit_cited, emit_json
from perfmodel.cli.question import question_of
from perfmodel.cli.suggest import Typed, answerable
from perfmodel.cli.workload import ALL, checked_sharding
from perfmodel.errors import BadInputError
from perfmodel.passes.explanation import Explanation
from perfmodel.projections import Projection
from perfmodel.projections.explain_slowdown import WHOLE, explain_slowdown
from perfmodel.projections.explain_step import explain_step
from perfmodel.report.explanation_text import explanation_text, number_text
from perfmodel.report.projection_text import headline
from perfmodel.report.terminal import paragraph

_DEFAULT_TABLE_SIZE = "10TB"
_ROW_WISE = "A step of the row-wise pass, as project has it. --plan FILE: a step of that plan."


def explain_the_step(context: typer.Context) -> None:
    """A step of the answer of ``perfmodel project``, or all of them together.

    Limits: no such step -> BadInputError with those that there are
    """
    asked = dict(context.params)
    step, as_json = asked["step"], asked["as_json"]
    names = ("sharding", "reduction", "local_memory", "tier", "remote_memory")
    way = checked_sharding(*(asked[name] for name in names))
    if way == ALL:
        raise BadInputError(
            "--sharding all has the steps of many shardings.", "name one of them, e.g. --sharding table-wise"
        )
    if all(asked[name] is None for name in ("table_size", "gpus", "model")):
        asked["table_size"] = _DEFAULT_TABLE_SIZE
    typed = Typed.of(asked["machine"], asked["calibration"], asked["backend"])
    question = question_of(asked)
    question.check_gpus()

    words, whole = ("perfmodel", "explain", step), step.strip().lower() in WHOLE

    def instead() -> str:
        check = explain_slowdown if whole else lambda answer: explain_step(answer, step)
        return answerable(words, typed, question, check)

    with question.advised(instead):
        answer = question.answer()
        if whole:
            _emit_whole(answer, way, typed, as_json)
            return
        found = explain_step(answer, step) if way is None else _of_way(answer, way, step, typed)
    if as_json:
        emit_json("explain", **found.to_dict())
        return

    first = "" if way is not None else f"{paragraph(_ROW_WISE)}\n"
    emit_cited(f"{first}{explanation_text(found)}")


def _emit_whole(base: Projection, way: str | None, typed: Typed, as_json: bool) -> None:
    """How the steps make up the slowdown, of row-wise or of another way."""
    answer, numbers = base, explain_slowdown(base)
    if way is not None:
        from perfmodel.cli.shardings import one_way
        from perfmodel.plan.as_projection import projection_of

        answer = one_way(base, way, typed.line).answer or base
        numbers = explain_slowdown(answer, *[projection_of] * 3) if answer is not base else numbers
    if as_json:
        title, *_ = headline(answer).split("  ")
        emit_json("explain", title=title, numbers=[each.to_dict() for each in numbers])
        return
    emit("\n\n".join([headline(answer), *map(number_text, numbers)]))


def _of_way(answer: Projection, way: str, step: str, typed: Typed) -> Explanation:
    from perfmodel.cli.shardings import explain_way

    return explain_way(answer, way, step, typed.line)
