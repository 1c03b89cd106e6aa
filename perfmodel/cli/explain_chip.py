"""``perfmodel explain WAY --on-chip``: the equations of one way to look a table up on a core of a chip."""

from __future__ import annotations

from typing import Annotated

import typer

from perfmodel.cli.chip import check_meant
from perfmodel.cli.output import emit, emit_json
from perfmodel.errors import BadInputError

_MEANT = (
    "step",
    "chip",
    "rows",
    "dim",
    "dtype",
    "batch",
    "pooling",
    "alpha",
    "distribution",
    "settings",
    "as_json",
)
_WAYS = ("GM", "L1", "GM-UB", "L1-UB")
_EXAMPLE = "--on-chip ascend-910 --rows 100000"
_MOST = 2**31

OnChipOption = Annotated[
    str | None,
    typer.Option(
        "--on-chip",
        metavar="CHIP",
        help="STEP is a way to look a table up on a core of this chip: GM, L1, GM-UB, L1-UB.",
    ),
]
RowsOption = Annotated[
    str | None, typer.Option("--rows", metavar="N", help="With --on-chip: rows of the table.")
]


def is_way(step: str) -> bool:
    """Whether a step is the name of a way, as people write it."""
    return step.strip().upper().replace("_", "-") in _WAYS


def only_on_chip(step: str, rows: str | None) -> None:
    """Limits: a way, or ``--rows``, without ``--on-chip`` -> BadInputError"""
    if is_way(step):
        name = step.strip().upper().replace("_", "-")
        raise BadInputError(
            f"{name} is a way to look a table up on a core of a chip.",
            f"say which: perfmodel explain {name} {_EXAMPLE}",
        )
    if rows is not None:
        raise BadInputError(
            "--rows is of a table on a chip.", f"give --on-chip CHIP: perfmodel explain GM {_EXAMPLE}"
        )


def explain_on_chip(context: typer.Context) -> None:
    """One way with one table on one core.

    context  of ``perfmodel explain``, whose options it has
    Limits: an option that is about GPUs, an unknown way, no rows -> BadInputError that says so
    """
    check_meant(context, _MEANT, "explains one core of one chip")
    asked = context.params
    from perfmodel.cli.ids import ids_of
    from perfmodel.cli.options import settings_of
    from perfmodel.onechip.explain import explain_way
    from perfmodel.onechip.work import WAYS
    from perfmodel.report.onechip.ways_text import way_text
    from perfmodel.schema.chip import load_chip
    from perfmodel.schema.files import unknown_name
    from perfmodel.schema.workload import dtype_bytes
    from perfmodel.units import parse_count, parse_number

    name = asked["step"].strip().upper().replace("_", "-")
    ways = {way.label: way for way in WAYS}
    if name not in ways:
        raise unknown_name("way", asked["step"], list(ways))
    if asked["rows"] is None:
        raise BadInputError("how many rows has the table?", "give --rows, e.g. --rows 100000")
    box = load_chip(asked["chip"]).with_overrides(dict(settings_of(asked["settings"], "row_latency_s=400ns")))
    batch = parse_count(asked["batch"] or "1024", "--batch")
    rows, dim = parse_count(asked["rows"], "--rows"), parse_count(asked["dim"] or "64", "--dim")
    for value, option in ((batch, "--batch"), (dim, "--dim")):
        if value > _MOST:
            raise BadInputError(f"{option} {value} is more than one core is given.", f"at most {_MOST}.")
    found = explain_way(
        box,
        ways[name],
        rows=rows,
        dim=dim,
        element_bytes=dtype_bytes(asked["dtype"] or "fp32"),
        batch=batch,
        pooling=parse_number(asked["pooling"] or "1", "--pooling"),
        ids=ids_of(asked["alpha"], asked["distribution"]),
    )
    if asked["as_json"]:
        emit_json("explain", **found.to_dict())
    else:
        emit(way_text(found))
