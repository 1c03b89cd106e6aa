"""``perfmodel project --sharding``: the answer for a named sharding, for the fastest, or for all of them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from perfmodel.answer import answer_on, answer_question
from perfmodel.answer.inputs import TooFewGpusError
from perfmodel.answer.ranking import (
    AT_MOST,
    RUN,
    Ranking,
    on_enough,
    rank_on_enough,
    rank_shardings,
)
from perfmodel.answer.sharding_answers import (
    ShardingAnswer,
    answer_shardings,
    build_explained_pass,
    by_size,
    undecided,
    winner,
)
from perfmodel.answer.swept import any_fits
from perfmodel.cli.output import emit, emit_explanation, emit_json, is_verbose, note, warn
from perfmodel.cli.project_record import project_record
from perfmodel.engine.schemes import ALL, ROW_WISE, TORCHREC, WAYS
from perfmodel.errors import BadInputError, NoCalibrationError
from perfmodel.report.columns import columns_record
from perfmodel.report.projection_text import projection_text
from perfmodel.report.ranking_text import beside_words, headline, ranking_text, too_large
from perfmodel.report.shardings_text import SHARDING, SIZES, shardings_text
from perfmodel.units import counted, format_count

if TYPE_CHECKING:
    from perfmodel.answer import Projection, Question

    Again = Callable[[Sequence[str], Projection], str]  # the line that asks a command for an answer again


@dataclass(frozen=True)
class Output:
    """How and with which names the answer is printed.

    calibration_file  the user's own; None: a shipped calibration
    again             returns the command that asks for an answer again, from its leading words
    explain           the step that is explained instead of the answer; None: the answer is printed
    """

    as_json: bool
    as_csv: bool
    calibration_file: str | None
    again: Again
    explain: str | None = None

    def print_explanation(self, answer: Projection) -> bool:
        """Print the explanation of a step of the answer, if a step was typed; return whether one was."""
        if self.explain is not None:
            explanation = build_explained_pass(answer).explain(self.explain)
            emit_explanation("project", explanation, as_json=self.as_json, sharding=answer.sharding)
        return self.explain is not None


def with_fitting(
    base: Projection, question: Question, ways: Sequence[str] = tuple(WAYS), *, say: bool = True
) -> tuple[Projection, list[ShardingAnswer]]:
    """The row-wise projection and all shardings in ``ways``, on the fewest GPUs that one of these fits.

    base  the row-wise projection;  say  whether to print a note if that takes more GPUs than ``base``
    Limits: several ways -> the fewest GPUs that one which may lead (``RUN``) fits
    """
    fitting = [way for way in ways if way in RUN] if len(ways) > 1 else ways

    def fits(found: Sequence[ShardingAnswer]) -> bool:
        return any_fits([each for each in found if each.way in fitting])

    found = on_enough(
        base, partial(answer_on, question), lambda each: list(answer_shardings(each, ways)), fits, fitting
    )
    if say:
        _say_more(base, found[0], "no sharding fits" if len(ways) > 1 else f"{ways[0]} does not fit")
    return found


def lead_of(base: Projection, question: Question, out: Output, *, say: bool = True) -> Ranking:
    """The fastest sharding, on the fewest GPUs that any sharding fits.

    base  the row-wise projection;  say  whether to print a note if that takes more GPUs than ``base``
    Limits: no sharding fits the typed GPUs -> it says how many would be enough
    """
    found = rank_on_enough(base, partial(answer_on, question), rank_shardings)
    if say:
        _say_more(base, found.base, "no sharding fits")
    filled = question.table_bytes is None and question.tables is None
    if found.best or filled or question.gpus is None:
        return found
    return replace(found, enough=enough_gpus(question))


@contextlib.contextmanager
def advising_enough(question: Question) -> Iterator[None]:
    """Context in which the error that rows do not fit the GPUs says how many would be enough."""
    try:
        yield
    except TooFewGpusError as error:
        where = f"{error.message} Rows are in host memory." if question.rows else error.message
        raise BadInputError(where, enough_gpus(question) or error.next_step) from None


def enough_gpus(question: Question) -> str:
    """``--gpus 152 fits, sharded table-wise``: the fewest whole nodes that fit, or a note that none fit.

    Limits: no calibration covers so many GPUs -> ""
    """
    try:
        base = answer_question(replace(question, gpus=None))
        _, found = on_enough(base, partial(answer_on, question), rank_shardings, lambda each: bool(each.best))
    except NoCalibrationError:
        return ""
    if found.best:
        nodes = counted(math.ceil(found.answer.gpus / base.gpu_count.gpus_per_node), "node")
        where = f" ({nodes})" if question.rows else ""
        return f"--gpus {found.answer.gpus}{where} fits, sharded {found.way}."
    most = format_count(AT_MOST * base.gpus)
    words = (
        f"no uniform sharding that {TORCHREC} runs fits up to {most} GPUs: on {base.gpus} {too_large(base)}."
    )
    return f"{words} Use a smaller --batch."


def _say_more(base: Projection, found: Projection, which: str) -> None:
    if found.gpus > base.gpus:
        note(f"{which} {base.gpus} GPUs: planned on {found.gpus}, the fewest that it fits.")


def possible(base: Projection, found: ShardingAnswer, again: Again) -> ShardingAnswer:
    """``found`` itself, if the sharding is possible.

    again   returns the command that compares all shardings
    Limits: not possible -> BadInputError with the reason and that command
    """
    way = found.way
    if found.answer is None:
        if base.forward.unpooled:
            raise BadInputError(f"{way} is not possible: {found.why}.", "give one of these.")
        line = again(("perfmodel", "project"), with_sharding(base, ALL))
        raise BadInputError(f"{way} is not possible: {found.why}.", f"what is possible:\n  {line}")
    return found


def with_sharding(base: Projection, way: str) -> Projection:
    """The projection with ``way`` as its question's sharding, so that a command printed from it has it."""
    asked = base.question
    return replace(base, question=replace(asked, sharding=way) if asked else None)


