"""``perfmodel project --sharding``: other ways to shard than row-wise, or all of them side by side."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from perfmodel.cli.output import emit, emit_json, is_verbose, note, warn
from perfmodel.cli.project_record import project_record
from perfmodel.cli.workload import ALL
from perfmodel.effort import EFFORTS
from perfmodel.errors import BadInputError
from perfmodel.passes.schemes import ROW_WISE, WAYS, exchange_named
from perfmodel.plan.as_projection import Compared, compared, evaluator_of, tables_of, undecided, winner
from perfmodel.plan.explain_plan import explain_alike_step
from perfmodel.plan.leading import MOST_COMPARED, Leading, leading, leading_with_host, table_count
from perfmodel.plan.searched import searched_plan
from perfmodel.plan.sizes import by_size
from perfmodel.projections.hosted import Hosted, hosted
from perfmodel.projections.inputs import TooFewGpusError
from perfmodel.projections.sensitivity import next_experiment
from perfmodel.report.columns import columns_record
from perfmodel.report.leading_text import leading_text, too_large, way_words
from perfmodel.report.projection_text import projection_text
from perfmodel.report.shardings_text import SHARDING, SIZES, shardings_text
from perfmodel.units import format_count

if TYPE_CHECKING:
    from perfmodel.cli.question import Question
    from perfmodel.passes.explanation import Explanation
    from perfmodel.projections import Projection

    Again = Callable[[Sequence[str], Projection], str]  # the line that asks a command for an answer again


T = TypeVar("T")


@dataclass(frozen=True)
class Output:
    """How the answer is wanted, and the names that were typed."""

    as_json: bool
    as_csv: bool
    calibration_file: str | None
    again: Again
    host: str | None = None

    def with_host(self, answer: Projection) -> Hosted | None:
        """The answer with the host that was asked for."""
        return None if self.host is None else hosted(answer, self.host, self.calibration_file)


_AT_MOST = 16
"""Times the GPUs that the rows alone need, up to which more are tried."""
_MORE = 1.25


def on_enough(
    base: Projection, question: Question, ways: Sequence[str] = tuple(WAYS)
) -> tuple[Projection, list[Compared]]:
    """The ways on the GPUs of ``base``, or on the fewest whole nodes that one fits (``_enough``)."""
    which = "no sharding fits" if len(ways) > 1 else f"{ways[0]} does not fit"
    return _enough(base, question, lambda each: list(compared(each, ways)), _fits, which)


def leading_on_enough(
    base: Projection, question: Question, of: Callable[[Projection], Leading] = leading
) -> Leading:
    """The best way on the GPUs of ``base``, or on the fewest whole nodes that one fits (``_enough``).

    of  finds it for a number of GPUs
    """
    if table_count(base) > MOST_COMPARED:
        return leading(base)
    return _enough(base, question, of, lambda each: bool(each.best), "no sharding fits")[1]


@contextlib.contextmanager
def advising_enough(question: Question) -> Iterator[None]:
    """Where the rows are more than the GPUs hold: says how many would do (``enough_gpus``)."""
    try:
        yield
    except TooFewGpusError as error:
        raise BadInputError(error.message, enough_gpus(question)) from None


def enough_gpus(question: Question) -> str:
    """``--gpus 152 fits, sharded table-wise``: the fewest whole nodes; or that no number does."""
    free = replace(question, gpus=None)
    base = free.answer()
    found = _enough(base, free, leading, lambda each: bool(each.best))[1]
    if found.best:
        return f"--gpus {found.answer.gpus} fits, sharded {found.way}."
    most = format_count(_AT_MOST * base.gpus)
    words = f"no uniform sharding fits up to {most} GPUs: on {base.gpus} {too_large(base)}."
    return f"{words} Use a smaller --batch."


def _enough(
    base: Projection,
    question: Question,
    on: Callable[[Projection], T],
    fits: Callable[[T], bool],
    which: str = "",
) -> tuple[Projection, T]:
    """What there is on the GPUs of ``base``, or on the fewest nodes that something fits.

    on  what there is for a projection;  which  what does not fit, in words of a note; "": none
    Limits: none fits up to ``_AT_MOST`` times as many, or too many to model -> on those of ``base``
    """
    first = on(base)
    if question.gpus is not None or fits(first):
        return base, first

    def with_gpus(gpus: int) -> tuple[Projection, T] | None:
        more = _fewest(replace(question, gpus=gpus).answer())
        there = on(more)
        return (more, there) if fits(there) else None

    node, few = base.gpu_count.gpus_per_node, base.gpus
    many, found = few, None
    while found is None and many < _AT_MOST * base.gpus:
        few, many = many, node * math.ceil(max(many * _MORE, many + node) / node)
        found = with_gpus(many)
    while found is not None and many - few > node:
        middle = node * ((few + many) // node // 2)
        fewer = with_gpus(middle)
        few, many, found = (middle, many, found) if fewer is None else (few, middle, fewer)
    if found is None:
        return base, first
    if which:
        note(
            f"{which} {base.gpus} GPUs, as many as the rows need: planned on {many}, the fewest whole nodes."
        )
    return found


def _fewest(answer: Projection) -> Projection:
    """With the words of how its number of GPUs came about: nobody gave it."""
    return replace(answer, gpu_count=replace(answer.gpu_count, rule="the fewest whole nodes that it fits"))


def _fits(found: Sequence[Compared]) -> bool:
    return any(each.answer is not None and each.fits for each in found)


def one_way(base: Projection, way: str, again: Again) -> Compared:
    """The answer of one way. Limits: it is not possible -> BadInputError: why, and the line that compares"""
    return possible(base, next(compared(base, [way])), again)


def possible(base: Projection, found: Compared, again: Again) -> Compared:
    """One way of ``base``. Limits: as ``one_way``"""
    way = found.way
    if found.answer is None:
        line = again(("perfmodel", "project"), _with_sharding(base, ALL))
        raise BadInputError(f"{way} is not possible: {found.why}.", f"what is possible:\n  {line}")
    return found


def _with_sharding(base: Projection, way: str) -> Projection:
    """The same question with a sharding, for a line that asks it."""
    asked = base.question
    return replace(base, question=replace(asked, sharding=way) if asked else None)


def print_one(base: Projection, question: Question, way: str, out: Output) -> None:
    """The screen, the document or the steps of one way."""
    base, (found,) = on_enough(base, question, [way])
    possible(base, found, out.again)
    answer = found.answer
    assert answer is not None and found.alike is not None
    issued = out.with_host(answer)
    if out.as_csv:
        emit(answer.to_frame().to_csv(index=False))
        return
    if out.as_json:
        extra = {**_cut(found), "host": issued.to_dict() if issued else None}
        emit_json("project", **{**answer.to_dict(), "calibration_file": out.calibration_file, **extra})
        return
    again = _again(out, answer)
    emit(projection_text(answer, (), None, "", out.calibration_file, again, host=issued))
    for line in answer.notes:
        warn(line)


def print_leading(base: Projection, question: Question, out: Output, machine: str) -> None:
    """The best uniform sharding that fits, row-wise beside it; with ``-v`` the whole screen of the best.

    base  the row-wise answer of the question;  machine  as the user gave it
    With a host that is in its time, and the whole screen.
    """
    host, file = out.host, out.calibration_file
    found = (
        leading_on_enough(base, question)
        if host is None
        else leading_on_enough(base, question, lambda each: leading_with_host(each, host, file))
    )
    answer = found.answer
    issued = out.with_host(answer) if found.best else None
    if out.as_csv:
        emit(answer.to_frame().to_csv(index=False))
        return
    changes, experiment = found.changes(), next_experiment(answer)
    planned = None if out.as_json else planned_time(found)
    if out.as_json:
        row_wise = {key: found.base.totals[key] for key in _BESIDE} | {"fits": found.base.gpu_count.fits}
        emit_json(
            "project",
            **project_record(answer, out.calibration_file, changes, experiment)
            | (_cut(found.best[0]) if found.best else {"sharding": None}),
            as_good=[each.way for each in found.as_good] if host is None else None,
            row_wise=row_wise,
            host=issued.to_dict() if issued else None,
        )
        return
    if is_verbose() or issued is not None:
        ways = way_words(found, out.with_host(found.base))
        again = _again(out, answer)
        emit(projection_text(answer, changes, experiment, machine, file, again, host=issued, ways=ways))
    else:
        enough = "" if found.best or question.gpus is None else enough_gpus(question)
        emit(leading_text(found, changes, experiment, machine, file, planned, enough))
    for line in answer.notes:
        warn(line)


_BESIDE = ("time_s", "low_s", "high_s", "slowdown", "slowdown_low", "slowdown_high")


def _again(out: Output, answer: Projection) -> Callable[[Sequence[str]], str]:
    return lambda words: out.again(words, answer)


def planned_time(found: Leading) -> float | None:
    """The time of a pass where each of several tables has a sharding of its own; None where none is faster.

    Limits: equal tables, more than are compared, nothing fits -> None
    """
    base = found.base
    if table_count(base) > MOST_COMPARED or len(base.work.groups) < 2:
        return None
    tables = tables_of(base.work, "the tables", base.forward.ids)
    try:
        best = searched_plan(base, tables, EFFORTS["quick"]).found
    except BadInputError:
        return None
    return best.cost.time_s if best.cost.time_s < found.answer.time_s or not found.best else None


def explain_way(base: Projection, way: str, step: str, again: Again) -> Explanation:
    """A step of one way, explained; ``again`` as in ``one_way``."""
    found = one_way(base, way, again)
    assert found.answer is not None and found.alike is not None
    return explain_alike_step(found.answer, evaluator_of(base), found.alike, step)


def row_wise_cut(base: Projection) -> dict[str, Any]:
    """What a document says of row-wise when it is named: the same keys as of the other ways.

    Limits: one memory for all tables -> null, and why;  more tables than can be dealt -> null for the parts
    """
    if base.forward.memory is not None:
        return _cut(Compared(ROW_WISE, None, None, 0.0, "one memory shards nothing"))
    try:
        found = _cut(next(compared(base, [ROW_WISE])))
    except BadInputError:
        found = _cut(Compared(ROW_WISE, None, base, base.gpu_count.memory_bytes))
    chosen = exchange_named(base.forward.reduction)
    return found | ({"exchange": chosen.key} if chosen else {})


def _cut(found: Compared) -> dict[str, Any]:
    return {name: value for name, value in columns_record(SHARDING, found).items() if name not in _IN_STEPS}


_IN_STEPS = ("time_s", "low_s", "high_s", "slowdown", "slowdown_low", "slowdown_high", "evidence")


def print_all(base: Projection, question: Question, out: Output) -> None:
    """Every way for one question, and for equal tables which wins at which size.

    base  the row-wise answer of the question
    """
    base, found = on_enough(base, question)
    several = question.tables is None and not out.as_csv
    other = replace(question, gpus=None)
    sizes = list(by_size(lambda size: replace(other, table_bytes=size).answer())) if several else []
    if out.as_csv:
        import pandas as pd

        emit(pd.DataFrame([columns_record(SHARDING, each) for each in found]).to_csv(index=False))
        return
    if out.as_json:
        asked = base.question.to_dict() if base.question else {}
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
    emit(shardings_text(base, found, sizes, out.calibration_file, lambda w: out.again(w, _best(found))))


def _best(found: list[Compared]) -> Projection:
    answer = winner(found).answer
    assert answer is not None
    return answer
