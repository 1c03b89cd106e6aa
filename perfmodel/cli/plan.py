"""``perfmodel plan``: the fastest sharding of each table, and its cost."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from perfmodel.cli.chosen import calibration_file
from perfmodel.cli.codes import STOPPED
from perfmodel.cli.dense import parse_dense, whole_of
from perfmodel.cli.options import apart, check_explained, count_values
from perfmodel.cli.output import (
    SaidError,
    check_target,
    emit,
    emit_explanation,
    emit_json,
    not_json,
    note,
    warn,
    warn_stopped,
)
from perfmodel.cli.plan_question import read_counts, read_question, take_options
from perfmodel.cli.plan_scaling import PlanProgress, print_replicas, print_scaling
from perfmodel.cli.question import advised
from perfmodel.cli.signals import ctrl_c
from perfmodel.cli.typed_line import TypedLine
from perfmodel.effort import tell
from perfmodel.engine.explained import ExplainedPass
from perfmodel.errors import BadInputError
from perfmodel.plan.files import write_plan
from perfmodel.plan.for_torchrec import runnable as torchrec
from perfmodel.plan.outcome import Planned
from perfmodel.plan.question import PlanQuestion
from perfmodel.question.plans import FORMATS, PlanOptions
from perfmodel.report.page.alerts import list_alerts
from perfmodel.report.page.assemble import write_page
from perfmodel.report.page.plan_page import plan_page
from perfmodel.report.plan_text import plan_text
from perfmodel.schema.files import unknown_name

if TYPE_CHECKING:
    from perfmodel.answer.what_would_help import Sensitivity
    from perfmodel.engine.placement import Plan
    from perfmodel.engine.training import WholeStep

_WEIGHTED = (
    "TorchRec's collection is weighted as a whole: the ids of tables without weights count with a weight "
    "of 1. To leave those out, plan weighted and other tables apart"
)
_KEPT = "plan.json"
"""The file of a plan in printed commands, if none was typed."""


def plan(context: typer.Context, options: PlanOptions) -> None:
    """Search a plan (which table is sharded how, on which GPUs), or price a given plan, and print it."""
    check_explained(options.explain, out=options.out)
    check_out(options.out, options.file_format)
    page = options.out if options.out is not None and options.out.suffix == ".html" else None
    saved = (None if page else options.out) or options.plan_file
    typed = TypedLine.of(context)
    values, made_for = take_options(context, options.plan_file)
    of_one = {"plan": options.plan_file, "out": options.out, "dense": values["dense"]}
    of_one["explain"] = options.explain
    counts = read_counts(values, replicas=options.replicas, **of_one)
    apart("--replicas", options.replicas, "plan one copy, on fewer --gpus.", **of_one)
    question, given = read_question(values, made_for, counts)
    dense = values["dense"]
    layers = None if dense is None else parse_dense(dense, question.question.machine.name)
    file = calibration_file(question.question.calibration)
    with advised(question.question):
        try:
            if len(counts) > 1:
                print_scaling(question, counts, typed, file, as_json=options.as_json)
                return
            if options.replicas is not None:
                copies = count_values([options.replicas], "--replicas")
                print_replicas(question, copies, typed, as_json=options.as_json)
                return
            answer, changes = _answer(question, given, None if options.explain else str(saved or _KEPT))
        except KeyboardInterrupt:
            note("\nstopped before there was a plan to print: the first takes a few seconds.")
            raise SaidError(STOPPED) from None
    if options.explain is not None:
        explained = ExplainedPass.from_plan(answer.evaluator, answer.plan, answer.found.cost.rows)
        emit_explanation("plan", explained.explain(options.explain), as_json=options.as_json)
        return
    whole = whole_of(answer, layers)
    if page is not None:
        _write_page(answer, whole, page, typed, question.question.calibration)
    elif options.out is not None and options.file_format == FORMATS[1]:
        torchrec.write(answer.evaluator, answer.plan, options.out, answer.found.limit_bytes)
    elif options.out is not None:
        write_plan(answer.plan, options.out, answer.made_for)
    if options.as_json:
        samples = answer.evaluator.batch * answer.evaluator.gpus
        step = whole.to_dict(samples) if whole else None
        told = [vars(change) for change in changes]
        emit_json("plan", **answer.to_dict(), dense_step=step, changes=told, calibration_file=file)
    else:
        keep = "" if saved is not None else typed.text(without=["out"], more=["--out", _KEPT])
        equation = _explaining_line(typed, answer.found.cost.limiting.name, saved)
        emit(plan_text(answer, file, keep, whole, changes, equation))
        for line in answer.evaluator.setting.notes:
            warn(line)
    if options.out is not None:
        note(f"wrote {options.out}")
    if answer.evaluator.model.sets is not None and question.tables.partly_weighted:
        warn(_WEIGHTED)
    if answer.found.stopped == "interrupt":
        warn_stopped()
        raise SaidError(STOPPED)


def check_out(out: Path | None, file_format: str) -> None:
    """Check where and in which format the plan, or a page about it, is to be saved.

    Limits: an unknown format, a format without a file, a file that exists, whose name has another ending, or
    that cannot be written -> BadInputError
    """
    if file_format not in FORMATS:
        raise unknown_name("--format", file_format, FORMATS)
    if out is None and file_format != FORMATS[0]:
        raise BadInputError(f"--format {file_format} needs a file.", "give --out, e.g. --out plan.json")
    if out is not None:
        page = out.suffix == ".html" and file_format == FORMATS[0]
        if out.suffix.lower() != ".json" and not page:
            raise not_json(out, "a plan")
        check_target(out)


def _explaining_line(typed: TypedLine, step: str, saved: Path | None) -> str:
    """The command that explains a step of the plan: of the file that it is saved in, else of a new search."""
    more, without = ["--explain", step.replace("_", "-")], ["dense", "out", "as_json"]
    if saved is not None:
        more += ["--plan", str(saved)]
        without += ["plan_file", "file_format", "only", "effort"]
    return typed.text(without=without, more=more)


def _answer(
    question: PlanQuestion, plan: Plan | None, saved: str | None
) -> tuple[Planned, tuple[Sensitivity, ...]]:
    """The plan of a search, and changes that would help; for a given plan its cost alone.

    saved  the plan's file, for the commands of changes; None: no changes
    """
    if plan is not None:
        return question.price(plan), ()
    progress = PlanProgress()
    changes: tuple[Sensitivity, ...] = ()
    try:
        with ctrl_c() as stopped:
            answer = question.answer(progress)
            if saved and not stopped() and answer.found.stopped != "interrupt":
                tell("what would help")
                with suppress(KeyboardInterrupt):  # the plan itself is complete
                    changes = question.list_changes(answer, saved)
        if stopped():
            answer = replace(answer, found=replace(answer.found, stopped="interrupt"))
        return answer, changes
    except KeyboardInterrupt:
        if not math.isfinite(progress.best_s):
            raise
        note("\nstopped while the answer was being written.")
        raise SaidError(STOPPED) from None


def _write_page(
    answer: Planned, whole: WholeStep | None, path: Path, typed: TypedLine, calibration: Any
) -> None:
    """Write the page of a plan, which names the command that makes it again in any folder."""
    command = typed.text(without=["out", "as_json"], more=["--out", path.name])
    write_page(plan_page(answer, command, whole, alerts=list_alerts(None, calibration)), path)
