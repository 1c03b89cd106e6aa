"""``perfmodel plan``: the fastest sharding of each table, and its cost; or several plans side by side."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from perfmodel.cli.dense import parse_dense, whole_of
from perfmodel.cli.options import apart, check_explained, count_values
from perfmodel.cli.output import (
    CommandReply,
    SaidError,
    check_target,
    emit,
    emit_json,
    note,
    print_reply,
    warn,
    warn_stopped,
)
from perfmodel.cli.plan_question import complete_options, read_counts, read_question
from perfmodel.cli.question import advised, calibration_file
from perfmodel.cli.signals import STOPPED, ctrl_c
from perfmodel.cli.typed_line import TypedLine
from perfmodel.effort import tell
from perfmodel.engine.explained import ExplainedPass
from perfmodel.errors import BadInputError
from perfmodel.plan.files import write_plan
from perfmodel.plan.outcome import Planned
from perfmodel.plan.question import PlanQuestion
from perfmodel.plan.torchrec import write_for_torchrec
from perfmodel.question.plans import FORMATS, PlanOptions
from perfmodel.report.page.alerts import list_alerts
from perfmodel.report.page.assemble import write_page
from perfmodel.report.page.plan_page import plan_page
from perfmodel.report.plan_text import plan_text
from perfmodel.schema.files import unknown_name
from perfmodel.units import counted, format_time

if TYPE_CHECKING:
    from perfmodel.answer.what_would_help import Sensitivity
    from perfmodel.engine.placement import Plan

_WEIGHTED = (
    "TorchRec's collection is weighted as a whole: the ids of tables without weights count with a weight "
    "of 1. To leave those out, plan weighted and other tables apart"
)
_FILE = "plan.json"
"""The file of a plan in printed commands, if none was typed."""


def plan(context: typer.Context, options: PlanOptions) -> None:
    """Search a plan (which table is sharded how, on which GPUs), or price a given plan, and print it."""
    check_explained(options.explain, out=options.out)
    check_out(options.out, options.file_format)
    typed = TypedLine.of(context)
    values, made_for = complete_options(context, options.plan_file)
    of_one = {"plan": options.plan_file, "out": options.out, "dense": values["dense"]}
    of_one["explain"] = options.explain
    counts = read_counts(values, replicas=options.replicas, **of_one)
    apart("--replicas", options.replicas, "plan one copy, on fewer --gpus.", **of_one)
    question, given = read_question(values, made_for, counts)
    with advised(question.question):
        try:
            if len(counts) > 1 or options.replicas is not None:
                copies = [1] if options.replicas is None else count_values([options.replicas], "--replicas")
                _print_scaling(question, counts, copies, typed, as_json=options.as_json)
            elif options.explain is not None:
                planned, _ = _find_plan(question, given, None)
                explained = ExplainedPass.from_plan(planned.evaluator, planned.plan, planned.result.cost.rows)
                print_reply(
                    "plan", CommandReply.explain(explained.explain(options.explain)), as_json=options.as_json
                )
            else:
                _print_plan(question, given, options, values["dense"], typed)
        except KeyboardInterrupt:
            note("\nstopped before there was a plan to print: the first takes a few seconds.")
            raise SaidError(STOPPED) from None


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
        check_target(out, ".json", *([".html"] if file_format == FORMATS[0] else []), what="a plan")


def _print_plan(
    question: PlanQuestion, given: Plan | None, options: PlanOptions, dense: str | None, typed: TypedLine
) -> None:
    """Print one plan, and write the file of ``--out``. dense  the layers beside it, as typed"""
    machine, out = question.question.machine.name, options.out
    layers = None if dense is None else parse_dense(dense, machine)
    page = out is not None and out.suffix == ".html"
    saved = (None if page else out) or options.plan_file
    planned, changes = _find_plan(question, given, str(saved or _FILE))
    answer, whole, calibration = (
        question.build_answer(planned.result),
        whole_of(planned, layers),
        question.question.calibration,
    )
    if out is not None and page:
        command = typed.text(without=["out", "as_json"], more=["--out", out.name])
        write_page(plan_page(planned, answer, command, whole, alerts=list_alerts(None, calibration)), out)
    elif out is not None and options.file_format == FORMATS[1]:
        write_for_torchrec(planned.evaluator, planned.plan, out, planned.result.limit_bytes)
    elif out is not None:
        write_plan(planned.plan, out, planned.made_for)
    file = calibration_file(calibration)
    if options.as_json:
        step = whole.to_dict(planned.evaluator.batch * planned.evaluator.gpus) if whole else None
        records = [vars(change) for change in changes]
        emit_json("plan", **planned.to_dict(), dense_step=step, changes=records, calibration_file=file)
    else:
        commands = _list_commands(typed, planned.result.cost.limiting.name, saved)
        emit(plan_text(planned, answer, file, whole, changes, commands))
        for line in planned.evaluator.setting.notes:
            warn(line)
    if out is not None:
        how = "; in your program calibrate.torchrec_plan.load reads it (docs/torchrec.md)"
        note(f"wrote {out}{how if options.file_format == FORMATS[1] else ''}")
    if planned.evaluator.model.sets is not None and question.tables.partly_weighted:
        warn(_WEIGHTED)
    _end_stopped(stopped=planned.result.stopped == "interrupt")


def _list_commands(typed: TypedLine, step: str, saved: Path | None) -> dict[str, str]:
    """Commands to go on with: to save the plan, and to explain a step of it.

    saved  the file of the plan: the step is of this very plan, not of a new search
    """
    explain, without = ["--explain", step.replace("_", "-")], ["dense", "out"]
    if saved is None:
        save = {"To keep the plan": typed.text(without=["out"], more=["--out", _FILE])}
        return {**save, "The equation behind its longest step": typed.text(without=without, more=explain)}
    without += ["plan_file", "file_format", "only", "effort"]
    line = typed.text(without=without, more=[*explain, "--plan", str(saved)])
    return {"The equation behind its longest step": line}


def _find_plan(
    question: PlanQuestion, plan: Plan | None, saved: str | None
) -> tuple[Planned, tuple[Sensitivity, ...]]:
    """The plan of a search, and changes that would help; for a given plan its cost alone.

    saved  the plan's file, for the commands of changes; None: no changes
    """
    if plan is not None:
        return question.price(plan), ()
    changes: tuple[Sensitivity, ...] = ()
    with ctrl_c() as stopped:
        planned = question.plan(lambda best_s: tell(f"best {format_time(best_s)}"))
        if saved and not stopped() and planned.result.stopped != "interrupt":
            tell("what would help")
            with suppress(KeyboardInterrupt):  # the plan itself is complete
                changes = question.list_changes(planned, saved)
    if stopped():
        planned = replace(planned, result=replace(planned.result, stopped="interrupt"))
    return planned, changes


def _print_scaling(
    question: PlanQuestion, gpus: list[int], replicas: list[int], typed: TypedLine, *, as_json: bool
) -> None:
    """Search plans for several numbers of GPUs, or of copies, and print them side by side.

    Limits: Ctrl-C -> the plans so far, and the exit code of a stopped command
    """
    from perfmodel.plan.scaling import compare_plans
    from perfmodel.report.scaling_text import scaling_text

    def tell_gpus(gpus: int, best_s: float) -> None:
        tell(f"{counted(gpus, 'GPU')}: best {format_time(best_s)}")

    with ctrl_c() as stopped:
        scaling = compare_plans(question, gpus or [question.gpus], replicas, tell_gpus)
    if as_json:
        file = calibration_file(question.question.calibration)
        emit_json("plan", **scaling.to_dict(), calibration_file=file)
    else:
        count = scaling.best.gpus // scaling.best.replicas
        emit(scaling_text(scaling, typed.text(without=["gpus", "replicas"], more=["--gpus", str(count)])))
        answer = scaling.planned[-1].answer
        for line in answer.evaluator.setting.notes if answer else ():
            warn(line)
    _end_stopped(stopped=scaling.stopped or stopped())


def _end_stopped(*, stopped: bool) -> None:
    if stopped:
        warn_stopped()
        raise SaidError(STOPPED)
