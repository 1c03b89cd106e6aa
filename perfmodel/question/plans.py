"""Options of the planner."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from perfmodel.effort import DEFAULT_EFFORT
from perfmodel.engine.schemes import EXCHANGED, SHARDINGS, TABLE_COLUMN_WISE
from perfmodel.question import groups
from perfmodel.question.groups import GlobalBatchOptions, PassOptions, TrainingOptions, page
from perfmodel.question.spec import Opt
from perfmodel.schema.gate import MOST_PLANNED_GPUS
from perfmodel.units import parse_bytes

FORMATS = ("plan", "torchrec")
RULES = (
    *(name for name in SHARDINGS if name != TABLE_COLUMN_WISE),
    *(kind.facts.word for kind in EXCHANGED),
)
"""Names that rules for tables may use."""


@dataclass(frozen=True, kw_only=True)
class PlanOptions(TrainingOptions, GlobalBatchOptions, PassOptions):
    """Which sharding for which table, and what does the plan cost?

    Ctrl-C ends the search and prints the best plan so far; in the first seconds there is none yet.

    \b
    Examples
      perfmodel plan --model mlperf-dlrm-dcnv2 --gpus 128
      perfmodel plan --model mlperf-dlrm-dcnv2 --gpus 64 --objective throughput --max-hbm 60GB
      perfmodel plan --model mlperf-dlrm-dcnv2 --gpus 64 --objective throughput --dense dlrm-dcnv2
      perfmodel plan --model mlperf-dlrm-dcnv2 --gpus 8,16,64,128
      perfmodel plan --model mlperf-dlrm-dcnv2 --gpus 8,16,64,128 --global-batch 65536
      perfmodel plan --model mlperf-dlrm-dcnv2 --gpus 128 --replicas 1..8 --objective throughput
      perfmodel plan --model tables.csv --gpus 16 --machine h200-sxm-ib --out plan.json
      perfmodel plan --model tables.csv --gpus 16 --only 'user_*=row-wise,unique' --out plan.json
      perfmodel plan --model tables.csv --gpus 16 --reserve 20% --format torchrec --out plan.json
      perfmodel plan --plan plan.json --batch 4096
      perfmodel plan --plan plan.json --explain gather-pool
      perfmodel plan --model mlperf-dlrm-dcnv2 --gpus 128 --report plan.html
    """

    model: groups.Model = None
    gpus: Annotated[
        str | None,
        groups.GPUS.saying(
            "Number of GPUs (default: that of --plan). Several numbers, 8,16,64 or 8..128, show "
            "how the plan scales.",
            metavar="NS",
            several=True,
            most=MOST_PLANNED_GPUS,
        ),
    ] = None
    replicas: Annotated[
        str | None,
        Opt(
            "2D parallel: R copies of the sharded tables on --gpus / R GPUs each, as TorchRec's "
            "DMPCollection has them. Several numbers, 1,2,4 or 1..8: the fastest is found.",
            "RS",
        ),
    ] = None
    report: Annotated[Path | None, page(": what each GPU holds, where the time goes")] = None
    batch: Annotated[str | None, groups.BATCH] = None
    max_hbm: Annotated[
        str | None,
        Opt(
            "Memory of each GPU that the tables may use (default: what --reserve leaves).",
            "SIZE",
            read=parse_bytes,
        ),
    ] = None
    reserve: Annotated[
        str | None,
        Opt(
            "Share of each GPU's memory reserved for CUDA, NCCL and dense layers (default: "
            f"{groups.RESERVE}; none with --max-hbm).",
            "PART",
        ),
    ] = None
    payload: groups.Payload = None
    dense: Annotated[
        str | None,
        Opt(
            "Add dense layers and show the whole step with overlap: dlrm-dcnv2, a TOML file, or the "
            "time of a batch on one GPU (3ms, 3ms±10%).",
            "VALUE",
        ),
    ] = None
    kernels: groups.Kernels = None
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
    time_limit: groups.TimeLimit = None
    seed: groups.SearchSeed = 0
    plan_file: Annotated[
        Path | None, Opt("Cost this plan, a file that --out wrote, without a search.", "FILE", "--plan")
    ] = None
    out: groups.Out = None
    file_format: Annotated[
        str,
        Opt(
            "Format of --out: plan, or torchrec, which uses only the shardings that TorchRec has.",
            "NAME",
            "--format",
        ),
    ] = FORMATS[0]
    explain: groups.Explain = None
    as_csv: groups.Csv = False
