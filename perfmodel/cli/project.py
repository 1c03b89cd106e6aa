"""``perfmodel project``: the time of a pass on many GPUs, as text or JSON."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

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
from perfmodel.answer.what_would_help import (
    NextExperiment,
    Sensitivity,
    find_next_experiment,
    list_helping,
)
from perfmodel.cli.chosen import calibration_file
from perfmodel.cli.latency import within_latency
from perfmodel.cli.options import LEAVE_ONE, apart
from perfmodel.cli.output import emit, emit_explanation, emit_json, is_verbose, warn
from perfmodel.cli.question import advised, check_size, question_of
from perfmodel.cli.typed_line import TypedNames
from perfmodel.engine.schemes import ALL, TORCHREC, WAYS
from perfmodel.errors import BadInputError, NoCalibrationError
from perfmodel.question.groups import NO_POOLING, table_count
from perfmodel.question.passes import ProjectOptions
from perfmodel.report.columns import columns_record
from perfmodel.report.projection_text import projection_text
from perfmodel.report.ranking_text import beside_words, headline, ranking_text, too_large
from perfmodel.report.shardings_text import SHARDING, SIZES, shardings_text
from perfmodel.units import counted, format_count

_IN_STEPS = ("time_s", "low_s", "high_s", "slowdown", "slowdown_low", "slowdown_high", "evidence")
_BESIDE = ("time_s", "low_s", "high_s", "slowdown", "slowdown_low", "slowdown_high", "throughput_ratio")


@dataclass(frozen=True)
class Output:
    """How and with which names an answer is printed.

    calibration_file  the user's own; None: a shipped calibration
    explain           the step that is explained instead of the answer; None: the answer is printed
    """

    as_json: bool
    calibration_file: str | None
    typed: TypedNames
    explain: str | None

    def print_instead(self, answer: Answer) -> bool:
        """Print the explanation of a step instead of the answer, if asked for; return whether it was."""
        if self.explain is not None:
            explanation = build_explained_pass(answer).explain(self.explain)
            emit_explanation("project", explanation, as_json=self.as_json, sharding=answer.sharding)
        return self.explain is not None


def project(context: typer.Context, options: ProjectOptions) -> None:
    """Project the typed question, and print the answer as text or JSON.

    Limits: as the options say -> BadInputError
    """
    not_chosen = {"batch": options.batch, "set global_batch": options.global_batch}
    apart("--max-latency", options.max_latency, LEAVE_ONE, **not_chosen)
    unpooled = (options.pooling or "").startswith(NO_POOLING)
    if unpooled and options.sharding == ALL:
        raise BadInputError("--pooling none and --sharding all cannot be combined.", "name one sharding.")
    if options.tables is not None:
        table_count(options.tables)
    if options.table_size is None and options.gpus is None and options.model is None:
        raise BadInputError("which tables?", "give --table-size, --gpus or --model, e.g. --table-size 10TB")
    question = question_of(context.params)
    if question.sharding == ALL and (options.max_latency or options.explain) is not None:
        raise BadInputError("--sharding all has the steps of many shardings.", "name one of them.")
    check_size(question)
    typed = TypedNames.of(options.machine, options.calibration, options.backend)
    file = calibration_file(question.calibration)
    output = Output(options.as_json, file, typed, options.explain)
    with advised(question), advise_enough(question):
        if options.max_latency is not None:
            question, line = within_latency(question, options.max_latency)
            if not (options.as_json or options.explain):
                emit(line)
        if question.sharding == ALL:
            print_all(question, output)
            return
        ranking = rank(question) if question.sharding is None else None
        compares = ranking is not None and ranking.base.gpus > 1
        if ranking is not None and compares:
            print_ranking(ranking, output)
        else:
            print_answer(ranking.answer if ranking else _answer(question, output), output)


@contextlib.contextmanager
def advise_enough(question: Question) -> Iterator[None]:
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


def _answer(question: Question, output: Output) -> Answer:
    """The answer with a named sharding. Limits: not possible -> the error has the command for what is"""
    try:
        return answer_question(question)
    except NotPossibleError as error:
        if question.unpooled:
            raise BadInputError(error.message, "give one of these.") from None
        line = output.typed.line(("perfmodel", "project"), replace(question, sharding=ALL))
        raise BadInputError(error.message, f"what is possible:\n  {line}") from None


def print_answer(answer: Answer, output: Output) -> None:
    """Print the answer with one sharding as text or JSON."""
    if output.print_instead(answer):
        return
    answer = note_idle(answer, answer_question)
    changes = list_helping(answer, answer_question)
    experiment = find_next_experiment(answer)
    if output.as_json:
        emit_json("project", **_build_record(answer, output, changes, experiment))
        return
    again, file = _build_again(answer, output), output.calibration_file
    emit(projection_text(answer, changes, experiment, output.typed.machine, file, again))
    for line in answer.notes:
        warn(line)


def print_ranking(ranking: Ranking, output: Output) -> None:
    """Print the fastest sharding, with others beside it, as text or JSON. With ``-v``, all steps.

    Limits: no sharding fits -> BadInputError that says how many GPUs would be enough
    """
    question = ranking.base.question
    if not ranking.best:
        filled = question.table_bytes is None and question.tables is None
        enough = "" if filled or question.gpus is None else name_enough(question)
        ranking = replace(ranking, enough=enough)
        next_step = beside_words(ranking) or "use more GPUs (--gpus), a smaller --batch or --set reserve."
        raise BadInputError(headline(ranking), next_step)
    answer, file = ranking.answer, output.calibration_file
    if output.print_instead(answer):
        return
    answer = note_idle(answer, answer_question)
    if output.as_json:
        emit_json(
            "project",
            **_build_record(answer, output, ranking.changes, ranking.experiment),
            as_good=[other.sharding for other in ranking.as_good],
            leads_among=[name for name in RUN if name not in ranking.unknown],
            unique_rows=_record_beside(ranking.unique_rows),
            left_out=_record_beside(ranking.left_out),
            row_wise=_record_times(ranking.base),
        )
        return
    if is_verbose():
        again, machine = _build_again(answer, output), output.typed.machine
        more = ranking.changes, ranking.experiment, machine, file, again
        emit(projection_text(answer, *more, ways=beside_words(ranking)))
    else:
        emit(ranking_text(ranking, file))
    for line in answer.notes:
        warn(line)


def print_all(question: Question, output: Output) -> None:
    """Print every sharding for the question; for equal tables, also the fastest by table size."""
    base, answers = answer_each(answer_row_wise(question), tuple(WAYS))
    several = question.tables is None
    other = replace(question, gpus=None)
    ask = lambda size: answer_row_wise(replace(other, table_bytes=size))  # noqa: E731
    sizes = list(compare_sizes(ask)) if several else []
    records = [columns_record(SHARDING, answer) for answer in answers]
    if output.as_json:
        record = question.to_dict(base.basis, base.work)
        emit_json(
            "project",
            **record,
            calibration_file=output.calibration_file,
            gpus=base.gpus,
            gpu_count=vars(base.gpu_count) | {"text": str(base.gpu_count)},
            baseline_time_s=base.baseline_time_s,
            sharding=ALL,
            winner=find_fastest(answers).sharding,
            undecided=[answer.sharding for answer in find_ties(answers)],
            shardings=records,
            sizes=[columns_record(SIZES, size) for size in sizes],
            calibrations=list(base.calibrations),
        )
    else:
        fastest = find_fastest(answers)
        pinned = replace(fastest, question=replace(question, sharding=fastest.sharding))
        emit(shardings_text(base, answers, sizes, output.calibration_file, _build_again(pinned, output)))


def _build_again(answer: Answer, output: Output) -> Callable[[Sequence[str]], str]:
    """The function that returns the command which asks for an answer again, from its leading words."""
    return lambda words: output.typed.line(words, answer.question)


def _build_record(
    answer: Answer,
    output: Output,
    changes: Sequence[Sensitivity],
    experiment: NextExperiment | None,
) -> dict[str, Any]:
    """The JSON answer: the answer, changes (and their effects), next_experiment, kernels, its cut."""
    cut = {
        key: value
        for key, value in columns_record(SHARDING, place_row_wise(answer)).items()
        if key not in _IN_STEPS
    }
    return {
        **answer.to_dict(),
        "calibration_file": output.calibration_file,
        "changes": [vars(change) for change in changes],
        "next_experiment": vars(experiment) if experiment else None,
        "kernels": {
            "implementation": answer.setting.kernel_library,
            "timed": answer.setting.kernels is not None,
        },
        **{key: value for key, value in cut.items() if key not in _IN_STEPS},
    }


def _record_times(answer: Answer) -> dict[str, Any]:
    """The entries of an answer beside the one that is compared, by key."""
    return {key: answer.totals[key] for key in _BESIDE} | {"fits": answer.fits}


def _record_beside(answer: Answer | None) -> dict[str, Any] | None:
    """The entries of a sharding beside the one that leads. Limits: none -> None"""
    return {"sharding": answer.sharding, **_record_times(answer)} if answer else None
