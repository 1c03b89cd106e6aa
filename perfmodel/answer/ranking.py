"""The shardings of all tables, compared: which fit, which is the fastest, and which TorchRec runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from perfmodel.answer.answer import Answer, answer_on, answer_plan, answer_row_wise
from perfmodel.answer.inputs import TooFewGpusError
from perfmodel.answer.question import Question
from perfmodel.answer.uniform_plans import Impossible, UniformPlan, UniformPlans
from perfmodel.answer.what_would_help import NextExperiment, Sensitivity, find_next_experiment, list_helping
from perfmodel.engine.grid import build_times, choose_exchanges, count_loads, cut_tables
from perfmodel.engine.loads import sum_even_loads
from perfmodel.engine.schemes import ALL, PLANNED, ROW_WISE, ROWS_ONCE, TORCHREC, WAYS, copied
from perfmodel.engine.steps import STEPS, sum_causes
from perfmodel.errors import BadInputError, NoCalibrationError
from perfmodel.model import capacity
from perfmodel.model.bands import compute_difference_band
from perfmodel.units import counted, format_count

if TYPE_CHECKING:
    from perfmodel.engine.explained import ExplainedPass

T = TypeVar("T")


class NotPossibleError(BadInputError):
    """Raised if tables, GPUs or measurements do not allow the sharding of a question."""


RUN = tuple(name for name, way in WAYS.items() if way.torchrec and not copied(way.exchange))
"""Shardings that TorchRec runs and that spread tables over GPUs: only these can lead an answer."""
LEFT_OUT = tuple(name for name, way in WAYS.items() if way.runs and name not in (*RUN, ROWS_ONCE))
"""Other shardings that somebody runs: replicas on all GPUs, and EMBark's besides unique rows."""
AT_MOST = 16
"""Multiple of the GPUs that the rows alone need: the most GPUs that are tried."""
_MORE = 1.25


def plan_shardings(base: Answer) -> UniformPlans:
    """The uniform plans for the tables of a row-wise answer, on its machine, batch and GPUs.

    Limits: more than ``uniform_plans.MOST_TABLES`` tables -> BadInputError
    """
    model = base.question.model or "the tables"
    return UniformPlans.of(base.basis, base.work, base.gpu_count.usable_bytes, model)


def answer_shardings(base: Answer, shardings: Iterable[str] = WAYS) -> Iterator[Answer | Impossible]:
    """Answer the question of ``base``, a row-wise answer, with each of these shardings.

    The other answers are plans of the same tables on the same GPUs.
    """
    plans = plan_shardings(base)
    names = list(shardings)
    plans.bound_times(names)  # of all together
    for name in names:
        yield answer_sharding(base, plans, name)


def answer_sharding(base: Answer, plans: UniformPlans, name: str) -> Answer | Impossible:
    """The answer with the best plan of one sharding; of row-wise ``base`` itself, with its plan."""
    best = plans.find_best(name)
    if name == ROW_WISE:
        return replace(base, plan=best) if isinstance(best, UniformPlan) else base
    return best if isinstance(best, Impossible) else answer_plan(base, best)


def find_fastest(answers: Iterable[Answer | Impossible]) -> Answer:
    """The fastest answer that fits, or the fastest of all if none fits.

    Equally fast ones: the simpler sharding (earlier in ``WAYS``).
    """
    possible = [answer for answer in answers if isinstance(answer, Answer)]
    if not possible:
        raise BadInputError("no sharding of these tables fits.", "use more GPUs.")
    return min([answer for answer in possible if answer.fits] or possible, key=lambda a: a.rounded_s)


def find_ties(answers: Iterable[Answer | Impossible]) -> tuple[Answer, ...]:
    """Answers that fit and are slower than the fastest by less than the uncertainty, fastest first.

    Source: ``bands.compute_difference_band``
    Limits: one GPU -> none;  a sharding with the same plan as the fastest -> left out
    """
    possible = [answer for answer in answers if isinstance(answer, Answer)]
    fastest = find_fastest(possible)
    slower = [a for a in possible if a.fits and a.rounded_s > fastest.rounded_s]
    return tuple(a for a in sorted(slower, key=lambda a: a.time_s) if not is_slower(a, fastest))


