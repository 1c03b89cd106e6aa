"""``perfmodel explain alternatives``: the equation behind each number of ``perfmodel alternatives``."""

from __future__ import annotations

import typer

from perfmodel.cli.alternatives_answer import answered
from perfmodel.cli.output import emit, emit_json
from perfmodel.report.alternatives_text import headline
from perfmodel.report.explanation_text import number_text


def explain_the_alternatives(context: typer.Context) -> None:
    """Print the equation of each number of ``perfmodel alternatives``.

    context  holds the options of ``alternatives``
    """
    asked = answered({**context.params, "with_map": True})
    from perfmodel.plan.other_ways.explanation import explain_alternatives

    numbers = explain_alternatives(asked.found, asked.crossed, asked.prices, asked.by)
    title = headline(asked.found, asked.currency, asked.by)
    if context.params["as_json"]:
        found = [each.to_dict() for each in numbers]
        emit_json("explain", title=" ".join(title.split()), numbers=found)
        return
    emit("\n\n".join([title, *map(number_text, numbers)]))
