"""``perfmodel explain load``: the equation behind each number of ``perfmodel load``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from perfmodel.cli.explain_collective import only_of
from perfmodel.cli.load_answer import LoadAnswer, answered
from perfmodel.cli.output import emit_cited, emit_json
from perfmodel.cli.typed_line import TypedLine
from perfmodel.errors import BadInputError
from perfmodel.passes.schemes import ROW_WISE
from perfmodel.report.load_explanation_text import load_explanation_text
from perfmodel.service.explanation import explain_load

LOAD = "load"
_SERVICE = (
    *("qps", "p99", "wait", "samples", "replicas", "overlap", "arrivals", "requests", "seed", "stragglers"),
    *("host", "prices"),
)
_NOT_MEANT = ("op", "size", "objective", "optimizer")
_EXAMPLE = "perfmodel explain load --table-size 10TB --qps 500k --p99 10ms"
_FOR = "For explain load: "

GivenQpsOption = Annotated[
    str | None, typer.Option("--qps", metavar="N", help=f"{_FOR}requests per second, e.g. 500k.")
]
GivenP99Option = Annotated[
    str | None, typer.Option("--p99", metavar="TIME", help=f"{_FOR}limit on the 99th percentile, e.g. 10ms.")
]
GivenWaitOption = Annotated[
    str | None, typer.Option("--wait", metavar="TIME", help=f"{_FOR}longest wait of a batch, as in load.")
]
GivenSamplesOption = Annotated[
    str, typer.Option("--samples", metavar="N", help=f"{_FOR}samples per request.")
]
GivenReplicasOption = Annotated[
    str | None, typer.Option("--replicas", metavar="N", help=f"{_FOR}copies of the tables.")
]
GivenOverlapOption = Annotated[
    bool | None,
    typer.Option(
        "--overlap/--no-overlap", help=f"{_FOR}whether the steps of two batches overlap.", show_default=False
    ),
]
GivenArrivalsOption = Annotated[
    Path | None, typer.Option("--arrivals", metavar="FILE", help=f"{_FOR}file of arrival times.")
]
GivenRequestsOption = Annotated[
    int,
    typer.Option(
        "--requests", metavar="N", min=10_000, max=10_000_000, help=f"{_FOR}requests simulated at each load."
    ),
]
GivenSeedOption = Annotated[
    int, typer.Option("--seed", metavar="N", min=0, help=f"{_FOR}seed of the arrivals and slow ranks.")
]
GivenStragglersOption = Annotated[
    bool,
    typer.Option(
        "--stragglers/--no-stragglers",
        help=f"{_FOR}whether some ranks are slower than others.",
        show_default=False,
    ),
]
GivenHostOption = Annotated[
    str | None,
    typer.Option("--host", metavar="NAME", help=f"{_FOR}include the host: eager, compiled or graph."),
]


GivenPricesOption = Annotated[
    Path | None, typer.Option("--prices", metavar="FILE", help=f"{_FOR}TOML file of your prices.")
]


def is_load(step: str) -> bool:
    """Whether what is explained is a service, and not a step."""
    return step.strip().lower() == LOAD


def only_of_load(context: typer.Context, step: str) -> None:
    """Limits: options of a service where a step is explained -> BadInputError"""
    for name, words in TypedLine.of(context).options:
        if name in _SERVICE:
            raise BadInputError(f"{words[0]} applies to load, not to {step}.", f"e.g. {_EXAMPLE}")


def explain_the_load(context: typer.Context) -> None:
    """Every number of the answer of ``perfmodel load``, with the same options.

    context  of ``perfmodel explain``, whose options it has
    Limits: an option that load does not have -> BadInputError that says so
    """
    only_of(context, [name for name in context.params if name not in _NOT_MEANT], "a service")
    asked = answered({**context.params, "plan": context.params["plan_file"]})
    found = explain_load(asked.answer, asked.hourly)
    if context.params["as_json"]:
        emit_json("explain", machine=asked.setting.machine.name, **found.to_dict())
        return
    command = partial(_of_step, TypedLine.of(context), asked, found.full_batch)
    emit_cited(load_explanation_text(found, command, context.params["host"]))


def _of_step(typed: TypedLine, asked: LoadAnswer, batch: int, step: str) -> str:
    """What to type for a step of the pass at a full batch, on the GPUs of a replica; "": there is no plan."""
    way = asked.answer.question.served.way
    if not way and not asked.planned:
        return ""
    beside = asked.question.local_memory or asked.planned
    gpus = [] if beside else ["--gpus", str(asked.answer.question.served.gpus)]
    sharding = [] if way in ("", ROW_WISE) else ["--sharding", way]
    more = [step, "--batch", str(batch), *gpus, *sharding]
    return typed.text(without=(*_SERVICE, "step", "batch", "gpus", "sharding", "as_json"), more=more)
