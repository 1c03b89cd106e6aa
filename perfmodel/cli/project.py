"""``perfmodel project``: the time of a pass on many GPUs, as text or JSON."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import typer

from perfmodel.answer.answer import Answer, answer_row_wise, note_idle
from perfmodel.answer.inputs import TooFewGpusError
from perfmodel.answer.question import Question
from perfmodel.answer.ranking import (
    AT_MOST,
    RUN,
    NotPossibleError,
    Ranking,
    answer_each,
    answer_question,
    build_explained_pass,
    compare_sizes,
    find_fastest,
    find_ties,
    place_row_wise,
    rank,
)
from perfmodel.answer.sweep import sweep_columns, sweep_within
from perfmodel.answer.what_would_help import find_next_experiment, list_helping
from perfmodel.cli.chosen import calibration_file
from perfmodel.cli.options import LEAVE_ONE, apart
from perfmodel.cli.output import emit, emit_explanation, emit_json, is_verbose, warn
from perfmodel.cli.question import advised, check_size, question_of
from perfmodel.cli.typed_line import TypedNames
from perfmodel.engine.schemes import ALL, TORCHREC, WAYS
from perfmodel.errors import BadInputError, NoCalibrationError
from perfmodel.question.groups import NO_POOLING, read_table_count
from perfmodel.question.passes import ProjectOptions
from perfmodel.report.columns import columns_record
from perfmodel.report.ranking_text import beside_words, headline, project_text, too_large
from perfmodel.report.shardings_text import SHARDING, SIZES, shardings_text
from perfmodel.report.terminal import paragraph
from perfmodel.units import counted, format_count, format_per_second, format_time, parse_time

_BESIDE = ("time_s", "low_s", "high_s", "slowdown", "slowdown_low", "slowdown_high", "throughput_ratio")
_IN_STEPS = (*_BESIDE[:-1], "evidence")


def project(context: typer.Context, options: ProjectOptions) -> None:
    """Project the typed question, and print the answer as text or JSON.

    Limits: as the options say -> BadInputError
    """
    not_chosen = {"batch": options.batch, "set global_batch": options.global_batch}
    apart("--max-latency", options.max_latency, LEAVE_ONE, **not_chosen)
    if options.sharding == ALL and (options.pooling or "").startswith(NO_POOLING):
        raise BadInputError("--pooling none and --sharding all cannot be combined.", "name one sharding.")
    if options.tables is not None:
        read_table_count(options.tables)
    if options.table_size is None and options.gpus is None and options.model is None:
        raise BadInputError("which tables?", "give --table-size, --gpus or --model, e.g. --table-size 10TB")
    question = question_of(context.params)
    every = question.sharding == ALL
    if every and (options.max_latency or options.explain) is not None:
        raise BadInputError("--sharding all has the steps of many shardings.", "name one of them.")
    check_size(question)
    typed = TypedNames.of(options.machine, options.calibration, options.backend)
    file = calibration_file(question.calibration)
    with advised(question), _advise_enough(question):
        if options.max_latency is not None:
            question, line = _choose_batch(question, options.max_latency)
            if not (options.as_json or options.explain):
                emit(line)
        if every:
            _print_all(question, options, file, typed)
            return
        ranking = _rank(question, typed)
        answer = ranking.answer
        if options.explain is not None:
            explanation = build_explained_pass(answer).explain(options.explain)
            emit_explanation("project", explanation, as_json=options.as_json, sharding=answer.sharding)
            return
        if ranking.best:
            ranking = replace(ranking, best=(note_idle(answer, answer_question), *ranking.best[1:]))
        if options.as_json:
            emit_json("project", **_build_record(ranking, file))
            return
        asking = replace(question, gpus=answer.gpus) if question.gpus is None else question
        changes = list_helping(answer, answer_question)
        emit(
            project_text(
                ranking,
                changes,
                file,
                lambda words: typed.line(words, question if words[1] == "project" else asking),
                planned=_plan(ranking),
                whole=is_verbose(),
            )
        )
        for note in ranking.answer.notes:
            warn(note)


def _choose_batch(question: Question, text: str) -> tuple[Question, str]:
    """(the question with the largest batch within a latency, a line about that batch).

    text  of ``--max-latency``
    Limits: nothing fits -> the question itself, "";  one sample takes longer -> BadInputError with that time
    """
    limit_s = parse_time(text, "--max-latency")
    columns = {name: np.array([value]) for name, value in question.given.items() if name != "batch"}
    without: dict[str, Any] = dict.fromkeys([*columns, "batch"])
    free = replace(question, **without)
    rows = sweep_within(free, columns, lambda number: None, limit_s)
    if rows.empty:
        rows = sweep_columns(free, {**columns, "batch": np.ones(1)})
        if rows.empty or not rows["fits"].all():
            return question, ""
    row = rows.iloc[0]
    batch, gpus = int(row["batch"]), int(row["gpus"])
    end, limit = format_time(row["high_s"]), format_time(limit_s)
    if row["high_s"] > limit_s:
        where = f"one sample on each of {counted(gpus, 'GPU')}"
        raise BadInputError(f"--max-latency {limit}: {where} takes up to {end}.", "allow more than that.")
    rate = format_per_second(batch * gpus / row["time_s"], "samples")
    samples = f"{format_count(batch)} samples per GPU ({format_count(batch * gpus)} in all)"
    line = f"Largest batch within {limit}: {samples}, {rate}; its 95 % band ends at {end}."
    alone = sweep_columns(free, {**columns, "batch": np.array([batch])})
    count = question.gpus if int(alone["gpus"].iloc[0]) == gpus else gpus
    return replace(question, batch=batch, gpus=count, max_latency_s=limit_s), paragraph(line)


def _rank(question: Question, typed: TypedNames) -> Ranking:
    """The ranking of the question; of a named sharding its answer alone.

    Limits: no sharding fits, or it is not possible -> BadInputError that says what would be
    """
    if question.sharding is None:
        ranking = rank(question)
        if ranking.best:
            return ranking
        filled = question.table_bytes is None and question.tables is None
        ranking = replace(ranking, enough="" if filled or question.gpus is None else name_enough(question))
        next_step = beside_words(ranking) or "use more GPUs (--gpus), a smaller --batch or --set reserve."
        raise BadInputError(headline(ranking), next_step)
    try:
        answer = answer_question(question)
    except NotPossibleError as error:
        if question.unpooled:
            raise BadInputError(error.message, "give one of these.") from None
        line = typed.line(("perfmodel", "project"), replace(question, sharding=ALL))
        raise BadInputError(error.message, f"what is possible:\n  {line}") from None
    return Ranking(answer, (answer,) if answer.fits else ())


def _plan(ranking: Ranking) -> Answer | None:
    """The answer with a sharding of its own for each table, if it is faster than one for all."""
    if ranking.base.question.sharding is not None or len(ranking.base.work.tables) < 2:
        return None
    from perfmodel.plan.question import plan_quickly  # the planner's modules are not loaded in vain

    return plan_quickly(ranking)


@contextlib.contextmanager
def _advise_enough(question: Question) -> Iterator[None]:
    """Context in which the error that rows do not fit the GPUs says how many would be enough."""
    try:
        yield
    except TooFewGpusError as error:
        where = f"{error.message} Rows are in host memory." if question.rows else error.message
        raise BadInputError(where, name_enough(question) or error.next_step) from None


def name_enough(question: Question) -> str:
    """``--gpus 152 fits, sharded table-wise``: the fewest whole nodes that fit, or a note that none fit.

    Limits: no calibration covers so many GPUs -> ""
    """
    try:
        ranking = rank(replace(question, gpus=None, sharding=None))
    except NoCalibrationError:
        return ""
    if ranking.best:
        best = ranking.answer
        nodes = counted(math.ceil(best.gpus / best.gpu_count.gpus_per_node), "node")
        where = f" ({nodes})" if question.rows else ""
        return f"--gpus {best.gpus}{where} fits, sharded {best.sharding}."
    most, base = format_count(AT_MOST * ranking.base.gpus), ranking.base
    words = (
        f"no uniform sharding that {TORCHREC} runs fits up to {most} GPUs: on {base.gpus} {too_large(base)}."
    )
    return f"{words} Use a smaller --batch."


def _print_all(question: Question, options: ProjectOptions, file: str | None, typed: TypedNames) -> None:
    """Print every sharding for the question; for equal tables, also the fastest by table size."""
    base, answers = answer_each(answer_row_wise(question), tuple(WAYS))
    other = replace(question, gpus=None)
    ask = lambda size: answer_row_wise(replace(other, table_bytes=size))  # noqa: E731
    sizes = list(compare_sizes(ask)) if question.tables is None else []
    fastest = find_fastest(answers)
    if not options.as_json:
        pinned = replace(question, sharding=fastest.sharding)
        emit(shardings_text(base, answers, sizes, file, lambda words: typed.line(words, pinned)))
        return
    emit_json(
        "project",
        **question.to_dict(base.basis, base.work),
        calibration_file=file,
        gpus=base.gpus,
        gpu_count=vars(base.gpu_count) | {"text": str(base.gpu_count)},
        baseline_time_s=base.baseline_time_s,
        sharding=ALL,
        winner=fastest.sharding,
        undecided=[answer.sharding for answer in find_ties(answers)],
        shardings=[columns_record(SHARDING, answer) for answer in answers],
        sizes=[columns_record(SIZES, size) for size in sizes],
        calibrations=list(base.calibrations),
    )


def _build_record(ranking: Ranking, file: str | None) -> dict[str, Any]:
    """The JSON answer: the answer, changes and their effects, next_experiment, kernels, its cut, others."""
    answer, named = ranking.answer, ranking.base.question.sharding is not None
    changes = list_helping(answer, answer_question)
    experiment = find_next_experiment(answer)
    cut = columns_record(SHARDING, place_row_wise(answer))
    record = {
        **answer.to_dict(),
        "calibration_file": file,
        "changes": [vars(change) for change in changes],
        "next_experiment": vars(experiment) if experiment else None,
        "kernels": {
            "implementation": answer.setting.kernel_library,
            "timed": answer.setting.kernels is not None,
        },
        **{key: value for key, value in cut.items() if key not in _IN_STEPS},
    }
    if named or answer.gpus == 1:
        return record
    return record | {
        "as_good": [other.sharding for other in ranking.as_good],
        "leads_among": [name for name in RUN if name not in ranking.unknown],
        "planned": _record_beside(_plan(ranking)),
        "unique_rows": _record_beside(ranking.beside.unique_rows),
        "left_out": _record_beside(ranking.beside.left_out),
        "row_wise": _record_times(ranking.base),
    }


def _record_times(answer: Answer) -> dict[str, Any]:
    """The entries of an answer beside the one that is compared, by key."""
    return {key: answer.totals[key] for key in _BESIDE} | {"fits": answer.fits}


def _record_beside(answer: Answer | None) -> dict[str, Any] | None:
    """The entries of a sharding beside the one that leads. Limits: none -> None"""
    return {"sharding": answer.sharding, **_record_times(answer)} if answer else None
