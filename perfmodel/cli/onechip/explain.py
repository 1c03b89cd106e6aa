"""``perfmodel chip explain``: the equations of one ``Way`` to look a table up on a core of a chip."""

from __future__ import annotations

import typer

from perfmodel.cli.ids import ids_of
from perfmodel.cli.onechip.options import (
    chip_of,
)
from perfmodel.cli.output import emit_cited, emit_json
from perfmodel.errors import BadInputError
from perfmodel.question.chips import ChipExplainOptions


def explain(context: typer.Context, options: ChipExplainOptions) -> None:
    """Print the equations of a way to look a table up on a core, as text or JSON."""
    from perfmodel.onechip.explain import explain_way
    from perfmodel.onechip.work import WAYS
    from perfmodel.report.onechip.ways_text import way_text
    from perfmodel.schema.files import unknown_name
    from perfmodel.schema.workload import dtype_bytes
    from perfmodel.units import parse_count, parse_number

    name = options.way.strip().upper().replace("_", "-")
    known = {each.label: each for each in WAYS}
    if name not in known:
        raise unknown_name("way", options.way, list(known))
    if options.rows is None:
        raise BadInputError("how many rows has the table?", "give --rows, e.g. --rows 100000")
    box = chip_of(options.chip, options.settings)
    bags = parse_count(options.batch, "--batch")
    count, columns = parse_count(options.rows, "--rows"), parse_count(options.dim, "--dim")
    found = explain_way(
        box,
        known[name],
        rows=count,
        dim=columns,
        element_bytes=dtype_bytes(options.dtype),
        batch=bags,
        pooling=parse_number(options.pooling, "--pooling"),
        ids=ids_of(options.alpha, options.distribution),
    )
    if options.as_json:
        emit_json("explain", **found.to_dict())
    else:
        emit_cited(way_text(found))
