"""The page of ``perfmodel alternatives``: headline, times by step, costs, and the map of winners."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from perfmodel.plan.other_ways.alternatives import best_of
from perfmodel.plan.other_ways.criteria import GPU_HOURS, Criterion
from perfmodel.plan.other_ways.map_cells import Crossing, MapCell
from perfmodel.plan.other_ways.one_alternative import Alternative
from perfmodel.report.alternatives_text import (
    HYPOTHETICAL,
    by_goal,
    columns_of,
    headlines,
    how_words,
    needed_words,
    paid_words,
)
from perfmodel.report.columns import columns_cells
from perfmodel.report.figures.registry import BESIDE_SHARDING
from perfmodel.report.page.parts import Card, Page, View
from perfmodel.report.page.sources import code, folded, named, table, values, versions
from perfmodel.report.winner_map_text import crossing_words


def alternatives_page(
    found: Sequence[Alternative],
    cells: Sequence[MapCell],
    crossed: Sequence[Crossing],
    currency: str,
    command: str,
    by: Criterion = GPU_HOURS,
) -> Page:
    """The page of ``perfmodel alternatives``: headline, figures, sources with all numbers and conditions.

    crossed  batches at which the winner changes;  currency  "": no prices were given
    command  asks again and writes the page
    by       the criterion of the ranking and of the conditions
    """
    first, second, *rest = headlines(found, currency, by)
    notes = [HYPOTHETICAL]
    notes += [f"{each.label} on {each.machine} is not possible: {each.why}." for each in found if each.why]
    card = Card(first, second, " ".join(rest), notes=[*notes, *paid_words(found)])
    blocks = BESIDE_SHARDING.blocks(found=found, cells=cells, currency=currency)
    return Page(
        f"Alternatives to sharding: {first}",
        _provenance(found, crossed, currency, command, by),
        (View((), (card,), blocks),),
        command,
    )


def _provenance(
    found: Sequence[Alternative], crossed: Sequence[Crossing], currency: str, command: str, by: Criterion
) -> str:
    """The sources as HTML: numbers, conditions, crossings, machines with their values, and the command."""
    best, shown = best_of(list(found), by), [each for each in found if each.answer]
    machines = {each.machine: each.answer.setting.machine for each in shown if each.answer}
    needs = needed_words(found, currency, by)
    lines = [words for words in map(crossing_words, crossed)]
    return "\n".join(
        [
            "<h3>Side by side</h3>",
            table(*columns_cells(columns_of(currency), shown)),
            "<h3>How</h3>",
            table(("alternative", "rows, machine, GPUs, evidence"), [(e.label, how_words(e)) for e in shown]),
            f"<h3>What would have to be true to {by_goal(by)} as {escape(best.label)}</h3>",
            table(("alternative", "condition"), needs),
            *(
                [
                    "<h3>Where the fewest GPU-hours change with the batch</h3>",
                    table(("where", "crossing"), lines),
                ]
                if lines
                else []
            ),
            "<p>Modelled, not measured: the equations are in docs/model.md#memory-tiers.</p>",
            *(
                f"<p>{named('Machine', machine)}.</p>{values(machine, 'machine')}"
                for machine in machines.values()
            ),
            f"<p>{versions()}</p>",
            folded("This page again", code(command)),
        ]
    )
