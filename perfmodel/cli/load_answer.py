"""Computes the answer of ``perfmodel load``; ``perfmodel explain load`` uses it too."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfmodel.cli.chosen import calibration_file
from perfmodel.cli.host_option import check_host
from perfmodel.cli.load_options import served_sharding, service_options, service_question
from perfmodel.cli.options import PLACED, apart
from perfmodel.cli.question import Question, question_of
from perfmodel.cli.shardings import advising_enough
from perfmodel.effort import tell
from perfmodel.errors import BadInputError
from perfmodel.passes.settings import Setting
from perfmodel.schema.distributions import UNIFORM
from perfmodel.schema.prices import read_prices
from perfmodel.service.best_pass import Served, sharded_load
from perfmodel.service.hourly import HourlyCost, hourly_cost
from perfmodel.service.served import LARGEST_BATCH, ServedPass, planned_pass, projected_pass
from perfmodel.service.service_load import ServiceLoad, service_load
from perfmodel.service.sharded import BATCHES, runs
from perfmodel.service.stragglers import NONE, ranks_behind, spread_of
from perfmodel.units import counted

if TYPE_CHECKING:
    from perfmodel.passes.cost import Evaluator


@dataclass(frozen=True, eq=False)
class LoadAnswer:
    """The answer of ``perfmodel load`` with its inputs.

    hourly   the costs per hour;  setting  machine and calibration;  question  the tables and their ids
    file     the user's own calibration; None: a shipped calibration
    planned  whether the passes follow a plan file
    """

    answer: ServiceLoad
    hourly: HourlyCost
    setting: Setting
    question: Question
    file: str | None
    planned: bool = False


def answered(typed: Mapping[str, Any]) -> LoadAnswer:
    """Compute the answer of ``perfmodel load`` for typed options. typed  their values by name

    Limits: values that cannot be used or combined, a load that cannot be served -> BadInputError
    """
    memory = {name: typed[name] for name in ("local_memory", "remote_memory")}
    host, plan = typed["host"], typed["plan"]
    check_host(host, **memory)
    apart("--plan", plan, PLACED, tier=typed["tier"], **memory)
    way = served_sharding(typed.get("sharding"), plan, typed["reduction"], tier=typed["tier"], **memory)
    asked = service_options(typed)
    if all(typed[name] is None for name in ("table_size", "gpus", "model")):
        raise BadInputError("which tables?", "give --table-size, --gpus or --model, e.g. --table-size 10TB")
    batch = asked["batch"] and min(asked["batch"], LARGEST_BATCH)
    question = replace(question_of({**typed, "batch": None}), batch=batch)
    question.check_gpus()
    known = None if typed["prices"] is None else read_prices(typed["prices"], question.machine.name)
    file = calibration_file(question.calibration)
    spread = spread_of(question.calibration if file else None) if typed["stragglers"] else NONE
    with question.advised(), advising_enough(question):
        setting = question.setting()

        def simulated(served: ServedPass) -> ServiceLoad:
            about = service_question(asked, served, spread, ranks_behind(setting, served))
            return service_load(about, tell)

        serve = Served(
            host=host,
            calibration=file,
            answer=simulated,
            samples_per_s=None if asked["qps"] is None else asked["qps"] * asked["samples"],
            limit_s=asked["limit_s"],
            most=asked["batch"] or math.inf,
        )
        answer = serve.by(setting, _planned(plan, question)) if plan else _sharded(question, way, serve)
    hourly = hourly_cost(answer, setting.machine.name, known)
    return LoadAnswer(answer, hourly, setting, question, file, plan is not None)


def _sharded(question: Question, way: str, serve: Served) -> ServiceLoad:
    """The answer for a sharding, on the number of GPUs that ``perfmodel project`` takes.

    way  its name, or ``best``;  serve  simulates the service for a pass
    """
    return sharded_load(
        way,
        question.answer(),
        lambda gpus, batch: replace(question, batch=batch, total=None).on_gpus(gpus),
        partial(projected_pass, question.keywords("gpus", "batch")),
        serve,
    )


def _planned(path: Path, question: Question) -> ServedPass:
    """The pass of a service that runs the plan in a file."""
    from perfmodel.passes.allowed_tiers import Below
    from perfmodel.passes.cost import Evaluator
    from perfmodel.plan import PlanTables
    from perfmodel.plan.for_torchrec.files import read_any_plan

    if question.tables is None:
        raise BadInputError(
            "--plan needs the model whose tables it places.", "give the --model that it was made for."
        )
    known = PlanTables.load(question.tables, question.distribution or UNIFORM)
    given, sets = read_any_plan(path, known)
    if question.gpus is not None and question.gpus != given.gpus:
        raise BadInputError(
            f"the plan is for {counted(given.gpus, 'GPU')}, --gpus {question.gpus} is another number.",
            "leave --gpus out, or give a plan for as many.",
        )
    setting, below = question.setting(), Below.of_plan(given.tiers)
    ids = {4: "int32", 8: "int64"}[question.id_bytes or 8]
    rest: dict[str, Any] = {
        "gpus_per_node": question.gpus_per_node,
        "id_dtype": ids,
        "payload": question.payload,
    }

    def evaluator(batch: int) -> Evaluator:
        return Evaluator(setting, known, batch, given.gpus, sets=sets, below=below, **rest)

    usable = setting.machine.value("hbm_bytes") * (1 - question.reserve)
    served = planned_pass(evaluator, given, usable, BATCHES)
    return replace(served, way="", runs=runs(given), sharding=f"of the plan {path.name}")
