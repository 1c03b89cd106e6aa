"""``perfmodel chips``: chips whose cores look tables up, with sources, and where each way to do it wins."""

from __future__ import annotations

from typing import Annotated

import typer

from perfmodel.cli.ids import AlphaOption, DistributionOption, ids_of
from perfmodel.cli.options import JsonOption, settings_of
from perfmodel.cli.output import emit, emit_json
from perfmodel.errors import BadInputError

EXAMPLE = "row_latency_s=400ns"
ChipSetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help=f"Change a chip value, e.g. {EXAMPLE}. Repeat for more."),
]


def chips(
    name: Annotated[str | None, typer.Argument(help="Show this one in full; leave out for the list.")] = None,
    ways: Annotated[
        bool, typer.Option("--ways", help="Which way to look a table up is fastest: rows by look-ups.")
    ] = False,
    dim: Annotated[str | None, typer.Option("--dim", metavar="N", help="With --ways: columns (64).")] = None,
    dtype: Annotated[str | None, typer.Option("--dtype", help="With --ways: of an element (fp32).")] = None,
    pooling: Annotated[
        str | None, typer.Option("--pooling", metavar="N", help="With --ways: rows summed per bag (1).")
    ] = None,
    alpha: AlphaOption = None,
    distribution: DistributionOption = None,
    settings: ChipSetOption = None,
    as_json: JsonOption = False,
    as_toml: Annotated[
        bool, typer.Option("--toml", help="The file of a shipped chip: a start for your own.")
    ] = False,
) -> None:
    """The shipped chips; with a name, every value with its source; with --ways, a map of what is fastest.

    \b
    Examples
      perfmodel chips
      perfmodel chips ascend-910
      perfmodel chips h100-sxm --ways --dim 128
      perfmodel chips ascend-910 --toml > my-chip.toml
      perfmodel chips my-chip.toml --json
    """
    from perfmodel.schema.chip import list_chips, load_chip

    _check(name, ways, {"--dim": dim, "--dtype": dtype, "--pooling": pooling, "--alpha": alpha,
                        "--distribution": distribution}, settings)  # fmt: skip
    if as_toml:
        emit(_file_of(name, alone=not (ways or settings or as_json)))
        return
    values = dict(settings_of(settings, EXAMPLE))
    chosen = [load_chip(item).with_overrides(values) for item in ([name] if name else list_chips())]
    from perfmodel.report.onechip.chips_text import chip_text, chips_text
    from perfmodel.report.onechip.ways_text import ways_text

    if ways:
        from perfmodel.onechip.ways import ways_map
        from perfmodel.schema.workload import dtype_bytes
        from perfmodel.units import parse_count, parse_number

        found = ways_map(
            chosen[0],
            parse_count(dim or "64", "--dim"),
            dtype_bytes(dtype or "fp32"),
            parse_number(pooling or "1", "--pooling"),
            ids_of(alpha, distribution),
        )
        if as_json:
            emit_json("chips", **found.to_dict())
        else:
            emit(ways_text(found))
    elif as_json:
        emit_json("chips", chips=[chip.model_dump(mode="json") for chip in chosen])
    else:
        emit(chip_text(chosen[0]) if name else chips_text(chosen))


def _file_of(name: str | None, *, alone: bool) -> str:
    """The file of a shipped chip. Limits: none is named, or with other options -> BadInputError"""
    from perfmodel.schema.chip import chip_file

    if name is None or not alone:
        raise BadInputError("--toml is the file of one shipped chip.", "perfmodel chips ascend-910 --toml")
    return chip_file(name)


def _check(name: str | None, ways: bool, shape: dict[str, str | None], settings: list[str] | None) -> None:
    typed = [option for option, value in shape.items() if value is not None]
    if typed and not ways:
        raise BadInputError(f"{typed[0]} belongs to --ways.", "add --ways, or leave it out.")
    if name is None and (ways or settings):
        raise BadInputError(
            f"{'--ways' if ways else '--set'} is of one chip.", "name it: perfmodel chips ascend-910 --ways"
        )