def is_slower(slower: Answer, fastest: Answer) -> bool:
    """Whether a time exceeds another on the same machine by more than the uncertainty of their difference.

    Source: ``bands.compute_difference_band``
    """
    causes = []
    for answer in (slower, fastest):  # cause of error: the curve of a collective, or that of a kernel
        times = []
        for row in answer.steps:
            step = STEPS[row.name]
            cause = step.cause if step.is_kernel else f"{row.collective} {step.ranks}"
            times.append((cause, row.low_s, row.time_s, row.high_s))
        causes.append(sum_causes(times))
    return bool(compute_difference_band(*causes)[0] > 0)


class Beside(NamedTuple):
    """Answers with shardings that TorchRec does not run; None: nothing or it does not fit.

    unique_rows  if unique rows are sent
    left_out     the fastest of ``LEFT_OUT``, if it is faster than the best and than unique rows
    """

    unique_rows: Answer | None = None
    left_out: Answer | None = None


@dataclass(frozen=True, eq=False)
class Ranking:
    """The answers of one question: of a plan, with the shardings that fit, fastest first, and row-wise.

    base     the row-wise answer
    best     answers with one sharding for all tables that fit; empty if none fits; slower ones only if they
             may be the fastest
    unknown  shardings that are not compared, because no calibration has their exchanges
    planned  the answer of a plan that is faster than ``best``
    """

    base: Answer
    best: tuple[Answer, ...]
    unknown: tuple[str, ...] = ()
    planned: Answer | None = None

    @property
    def fits(self) -> bool:
        """Whether a plan or a sharding fits."""
        return bool(self.best or self.planned)

    @property
    def answer(self) -> Answer:
        """What leads: the plan, or the fastest answer; row-wise if nothing fits."""
        return self.planned or (self.best[0] if self.best else self.base)

    @property
    def uniform(self) -> Answer | None:
        """The fastest answer with one sharding for all tables, where a plan leads."""
        return self.best[0] if self.planned and self.best else None

    @property
    def as_good(self) -> tuple[Answer, ...]:
        """Answers that are slower than the leading one by less than the uncertainty: they may be as fast."""
        slower = [answer for answer in self.best if answer is not self.answer]
        return tuple(answer for answer in slower if not is_slower(answer, self.answer))

    @cached_property
    def beside(self) -> Beside:
        """Answers with shardings that TorchRec does not run.

        Limits: nothing or it does not fit, one GPU -> none
        """
        if not self.fits or self.base.gpus == 1:
            return Beside()
        every = list(answer_shardings(self.base, (ROWS_ONCE, *LEFT_OUT)))
        answers = [answer for answer in every if isinstance(answer, Answer)]
        unique = next((answer for answer in answers if answer.sharding == ROWS_ONCE), None)
        least_s = min(answer.rounded_s for answer in (self.answer, unique) if answer)
        faster = [answer for answer in answers if answer is not unique and answer.rounded_s < least_s]
        return Beside(unique, min(faster, key=lambda answer: answer.time_s, default=None))

    @cached_property
    def experiment(self) -> NextExperiment | None:
        """The measurement that would narrow the band of the answer most; None if nothing fits."""
        return find_next_experiment(self.answer) if self.fits else None

    @cached_property
    def changes(self) -> tuple[Sensitivity, ...]:
        """What other links, libraries and batches would change, each with the sharding that is fastest then;
        the shortest time first.
        """
        return list_helping(self.answer, answer_question)


def answer_each(
    base: Answer, names: Sequence[str], above: int = 0
) -> tuple[Answer, list[Answer | Impossible]]:
    """(row-wise answer, the answers with these shardings) on the fewest GPUs that one of them fits.

    above  GPUs that do not fit, as in ``find_enough``

    Limits: several shardings -> the fewest GPUs that one which may lead (``RUN``) fits
    """
    fitting = [name for name in names if name in RUN] if len(names) > 1 else names
    return find_enough(
        (base, list(answer_shardings(base, names))),
        lambda more: list(answer_shardings(more, names)),
        lambda answers: any(answer.fits for answer in answers if answer.sharding in fitting),
        above=above,
    )


