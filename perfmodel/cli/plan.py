"""``perfmodel plan``: the fastest sharding of each table, and its cost."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from perfmodel.cli.chosen import (
    advice,
    calibration_file,
    calibration_of,
    library_of,
    machine_of,
)
from perfmodel.cli.codes import STOPPED
from perfmodel.cli.dense import parse_dense, whole_of
from perfmodel.cli.options import apart, check_explained, count_values
from perfmodel.cli.output import (
    SaidError,
    emit,
    emit_explanation,
    emit_json,
    note,
    warn,
    warn_stopped,
)
from perfmodel.cli.page_file import write
from perfmodel.cli.plan_made_for import files_of, ids_as_made, take_options
from perfmodel.cli.plan_options import (
    OF_SEARCH,
    check_one_plan,
    check_out,
    limits_of,
    note_not_searched,
    numbers_of,
)
from perfmodel.cli.plan_progress import PlanProgress
from perfmodel.cli.plan_scaling import print_replicas, print_scaling
from perfmodel.cli.stopping import acknowledge, ctrl_c
from perfmodel.cli.typed_line import TypedLine
from perfmodel.effort import Deadline, tell
from perfmodel.engine.explained import ExplainedPass
from perfmodel.errors import BadInputError
from perfmodel.plan import Plan, PlanTables, write_plan
from perfmodel.plan.choices.constraints import parse_rules
from perfmodel.plan.for_torchrec import runnable as torchrec
from perfmodel.plan.for_torchrec.files import read_any_plan
from perfmodel.plan.outcome import Planned
from perfmodel.plan.question import PlanQuestion, costs_of
from perfmodel.plan.what_ifs import WhatIf, what_ifs
from perfmodel.question.groups import OBJECTIVES, is_training
from perfmodel.question.plans import PlanOptions
from perfmodel.report.page.plan_page import plan_page
from perfmodel.report.plan_text import plan_text
from perfmodel.units import format_fraction, format_time

if TYPE_CHECKING:
    from perfmodel.engine.training import WholeStep

_WEIGHTED = (
    "TorchRec's collection is weighted as a whole: the ids of tables without weights count with a weight "
    "of 1. To leave those out, plan weighted and other tables apart"
)
_WORTH_SAYING = 0.005  # as a share of the time
_OTHERS_SHARE = 0.25  # share of the effort, for a search without the limits of a format


def plan(context: typer.Context, options: PlanOptions) -> None:
    """Search a plan (which table is sharded how, on which GPUs), or price a given plan, and print it."""
    check_explained(options.explain, out=options.out)
    check_out(options.out, options.file_format)
    page = options.out if options.out is not None and options.out.suffix == ".html" else None
    saved = None if page else options.out
    typed = TypedLine.of(context)
    if options.plan_file is not None:
        note_not_searched([name for name, _ in typed.options])
    asked = take_options(context, options.plan_file)
    machine, objective, settings = asked["machine"], asked["objective"], asked["settings"]
    backend, clock, dense = asked["backend"], asked["clock"], asked["dense"]
    max_hbm, reserve = asked["max_hbm"], asked["reserve"]
    texts = {"model": asked["model"], "gpus": options.gpus, "batch": asked["batch"]}
    texts |= {"effort": options.effort, "global_batch": options.global_batch}
    numbers = {**numbers_of(options.plan_file, **texts), "ids": ids_as_made(asked)}
    of_one = {"plan": options.plan_file, "out": options.out, "dense": dense}
    of_one["explain"] = options.explain
    check_one_plan(numbers["many"], replicas=options.replicas, **of_one)
    apart("--replicas", options.replicas, "plan one copy, on fewer --gpus.", **of_one)
    rules = parse_rules(options.only or [])
    training = is_training(objective, "--objective")
    calibration = calibration_of(asked["calibration"], backend, clock)
    box = machine_of(machine, settings, calibration)
    library = library_of(box, backend, calibration)
    layers = None if dense is None else parse_dense(dense, box.name)
    file = calibration_file(calibration)
    left_out = ["objective", "out", *(OF_SEARCH if options.plan_file is not None else ())]
    objective = OBJECTIVES[not training]
    needs_file = options.file_format == "torchrec"
    new_file = ["--out", f"{objective}.json"] if needs_file else []
    other = typed.text(without=left_out, more=["--objective", objective, *new_file])
    with advice(box, library, clock):
        most, kept_back = limits_of(box, max_hbm, reserve)
        capped = most is not None and most < (1 - kept_back) * box.value("hbm_bytes")
        tables = PlanTables.load(numbers["model"], numbers["ids"])
        if options.file_format == "torchrec":
            torchrec.check_tables(tables)
        given, sets = None, None
        if options.plan_file is not None:
            domain = box.domain_gpus_of(box.gpus_per_node)
            given, sets = read_any_plan(
                options.plan_file, tables, numbers["gpus"], lambda gpus: min(gpus, domain)
            )
        question = PlanQuestion(
            tables=tables,
            machine=box,
            gpus=numbers["gpus"] or (given.gpus if given else 0),
            batch=numbers["batch"],
            total=numbers["total"],
            training=training,
            reserve=kept_back,
            most_bytes=most,
            rules=rules,
            for_torchrec=options.file_format == "torchrec",
            effort_s=numbers["effort_s"],
            costs=costs_of(
                {**asked, "backend": library, "calibration": calibration, "sets": sets},
                training=training,
            ),
        )
        kept_with = {"dense": dense, **files_of(asked)}
        made_for = question.made_for.model_copy(update=kept_with)
        try:
            if len(numbers["many"]) > 1:
                print_scaling(
                    question,
                    numbers["many"],
                    typed,
                    file,
                    as_json=options.as_json,
                )
                return
            if options.replicas is not None:
                copies = count_values([options.replicas], "--replicas")
                print_replicas(question, copies, typed, as_json=options.as_json)
                return
            answer, changes = _answer(question, given, with_changes=options.explain is None)
            answer = replace(answer, asked=made_for)
        except KeyboardInterrupt:
            note("\nstopped before there was a plan to print: the first takes a few seconds.")
            raise SaidError(STOPPED) from None
    if options.explain is not None:
        explained = ExplainedPass.from_plan(answer.evaluator, answer.plan, answer.found.cost.rows)
        emit_explanation("plan", explained.explain(options.explain), as_json=options.as_json)
        return
    if saved is not None:
        _write(answer, saved, options.file_format)
    saved = saved or options.plan_file
    again = "" if saved is not None else typed.text(without=["out"], more=["--out", "plan.json"])
    whole = whole_of(answer, layers)
    equation = _explaining_line(typed, answer.found.cost.limiting.name, saved)
    if page is not None:
        _write_page(answer, whole, page, typed, calibration, capped=capped)
    if options.as_json:
        samples = answer.evaluator.batch * answer.evaluator.gpus
        step = whole.to_dict(samples) if whole else None
        told = [change.to_dict() for change in changes]
        emit_json("plan", **answer.to_dict(), dense_step=step, changes=told, calibration_file=file)
    else:
        emit(plan_text(answer, file, again, whole, capped, other, changes, equation))
        for line in answer.evaluator.setting.notes:
            warn(line)
    if options.out is not None:
        note(f"wrote {options.out}")
    if tables.partly_weighted and answer.evaluator.model.sets is not None:
        warn(_WEIGHTED)
    if options.file_format == "torchrec" and answer.found.stopped not in ("given", "interrupt"):
        note(_cost_of_torchrec(question, answer))
    if answer.found.stopped == "interrupt":
        warn_stopped()
        raise SaidError(STOPPED)


def _explaining_line(typed: TypedLine, step: str, saved: Path | None) -> str:
    """The command that explains a step of the plan: of the file that it is saved in, else of a new search."""
    more, without = ["--explain", step.replace("_", "-")], ["dense", "out", "as_json"]
    if saved is not None:
        more += ["--plan", str(saved)]
        without += ["plan_file", "file_format", "only", *OF_SEARCH]
    return typed.text(without=without, more=more)


def _answer(
    question: PlanQuestion, plan: Plan | None, *, with_changes: bool
) -> tuple[Planned, tuple[WhatIf, ...]]:
    """The plan of a search, and changes that would help; for a given plan its cost alone.

    with_changes  whether to search plans for changes too
    """
    if plan is not None:
        return question.given(plan), ()
    ends, progress = Deadline(question.time_limit_s), PlanProgress()
    changes: tuple[WhatIf, ...] = ()
    try:
        with ctrl_c(acknowledge) as stopped:
            answer = question.answer(progress)
            if with_changes and not stopped() and answer.found.stopped != "interrupt":
                tell("what would change it")
                with suppress(KeyboardInterrupt):  # the plan itself is complete
                    changes = what_ifs(question, answer, ends)
        if stopped():
            answer = replace(answer, found=replace(answer.found, stopped="interrupt"))
        return answer, changes
    except KeyboardInterrupt:
        if not progress.found:
            raise
        note("\nstopped while the answer was being written.")
        raise SaidError(STOPPED) from None


def _write(answer: Any, out: Path, file_format: str) -> None:
    found = answer.found
    if file_format == "torchrec":
        torchrec.write(answer.evaluator, found.plan, out, found.limit_bytes)
    else:
        write_plan(found.plan, out, answer.made_for)


def _write_page(
    answer: Any,
    whole: WholeStep | None,
    path: Path,
    typed: TypedLine,
    calibration: str | Path | None,
    *,
    capped: bool,
) -> None:
    """Write the page of a plan, which names the command that makes it again in any folder.

    capped   whether ``max_hbm`` limited the memory
    """
    from perfmodel.report.page.alerts import alerts

    command = typed.text(without=["out", "as_json"], more=["--out", path.name])
    page = plan_page(answer, command, whole, capped=capped, alerts=alerts(None, calibration))
    write(page, path, "html")


def _cost_of_torchrec(question: PlanQuestion, answer: Planned) -> str:
    """A note on how much faster a plan would be that TorchRec need not run, by a short search for it."""
    costs = {name: value for name, value in question.costs.items() if name != "sets"}
    effort_s = _OTHERS_SHARE * question.effort_s
    asked = replace(question, for_torchrec=False, costs=costs, effort_s=effort_s)
    tell("without TorchRec's limits")
    try:
        found = asked.search().run()
    except BadInputError:  # the effort was too small
        return "no plan without TorchRec's limits was found with a quarter of the effort"
    gain = 1 - found.cost.time_s / answer.found.cost.time_s
    if gain < _WORTH_SAYING:
        return "nothing faster without TorchRec's limits was found with a quarter of the effort"
    return (
        f"TorchRec's limits cost {format_fraction(gain)} or more of this time: "
        f"{format_time(found.cost.time_s)} without them (without --format torchrec)"
    )
