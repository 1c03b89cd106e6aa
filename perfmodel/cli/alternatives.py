"""``perfmodel alternatives``: what else could one do than shard?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfmodel.cli.alternatives_answer import answered
from perfmodel.cli.ids import AlphaOption, DistributionOption
from perfmodel.cli.options import (
    BackendOption,
    CalibrationOption,
    ClockOption,
    ForceOption,
    JsonOption,
    MachineOption,
    SetOption,
)
from perfmodel.cli.output import emit, emit_json, note
from perfmodel.cli.plan_options import check_page
from perfmodel.cli.typed_line import TypedLine
from perfmodel.cli.workload import (
    RESERVE,
    BatchOption,
    DimOption,
    DtypeOption,
    IdDtypeOption,
    LocalMemoryOption,
    ModelOption,
    PoolingOption,
    ReductionOption,
    RemoteMemoryOption,
    ReserveOption,
    TableSizeOption,
    TablesOption,
)

if TYPE_CHECKING:
    from perfmodel.plan.other_ways.one_alternative import Alternative
    from perfmodel.plan.other_ways.winner_map import Crossing, MapCell

MostGpusOption = Annotated[
    str | None,
    typer.Option(
        "--gpus",
        metavar="N",
        help="GPUs of the two rows in HBM, and the most that host memory is tried on where its rows fit "
        "(default: as many as the tables need in HBM); the other rows, and host memory where its rows do not "
        "fit, take as many as they need.",
    ),
]
PricesOption = Annotated[
    Path | None,
    typer.Option(
        "--prices",
        metavar="FILE",
        help="TOML file of your prices, per machine-hour and TB-month, as below.",
    ),
]
MapOption = Annotated[
    bool,
    typer.Option("--map/--no-map", help="Show which alternative wins at each skew, batch and table size."),
]
AlternativesPageOption = Annotated[
    Path | None, typer.Option("--report", metavar="FILE", help="Also write an HTML page.")
]


def alternatives(
    context: typer.Context,
    table_size: TableSizeOption = None,
    gpus: MostGpusOption = None,
    model: ModelOption = None,
    batch: BatchOption = None,
    tables: TablesOption = None,
    pooling: PoolingOption = None,
    dim: DimOption = None,
    dtype: DtypeOption = None,
    id_dtype: IdDtypeOption = "int64",
    machine: MachineOption = None,
    backend: BackendOption = None,
    clock: ClockOption = None,
    reserve: ReserveOption = RESERVE,
    reduction: ReductionOption = "auto",
    alpha: AlphaOption = None,
    distribution: DistributionOption = None,
    settings: SetOption = None,
    local_memory: LocalMemoryOption = None,
    remote_memory: RemoteMemoryOption = None,
    calibration: CalibrationOption = None,
    prices: PricesOption = None,
    with_map: MapOption = True,
    report: AlternativesPageOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Sharding, host memory, C2C, SSDs, one large memory: time, GPUs, energy and money side by side.

    \b
    Examples
      perfmodel alternatives --table-size 10TB
      perfmodel alternatives --table-size 10TB --alpha 1.05 --report alternatives.html
      perfmodel alternatives --model mlperf-dlrm-dcnv2 --gpus 8
      perfmodel alternatives --table-size 10TB --prices prices.toml
      perfmodel alternatives --table-size 10TB --local-memory 10TB@3TB/s
      perfmodel alternatives --table-size 10TB --remote-memory 10TB@3TB/s,shared:16,latency:3us

    \b
    A file of prices (--prices): machines by their names, as shipped or in your --machine file
      [machine_hour]
      h100-sxm-ib = "80 EUR/h"
      [tb_month]
      memory = "3000 EUR/TB/month"
      ssd = "60 EUR/TB/month"
    """
    check_page(report, None, force=force)
    asked = answered(context.params)
    found, cells, crossed, currency = asked.found, asked.cells, asked.crossed, asked.currency
    if report is not None:
        _write_page(context, report, found, cells, crossed, currency)
    if as_json:
        from perfmodel.plan.other_ways.alternatives import question_of as asked_of

        question = asked_of(asked.options)
        emit_json("alternatives", question=question, **_document(found, cells, crossed, currency))
    else:
        from perfmodel.report.alternatives_text import alternatives_text

        emit(alternatives_text(found, cells, crossed, currency))
    if report is not None:
        note(f"wrote {report}")


def _write_page(
    context: typer.Context,
    out: Path,
    found: list[Alternative],
    cells: list[MapCell],
    crossed: list[Crossing],
    currency: str,
) -> None:
    from perfmodel.cli.page_file import write
    from perfmodel.report.page.alternatives_page import alternatives_page

    typed = TypedLine.of(context)
    command = typed.text(without=("report", "force", "as_json"), more=["--report", out.name, "--force"])
    write(alternatives_page(found, cells, crossed, currency, command), out, "html")


def _document(
    found: list[Alternative], cells: list[MapCell], crossed: list[Crossing], currency: str
) -> dict[str, Any]:
    from perfmodel.plan.other_ways.alternatives import best_of, rival_of
    from perfmodel.plan.other_ways.conditions import needed
    from perfmodel.plan.other_ways.one_alternative import SAMPLES

    best = best_of(found)
    rival = rival_of(found, best)
    needs = {each.name: needed(each, best) for each in found}
    return {
        "cost_samples": SAMPLES,
        "currency": currency or None,
        "winner": best.name,
        "compared_with": rival and {"name": rival.name, "times_faster": rival.time_s / best.time_s},
        "alternatives": [{**each.to_dict(), "needed": _needed(needs[each.name])} for each in found],
        "map": [vars(cell) | {"winner": cell.winner or None} for cell in cells],
        "crossings": [vars(each) for each in crossed],
    }


def _needed(need: Any) -> dict[str, Any] | None:
    if need is None:
        return None
    steps = [step.name for step in need.steps]
    return {"step": need.step.name, "steps": steps, "times_faster": need.factor, "rest_s": need.rest_s}
