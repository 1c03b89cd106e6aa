"""``perfmodel project``: the time of a pass on many GPUs, as text or JSON."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import typer

from perfmodel.answer.answer import Answer, answer_row_wise, note_idle
from perfmodel.answer.inputs import TooFewGpusError
from perfmodel.answer.question import Question
from perfmodel.answer.ranking import (
    RUN,
    NotPossibleError,
    Ranking,
    answer_each,
    answer_question,
    build_explained_pass,
    find_fastest,
    find_ties,
    find_within,
    name_enough,
    name_gpus,
    place_row_wise,
)
from perfmodel.answer.sweep import sweep_columns, sweep_within
from perfmodel.answer.what_would_help import find_next_experiment, list_helping
from perfmodel.cli.options import LEAVE_ONE, apart
from perfmodel.cli.output import RUNNING, CommandReply
from perfmodel.cli.question import calibration_file, question_of
from perfmodel.cli.typed_line import TypedLine
from perfmodel.engine.schemes import ALL, PLANNED, WAYS
from perfmodel.errors import BadInputError
from perfmodel.question.groups import NO_POOLING
from perfmodel.question.passes import ProjectOptions
from perfmodel.report.ranking_text import option_words, project_text, rank_fitting
from perfmodel.report.shardings_text import record_cut, record_sharding, shardings_text
from perfmodel.schema.gate import MOST_BATCH
from perfmodel.units import counted, format_count, format_per_second, format_time, parse_time

_NEAR = 1.05  # of the time of a batch: the one that is chosen for a latency is nearer, unless memory is short
_BESIDE = ("time_s", "low_s", "high_s", "slowdown", "slowdown_low", "slowdown_high", "throughput_ratio")


def project(context: typer.Context, options: ProjectOptions) -> CommandReply:
    """Project the typed question: the screen of its ranking, or of one step. Limits: as the options say"""
    not_chosen = {"batch": options.batch, "set global_batch": options.global_batch}
    apart("--max-latency", options.max_latency, LEAVE_ONE, **not_chosen)
    alone: dict[str, object] = {"max_latency": options.max_latency, "explain": options.explain}
    alone["pooling none"] = (options.pooling or "").startswith(NO_POOLING)
    apart("--sharding all", options.sharding == ALL, "name one sharding.", **alone)
    if not any((options.table_size, options.gpus, options.model)):
        raise BadInputError("which tables?", "give --table-size, --gpus or --model, e.g. --table-size 10TB")
    question = question_of(context.params)
    typed = TypedLine.of(context)
    line = ""
    try:
        if options.max_latency is not None:
            question, line = choose_batch(question, options.max_latency)
        if question.sharding == ALL:
            return _compare_all(question, typed)
        ranking = rank_named(question, typed) if question.sharding else rank_fitting(question)
        answer = ranking.answer
        if options.explain is not None:
            explained = build_explained_pass(answer).explain(options.explain)
            return CommandReply.explain(explained, sharding=answer.sharding)
        if ranking.fits:
            answer = note_idle(answer, answer_question)
        elif enough := name_enough(question):  # the rows fit on these GPUs, with their buffers they do not
            answer = replace(answer, notes=(*answer.notes, enough))
        changes = list_helping(answer, answer_question)
    except TooFewGpusError as error:
        raise name_gpus(question, error) from None
    file = calibration_file(question.calibration)
    return CommandReply(
        lambda: _build_record(ranking, answer, file) | {"changes": [vars(change) for change in changes]},
        lambda: project_text(ranking, changes, typed, whole=RUNNING.verbose, first=line),
        answer.notes,
    )


def choose_batch(question: Question, text: str) -> tuple[Question, str]:
    """(the question with the largest batch within a latency, a line about that batch).

    text  of ``--max-latency``
    Limits: nothing fits -> the question itself, "";  one sample takes longer -> BadInputError with that time
    """
    limit_s = parse_time(text, "--max-latency")
    columns = {name: np.array([value]) for name, value in question.given.items() if name != "batch"}
    free = replace(question, **dict.fromkeys([*columns, "batch"], None))  # type: ignore[arg-type]
    rows = sweep_within(free, columns, limit_s)  # with the largest batch
    if rows.empty:  # does one sample on each GPU fit the memory, and how long does it take?
        rows = sweep_columns(free, {**columns, "batch": np.ones(1)})
        if rows.empty or not rows["fits"].all():
            return question, ""
    row = rows.iloc[0]
    batch = int(row["batch"])
    gpus = int(row["gpus"])
    end = format_time(row["high_s"])
    limit = format_time(limit_s)
    if row["high_s"] > limit_s:
        name = "the plan" if row["sharding"] == PLANNED else row["sharding"]
        where = f"{name} takes up to {end} for one sample on each of {counted(gpus, 'GPU')}"
        faster = find_within(replace(question, batch=1, gpus=gpus), limit_s)
        step = "allow more than that."
        if faster is not None:
            step = f"{option_words(faster)} takes up to {format_time(faster.totals['high_s'])}; or {step}"
        raise BadInputError(f"--max-latency {limit}: {where}.", step)
    rate = format_per_second(batch * gpus / row["time_s"], "samples")
    samples = f"{counted(batch, 'sample')} per GPU ({format_count(batch * gpus)} in all)"
    full = ": the memory holds no more" if row["high_s"] < limit_s / _NEAR and batch < MOST_BATCH else ""
    line = f"Largest batch within {limit}: {samples}, {rate}; its 95 % band ends at {end}{full}."
    alone = sweep_columns(free, {**columns, "batch": np.array([batch])})
    count = question.gpus if int(alone["gpus"].iloc[0]) == gpus else gpus  # fixed if the batch finds others
    return replace(question, batch=batch, gpus=count, max_latency_s=limit_s), line


def rank_named(question: Question, typed: TypedLine | None = None) -> Ranking:
    """The answer with the sharding that the question names, alone. typed  the line, to print it

    Limits: it is not possible -> BadInputError that says what would be
    """
    try:
        answer = answer_question(question)
    except NotPossibleError as error:
        if question.unpooled:
            raise BadInputError(error.message, "give one of these.") from None
        if typed is None:
            raise
        line = typed.text(("sharding", "as_json"), ("--sharding", ALL))
        raise BadInputError(error.message, f"what is possible:\n  {line}") from None
    return Ranking(answer, (answer,) if answer.fits else ())


def _compare_all(question: Question, typed: TypedLine) -> CommandReply:
    """The answer of ``--sharding all``: every sharding for the question. typed  the line, to print others"""
    base, answers = answer_each(answer_row_wise(question), tuple(WAYS))
    file = calibration_file(question.calibration)
    record = {
        **question.to_dict(base.basis, base.work),
        "calibration_file": file,
        "gpus": base.gpus,
        "gpu_count": vars(base.gpu_count) | {"text": str(base.gpu_count)},
        "baseline_time_s": base.baseline_time_s,
        "sharding": ALL,
        "winner": find_fastest(answers).sharding,
        "undecided": [answer.sharding for answer in find_ties(answers)],
        "shardings": [record_sharding(answer) for answer in answers],
        "calibrations": list(base.calibrations),
    }
    return CommandReply(lambda: record, lambda: shardings_text(base, answers, typed))


def _build_record(ranking: Ranking, answer: Answer, file: str | None) -> dict[str, object]:
    """The JSON answer but for its changes: what leads, next_experiment, kernels, its cut, others."""
    experiment = find_next_experiment(answer)
    setting = answer.setting
    record = {
        **answer.to_dict(),
        "calibration_file": file,
        "changes": [],
        "next_experiment": vars(experiment) if experiment else None,
        "kernels": {"implementation": setting.kernel_library, "timed": setting.kernels is not None},
        **record_cut(place_row_wise(answer)),
    }
    if ranking.base.question.sharding is not None or answer.gpus == 1:
        return record
    return record | {
        "as_good": [answer.sharding for answer in ranking.as_good],
        "leads_among": [name for name in RUN if name not in ranking.unknown],
        "uniform": _record_beside(ranking.uniform),
        "unique_rows": _record_beside(ranking.beside.unique_rows),
        "left_out": _record_beside(ranking.beside.left_out),
        "row_wise": _record_beside(ranking.base),
    }


def _record_beside(answer: Answer | None) -> dict[str, object] | None:
    """The entries of an answer beside the one that leads. Limits: none -> None"""
    if answer is None:
        return None
    return {"sharding": answer.sharding, "fits": answer.fits} | {key: answer.totals[key] for key in _BESIDE}