def answer_question(question: Question) -> Answer:
    """The answer of a question: with its sharding, else with the fastest that TorchRec runs.

    Limits: the sharding is not possible for these tables and GPUs -> BadInputError;  none fits -> row-wise
    """
    name = question.sharding
    if name is None:
        return rank(answer_row_wise(question)).answer
    if name == ROW_WISE:
        return answer_row_wise(question)
    (named,) = answer_each(answer_row_wise(question), [name])[1]
    if isinstance(named, Impossible):
        raise NotPossibleError(f"{name} is not possible: {named.explain()}.", "--sharding all says what is.")
    return named


def find_within(question: Question, limit_s: float) -> Answer | None:
    """The fastest answer with a sharding that somebody runs, of those whose band ends within a time [s].

    Limits: none does, or too many tables to pack -> None
    """
    names = [name for name, way in WAYS.items() if way.runs]
    with suppress(BadInputError):
        answers = answer_shardings(answer_row_wise(question), names)
        return find_fastest(
            x for x in answers if isinstance(x, Answer) and x.fits and x.totals["high_s"] <= limit_s
        )
    return None


def place_row_wise(answer: Answer) -> Answer:
    """A row-wise answer costed as a plan. Limits: another sharding, too many tables -> as it was"""
    placed: Answer | Impossible = answer
    if answer.sharding == ROW_WISE:
        with suppress(BadInputError):
            (placed,) = answer_shardings(answer, [ROW_WISE])
    assert isinstance(placed, Answer)
    return placed


def rank(base: Answer, above: int = 0) -> Ranking:
    """The ranking on the given GPUs, else on the fewest that a plan or a sharding fits (``find_enough``).

    base  the row-wise answer of a question that names no sharding;  above  GPUs that do not fit
    Of a table set a plan on these GPUs leads, if it is faster.
    Limits: one GPU -> row-wise alone
    """
    ranking = rank_shardings(base)
    enough = find_enough(
        (base, ranking), lambda more: _lead_by_plan(rank_shardings(more)), lambda x: x.fits, above=above
    )[1]
    return _lead_by_plan(ranking) if enough is ranking else enough


def name_enough(question: Question, copies: int = 1) -> str:
    """``--gpus 152 fits, sharded grid.``: the fewest GPUs that fit, which are more than the question names.

    copies  of the tables, each on as many GPUs
    Limits: no number fits -> a note that says so;  no such question has an answer -> ""
    """
    try:
        base = answer_row_wise(replace(question, gpus=None, sharding=None))
        above = question.gpus or 0
        if question.sharding in (None, ALL):
            best: Answer | Impossible = rank(base, above).answer
        else:
            (best,) = answer_each(base, [question.sharding], above)[1]
    except (BadInputError, NoCalibrationError):
        return ""
    if isinstance(best, Answer) and best.fits:
        nodes = math.ceil(best.gpus / best.gpu_count.gpus_per_node)
        where = f" ({counted(nodes, 'node')})" if question.rows else ""
        how = "table by table" if best.sharding == PLANNED else best.sharding
        return f"--gpus {best.gpus * copies}{where} fits, sharded {how}."
    held = base.gpu_count.describe_memory("{} ({})")
    why = best.explain() if isinstance(best, Impossible) else f"on {base.gpus} {ROW_WISE} needs {held}"
    limit = f"up to {format_count(AT_MOST * base.gpus)} GPUs: {why}."
    if question.sharding in (None, ALL):
        return f"no sharding that {TORCHREC} runs fits {limit} Use a smaller --batch."
    return f"{question.sharding} does not fit {limit} Use another --sharding, or a smaller --batch."


def name_gpus(question: Question, error: TooFewGpusError, copies: int = 1) -> BadInputError:
    """The error, with the number of GPUs that fits as its next step. copies  as in ``name_enough``"""
    where = f"{error.message} Rows are in host memory." if question.rows else error.message
    return BadInputError(where, name_enough(question, copies) or error.next_step)


def _lead_by_plan(ranking: Ranking) -> Ranking:
    """The ranking, led by a plan of a table set on these GPUs, if it is faster."""
    base = ranking.base
    planner = base.question.planner
    if planner is None or base.question.table_set is None or base.gpus == 1:
        return ranking
    return replace(ranking, planned=planner(ranking))