def print_one(base: Projection, question: Question, way: str, out: Output) -> None:
    """Print the answer for the sharding ``way`` as text, JSON or CSV. base  the row-wise projection"""
    base, (found,) = with_fitting(base, question, [way])
    possible(base, found, out.again)
    answer = found.answer
    assert answer is not None and found.plan is not None
    if out.print_explanation(answer):
        return
    if out.as_csv:
        emit(answer.to_frame().to_csv(index=False))
        return
    if out.as_json:
        record = {**answer.to_dict(), "calibration_file": out.calibration_file, **_cut(found)}
        emit_json("project", **record)
        return
    again = _again(out, answer)
    emit(projection_text(answer, (), None, "", out.calibration_file, again))
    for line in answer.notes:
        warn(line)


def print_leading(found: Ranking, out: Output, machine: str) -> None:
    """Print the answer for the fastest uniform sharding, with row-wise beside it, as text, JSON or CSV.

    machine  as the user typed it.  With ``-v``, all steps are printed
    Limits: no sharding fits -> BadInputError that says how many GPUs would be enough
    """
    if not found.best:
        next_step = beside_words(found) or "use more GPUs (--gpus), a smaller --batch or --reserve."
        raise BadInputError(headline(found), next_step)
    answer = found.answer
    if out.print_explanation(answer):
        return
    if out.as_csv:
        emit(answer.to_frame().to_csv(index=False))
        return
    if out.as_json:
        emit_json(
            "project",
            **project_record(answer, out.calibration_file, found.changes, found.experiment)
            | _cut(found.best[0]),
            as_good=[each.way for each in found.as_good],
            leads_among=[way for way in RUN if way not in found.unknown],
            unique_rows=_beside(found.unique_rows),
            left_out=_beside(found.left_out),
            row_wise=_times(found.base),
        )
        return
    if is_verbose():
        more = found.changes, found.experiment, machine, out.calibration_file, _again(out, answer)
        emit(projection_text(answer, *more, ways=beside_words(found)))
    else:
        emit(ranking_text(found, out.calibration_file))
    for line in answer.notes:
        warn(line)


def _times(answer: Projection) -> dict[str, Any]:
    """The entries of an answer beside the one that leads, by key."""
    return {key: answer.totals[key] for key in _BESIDE} | {"fits": answer.gpu_count.fits}


def _beside(other: ShardingAnswer | None) -> dict[str, Any] | None:
    """The entries of a sharding beside the one that leads. Limits: none -> None"""
    return {"sharding": other.way, **_times(other.answer)} if other and other.answer else None


_BESIDE = ("time_s", "low_s", "high_s", "slowdown", "slowdown_low", "slowdown_high", "throughput_ratio")


def _again(out: Output, answer: Projection) -> Callable[[Sequence[str]], str]:
    return lambda words: out.again(words, answer)


def row_wise_cut(base: Projection) -> dict[str, Any]:
    """The entry of row-wise in JSON, as of every other sharding: exchange, parts, memory, ….

    Limits: one memory for all tables -> null, and why;  too many tables to place -> null for the parts
    """
    if base.forward.memory is not None:
        return _cut(ShardingAnswer(ROW_WISE, None, None, 0.0, "one memory shards nothing"))
    try:
        return _cut(next(answer_shardings(base, [ROW_WISE])))
    except BadInputError:
        return _cut(ShardingAnswer(ROW_WISE, None, base, base.gpu_count.memory_bytes))


def _cut(found: ShardingAnswer) -> dict[str, Any]:
    return {name: value for name, value in columns_record(SHARDING, found).items() if name not in _IN_STEPS}


_IN_STEPS = ("time_s", "low_s", "high_s", "slowdown", "slowdown_low", "slowdown_high", "evidence")


def print_all(base: Projection, question: Question, out: Output) -> None:
    """Print every sharding for the question; for equal tables, also the fastest by table size.

    base  the row-wise projection of the question
    """
    base, found = with_fitting(base, question)
    several = question.tables is None and not out.as_csv
    other = replace(question, gpus=None)
    sizes = list(by_size(lambda size: answer_question(replace(other, table_bytes=size)))) if several else []
    if out.as_csv:
        import pandas as pd

        emit(pd.DataFrame([columns_record(SHARDING, each) for each in found]).to_csv(index=False))
        return
    if out.as_json:
        asked = base.question.to_dict(base.forward, base.work) if base.question else {}
        asked.pop("reduction", None)
        emit_json(
            "project",
            **asked,
            calibration_file=out.calibration_file,
            gpus=base.gpus,
            gpu_count=vars(base.gpu_count) | {"text": str(base.gpu_count)},
            baseline_time_s=base.baseline_time_s,
            sharding=ALL,
            winner=winner(found).way,
            undecided=[each.way for each in undecided(found)],
            shardings=[columns_record(SHARDING, each) for each in found],
            sizes=[columns_record(SIZES, size) for size in sizes],
            calibrations=list(base.calibrations),
        )
        return
    first = winner(found)
    best = with_sharding(first.answer or base, first.way)
    emit(shardings_text(base, found, sizes, out.calibration_file, lambda w: out.again(w, best)))
