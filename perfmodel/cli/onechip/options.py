"""Options that commands about one chip share, and the chip that they name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from perfmodel.cli.options import settings_of

if TYPE_CHECKING:
    from perfmodel.schema.chip import Chip

EXAMPLE = "row_latency_s=400ns"
ChipOption = Annotated[
    str, typer.Option("--chip", metavar="NAME", help="A shipped chip (perfmodel chips) or a TOML file.")
]
ChipSetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help=f"Change a chip value, e.g. {EXAMPLE}. Repeat for more."),
]
DimOption = Annotated[str | None, typer.Option("--dim", metavar="N", help="Elements per row (default 64).")]
DtypeOption = Annotated[
    str | None, typer.Option("--dtype", metavar="TYPE", help="Type of the elements (default fp32).")
]
PoolingOption = Annotated[
    str | None, typer.Option("--pooling", metavar="N", help="Rows summed per bag (default 1).")
]


def chip_of(name: str, settings: list[str] | None, example: str = EXAMPLE) -> Chip:
    """A shipped chip or that of a file, with the values that ``--set`` changes."""
    from perfmodel.schema.chip import load_chip

    return load_chip(name).with_overrides(dict(settings_of(settings, example)))
