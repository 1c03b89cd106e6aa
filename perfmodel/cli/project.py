"""``perfmodel project``: the time of a pass on many GPUs, as text, JSON, CSV or a page."""

from __future__ import annotations

import typer

from perfmodel.answer import answer_question
from perfmodel.answer.kernel_choice import other_kernels
from perfmodel.answer.ranking import leads
from perfmodel.answer.sensitivity import next_experiment, sensitivities
from perfmodel.cli.chosen import calibration_file
from perfmodel.cli.latency import within_latency
from perfmodel.cli.options import LEAVE_ONE, apart, check_explained, one_output
from perfmodel.cli.output import emit, emit_json, note, warn
from perfmodel.cli.project_record import project_record
from perfmodel.cli.question import advised, check_size, question_of
from perfmodel.cli.typed_line import TypedNames
from perfmodel.cli.workload import checked_sharding
from perfmodel.engine.schemes import ALL, ROW_WISE
from perfmodel.errors import BadInputError
from perfmodel.question.groups import NO_POOLING, table_count
from perfmodel.question.passes import ProjectOptions
from perfmodel.report.projection_text import projection_text

_COMMAND = ("perfmodel", "project")


def project(context: typer.Context, options: ProjectOptions) -> None:
    """Project the typed question, and print the answer as text, JSON or CSV, or write a page.

    Limits: as the options say -> BadInputError
    """
    as_json, as_csv, report = options.as_json, options.as_csv, options.report
    sharding, tables = options.sharding, options.tables
    memory = {"local_memory": options.local_memory, "remote_memory": options.remote_memory}
    one_output(json=as_json, csv=as_csv)
    check_explained(options.explain, csv=as_csv, report=report)
    if report is not None:
        from perfmodel.cli.report import check_beside, write_beside

        check_beside(report, options.force, **memory)
    not_chosen = {"batch": options.batch, "global_batch": options.global_batch, "report": report}
    apart("--max-latency", options.max_latency, LEAVE_ONE, **not_chosen)
    apart("--rows", options.rows, LEAVE_ONE, report=report)
    way = checked_sharding(sharding, **memory)
    if (options.pooling or "").startswith(NO_POOLING) and (way == ALL or report is not None):
        raise BadInputError("--pooling none is of one sharding, and has no page.", "leave one of them out.")
    if way == ALL and (options.max_latency or options.explain) is not None:
        raise BadInputError("--sharding all has the steps of many shardings.", "name one of them.")
    if tables is not None:
        table_count(tables)
    if options.table_size is None and options.gpus is None and options.model is None:
        raise BadInputError("which tables?", "give --table-size, --gpus or --model, e.g. --table-size 10TB")
    typed = TypedNames.of(options.machine, options.calibration, options.backend)
    question = question_of(context.params)
    check_size(question)
    file = calibration_file(question.calibration)
    from perfmodel.cli.shardings import (
        Output,
        advising_enough,
        lead_of,
        print_all,
        print_leading,
        print_one,
        row_wise_cut,
        with_sharding,
    )

    out = Output(as_json, as_csv, file, typed.line, options.explain)
    with advised(question), advising_enough(question):
        if options.max_latency is not None:
            ways = None if sharding is None else (way or ROW_WISE,)
            question, line = within_latency(question, options.max_latency, ways)
            if not (as_json or as_csv or options.explain):
                emit(line)
        answer = answer_question(question)
        lead = lead_of(answer, question, out) if sharding is None and leads(answer) else None
        if report is not None:
            note(write_beside(context, report, lead))
    if lead is not None:
        print_leading(lead, out, typed.machine)
        return
    if way is not None:
        if way == ALL:
            print_all(answer, question, out)
        else:
            print_one(answer, question, way, out)
        return
    if out.print_explanation(answer):
        return
    if as_csv:
        emit(answer.to_frame().to_csv(index=False))
        return

    named = answer if sharding is None else with_sharding(answer, ROW_WISE)
    changes = sensitivities(answer)
    experiment = next_experiment(answer) if answer.forward.memory is None else None
    others = tuple(other_kernels(answer)) if answer.forward.memory is None else ()
    if as_json:
        emit_json(
            "project",
            **project_record(answer, file, changes, experiment, others)
            | (row_wise_cut(answer) if sharding is not None else {}),
        )
        return

    emit(
        projection_text(
            answer,
            changes,
            experiment,
            typed.machine,
            file,
            lambda w: typed.line(w, named),
            others,
        )
    )
    for line in answer.notes:
        warn(line)
