"""The costs of an answer in its headline: GPU-hours, and money if prices were given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from perfmodel.passes.schemes import ROW_WISE
from perfmodel.plan.leading import Leading
from perfmodel.plan.other_ways.alternatives import priced
from perfmodel.plan.other_ways.one_alternative import Alternative, EqualBatch, copies_of
from perfmodel.projections import Projection
from perfmodel.question.passes import GLOBAL
from perfmodel.report.alternatives_text import columns_of, hour_words
from perfmodel.report.columns import columns_cells
from perfmodel.schema.prices import Prices
from perfmodel.units import counted, format_number

_SHOWN = ("sharding", "paid", "samples/s", "GPU-h")
_PLANNED = "a sharding for each table"


def leading_cost(found: Leading, prices: Prices | None, *, whole: bool) -> dict[str, Any]:
    """A headline's finding on costs: of the fastest sharding and of row-wise.

    whole  whether to add the plan with a sharding for each table, if it is faster
    """
    return cost_finding(list(_ways(found, whole=whole)), prices)


def _ways(found: Leading, *, whole: bool) -> Iterator[tuple[str, Projection]]:
    if whole and found.planned_answer is not None:
        yield _PLANNED, found.planned_answer
    if found.best:
        yield found.way, found.answer
    if found.way != ROW_WISE and found.base.gpu_count.fits:
        yield ROW_WISE, found.base


def cost_finding(ways: Sequence[tuple[str, Projection]], prices: Prices | None) -> dict[str, Any]:
    """A headline's finding on the costs of 10⁹ samples: title (a sentence), columns and rows of a table.

    ways    label and answer of each sharding, the cheapest first, all on the same GPUs
    prices  None: GPU-hours only.  Costs are counted as in ``perfmodel alternatives``
    """
    paid = [
        priced(
            Alternative(
                ROW_WISE,
                words,
                answer.setting.machine.name,
                answer=answer,
                equal=EqualBatch.of(GLOBAL, answer),
                copies=copies_of(answer),
            ),
            prices,
        )
        for words, answer in ways
    ]
    first, last = paid[0], paid[-1]
    currency = prices.currency if prices and first.cost is not None else ""
    verb = "cost" if currency else "take"
    title = f"What it costs: 10⁹ samples {verb} {_cost(first, currency)} with {first.label}"
    title += f", {_cost(last, currency)} with {last.label}" if last is not first else ""
    title += f"; all {counted(first.gpus_paid, 'GPU')} of the machines in use are paid."
    if currency:
        title += f" {hour_words(paid, currency)}"
    elif prices:
        title += f" The prices have none for {first.machine}."
    heads, rows = columns_cells(columns_of(currency), paid)
    heads[0] = _SHOWN[0]
    kept = [at for at, head in enumerate(heads) if head in (*_SHOWN, currency)]
    return {
        "title": title,
        "columns": [heads[at] for at in kept],
        "rows": [[row[at] for at in kept] for row in rows],
    }


def _cost(each: Alternative, currency: str) -> str:
    if each.cost is not None:
        return f"{format_number(each.cost)} {currency}"
    return f"{format_number(each.gpu_hours)} GPU-hours"
