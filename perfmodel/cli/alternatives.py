"""``perfmodel alternatives``: what else could one do than shard?"""

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
    from perfmodel.plan.other_ways.one_alternative import Alternative
    from perfmodel.plan.other_ways.winner_map import Crossing, MapCell


def alternatives(context: typer.Context, options: AlternativesOptions) -> None:
    """Print or write the answer."""
    check_page(options.report, None, force=options.force)
    asked = answered(context.params)
    found, cells, crossed, currency = asked.found, asked.cells, asked.crossed, asked.currency
    if options.report is not None:
        _write_page(context, options.report, found, cells, crossed, currency)
    if options.as_json:
        from perfmodel.plan.other_ways.alternatives import question_of as asked_of

        question = asked_of(asked.options)
        emit_json("alternatives", question=question, **_document(found, cells, crossed, currency))
    else:
        from perfmodel.report.alternatives_text import alternatives_text

        emit(alternatives_text(found, cells, crossed, currency))
    if options.report is not None:
        note(f"wrote {options.report}")


def _write_page(
    context: typer.Context,
    out: Path,
    found: list[Alternative],
    cells: list[MapCell],
    crossed: list[Crossing],
    currency: str,
) -> None:
    from perfmodel.cli.page_file import write
    from perfmodel.report.page.alternatives_page import alternatives_page

    typed = TypedLine.of(context)
    command = typed.text(without=("report", "force", "as_json"), more=["--report", out.name, "--force"])
    write(alternatives_page(found, cells, crossed, currency, command), out, "html")


def _document(
    found: list[Alternative], cells: list[MapCell], crossed: list[Crossing], currency: str
) -> dict[str, Any]:
    from perfmodel.plan.other_ways.alternatives import best_of, cheapest_of, fastest_of, rivals_of
    from perfmodel.plan.other_ways.conditions import needed
    from perfmodel.plan.other_ways.one_alternative import SAMPLES

    best, cheapest = best_of(found), cheapest_of(found)
    rival = min(rivals_of(found, best), key=lambda each: each.gpu_hours, default=None)
    needs = {each.name: needed(each, best) for each in found}
    return {
        "cost_samples": SAMPLES,
        "currency": currency or None,
        "winner": best.name,
        "fastest": fastest_of(found).name,
        "cheapest": cheapest and cheapest.name,
        "compared_with": rival and {"name": rival.name, "times_fewer": rival.gpu_hours / best.gpu_hours},
        "alternatives": [{**each.to_dict(), "needed": _needed(needs[each.name])} for each in found],
        "map": [vars(cell) | {"winner": cell.winner or None} for cell in cells],
        "crossings": [vars(each) for each in crossed],
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
