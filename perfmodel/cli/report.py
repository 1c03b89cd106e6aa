"""``perfmodel report``: one page to send to someone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfmodel.cli.build_page import page_of
from perfmodel.cli.choices import (
    BackendsOption,
    BatchesOption,
    ClocksOption,
    CompareOption,
    DimsOption,
    MachinesOption,
    NumbersOption,
    PoolingsOption,
    ReductionsOption,
    SizesOption,
    lists_of,
    measured_sizes,
    page_question,
    wanted,
    workload_selectors,
)
from perfmodel.cli.compare_page import compare_page
from perfmodel.cli.ids import AlphaOption, DistributionOption
from perfmodel.cli.options import (
    CalibrationOption,
    ForceOption,
    GpusPerNodeOption,
    JsonOption,
    KernelsOption,
    SetOption,
)
from perfmodel.cli.output import check_target
from perfmodel.cli.page_file import DEFAULTS, check_place, deliver, format_of, uncollected, write, wrote
from perfmodel.cli.pictures import draw_all
from perfmodel.cli.report_gpus import gpus_page
from perfmodel.cli.typed_line import TypedLine
from perfmodel.cli.workload import (
    ALL,
    RESERVE,
    DtypeOption,
    IdDtypeOption,
    ModelOption,
    PayloadOption,
    ReserveOption,
    ScenarioOption,
    ShardingOption,
    TablesOption,
    TierOption,
)
from perfmodel.errors import BadInputError
from perfmodel.report.figures.names import GPUS
from perfmodel.report.picture_files import PICTURES

if TYPE_CHECKING:
    from perfmodel.report.page.parts import Page


@uncollected()
def report(
    context: typer.Context,
    table_size: SizesOption = None,
    gpus: NumbersOption = None,
    model: ModelOption = None,
    batch: BatchesOption = None,
    tables: TablesOption = None,
    pooling: PoolingsOption = None,
    dim: DimsOption = None,
    dtype: DtypeOption = None,
    id_dtype: IdDtypeOption = "int64",
    machine: MachinesOption = None,
    backend: BackendsOption = None,
    clock: ClocksOption = None,
    reserve: ReserveOption = RESERVE,
    gpus_per_node: GpusPerNodeOption = None,
    scenario: ScenarioOption = "cluster",
    reduction: ReductionsOption = None,
    sharding: ShardingOption = None,
    alpha: AlphaOption = None,
    distribution: DistributionOption = None,
    payload: PayloadOption = None,
    kernels: KernelsOption = None,
    settings: SetOption = None,
    tier: TierOption = None,
    calibration: CalibrationOption = None,
    compare: CompareOption = None,
    file_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help="html; markdown: sentences and small tables; png, svg or pdf: a folder of pictures "
            "(default: as --out ends, else html).",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Page (.html, .md), or folder of pictures, to write (default: report, ending as --format).",
        ),
    ] = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """One HTML page that opens from disk with no network: the answer, its figures, their data and sources.

    \b
    Examples
      perfmodel report
      perfmodel report --table-size 10TB,20TB --batch 4096 --machine h200-sxm-ib --out h200.html
      perfmodel report --machine h200-sxm-ib,b200-sxm-ib --backend nccl,nvshmem --out both.html
      perfmodel report --calibration latest --pooling 1,8,64 --force
      perfmodel report --batch 1024 --pooling 32 --dim 32 --format markdown
      perfmodel report --table-size 10TB --tier uvm-caching --alpha 1.05
      perfmodel report --model mlperf-dlrm-dcnv2 --gpus 8,64,128
      perfmodel report --table-size 10TB --format svg --out figures
    """
    params = context.params
    check_compared(params)
    file_format = params["file_format"] = format_of(out, file_format)
    if compare is not None:
        compare_page(context)
        return
    out = out or Path(DEFAULTS[file_format])
    if file_format in PICTURES and not over_gpus(params):
        draw_all(context, out, file_format)
        return
    check_place(out, file_format, GPUS.figures, force=force)
    deliver(_page(params, TypedLine.of(context).pinned()), out, file_format, as_json)


def _page(typed: Mapping[str, Any], line: TypedLine) -> Page:
    """Of the parameters of ``perfmodel report`` or ``project``. line  the command that makes it"""
    if over_gpus(typed):
        return gpus_page(typed, line)
    lists = lists_of(typed, line)
    question = page_question(typed)
    if not lists["table_size"]:
        lists["table_size"] = [f"{size:.0f}" for size in measured_sizes(question)]
    sizes, workload = workload_selectors(lists)
    asked = wanted(question, lists, typed)
    question.check_gpus(*sizes.values)
    with question.advised():
        return page_of(question, sizes, workload, asked, lists, line)


def check_compared(params: Mapping[str, Any]) -> None:
    """Limits: a comparison beside what it has not -> BadInputError"""
    if params["compare"] is None:
        return
    for name in ("sharding", "kernels", "tier"):
        if params.get(name) is not None:  # a figure has no --kernels
            raise BadInputError(f"--{name} and --compare cannot be combined.", "leave one of them out.")
    for name in ("gpus", "model"):
        if params[name] is not None:
            raise BadInputError(
                f"--{name} and --compare cannot be combined.",
                "two machines can be chosen in one page: report --machine A,B --model … --gpus …",
            )


def over_gpus(params: Mapping[str, Any]) -> bool:
    """Whether options ask for tables that stay while the number of GPUs changes."""
    fixed = params["gpus"] is not None or params["model"] is not None
    return fixed or params["sharding"] not in (None, ALL)


@uncollected()
def write_beside(context: typer.Context, out: Path) -> str:
    """The page of ``perfmodel project``: that of ``report`` with the same options; what to say of it."""
    line = replace(TypedLine.of(context).pinned(), command=("perfmodel", "report"))
    kind = format_of(out, None, "--report")
    return wrote(out, write(_page(context.params, line), out, kind), kind)


def check_beside(out: Path, force: bool, **other: object) -> None:
    """Refuse what a page cannot be of, before any work is done.

    other  options of ``perfmodel project`` by name, None where one was not given
    """
    given = [f"--{name.replace('_', '-')}" for name, value in other.items() if value is not None]
    if given:
        raise BadInputError(
            f"--report and {given[0]} cannot be combined.",
            "a page is of tables in the HBM of many GPUs; perfmodel alternatives --report has the others.",
        )
    format_of(out, None, "--report")
    check_target(out, force=force, option="--report")
