"""The page of a plan: headline, figures, sources, and the plan itself as data."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from perfmodel.engine.explained import ExplainedPass
from perfmodel.engine.training import WholeStep
from perfmodel.plan.files import plan_record
from perfmodel.plan.outcome import Planned
from perfmodel.report.figures.block import Block, Missing
from perfmodel.report.figures.gpu_columns import Shown
from perfmodel.report.figures.placements import placements
from perfmodel.report.figures.plan_steps import steps
from perfmodel.report.page.parts import Card, Page
from perfmodel.report.page.provenance import (
    describe_machine,
    describe_versions,
    list_equations,
    list_machine_values,
    write_code,
)
from perfmodel.report.plan_text import bound_words, compared_with, cut_words, kept_words
from perfmodel.report.projection_text import band
from perfmodel.schema.evidence import MAIN_SHARE, Evidence
from perfmodel.units import (
    counted,
    format_bytes,
    format_count,
    format_fraction,
    format_per_second,
    format_ratio,
    format_time,
)

MOST_RANKS = 50_000
"""Most shards of a plan that the page holds as data; ``--out`` saves larger plans."""


def plan_page(
    answer: Planned,
    command: str,
    whole: WholeStep | None = None,
    *,
    alerts: Sequence[str] = (),
) -> Page:
    """The page of a plan: headline, figures, and the plan as data; the reader has nothing to choose.

    command  plans again and writes the page
    whole    the step with its dense layers; None: none were given
    alerts   doubts about the calibration
    """
    e, card = answer.evaluator, plan_card(answer, whole)
    shards = sum(placement.ranks.size for placement in answer.plan.placements)
    record = plan_record(answer.plan, answer.made_for)
    return Page(
        f"{one_line(e.tables.model)} on {counted(e.gpus, 'GPU')}: {card.sentence}",
        provenance(answer, command),
        card,
        plan_blocks(answer),
        command,
        alerts=tuple(alerts),
        besides={"plan": record if shards <= MOST_RANKS else None},
    )


def one_line(text: str) -> str:
    """The text on a single line."""
    return " ".join(text.split())


def plan_blocks(answer: Planned) -> tuple[Block | Missing, ...]:
    """All figures of a plan, in the order of the reader's questions."""
    shown = Shown.of(answer)
    return placements(shown), steps(shown)


def plan_card(answer: Planned, whole: WholeStep | None = None) -> Card:
    """The headline: time with band, speed-up, bound, memory. whole  as in ``plan_page``"""
    e, cost = answer.evaluator, answer.found.cost
    what = "training step" if answer.training else "batch"
    per_s = format_per_second(e.batch * e.gpus / cost.time_s, "samples")
    times = [f"{counted(e.batch, 'sample')} on each GPU, {per_s}"]
    times += [compared_with(item, cost.time_s) for item in answer.baselines]
    return Card(
        f"{format_time(cost.time_s)} per {what} on {counted(e.gpus, 'GPU')}: {_against(answer)}.",
        "; ".join(times),
        _band(answer),
        _gpus(answer),
        evidence_shares(answer),
        _alert(answer),
        _notes(answer, whole),
    )


def _against(answer: Planned) -> str:
    """How much faster it is than the fastest simple plan that fits; or that none fits."""
    if answer.evaluator.gpus == 1:
        return "nothing is sharded"
    fitting = [item for item in answer.baselines if item.time_s is not None]
    if not fitting:
        names = " nor ".join(item.name for item in answer.baselines)
        return f"neither {names} fits in their memory"
    best = min(fitting, key=lambda item: item.time_s or 0.0)
    ratio = (best.time_s or 0.0) / answer.found.cost.time_s
    if format_ratio(ratio) == format_ratio(1.0):
        return f"as fast as {best.name} sharding of all tables"
    return f"{format_ratio(ratio)} as fast as {best.name} sharding of all tables"


