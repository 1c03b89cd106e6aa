"""``perfmodel chip plan``: which way to look up which table, and which core of one chip owns it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from perfmodel.cli.codes import STOPPED
from perfmodel.cli.effort import limit_of
from perfmodel.cli.onechip.options import chip_of
from perfmodel.cli.output import (
    SaidError,
    emit,
    emit_json,
    warn_all,
    warn_stopped,
)
from perfmodel.cli.stopping import ctrl_c, end_softly
from perfmodel.errors import BadInputError
from perfmodel.question.chips import ChipPlanOptions
from perfmodel.schema.distributions import parse_distribution

if TYPE_CHECKING:
    from perfmodel.onechip.answer import ChipAnswer

_MOST_SAMPLES = 2**31


def plan(context: typer.Context, options: ChipPlanOptions) -> None:
    """Search which core of a chip looks up which table in which way, and print it."""
    if options.model is None:
        raise BadInputError(
            "which tables?", "give --model, e.g. --model mlperf-dlrm-dcnv2 (perfmodel models lists them)"
        )
    from perfmodel.engine.tables import PlanTables
    from perfmodel.onechip.answer import answer_on
    from perfmodel.units import parse_count

    samples = parse_count(options.batch, "--batch")
    if samples > _MOST_SAMPLES:
        raise BadInputError(f"--batch {samples} is more than one chip is given.", f"at most {_MOST_SAMPLES}.")
    ids = parse_distribution(options.distribution)
    limit_s = limit_of(options.time_limit)
    box = chip_of(options.chip, options.settings, "local_bytes=1MiB")
    tables = PlanTables.load(options.model, ids)
    with ctrl_c(end_softly) as stop:
        answer = answer_on(
            box,
            tables,
            samples,
            ids,
            effort=options.effort,
            time_limit_s=limit_s,
            seed=options.seed,
            stop=stop,
        )
        _print(answer, as_json=options.as_json)
    if answer.stopped == "interrupt":
        warn_stopped()
        raise SaidError(STOPPED)


def _print(answer: ChipAnswer, *, as_json: bool) -> None:
    """Print the answer as text or JSON."""
    from perfmodel.onechip.answer import too_large
    from perfmodel.report.onechip.mapping_text import mapping_text

    large = too_large(answer.cost.chip, answer.tables.total_bytes)
    warn_all(large)
    if as_json:
        emit_json("plan", **answer.to_dict(), notes=large)
    else:
        emit(mapping_text(answer))
