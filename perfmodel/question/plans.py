"""Options of the planners: of GPUs, and of the cores of a chip."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from perfmodel.effort import DEFAULT_EFFORT
from perfmodel.engine.schemes import EXCHANGED, SHARDINGS, TABLE_COLUMN_WISE
from perfmodel.question import groups
from perfmodel.question.groups import IdOptions, OutputOptions, PassOptions
from perfmodel.question.spec import Opt
from perfmodel.schema.gate import MOST_PLANNED_GPUS
from perfmodel.units import parse_bytes

CHIP_EXAMPLE = "row_latency_s=400ns"
FORMATS = PLAN, TORCHREC = "plan", "torchrec"
RULES = (
    *(name for name in SHARDINGS if name != TABLE_COLUMN_WISE),
    *(kind.facts.word for kind in EXCHANGED),
)
"""Names that rules for tables may use."""


@dataclass(frozen=True, kw_only=True)
class PlanOptions(PassOptions):
    """Which sharding for which table, and what does the plan cost?

    Ctrl-C ends the search and prints the best plan so far; in the first seconds there is none yet.

    \b
    Examples
      perfmodel plan --model mlperf-dlrm-dcnv2 --gpus 128
      perfmodel plan --model mlperf-dlrm-dcnv2 --gpus 64 --objective throughput --dense dlrm-dcnv2
      perfmodel plan --model mlperf-dlrm-dcnv2 --gpus 8,16,64,128
      perfmodel plan --model mlperf-dlrm-dcnv2 --gpus 128 --replicas 1..8 --objective throughput
      perfmodel plan --model tables.csv --gpus 16 --machine h200-sxm-ib --out plan.json
      perfmodel plan --model tables.csv --gpus 16 --only 'user_*=row-wise,unique' --out plan.html
      perfmodel plan --model tables.csv --gpus 16 --set reserve=20% --format torchrec --out plan.json
      perfmodel plan --plan plan.json --batch 4096
      perfmodel plan --plan plan.json --explain gather-pool
    """

    model: groups.Model = None
    gpus: Annotated[
        str | None,
        groups.GPUS.saying(
            "Number of GPUs (default: that of --plan); 8,16,64 or 8..128 show how the plan scales.",
            metavar="NS",
            several=True,
            maximum=MOST_PLANNED_GPUS,
        ),
    ] = None
    replicas: Annotated[
        str | None,
        Opt(
            "2D parallel: R copies of the sharded tables on --gpus / R GPUs each, as TorchRec's "
            "DMPCollection has them. 1,2,4 or 1..8: the fastest is found.",
            "RS",
        ),
    ] = None
    batch: Annotated[str | None, groups.BATCH] = None
    objective: Annotated[str, groups.OBJECTIVE] = groups.OBJECTIVES[0]
    dense: Annotated[
        str | None,
        Opt(
            "Add dense layers and show the whole step with overlap: dlrm-dcnv2, a TOML file, or the "
            "time of a batch on one GPU (3ms, 3ms±10%).",
            "VALUE",
        ),
    ] = None
    only: Annotated[
        list[str] | None,
        Opt(
            "Allow only these shardings: NAMES for all tables, PATTERN=NAMES for some, e.g. "
            "'user_*=row-wise,unique', or a JSON file with TorchRec's ParameterConstraints by table. Repeat "
            f"for more. NAMES: {', '.join(RULES)}. grid: columns over scale-up domains, the rows of each "
            "over the GPUs of one; 3d: any other row and column parts.",
            "RULE",
        ),
    ] = None
    effort: groups.Effort = DEFAULT_EFFORT
    plan_file: Annotated[
        Path | None, Opt("Cost this plan, a file that --out wrote, without a search.", "FILE", "--plan")
    ] = None
    out: Annotated[
        Path | None, Opt("File to write: the plan (.json), or a page about it (.html).", "FILE")
    ] = None
    file_format: Annotated[
        str,
        Opt("Of --out: plan, or torchrec, with only the shardings that TorchRec has.", "NAME", "--format"),
    ] = PLAN
    explain: groups.Explain = None
    max_hbm: Annotated[
        str | None, Opt("Memory of each GPU that the tables may use.", read=parse_bytes, by_set=True)
    ] = None


@dataclass(frozen=True, kw_only=True)
class ChipPlanOptions(OutputOptions, IdOptions):
    """Which way to look up which table, on which cores, and how long a batch takes.

    \b
    Examples
      perfmodel chip plan --chip ascend-910 --model criteo-kaggle --distribution zipf:1.05
      perfmodel chip plan --chip h100-sxm --model tables.csv --batch 8192 --json
    """

    chip: Annotated[str, Opt("A shipped chip (perfmodel show chips) or a TOML file.", "NAME")]
    model: groups.Model
    batch: Annotated[str, groups.BATCH.saying("Samples of the whole chip.")] = groups.DEFAULT_BATCH
    settings: Annotated[
        list[str] | None,
        Opt(f"Change a chip value, e.g. {CHIP_EXAMPLE}. Repeatable.", "KEY=VALUE", "--set"),
    ] = None
