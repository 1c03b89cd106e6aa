"""The page of a service: headline, latency against load, the parts of the p99, batches, and sources."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from perfmodel.passes.settings import Setting
from perfmodel.report.figures.registry import SERVICE
from perfmodel.report.hourly_text import hourly_words
from perfmodel.report.load_headline import (
    band_words,
    gpus_words,
    most_words,
    rate,
    sharding_words,
    times_words,
    unsure,
)
from perfmodel.report.load_text import CLOSED_HEAD, choice_words, closed_rows, rule_line, stragglers
from perfmodel.report.page.parts import Card, Page, View
from perfmodel.report.page.question_card import evidence_bar
from perfmodel.report.page.sources import code, named, table, values, versions
from perfmodel.service.hourly import HourlyCost
from perfmodel.service.service_load import ServiceLoad, curve
from perfmodel.units import format_count

_CLOSED = (
    "How to read: ≤ and ≥ are bounds that the simulation keeps, ≈ is an estimate, and a plain number is "
    "equal but for the draws. The difference is that of the simulation from the closed form."
)


def load_page(
    answer: ServiceLoad, hourly: HourlyCost, setting: Setting, command: str, alerts: Sequence[str] = ()
) -> Page:
    """The page of ``perfmodel load``: headline, figures of latencies and batches, and sources.

    hourly  the costs per hour;  command  makes the page again;  alerts  doubts about the calibration
    """
    calibrations = ", ".join(dict.fromkeys(setting.links.calibrations))
    evidence = answer.question.served.evidence_at(answer.best.batch)
    source = (
        f"Times of the pass: {calibrations} ({evidence}); simulated, seed {answer.question.arrivals.seed}."
    )
    card, rows = load_card(answer, hourly, setting), curve(answer)
    return Page(
        card.sentence,
        provenance(answer, setting, command),
        (View((), (card,), SERVICE.blocks(answer=answer, rows=rows, source=source)),),
        command,
        alerts=tuple(alerts),
    )


def load_card(answer: ServiceLoad, hourly: HourlyCost, setting: Setting) -> Card:
    """The headline: GPUs, latency, band, batch, machine-hours and money."""
    q = answer.question
    replicas = f"{format_count(answer.replicas)} × {format_count(q.served.gpus)}"
    return Card(
        gpus_words(answer),
        "; ".join(filter(None, (times_words(answer), sharding_words(answer), most_words(answer)))),
        band_words(answer),
        f"{replicas} ({setting.machine.name}); {' '.join(rule_line(answer).split()).removeprefix('Batch ')}",
        evidence_bar({q.served.evidence_at(answer.best.batch): 1.0}),
        "",
        [
            *unsure(answer),
            *(f"{name}: {words}." for name, words in hourly_words(hourly, answer)),
            f"Chosen: {choice_words(answer)}.",
            stragglers(answer),
            f"The pass is {q.served.sharding}.",
            *_rows(answer),
            *setting.notes,
        ],
    )


def _rows(answer: ServiceLoad) -> list[str]:
    """Notes on where the rows are, if they are not in HBM."""
    rows = answer.question.served.rows
    return [f"{rows[0].upper()}{rows[1:]}."] if rows else []


def provenance(answer: ServiceLoad, setting: Setting, command: str) -> str:
    """The sources as HTML: machine, calibrations, arrivals, and the command."""
    names = ", ".join(dict.fromkeys(setting.links.calibrations)) or "none"
    q = answer.question
    many = f"{format_count(q.requests)} requests are simulated at each load"
    how = f"Arrivals: {q.arrivals.name}, seed {q.arrivals.seed}; {many}."
    return "\n".join(
        [
            f"<p>{named('Machine', setting.machine)}.</p>",
            f"<p>Calibrations: {escape(names)}. {versions()}</p>",
            f"<p>{escape(how)} Equations: docs/model.md, What a service sees; with these numbers: perfmodel "
            "explain load.</p>",
            f"<h3>Closed forms beside the simulation, at {escape(rate(answer.asked.load_per_s))}</h3>",
            f"<p>{escape(_CLOSED)}</p>",
            table(("number", *CLOSED_HEAD[:2], "difference"), closed_rows(answer)),
            values(setting.machine, "machine"),
            f"<p>This page again:</p>{code(command)}",
        ]
    )
