"""``perfmodel plan``: the fastest sharding of each table, and its cost; or several plans side by side."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from perfmodel.answer.inputs import share_equally
from perfmodel.cli.options import EXPLAINED, apart, check_name, count_values, settings_of
from perfmodel.cli.output import CommandReply, check_target, note
from perfmodel.cli.question import calibration_file, question_of
from perfmodel.cli.signals import ctrl_c
from perfmodel.cli.typed_line import TypedLine
from perfmodel.effort import tell
from perfmodel.engine.explained import ExplainedPass
from perfmodel.engine.tables import PlanTables
from perfmodel.engine.training import Dense, GivenTime, WholeStep
from perfmodel.errors import BadInputError
from perfmodel.plan.outcome import Planned
from perfmodel.plan.plan_files import OF_QUESTION, MadeFor, read_any_plan, read_made_for, write_plan
from perfmodel.plan.question import PlanQuestion
from perfmodel.plan.torchrec import check_names_and_types, write_for_torchrec
from perfmodel.question.groups import RESERVE, QuestionOptions
from perfmodel.question.plans import FORMATS, PLAN, TORCHREC, PlanOptions
from perfmodel.report.page.assemble import write_page
from perfmodel.report.page.plan_page import plan_page
from perfmodel.report.plan_text import plan_text
from perfmodel.schema.priors import DenseFile, load_dense, load_rates
from perfmodel.schema.table_files import list_models
from perfmodel.units import counted, format_bytes, format_time, parse_bytes, parse_ratio, parse_time

if TYPE_CHECKING:
    from perfmodel.answer.what_would_help import Sensitivity
    from perfmodel.engine.placement import Plan

_FILES = ("model", "machine", "calibration")
_OF_CALIBRATION = ("machine", "backend", "clock")
"""Options that a named calibration implies."""
_LEAST_DENSE_S, _MOST_DENSE_S = 1e-9, 3600.0  # of a batch
_FILE = "plan.json"
"""The file of a plan in printed commands, if none was typed."""


def plan(context: typer.Context, options: PlanOptions) -> CommandReply:
    """Search a plan (which table is sharded how, on which GPUs), or price a given plan."""
    apart("--explain", options.explain, EXPLAINED, out=options.out)
    check_name("--format", options.file_format, FORMATS)
    if options.out is not None:
        endings = (".json", ".html") if options.file_format == PLAN else (".json",)
        check_target(options.out, *endings, what="a plan")
    elif options.file_format != PLAN:
        step = f"give --out, e.g. --out {_FILE}"
        raise BadInputError(f"--format {options.file_format} needs a file.", step)
    typed = TypedLine.of(context)
    values, made_for = complete_options(context, options.plan_file)
    of_one = {"plan": options.plan_file, "out": options.out, "dense": values["dense"]}
    of_one["explain"] = options.explain
    counts = count_values([values["gpus"]], "--gpus") if values["gpus"] is not None else []
    if len(counts) > 1:
        advice = f"{{other}} is of one plan: give one number of GPUs, e.g. --gpus {counts[-1]}."
        apart(f"--gpus with {len(counts)} numbers", counts, advice, replicas=options.replicas, **of_one)
    apart("--replicas", options.replicas, "plan one copy, on fewer --gpus.", **of_one)
    question, given = read_question(values, made_for, counts)
    try:
        if len(counts) > 1 or options.replicas is not None:
            copies = [1] if options.replicas is None else count_values([options.replicas], "--replicas")
            return _compare_plans(question, counts, copies, typed)
        if options.explain is not None:
            planned, _ = _find_plan(question, given, None)
            explained = ExplainedPass.from_plan(planned.costed).explain(options.explain)
            return CommandReply.explain(explained)
        return _answer(question, given, options, values["dense"], typed)
    except KeyboardInterrupt:
        note("\nthere is no plan to print yet: the first takes a few seconds.")
        raise


def complete_options(context: typer.Context, plan_file: Path | None) -> tuple[dict[str, Any], MadeFor]:
    """(all options by name, the options of the question as texts). The plan's file gives what was not typed.

    A line says which were taken. A file that is not there is looked for beside the plan.
    """
    values = dict(context.params)
    typed = {name for name, _ in TypedLine.of(context).options}
    taken: MadeFor = {}
    if plan_file is not None:
        said = read_made_for(plan_file)
        ignored = typed - {"settings"}
        if "calibration" in typed:
            ignored.update(_OF_CALIBRATION)
        elif "machine" in typed and values["machine"] != said.get("machine"):
            ignored.add("calibration")
        taken = {name: said[name] for name in OF_QUESTION if said.get(name) and name not in ignored}
        given = settings_of(values["settings"])
        for name, value in taken.items():
            if not isinstance(value, str):
                taken[name] = [text for text in value if text.partition("=")[0] not in given]  # NAME=VALUE
            elif name in _FILES and not os.path.exists(value) and (plan_file.parent / value).is_file():
                taken[name] = str(plan_file.parent / value)
            elif name == "model" and not (os.path.exists(value) or value in list_models()):
                problem = f"the tables of {plan_file}, {value}, are neither a file here nor shipped."
                raise BadInputError(problem, "give their file: --model tables.csv")
        declared = {option.name: option for option in PlanOptions.declared()}
        pairs = [(name, [x] if isinstance(x, str) else x) for name, x in taken.items()]
        if words := [w for name, texts in pairs for text in texts for w in declared[name].to_words(text)]:
            note(f"taken from {plan_file}: {shlex.join(words)}")
        settings = [*taken.get("settings", []), *(values["settings"] or [])]
        values |= taken | {"settings": settings or None}
    repeated = [name for name in OF_QUESTION if name in typed | taken.keys()]  # written to the new plan
    return values, {name: values[name] for name in repeated if values[name] not in (None, "-")}


def read_question(
    values: dict[str, Any], made_for: MadeFor, counts: list[int]
) -> tuple[PlanQuestion, Plan | None]:
    """(the question on the first number of GPUs, the plan in the file of ``--plan``, None without one).

    values  the options by name;  made_for  those that a plan's file holds;  counts  [] for the plan's GPUs
    Limits: values that cannot be used, or cannot be combined -> BadInputError
    """
    model = values["model"]
    plan_file = values["plan_file"]
    max_hbm = values["max_hbm"]
    if model is None:
        step = "give --model, e.g. --model mlperf-dlrm-dcnv2 (perfmodel show models lists them)"
        raise BadInputError("which tables?", step)
    if not counts and plan_file is None:
        size = format_bytes(PlanTables.load(model).total_bytes, binary=False)
        raise BadInputError(
            f"the number of GPUs is missing; the tables have {size}.",
            "give --gpus, e.g. --gpus 128, or several to compare: --gpus 8,32,128\n"
            f"the fewest GPUs that hold them:\n  perfmodel project --model {shlex.quote(model)}",
        )
    apart("--set global_batch", values["global_batch"], "give --batch, of each GPU.", plan=plan_file)
    unset = {option.name: None for option in QuestionOptions.declared()}
    reserve = values["reserve"] or (RESERVE if max_hbm is None else "0")
    gpus = str(counts[0]) if counts else None
    question = question_of({**unset, **values, "gpus": gpus, "reserve": reserve})
    if question.total is not None:
        for count in counts:
            share_equally(question.total, count)
        made_for = made_for | {"batch": str(question.batch)}
    for_torchrec = values["file_format"] == TORCHREC
    planned = PlanQuestion.build(
        question,
        only=values["only"] or [],
        effort=values["effort"],
        most_bytes=None if max_hbm is None else parse_bytes(max_hbm, "--set max_hbm"),
        for_torchrec=for_torchrec,
        made_for=made_for,
    )
    if for_torchrec:
        check_names_and_types(planned.tables)
    if plan_file is None:
        return planned, None
    domain = question.machine.domain_gpus_of(question.machine.gpus_per_node)
    wanted = counts[0] if counts else None
    plan, sets = read_any_plan(plan_file, planned.tables, wanted, lambda gpus: min(gpus, domain))
    return replace(planned if counts else planned.use_gpus(plan.gpus), sets=sets), plan


def parse_dense(text: str, machine: str) -> DenseFile | GivenTime:
    """The dense layers that ``--dense`` means: a name, ``mine.toml``, ``3ms`` or ``3ms±10%`` (per batch).

    machine  whose GPU runs the layers
    Limits: neither a name, a file nor a time, layers on a machine whose GPU has no known rate, or a time
            below 1 ns or above 1 h -> BadInputError
    """
    text = text.strip()
    if text.endswith(".toml") or not text.lstrip("+-.")[:1].isdigit():
        layers = load_dense(text)
        load_rates().of(machine)
        return layers
    time_text, spread_sign, error_text = text.replace("+-", "±").partition("±")
    time_s = parse_time(time_text.strip(), "--dense")
    spread = parse_ratio(error_text, f"--dense {text}: the error") if spread_sign else 0.0
    if not _LEAST_DENSE_S <= time_s <= _MOST_DENSE_S or spread >= 1:
        step = "from 1ns to 1h for a batch, with an error of less than 100 %, e.g. 3ms±10%."
        raise BadInputError(f"--dense {text} is not what this model covers.", step)
    return GivenTime(time_s, spread)


def _answer(
    question: PlanQuestion, given: Plan | None, options: PlanOptions, dense: str | None, typed: TypedLine
) -> CommandReply:
    """Answer with one plan, found or ``given``; write the file of ``--out``. dense  the layers, as typed"""
    layers = None if dense is None else parse_dense(dense, question.question.machine.name)
    out = options.out
    torchrec = options.file_format == TORCHREC
    page = out is not None and out.suffix == ".html"
    saved = (None if page else out) or options.plan_file
    repeated = dict[str, str]()  # of TorchRec's file, which does not hold its question
    for name, words in typed.options if torchrec else ():
        if words and name in OF_QUESTION:
            flag, *_ = words
            repeated[f"--set {name}=" if flag == "--set" else f"{flag} "] = shlex.join(words)

    def price_with(option: str) -> str:
        """The options that price the plan with a further one, in place of what was typed."""
        rest = [text for begin, text in repeated.items() if not option.startswith(begin)]
        return " ".join(["--plan", shlex.quote(str(saved or _FILE)), *rest, option])

    planned, changes = _find_plan(question, given, price_with)
    answer = question.build_answer(planned.costed)
    evaluator = planned.evaluator
    whole = None
    if layers is not None:
        whole = WholeStep.compute(planned.costed, Dense.compute(layers, evaluator))
    if out is not None:
        if page:
            command = typed.text(without=["out", "as_json"], more=["--out", out.name])
            write_page(plan_page(planned, answer, command, whole), out)
        elif torchrec:
            write_for_torchrec(evaluator, planned.plan, out, planned.result.limit_bytes)
        else:
            write_plan(planned.plan, out, planned.made_for)
        how = "; in your program calibrate.torchrec_plan.load reads it (docs/torchrec.md)"
        note(f"wrote {out}{how if torchrec else ''}")
    file = calibration_file(question.question.calibration)
    step = whole.to_dict(evaluator.batch * evaluator.gpus) if whole else None
    more = {"dense_step": step, "changes": [vars(change) for change in changes], "calibration_file": file}
    save = {} if saved else {"To keep the plan": typed.text(without=["out"], more=["--out", _FILE])}
    return CommandReply(
        lambda: planned.to_dict() | more,
        lambda: plan_text(planned, answer, whole, changes, save),
        evaluator.setting.notes,
        KeyboardInterrupt() if planned.result.stopped == "interrupt" else None,
    )


def _find_plan(
    question: PlanQuestion, plan: Plan | None, price_with: Callable[[str], str] | None
) -> tuple[Planned, tuple[Sensitivity, ...]]:
    """The plan of a search, and changes that would help; for a given plan its cost alone.

    price_with  of ``PlanQuestion.list_changes``; None: no changes
    """
    if plan is not None:
        return question.price(plan), ()
    changes: tuple[Sensitivity, ...] = ()
    with ctrl_c() as stopped:
        planned = question.plan(lambda best_s: tell(f"best {format_time(best_s)}"))
        if price_with and not stopped() and planned.result.stopped != "interrupt":
            tell("what would help")
            with suppress(KeyboardInterrupt):  # the plan itself is complete
                changes = question.list_changes(planned, price_with)
    if stopped():
        planned = replace(planned, result=replace(planned.result, stopped="interrupt"))
    return planned, changes


def _compare_plans(
    question: PlanQuestion, gpus: list[int], replicas: list[int], typed: TypedLine
) -> CommandReply:
    """Search plans for several numbers of GPUs, or of copies, and set them side by side.

    Limits: Ctrl-C -> the plans so far, and the exit code of a stopped command
    """
    from perfmodel.plan.scaling import compare_plans
    from perfmodel.report.scaling_text import scaling_text

    with ctrl_c() as stopped:
        scaling = compare_plans(
            question,
            gpus or [question.gpus],
            replicas,
            lambda gpus, best_s: tell(f"{counted(gpus, 'GPU')}: best {format_time(best_s)}"),
        )
    count = scaling.best.gpus // scaling.best.replicas
    answer = scaling.planned[-1].answer
    words = ["--gpus", str(count)]
    if scaling.total:
        words += ["--batch", str(scaling.total // scaling.best.gpus)]
    command = typed.text(without=["gpus", "replicas", "global_batch"], more=words)
    return CommandReply(
        lambda: scaling.to_dict() | {"calibration_file": calibration_file(question.question.calibration)},
        lambda: scaling_text(scaling, command),
        answer.evaluator.setting.notes if answer else (),
        KeyboardInterrupt() if scaling.stopped or stopped() else None,
    )