def find_enough(
    first: tuple[Answer, T], make: Callable[[Answer], T], fits: Callable[[T], bool], *, above: int = 0
) -> tuple[Answer, T]:
    """(row-wise answer, result) on the fewest GPUs where it fits: any number in a node, else whole nodes.

    first  of as many GPUs as row-wise needs: other shardings have smaller buffers and may fit fewer
    make  makes the result of a row-wise answer;  fits  returns whether a result fits the memory
    above  GPUs that do not fit: only more are tried; if they are no whole nodes, any number
    Limits: GPUs were given, or none fits up to ``AT_MOST`` times as many -> ``first``
    """
    base, count = first[0], first[0].gpu_count

    def try_gpus(gpus: int) -> tuple[Answer, T] | None:  # None: these do not fit, or cannot be answered
        try:
            larger = _explain_fewest(answer_on(base.question, gpus))
            result = make(larger)
        except (BadInputError, NoCalibrationError):  # not measured, fewer rows than GPUs, indivisible batch
            return None
        return (larger, result) if fits(result) else None

    if base.work.given_gpus or base.gpus == 1:
        return first
    tried = base.gpus
    enough = first if fits(first[1]) else None
    node = 1 if above % count.gpus_per_node else count.gpus_per_node
    while enough is None and tried < AT_MOST * base.gpus:
        tried = node * math.ceil(tried * _MORE / node)
        enough = try_gpus(tried)
    if enough is None:
        return first
    fewer = capacity.list_allowed_gpus(max(count.for_rows, above + 1), tried - 1, node)
    return next((less for gpus in fewer if (less := try_gpus(gpus))), enough)


def _explain_fewest(answer: Answer) -> Answer:
    """The answer, with a note on why it uses this number of GPUs, which the user did not give."""
    counts = "nodes" if answer.gpus > answer.gpu_count.gpus_per_node else "GPUs"
    count = replace(answer.gpu_count, needed=answer.gpus, rule=f"the fewest {counts}")
    return replace(answer, gpu_count=count, totals=answer.totals | {"gpus_needed": float(answer.gpus)})


def rank_shardings(base: Answer) -> Ranking:
    """Compare shardings; stops when no other sharding can be as fast as the second best.

    base  the row-wise answer
    Limits: one GPU -> row-wise alone
    """
    answers = [base] if base.fits else []
    if base.gpus == 1:
        return Ranking(base, tuple(answers))
    plans = plan_shardings(base)
    bounds, unknown = plans.bound_times([name for name in RUN if name != ROW_WISE])
    for name in sorted(bounds, key=lambda name: bounds[name]):
        slower = sorted({answer.rounded_s for answer in answers})[1:]
        if any(bounds[name] >= time_s for time_s in slower):
            continue
        answer = answer_sharding(base, plans, name)
        answers += [answer] if isinstance(answer, Answer) else []
    fastest: dict[float, Answer] = {}  # by time: of equally fast ones the simpler, earlier in ``WAYS``
    for answer in sorted(answers, key=lambda a: (a.rounded_s, list(WAYS).index(a.sharding))):
        fastest.setdefault(answer.rounded_s, answer)
    return Ranking(base, tuple(fastest.values()), tuple(name for name in unknown if name != ROW_WISE))


def build_explained_pass(answer: Answer) -> ExplainedPass:
    """The pass of an answer, to explain its steps; in a row-wise one all ranks have the same loads."""
    from perfmodel.engine.explained import ExplainedPass  # which an answer alone does not load

    plan = None if answer.sharding == ROW_WISE else answer.plan
    if plan is not None:
        return ExplainedPass.from_plan(plan.costed)
    basis, work = answer.basis, answer.work
    kind, times = choose_exchanges(basis, work), build_times(basis, work)
    loads = count_loads(basis, work, kind)

    cuts = [cut_tables(basis, work, kind, slice(x, x + 1)) for x in range(len(work.tables))]
    counts, names = work.tables.count[:, 0], work.tables.names
    firsts = (np.cumsum(counts) - counts).astype(int).tolist()
    by_table = np.concatenate([sum_even_loads(table, count) for table, count in cuts])
    return ExplainedPass(
        times=times,
        rows=answer.steps,
        timing=lambda step: times.time_step(step, loads),
        names=[names[begin] if names else f"table_{begin}" for begin in firsts],
        counts=counts,
        cut=lambda table: cut_tables(basis, work, kind, slice(table, table + 1))[0],
        on_rank=lambda _: (counts, by_table),
    )
