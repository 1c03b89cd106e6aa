"""``perfmodel alternatives``: sharding compared with host memory, SSDs and other machines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from perfmodel.cli.alternatives_answer import answered
from perfmodel.cli.output import emit, emit_json, note
from perfmodel.cli.plan_options import check_page
from perfmodel.cli.typed_line import TypedLine
from perfmodel.question.passes import AlternativesOptions

if TYPE_CHECKING:
    from perfmodel.cli.alternatives_answer import AlternativesAnswer


def alternatives(context: typer.Context, options: AlternativesOptions) -> None:
    """Compare sharding with its alternatives, and print them as text or JSON, or write a page."""
    check_page(options.report, None, force=options.force)
    asked = answered(context.params)
    if options.report is not None:
        _write_page(context, options.report, asked)
    if options.as_json:
        from perfmodel.plan.other_ways.alternatives import question_of as asked_of

        question = asked_of(asked.options)
        emit_json("alternatives", question=question, **_document(asked))
    else:
        from perfmodel.report.alternatives_text import alternatives_text

        emit(alternatives_text(asked.found, asked.cells, asked.crossed, asked.currency, asked.by))
    if options.report is not None:
        note(f"wrote {options.report}")


def _write_page(context: typer.Context, out: Path, asked: AlternativesAnswer) -> None:
    from perfmodel.cli.page_file import write
    from perfmodel.report.page.alternatives_page import alternatives_page

    typed = TypedLine.of(context)
    command = typed.text(without=("report", "force", "as_json"), more=["--report", out.name, "--force"])
    page = alternatives_page(asked.found, asked.cells, asked.crossed, asked.currency, command, asked.by)
    write(page, out, "html")


def _document(asked: AlternativesAnswer) -> dict[str, Any]:
    from perfmodel.plan.other_ways.alternatives import best_of, cheapest_of, fastest_of, rivals_of
    from perfmodel.plan.other_ways.conditions import needed, price_to_match
    from perfmodel.plan.other_ways.criteria import COST, CRITERIA
    from perfmodel.plan.other_ways.one_alternative import SAMPLES

    found, by = asked.found, asked.by
    best, cheapest = best_of(found, by), cheapest_of(found)
    rival = min(rivals_of(found, best), key=by.measure, default=None)
    needs = {each.name: needed(each, best, by) for each in found}
    winners = {name: best_of(found, each) for name, each in CRITERIA.items() if each is not COST or cheapest}
    return {
        "cost_samples": SAMPLES,
        "currency": asked.currency or None,
        "by": by.name,
        "winner": best.name,
        "cannot_tell": {
            name: [each.name for each in CRITERIA[name].as_good(found, first)]
            for name, first in winners.items()
        },
        "fastest": fastest_of(found).name,
        "cheapest": cheapest and cheapest.name,
        "compared_with": rival and {"name": rival.name, "times_fewer": by.measure(rival) / by.measure(best)},
        "alternatives": [
            {
                **each.to_dict(),
                "needed": _needed(needs[each.name]),
                "price_to_match": price_to_match(each, cheapest.cost if cheapest else None),
            }
            for each in found
        ],
        "map": [cell.to_dict() for cell in asked.cells],
        "crossings": [vars(each) for each in asked.crossed],
    }


def _needed(need: Any) -> dict[str, Any] | None:
    if need is None:
        return None
    steps = [step.name for step in need.steps]
    return {
        "target_s": need.target_s,
        "step": need.step.name,
        "steps": steps,
        "times_faster": need.factor,
        "rest_s": need.rest_s,
    }
