"""``perfmodel chip plan``: which way to look up which table, and which core of one chip owns it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfmodel.cli.codes import STOPPED
from perfmodel.cli.effort import EffortOption, LimitOption, limit_of
from perfmodel.cli.ids import AlphaOption, DistributionOption, ids_of
from perfmodel.cli.onechip.options import ChipOption, ChipSetOption, chip_of
from perfmodel.cli.options import ForceOption, JsonOption
from perfmodel.cli.output import (
    SaidError,
    emit,
    emit_json,
    note,
    warn_all,
    warn_stopped,
)
from perfmodel.cli.page_file import write
from perfmodel.cli.plan_options import ModelOption, SeedOption, check_page
from perfmodel.cli.stopping import ctrl_c, end_softly
from perfmodel.cli.typed_line import TypedLine
from perfmodel.effort import DEFAULT_EFFORT
from perfmodel.errors import BadInputError

if TYPE_CHECKING:
    from perfmodel.onechip.answer import ChipAnswer

_DEFAULT_BATCH = "1024"
_MOST_SAMPLES = 2**31


def plan(
    context: typer.Context,
    chip: ChipOption,
    model: ModelOption = None,
    batch: Annotated[
        str | None,
        typer.Option("--batch", metavar="N", help=f"Samples of the whole chip (default {_DEFAULT_BATCH})."),
    ] = None,
    alpha: AlphaOption = None,
    distribution: DistributionOption = None,
    settings: ChipSetOption = None,
    effort: EffortOption = DEFAULT_EFFORT,
    time_limit: LimitOption = None,
    seed: SeedOption = 0,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE", help="Also write an HTML page: the tables of each core."),
    ] = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Which way to look up which table, which core owns it, how long a batch takes, and its lower bound.

    Ctrl-C ends the search and prints the best mapping so far.

    \b
    Examples
      perfmodel chip plan --chip ascend-910 --model criteo-kaggle --distribution zipf:1.05
      perfmodel chip plan --chip h100-sxm --model criteo-kaggle --batch 8192
      perfmodel chip plan --chip ascend-910 --model tables.csv --report cores.html
    """
    check_page(report, None, force=force)
    if model is None:
        raise BadInputError(
            "which tables?", "give --model, e.g. --model mlperf-dlrm-dcnv2 (perfmodel models lists them)"
        )
    from perfmodel.onechip.answer import answer_on
    from perfmodel.plan.pricing.tables import PlanTables
    from perfmodel.units import parse_count

    samples = parse_count(batch or _DEFAULT_BATCH, "--batch")
    if samples > _MOST_SAMPLES:
        raise BadInputError(f"--batch {samples} is more than one chip is given.", f"at most {_MOST_SAMPLES}.")
    ids = ids_of(alpha, distribution)
    limit_s = limit_of(time_limit)
    box = chip_of(chip, settings, "local_bytes=1MiB")
    tables = PlanTables.load(model, ids)
    with ctrl_c(end_softly) as stop:
        answer = answer_on(
            box,
            tables,
            samples,
            ids,
            effort=effort,
            time_limit_s=limit_s,
            seed=seed,
            stop=stop,
        )
        _deliver(answer, report, TypedLine.of(context), as_json=as_json)
    if answer.stopped == "interrupt":
        warn_stopped()
        raise SaidError(STOPPED)


def _deliver(answer: ChipAnswer, page: Path | None, typed: TypedLine, *, as_json: bool) -> None:
    """The page first, with the line that makes it again in any folder, then the answer."""
    from perfmodel.onechip.answer import too_large
    from perfmodel.report.onechip.mapping_text import mapping_text

    large = too_large(answer.cost.chip, answer.tables.total_bytes)
    warn_all(large)
    if page is not None:
        from perfmodel.report.onechip.mapping_page import chip_page

        command = typed.text(without=("report", "force", "as_json"), more=["--report", page.name, "--force"])
        write(chip_page(answer, command), page, "html")
    if as_json:
        emit_json("plan", **answer.to_dict(), notes=large)
    else:
        emit(mapping_text(answer))
    if page is not None:
        note(f"wrote {page}")
