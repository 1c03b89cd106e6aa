"""The page of a traced run: verdict, timelines, steps, reasons, and what was left out."""

from __future__ import annotations

from html import escape

from perfmodel.report.figures.registry import TRACED
from perfmodel.report.figures.words import sentence
from perfmodel.report.page.parts import Card, Page, View
from perfmodel.report.page.question_card import evidence_bar
from perfmodel.report.page.sources import code, folded, named, table, values, versions
from perfmodel.report.projection_text import band
from perfmodel.report.traced_text import findings_besides, headline_words, left_out
from perfmodel.schema.evidence import Evidence
from perfmodel.units import counted, format_bytes, format_ratio, format_time
from perfmodel.validate.traced.results import CALIBRATED, ComparedRun

_MOST_REASONS = 4


def traced_page(run: ComparedRun, command: str) -> Page:
    """The page of a traced run: headline, timeline and steps. command  makes the page again"""
    card = traced_card(run)
    return Page(
        f"{run.run.plan.evaluator.tables.model}: {card.sentence}",
        _provenance(run, command),
        (View((), (card,), TRACED.blocks(run=run)),),
        command,
        besides={"comparison": run.to_dict()},
    )


def traced_card(run: ComparedRun) -> Card:
    """The headline: the verdict, the parts of the time, and the likeliest reasons."""
    trace, predicted = run.run.trace, run.predicted
    steps = (
        f"steps {format_time(run.own_s)}, waiting {format_time(run.wait_s)}, gaps {format_time(run.idle_s)}"
    )
    ranks = f"traces of {len(trace.ranks)} of {counted(trace.world_size, 'rank')}"
    skipped = f", the first {trace.skipped} left out" if trace.skipped else ""
    why = [sentence(each.words) for each in run.reasons[:_MOST_REASONS]]
    besides = [sentence(f"seen besides: {each.words}") for each in findings_besides(run)]
    return Card(
        headline_words(run),
        f"{steps}; {format_ratio(run.measured_s / predicted.time_s)} the prediction",
        f"95 % band {band(predicted.low_s, predicted.high_s)}",
        f"{ranks}, {counted(len(trace.steps), 'iteration')}{skipped}",
        evidence_bar(_evidence(run)),
        "" if trace.complete else "Ranks are missing in these traces: times include the waits for them.",
        [*why, *besides, *left_out(run)],
    )


def _evidence(run: ComparedRun) -> dict[Evidence, float]:
    found: dict[Evidence, float] = {}
    lines = [line for line in run.lines if line.calibrated or run.judged != CALIBRATED]
    total = sum(line.predicted.time_s for line in lines)
    for line in lines:
        kind = Evidence(line.evidence)
        found[kind] = found.get(kind, 0.0) + line.predicted.time_s / total
    return dict(sorted(found.items(), key=lambda item: item[0].rank))


def _provenance(run: ComparedRun, command: str) -> str:
    evaluator = run.run.plan.evaluator
    machine = evaluator.setting.machine
    names = ", ".join(dict.fromkeys(evaluator.setting.links.calibrations))
    head = ("step", "predicted", "band", "measured", "waits", "planned", "sent", "likeliest reason")
    rows = [
        (
            line.label,
            format_time(line.predicted.time_s),
            band(line.predicted.low_s, line.predicted.high_s),
            format_time(line.own_s),
            format_time(line.wait_s) if line.collective else "",
            format_bytes(line.planned_bytes) if line.collective else "",
            format_bytes(line.seen_bytes) if line.collective else "",
            "inside" if line.inside else line.reasons[0].words,
        )
        for line in run.lines
    ]
    return "\n".join(
        [
            f"<p>{named('Machine', machine)}. Tables: {escape(evaluator.tables.model)}.</p>",
            f"<p>Calibrations: {escape(names)}. {versions()}</p>",
            values(machine, "machine"),
            folded(f"Steps ({len(rows)})", table(head, rows)),
            f"<p>To reproduce this page from the same traces:</p>{code(command)}",
        ]
    )
