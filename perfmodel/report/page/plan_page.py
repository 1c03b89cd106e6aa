"""The page of a plan: headline, the work and memory of its GPUs, its steps, sources, the plan as data."""

from __future__ import annotations

from collections.abc import Sequence

from perfmodel.answer import Answer
from perfmodel.answer.ranking import Ranking
from perfmodel.engine.training import WholeStep
from perfmodel.plan.files import plan_record
from perfmodel.plan.outcome import Planned
from perfmodel.report.figures.bars import draw_breakdown
from perfmodel.report.figures.gpu_columns import Shown
from perfmodel.report.figures.placements import placements
from perfmodel.report.figures.subject import Subject
from perfmodel.report.page.parts import Card, Page
from perfmodel.report.page.provenance import write_sources
from perfmodel.report.plan_text import bound_words, compare_words, cut_words, limit_words, memory_words
from perfmodel.report.projection_text import band, changed_values
from perfmodel.report.ranking_text import measure_text
from perfmodel.units import counted, format_per_second, format_ratio, format_time

MOST_RANKS = 50_000
"""Most shards of a plan that the page holds as data; ``--out`` saves larger plans."""
_AGAIN = "To reproduce this page"
_STOPPED = (
    "To repeat this page (Ctrl-C ended this search: it may find another plan next time; "
    "--out plan.json keeps one)"
)


def plan_page(
    planned: Planned,
    answer: Answer,
    command: str,
    whole: WholeStep | None = None,
    *,
    alerts: Sequence[str] = (),
) -> Page:
    """The page of a plan: headline, figures, and the plan as data; the reader has nothing to choose.

    answer   the same plan, as ``project`` has answers;  command  plans again and writes the page
    whole    the step with its dense layers; None: none were given
    alerts   doubts about the calibration
    """
    e, card = planned.evaluator, build_card(planned, answer, whole)
    shards = sum(placement.ranks.size for placement in planned.plan.placements)
    record = plan_record(planned.plan, planned.made_for)
    return Page(
        f"{' '.join(e.tables.model.split())} on {counted(e.gpus, 'GPU')}: {card.sentence}",
        write_sources(answer, command, _STOPPED if planned.result.stopped == "interrupt" else _AGAIN),
        card,
        (placements(Shown.of(planned)), draw_breakdown(Subject(answer, answer, planned=True))),
        command,
        alerts=tuple(alerts),
        besides={"plan": record if shards <= MOST_RANKS else None},
    )


def build_card(planned: Planned, answer: Answer, whole: WholeStep | None = None) -> Card:
    """The headline: time with band, speed-up, bound, memory, what limits it. answer, whole  as in the page"""
    e, cost = planned.evaluator, planned.result.cost
    unit = "training step" if planned.training else "batch"
    per_s = format_per_second(answer.samples_per_s, "samples")
    times = [f"{counted(e.batch, 'sample')} on each GPU, {per_s}"]
    times += [compare_words(baseline, cost.time_s) for baseline in planned.baselines]
    bound = bound_words(planned).rstrip(".")
    return Card(
        f"{format_time(cost.time_s)} per {unit} on {counted(e.gpus, 'GPU')}: {_compare_best(planned)}.",
        "; ".join(times),
        f"95 % band {band(cost.low_s, cost.high_s)}" + (f"; {bound[:1].lower()}{bound[1:]}" if bound else ""),
        memory_words(planned),
        answer.evidence_shares(),
        " ".join(measure_text(Ranking(answer, (answer,)), None).split()),
        _list_notes(planned, answer, whole),
        findings=[f"Limits: {limit_words(planned)}"],
    )


def _compare_best(planned: Planned) -> str:
    """How much faster it is than the fastest simple plan that fits; or that none fits."""
    if not planned.baselines:
        return "nothing is sharded"
    times = {plan.name: plan.time_s for plan in planned.baselines if plan.time_s is not None}
    if not times:
        names = " nor ".join(plan.name for plan in planned.baselines)
        return f"neither {names} fits in their memory"
    name = min(times, key=lambda name: times[name])
    ratio = format_ratio(times[name] / planned.result.cost.time_s)
    fast = "as fast" if ratio == format_ratio(1.0) else f"{ratio} as fast"
    return f"{fast} as {name} sharding of all tables"


def _list_notes(planned: Planned, answer: Answer, whole: WholeStep | None) -> list[str]:
    notes = []
    if cut := cut_words(planned):
        notes.append(f"{cut[:1].upper()}{cut[1:]}.")
    if whole is not None:
        unit = "a training step" if whole.training else "a batch"
        notes.append(
            f"With dense layers {format_time(whole.step_s)} {unit} (band "
            f"{band(whole.low_s, whole.high_s)}), overlapped; {format_time(whole.parts.serial_time)} one "
            "after the other. The time above is of the tables alone."
        )
    names = dict.fromkeys(law.name for law in planned.evaluator.tables.ids)
    if list(names) != ["uniform"]:
        notes.append(f"Ids: {', '.join(names)}.")
    return [*notes, *(f"Values {words}." for words in changed_values(answer)), *answer.setting.notes]
