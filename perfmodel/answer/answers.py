"""The projections that answer questions, sharded row-wise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from perfmodel.answer.inputs import equal_share
from perfmodel.answer.keywords import prepare
from perfmodel.answer.projection import Projection, projection_at
from perfmodel.answer.question import Question
from perfmodel.engine.grid import costed, project_grid
from perfmodel.errors import PerfmodelError
from perfmodel.question.groups import DEFAULT_MACHINE
from perfmodel.schema.machine import Machine

_COMPARED = ("gpus", "gpus_needed", "time_s", "baseline_time_s", "low_s", "high_s")


def answer_question(question: Question) -> Projection:
    """The projection that answers a question. Limits: as ``projections.prepare``"""
    (answer,) = answer_all([question])
    return answer


def answer_on(question: Question, gpus: int) -> Projection:
    """The projection on this number of GPUs. Limits: ``total`` is not divisible by it -> BadInputError"""
    batch = question.batch if question.total is None else equal_share(question.total, gpus)
    return answer_question(replace(question, gpus=gpus, batch=batch))


def answer_all(questions: Sequence[Question], name: str = "") -> list[Projection]:
    """The projections of questions that differ in one value at most, costed together.

    name  of the value that differs: table_bytes, gpus ...
    """
    first, known = questions[0], questions[0].keywords()
    if len(questions) > 1:
        known[name] = [getattr(question, name) for question in questions]
    forward, work = prepare(None, **known)
    cost = costed(forward, work)
    answers = []
    for place, question in enumerate(questions):
        answer = replace(projection_at(forward, work, first.reserve, cost, place), question=question)
        idle = [f"{key} changes nothing in this answer" for key in _idle_what_ifs(question, answer)]
        answers.append(replace(answer, notes=(*answer.notes, *idle)))
    return answers


def project_one(workload: Any = None, machine: str | Machine = DEFAULT_MACHINE, **options: Any) -> Projection:
    """One configuration in full, sharded row-wise, in the keywords of ``perfmodel.project``."""
    return answer_question(Question.of(workload, machine, **options))


def project_each(
    name: str, values: Sequence[float], machine: str | Machine = DEFAULT_MACHINE, **options: Any
) -> list[Projection]:
    """``project_one`` for each value of a keyword (``table_bytes``, ``gpus`` ...), costed together.

    Limits: values that have no answer -> the error of the first
    """
    first = Question.of(None, machine, **{**options, name: values[0]})
    changes: list[dict[str, Any]] = [{name: value} for value in values]
    questions = [replace(first, **change) for change in changes]
    try:
        return answer_all(questions, name)
    except PerfmodelError:
        if len(values) == 1:
            raise
        return [answer_question(question) for question in questions]


def _idle_what_ifs(question: Question, answer: Projection) -> Iterator[str]:
    """Machine values that were given and have no effect on the answer, so that nobody relies on them."""
    if question.setting is not None:
        return
    machine = question.machine
    for key in machine.what_ifs:
        others = {name: machine.value(name) for name in machine.overrides - {key}}
        without = replace(question, machine=machine.unchanged().with_overrides(others))
        try:
            columns = project_grid(*prepare(None, **without.keywords())).columns
        except PerfmodelError:
            continue
        if all(float(columns[name][0]) == answer.totals[name] for name in _COMPARED):
            yield key