def _band(answer: Planned) -> str:
    """The band of the time, and the bound if it is printed."""
    cost, words = answer.found.cost, bound_words(answer).rstrip(".")
    bound = f"; {words[:1].lower()}{words[1:]}" if words else ""
    return f"95 % band {band(cost.low_s, cost.high_s)}{bound}"


def _gpus(answer: Planned) -> str:
    e, total = answer.evaluator, answer.found.memory.total_bytes
    domains = f" in {e.setting.machine.links.scale_up} domains of {e.domain}" if 1 < e.domain < e.gpus else ""
    size, full, limit = (
        format_bytes(value, binary=False)
        for value in (e.memories.table_bytes, float(total.max()), answer.found.limit_bytes)
    )
    return (
        f"{format_count(e.gpus)}{domains}, for {counted(len(e.tables), 'table')} of {size}; memory {full} of "
        f"{limit} on the fullest (rank {int(np.argmax(total))}), {kept_words(answer)}"
    )


def evidence_shares(answer: Planned) -> dict[Evidence, float]:
    """By kind of evidence, the share of the time in steps with it, the strongest evidence first."""
    cost = answer.found.cost
    found: dict[Evidence, float] = {}
    for row in sorted(cost.rows, key=lambda row: row.evidence.rank):
        found[row.evidence] = found.get(row.evidence, 0.0) + row.time_s / cost.time_s
    return found


def _alert(answer: Planned) -> str:
    """Which steps are assumed and how to measure them, if they take over a fifth of the time; else ""."""
    share = evidence_shares(answer).get(Evidence.ASSUMED, 0.0)
    if share <= MAIN_SHARE:
        return ""
    rows = [row for row in answer.found.cost.rows if row.evidence == Evidence.ASSUMED]
    rows.sort(key=lambda row: -row.time_s)
    names = ", ".join(row.label for row in rows[:3])
    more = f" and {len(rows) - 3} more" if len(rows) > 3 else ""
    return (
        f"{format_fraction(share)} of the time rests on something assumed: {names}{more}. To measure it, run "
        "perfmodel calibrate on such a machine, and plan with --calibration latest."
    )


def _notes(answer: Planned, whole: WholeStep | None) -> list[str]:
    e = answer.evaluator
    machine = e.setting.machine
    notes = []
    if cut := cut_words(answer):
        notes.append(f"{cut[:1].upper()}{cut[1:]}.")
    if whole is not None:
        what = "a training step" if whole.training else "a batch"
        notes.append(
            f"With dense layers {format_time(whole.step_s)} {what} (band "
            f"{band(whole.low_s, whole.high_s)}), overlapped; {format_time(whole.parts.serial_time)} one "
            "after the other. The time above is of the tables alone."
        )
    names = dict.fromkeys(each.name for each in e.tables.ids)
    if list(names) != ["uniform"]:
        notes.append(f"Ids: {', '.join(names)}.")
    if machine.overrides:
        values = ", ".join(f"{key} = {machine.quantity(key)}" for key in sorted(machine.overrides))
        notes.append(f"Changed for this page: {values}.")
    return notes + list(e.setting.notes)


def provenance(answer: Planned, command: str) -> str:
    """The sources as HTML: machine, equations of the steps, command."""
    e = answer.evaluator
    machine = e.setting.machine
    names = ", ".join(dict.fromkeys(e.setting.links.calibrations)) or "none"
    stopped = answer.found.stopped == "interrupt"
    again = f"To repeat this page ({_STOPPED})" if stopped else "To reproduce this page"
    return "\n".join(
        [
            f"<p>{describe_machine(machine)}. Tables: {escape(e.tables.model)}.</p>",
            f"<p>Calibrations: {escape(names)}. {describe_versions()}</p>",
            list_machine_values(machine),
            *list_equations(ExplainedPass.from_plan(e, answer.plan, answer.found.cost.rows)),
            f"<p>{escape(again)}:</p>{write_code(command)}",
        ]
    )


_STOPPED = "Ctrl-C ended this search: it may find another plan next time; --out plan.json keeps one"
