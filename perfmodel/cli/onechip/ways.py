"""``perfmodel chip ways``: which way to look a table up is the fastest, by its rows and the look-ups."""

from __future__ import annotations

import typer

from perfmodel.cli.ids import ids_of
from perfmodel.cli.onechip.options import (
    chip_of,
)
from perfmodel.cli.output import emit, emit_json
from perfmodel.question.chips import ChipWaysOptions


def ways(context: typer.Context, options: ChipWaysOptions) -> None:
    """Print the map of the fastest way to look a table up on a core of a chip, as text or JSON."""
    from perfmodel.onechip.ways import ways_map
    from perfmodel.report.onechip.ways_text import ways_text
    from perfmodel.schema.workload import dtype_bytes
    from perfmodel.units import parse_count, parse_number

    found = ways_map(
        chip_of(options.chip, options.settings),
        parse_count(options.dim, "--dim"),
        dtype_bytes(options.dtype),
        parse_number(options.pooling, "--pooling"),
        ids_of(options.alpha, options.distribution),
    )
    if options.as_json:
        emit_json("chips", **found.to_dict())
    else:
        emit(ways_text(found))
