"""``perfmodel explain STEP --plan FILE``: the equation of a step of a plan in a file."""

from __future__ import annotations

import shlex
from pathlib import Path

import typer

from perfmodel.cli.chosen import advice, calibration_of, library_of, machine_of
from perfmodel.cli.explain import OF_PLAN
from perfmodel.cli.output import emit_cited, emit_json
from perfmodel.cli.plan_made_for import as_made, ids_as_made
from perfmodel.cli.plan_options import is_training, numbers_of
from perfmodel.cli.typed_line import TypedLine
from perfmodel.plan import Evaluator, PlanTables
from perfmodel.plan.explain_step import explain_plan_step
from perfmodel.plan.for_torchrec.files import read_any_plan
from perfmodel.plan.made_for import MadeFor
from perfmodel.question.groups import OBJECTIVES, default_optimizer
from perfmodel.report.explanation_text import explanation_text

_TYPED = tuple(name for name in OF_PLAN if name not in ("plan_file", "as_json"))


def explain_line(typed: TypedLine, step: str, file: Path) -> str:
    """The command that explains a step of the plan in ``file``, with the typed options that apply to it."""
    kept = [word for name, words in typed.options if name in _TYPED for word in words]
    return shlex.join(["perfmodel", "explain", step.replace("_", "-"), "--plan", str(file), *kept])


def explain_step_of_plan(context: typer.Context) -> None:
    """Print the equation of a step of the plan in a file, with the bytes of the plan's busiest GPU.

    context  holds the options of ``plan`` that apply to a plan in a file
    Limits: no tables -> BadInputError
    """
    of_file = as_made(context, context.params["plan_file"], leave=("reserve",))
    asked = of_file.values
    texts = {name: asked[name] for name in ("model", "gpus", "batch")} | {"effort": None, "time_limit": None}
    numbers = numbers_of(asked["plan_file"], **texts)
    training = is_training(asked["objective"] or OBJECTIVES[0])
    calibration = calibration_of(asked["calibration"], asked["backend"], asked["clock"])
    box = machine_of(asked["machine"], asked["settings"], calibration)
    library = library_of(box, asked["backend"], calibration)

    with advice(box, library, asked["clock"]):
        tables = PlanTables.load(numbers["model"], ids_as_made(asked))
        plan, sets = read_any_plan(asked["plan_file"], tables)
        evaluator = Evaluator.on(
            box,
            tables,
            numbers["batch"],
            numbers["gpus"] or plan.gpus,
            backend=library,
            clock=asked["clock"],
            scenario=asked["scenario"],
            calibration=calibration,
            id_dtype=asked["id_dtype"],
            payload=asked["payload"],
            kernels=asked["kernels"],
            optimizer=asked["optimizer"] or default_optimizer(training=training),
            training=training,
            sets=sets,
        )
        of_file.tell(MadeFor.of(evaluator))
        found = explain_plan_step(evaluator, plan, evaluator.cost(plan), asked["step"])
    if asked["as_json"]:
        emit_json("explain", **found.to_dict())
        return

    emit_cited(explanation_text(found))
