"""``perfmodel chip explain``: the equations of one way to look a table up on a core of a chip."""

from __future__ import annotations

from typing import Annotated

import typer

from perfmodel.cli.ids import AlphaOption, DistributionOption, ids_of
from perfmodel.cli.onechip.options import (
    ChipOption,
    ChipSetOption,
    DimOption,
    DtypeOption,
    PoolingOption,
    chip_of,
)
from perfmodel.cli.options import JsonOption
from perfmodel.cli.output import emit_cited, emit_json
from perfmodel.errors import BadInputError

_MOST = 2**31


def explain(
    way: Annotated[str, typer.Argument(help="GM, L1, GM-UB or L1-UB.")],
    chip: ChipOption,
    rows: Annotated[str | None, typer.Option("--rows", metavar="N", help="Rows of the table.")] = None,
    dim: DimOption = None,
    dtype: DtypeOption = None,
    batch: Annotated[
        str | None, typer.Option("--batch", metavar="N", help="Bags that the core sums (default 1024).")
    ] = None,
    pooling: PoolingOption = None,
    alpha: AlphaOption = None,
    distribution: DistributionOption = None,
    settings: ChipSetOption = None,
    as_json: JsonOption = False,
) -> None:
    """The equations of one way with one table on one core, with your numbers in them.

    \b
    Examples
      perfmodel chip explain GM --chip ascend-910 --rows 100000
      perfmodel chip explain L1 --chip ascend-910 --rows 2000 --dim 128 --batch 4096 --pooling 4
    """
    from perfmodel.onechip.explain import explain_way
    from perfmodel.onechip.work import WAYS
    from perfmodel.report.onechip.ways_text import way_text
    from perfmodel.schema.files import unknown_name
    from perfmodel.schema.workload import dtype_bytes
    from perfmodel.units import parse_count, parse_number

    name = way.strip().upper().replace("_", "-")
    known = {each.label: each for each in WAYS}
    if name not in known:
        raise unknown_name("way", way, list(known))
    if rows is None:
        raise BadInputError("how many rows has the table?", "give --rows, e.g. --rows 100000")
    box = chip_of(chip, settings)
    bags = parse_count(batch or "1024", "--batch")
    count, columns = parse_count(rows, "--rows"), parse_count(dim or "64", "--dim")
    for value, option in ((bags, "--batch"), (columns, "--dim")):
        if value > _MOST:
            raise BadInputError(f"{option} {value} is more than one core is given.", f"at most {_MOST}.")
    found = explain_way(
        box,
        known[name],
        rows=count,
        dim=columns,
        element_bytes=dtype_bytes(dtype or "fp32"),
        batch=bags,
        pooling=parse_number(pooling or "1", "--pooling"),
        ids=ids_of(alpha, distribution),
    )
    if as_json:
        emit_json("explain", **found.to_dict())
    else:
        emit_cited(way_text(found))
