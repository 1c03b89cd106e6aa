"""The page of a plan: headline, the work and memory of its GPUs, its steps, and sources."""

from __future__ import annotations

from perfmodel.answer import Answer
from perfmodel.answer.ranking import Ranking
from perfmodel.engine.training import WholeStep
from perfmodel.plan.outcome import Planned
from perfmodel.report.figures.bars import draw_breakdown
from perfmodel.report.figures.placements import draw_placements
from perfmodel.report.figures.subject import Subject
from perfmodel.report.page.assemble import Card, Page, describe_evidence, write_sources
from perfmodel.report.plan_text import bound_words, compare_words, cut_words, limit_words, memory_words
from perfmodel.report.projection_text import band, changed_values
from perfmodel.report.ranking_text import measure_text
from perfmodel.units import counted, format_per_second, format_time

_AGAIN = "To reproduce this page"
_STOPPED = (
    "To repeat this page (Ctrl-C ended this search: it may find another plan next time; "
    "--out plan.json keeps one)"
)


def plan_page(planned: Planned, answer: Answer, command: str, whole: WholeStep | None = None) -> Page:
    """The page of a plan: headline and figures; the reader has nothing to choose.

    answer   the same plan, as ``project`` has answers;  command  plans again and writes the page
    whole    the step with its dense layers; None: none were given
    """
    e = planned.evaluator
    card = build_card(planned, answer, whole)
    return Page(
        f"{' '.join(e.tables.model.split())} on {counted(e.gpus, 'GPU')}: {card.sentence}",
        card,
        (draw_placements(planned), draw_breakdown(Subject(answer, answer))),
        write_sources(answer, command, _STOPPED if planned.result.stopped == "interrupt" else _AGAIN),
    )


def build_card(planned: Planned, answer: Answer, whole: WholeStep | None = None) -> Card:
    """The headline: time with band, speed-up, bound, memory, limits. answer, whole  as of ``plan_page``"""
    e = planned.evaluator
    cost = planned.costed.cost
    unit = "training step" if planned.training else "batch"
    rate = format_per_second(answer.samples_per_s, "samples")
    times = [f"{counted(e.batch, 'sample')} on each GPU, {rate}"]
    times += [compare_words(baseline, cost.time_s) for baseline in planned.baselines]
    words = [words.rstrip(".") for words in (cut_words(planned), bound_words(planned)) if words]
    notes = []
    if whole is not None:
        notes.append(
            f"With dense layers {format_time(whole.step_s)} {unit} (band {band(whole.low_s, whole.high_s)}), "
            f"overlapped; {format_time(whole.parts.serial_time)} one after the other. The time above is of "
            "the tables alone."
        )
    names = dict.fromkeys(law.name for law in e.tables.ids)
    notes += [f"Ids: {', '.join(names)}."] if list(names) != ["uniform"] else []
    return Card(
        f"{format_time(cost.time_s)} per {unit} on {counted(e.gpus, 'GPU')} (95 % band "
        f"{band(cost.low_s, cost.high_s)})",
        ("; ".join(times), "; ".join(words), f"Memory: {memory_words(planned)}", describe_evidence(answer)),
        [f"Limits: {limit_words(planned)}"],
        " ".join(measure_text(Ranking(answer, (answer,))).split()),
        [*notes, *(f"Values {words}." for words in changed_values(answer)), *answer.setting.notes],
    )
