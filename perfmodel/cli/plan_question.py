"""The question of ``perfmodel plan``: its options, and those that the file of ``--plan`` was made with."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfmodel.answer.inputs import share_equally
from perfmodel.cli.options import apart, count_values, settings_of
from perfmodel.cli.output import note
from perfmodel.cli.question import question_of
from perfmodel.cli.typed_line import TypedLine
from perfmodel.engine.tables import PlanTables
from perfmodel.errors import BadInputError
from perfmodel.plan.files import OF_QUESTION, MadeFor, read_any_plan, read_made_for
from perfmodel.plan.question import PlanQuestion
from perfmodel.plan.torchrec import check_names_and_types
from perfmodel.question.groups import RESERVE, QuestionOptions
from perfmodel.question.plans import FORMATS, PlanOptions
from perfmodel.units import format_bytes, parse_bytes

if TYPE_CHECKING:
    import typer

    from perfmodel.engine.placement import Plan

_FILES = ("model", "machine", "calibration")
_LEAST_HBM = 1e6  # bytes: less was meant in another unit
_OF_CALIBRATION = ("machine", "backend", "clock")
"""Options that a named calibration implies."""


def complete_options(context: typer.Context, plan_file: Path | None) -> tuple[dict[str, Any], MadeFor]:
    """(the options by name, those of the question as typed), each completed by the file of the plan.

    A line says which were taken. A file that is not there is looked for beside the plan.
    """
    values, typed = dict(context.params), {name for name, _ in TypedLine.of(context).options}
    repeated = {
        name: values[name] for name in OF_QUESTION if name in typed and values[name] not in (None, "-")
    }
    if plan_file is None:
        return values, repeated
    said, ignored = read_made_for(plan_file), typed - {"settings"}
    if "calibration" in typed:
        ignored.update(_OF_CALIBRATION)
    elif "machine" in typed and values["machine"] != said.get("machine"):
        ignored.add("calibration")
    words: list[str] = []
    declared = {option.name: option for option in PlanOptions.declared()}
    for name in OF_QUESTION:
        if name in ignored or not said.get(name):
            continue
        text = said[name]
        if name == "settings":
            given = settings_of(values["settings"])
            text = [setting for setting in text if setting.partition("=")[0] not in given]
            values[name] = [*text, *(values[name] or [])]
        else:
            beside = plan_file.parent / str(text)
            moved = name in _FILES and not os.path.exists(str(text)) and beside.is_file()
            values[name] = text = str(beside) if moved else text
        repeated[name] = values[name]
        texts = [text] if isinstance(text, str) else text
        words += [word for value in texts for word in declared[name].to_words(value)]
    if words:
        note(f"taken from {plan_file}: {shlex.join(words)}")
    return values, {name: repeated[name] for name in OF_QUESTION if name in repeated}


def read_question(
    values: dict[str, Any], made_for: MadeFor, counts: list[int]
) -> tuple[PlanQuestion, Plan | None]:
    """(the question on the first number of GPUs, the plan in the file of ``--plan``).

    values  the options by name;  counts  numbers of GPUs; none: that of the plan
    Limits: values that cannot be used, or cannot be combined -> BadInputError
    """
    model, plan_file, max_hbm = values["model"], values["plan_file"], values["max_hbm"]
    if model is None:
        raise BadInputError(
            "which tables?", "give --model, e.g. --model mlperf-dlrm-dcnv2 (perfmodel show models lists them)"
        )
    if not counts and plan_file is None:
        size = format_bytes(PlanTables.load(model).total_bytes, binary=False)
        raise BadInputError(
            f"the number of GPUs is missing; the tables have {size}.",
            "give --gpus, e.g. --gpus 128, or several to compare: --gpus 8,32,128\n"
            "the fewest GPUs that hold them:\n"
            f"  perfmodel project --model {shlex.quote(model)}",
        )
    apart("--set global_batch", values["global_batch"], "give --batch, of each GPU.", plan=plan_file)
    unset = {option.name: None for option in QuestionOptions.declared()}
    reserve = values["reserve"] or (RESERVE if max_hbm is None else "0")
    gpus = str(counts[0]) if counts else None
    question = question_of({**unset, **values, "gpus": gpus, "reserve": reserve})
    if question.total is not None:
        for count in counts:
            share_equally(question.total, count)
    for_torchrec = values["file_format"] == FORMATS[1]
    planned = PlanQuestion.build(
        question,
        only=values["only"] or [],
        effort=values["effort"],
        most_bytes=None if max_hbm is None else parse_bytes(max_hbm, "--set max_hbm", least=_LEAST_HBM),
        for_torchrec=for_torchrec,
        made_for=made_for | ({"batch": str(question.batch)} if question.total is not None else {}),
    )
    if for_torchrec:
        check_names_and_types(planned.tables)
    if plan_file is None:
        return planned, None
    domain = question.machine.domain_gpus_of(question.machine.gpus_per_node)
    plan, sets = read_any_plan(
        plan_file, planned.tables, counts[0] if counts else None, lambda gpus: min(gpus, domain)
    )
    return replace(planned if counts else planned.use_gpus(plan.gpus), sets=sets), plan


def read_counts(values: dict[str, Any], **of_one: object) -> list[int]:
    """The numbers of GPUs that were typed. of_one  options for a single plan, by name; empty: not typed

    Limits: several numbers and an option for a single plan -> BadInputError
    """
    counts = count_values([values["gpus"]], "--gpus") if values["gpus"] is not None else []
    if len(counts) > 1:
        advice = f"{{other}} is of one plan: give one number of GPUs, e.g. --gpus {counts[-1]}."
        apart(f"--gpus with {len(counts)} numbers", counts, advice, **of_one)
    return counts
