"""``perfmodel explain alternatives``: the equation behind each number of ``perfmodel alternatives``."""

from __future__ import annotations

import typer

from perfmodel.cli.alternatives_answer import answered
from perfmodel.cli.explain_collective import only_of
from perfmodel.cli.output import emit, emit_json
from perfmodel.report.alternatives_text import headline
from perfmodel.report.explanation_text import number_text

ALTERNATIVES = "alternatives"
_MEANT = (
    *("step", "table_size", "gpus", "model", "batch", "tables", "pooling", "dim", "dtype", "id_dtype"),
    *("machine", "backend", "clock", "reserve", "reduction", "alpha", "distribution", "settings"),
    *("local_memory", "remote_memory", "calibration", "prices", "as_json"),
)


def is_alternatives(step: str) -> bool:
    """Whether what is explained is the comparison, and not a step."""
    return step.strip().lower() == ALTERNATIVES


def explain_the_alternatives(context: typer.Context) -> None:
    """Every number of the answer of ``perfmodel alternatives``, with the same options.

    context  of ``perfmodel explain``, whose options it has
    Limits: an option that alternatives does not have -> BadInputError that says so
    """
    only_of(context, _MEANT, "alternatives")
    asked = answered({**context.params, "with_map": True, "gpus_per_node": None, "tier": None})
    from perfmodel.plan.other_ways.alternatives import best_of
    from perfmodel.plan.other_ways.explanation import explain_alternatives

    numbers = explain_alternatives(asked.found, asked.crossed, asked.prices)
    title = headline(asked.found, best_of(asked.found))
    if context.params["as_json"]:
        found = [each.to_dict() for each in numbers]
        emit_json("explain", title=" ".join(title.split()), numbers=found)
        return
    emit("\n\n".join([title, *map(number_text, numbers)]))
