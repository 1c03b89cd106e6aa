"""Options of the commands about a chip of many cores."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from perfmodel.question import groups
from perfmodel.question.groups import FileOptions, IdOptions
from perfmodel.question.spec import CommandOptions, Opt

EXAMPLE = "row_latency_s=400ns"


@dataclass(frozen=True, kw_only=True)
class _ChipValues(CommandOptions):
    """Changes of a chip's values."""

    turn = 2
    settings: Annotated[
        list[str] | None,
        Opt(f"Change a chip value, e.g. {EXAMPLE}. Repeat for more.", "KEY=VALUE", "--set"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ChipPlanOptions(FileOptions, IdOptions, _ChipValues):
    """Which way to look up which table, on which cores, and how long a batch takes.

    \b
    Examples
      perfmodel chip plan --chip ascend-910 --model criteo-kaggle --distribution zipf:1.05
      perfmodel chip plan --chip ascend-910,a100-sxm --model criteo-kaggle
      perfmodel chip plan --chip h100-sxm --model tables.csv --batch 8192 --json
    """

    chip: Annotated[
        str, Opt("A shipped chip (perfmodel show chips) or a TOML file; several: NAME,NAME.", "NAME")
    ]
    model: groups.Model = None
    batch: Annotated[str, groups.BATCH.saying("Samples of the whole chip.")] = groups.DEFAULT_BATCH
    as_csv: groups.Csv = False
    report: Annotated[Path | None, groups.page(" with the load of each core")] = None
