"""``perfmodel explain load``: the equation behind each number of ``perfmodel load``."""

from __future__ import annotations

from functools import partial

import typer

from perfmodel.cli.load_answer import LoadAnswer, answered
from perfmodel.cli.output import emit_cited, emit_json
from perfmodel.cli.typed_line import TypedLine
from perfmodel.report.load_explanation_text import load_explanation_text
from perfmodel.service.explanation import explain_load

_SERVICE = (
    *("qps", "p99", "wait", "samples", "replicas", "overlap", "arrivals", "requests", "seed", "stragglers"),
    *("host", "prices"),
)


def explain_the_load(context: typer.Context) -> None:
    """Print the equation of each number of ``perfmodel load``.

    context  holds the options of ``load``
    """
    asked = answered(context.params)
    found = explain_load(asked.answer, asked.hourly)
    if context.params["as_json"]:
        emit_json("explain", machine=asked.setting.machine.name, **found.to_dict())
        return
    command = partial(_of_step, TypedLine.of(context), asked, found.full_batch)
    emit_cited(load_explanation_text(found, command, context.params["host"]))


def _of_step(typed: TypedLine, asked: LoadAnswer, batch: int, step: str) -> str:
    """The command that explains a step of a full batch; "" if there is neither a sharding nor a plan.

    typed  the command line;  batch  samples per GPU;  step  its name
    """
    way = asked.answer.question.served.way
    if not way and not asked.planned:
        return ""
    beside = asked.question.local_memory or asked.planned
    gpus = [] if beside else ["--gpus", str(asked.answer.question.served.gpus)]
    sharding = ["--sharding", way] if way else []
    more = [step, "--batch", str(batch), *gpus, *sharding]
    return typed.text(without=(*_SERVICE, "step", "batch", "gpus", "sharding", "as_json"), more=more)
