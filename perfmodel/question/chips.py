"""Options of the commands about one many-core chip."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from perfmodel.effort import DEFAULT_EFFORT
from perfmodel.question import groups
from perfmodel.question.groups import FileOptions, IdOptions, OutputOptions, page
from perfmodel.question.spec import Arg, CommandOptions, Opt

EXAMPLE = "row_latency_s=400ns"
SIMULATED_BATCH = "512"


@dataclass(frozen=True, kw_only=True)
class _ChipValues(CommandOptions):
    """Changes of the chip's values."""

    turn = 2
    settings: Annotated[
        list[str] | None,
        Opt(f"Change a chip value, e.g. {EXAMPLE}. Repeat for more.", "KEY=VALUE", "--set"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class _OnChip(OutputOptions, IdOptions, _ChipValues):
    """Options of all commands that look tables up on one chip."""

    chip: Annotated[str, Opt("A shipped chip (perfmodel chips) or a TOML file.", "NAME")]


@dataclass(frozen=True, kw_only=True)
class _OneTable(_OnChip):
    """Options of the commands about one table on one core."""

    dim: Annotated[str, groups.DIM] = "64"
    dtype: Annotated[str, Opt("Type of the elements.", "TYPE")] = "fp32"
    pooling: Annotated[str, groups.POOLING] = "1"


@dataclass(frozen=True, kw_only=True)
class ChipPlanOptions(FileOptions, _OnChip):
    """Which way to look up which table, which core owns it, how long a batch takes, and its lower bound.

    Ctrl-C ends the search and prints the best mapping so far.

    \b
    Examples
      perfmodel chip plan --chip ascend-910 --model criteo-kaggle --distribution zipf:1.05
      perfmodel chip plan --chip h100-sxm --model criteo-kaggle --batch 8192
      perfmodel chip plan --chip ascend-910 --model tables.csv --report cores.html
    """

    model: groups.Model = None
    batch: Annotated[str, groups.BATCH.saying("Samples of the whole chip.")] = groups.DEFAULT_BATCH
    effort: groups.Effort = DEFAULT_EFFORT
    time_limit: groups.TimeLimit = None
    seed: groups.SearchSeed = 0
    report: Annotated[Path | None, page(": the tables of each core")] = None


@dataclass(frozen=True, kw_only=True)
class ChipWaysOptions(_OneTable):
    """Which way to look a table up is fastest on one core: a map of rows by look-ups.

    \b
    Examples
      perfmodel chip ways --chip ascend-910
      perfmodel chip ways --chip h100-sxm --dim 128 --dtype fp16
    """


@dataclass(frozen=True, kw_only=True)
class ChipExplainOptions(_OneTable):
    """The equations of one way with one table on one core, with your numbers in them.

    \b
    Examples
      perfmodel chip explain GM --chip ascend-910 --rows 100000
      perfmodel chip explain L1 --chip ascend-910 --rows 2000 --dim 128 --batch 4096 --pooling 4
    """

    way: Annotated[str, Arg("GM, L1, GM-UB or L1-UB.")]
    rows: Annotated[str | None, groups.ROWS] = None
    batch: Annotated[str, groups.BATCH.saying("Bags that the core sums.")] = groups.DEFAULT_BATCH


@dataclass(frozen=True, kw_only=True)
class ChipSimulateOptions(_OnChip):
    """Compare predicted with simulated times, for the mappings of chip plan.

    The simulator follows every request through queues, buffers and a cache. It uses no closed form.

    \b
    Examples
      perfmodel chip simulate --chip ascend-910 --model criteo-kaggle --distribution zipf:1.05
      perfmodel chip simulate --chip h100-sxm --model criteo-kaggle --batch 2048 --json
    """

    model: Annotated[str, Opt("A set of tables (perfmodel models), or a file.", "NAME")]
    batch: Annotated[str, groups.BATCH.saying("Samples.")] = SIMULATED_BATCH
    effort: groups.Effort = DEFAULT_EFFORT
    time_limit: groups.TimeLimit = None
    seed: Annotated[int, Opt("Seed of the ids and of the addresses of the tables.", "N", least=0)] = 0


@dataclass(frozen=True, kw_only=True)
class ChipsOptions(OutputOptions, _ChipValues):
    """The shipped chips; with a name, every value with its source.

    \b
    Examples
      perfmodel chips
      perfmodel chips ascend-910
      perfmodel chips ascend-910 --toml > my-chip.toml
      perfmodel chips my-chip.toml --json
    """

    name: Annotated[str | None, Arg("Show this one in full; without a name, list all.")] = None
    as_toml: Annotated[
        bool,
        Opt(
            "Print the file of a shipped chip, as a start for your own.",
            flag="--toml",
        ),
    ] = False
