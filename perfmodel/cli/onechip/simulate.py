"""``perfmodel chip simulate``: look-ups on one chip, request by request, beside predicted times."""

from __future__ import annotations

import typer

from perfmodel.cli.effort import limit_of
from perfmodel.cli.ids import ids_of
from perfmodel.cli.onechip.options import chip_of
from perfmodel.cli.output import emit, emit_json, warn_all
from perfmodel.errors import BadInputError
from perfmodel.question.chips import ChipSimulateOptions

_MOST_LOOK_UPS = 5_000_000


def simulate(context: typer.Context, options: ChipSimulateOptions) -> None:
    """Simulate look-ups on a chip request by request, and print the times beside predicted times."""
    from perfmodel.onechip.answer import answer_on, too_large
    from perfmodel.onechip.replay import replay_mappings
    from perfmodel.passes.tables import PlanTables
    from perfmodel.report.onechip.mapping_text import cut_words
    from perfmodel.report.onechip.simulated_text import notes_of, simulated_text
    from perfmodel.units import parse_count

    limit_s = limit_of(options.time_limit)
    box = chip_of(options.chip, options.settings)
    ids = ids_of(options.alpha, options.distribution)
    tables = PlanTables.load(options.model, ids)
    samples = parse_count(options.batch, "--batch")
    look_ups = samples * float(tables.pooling.sum())
    if look_ups > _MOST_LOOK_UPS:
        raise BadInputError(
            f"--batch {samples} asks for {look_ups:.2g} look-ups.",
            f"at most {_MOST_LOOK_UPS:.0e} are simulated: give a smaller batch.",
        )
    answer = answer_on(
        box, tables, samples, ids, effort=options.effort, time_limit_s=limit_s, seed=options.seed
    )
    found = replay_mappings(answer, seed=options.seed)
    large = too_large(box, tables.total_bytes)
    warn_all(large)
    notes = [*([f"Search: {cut_words(answer)}."] if cut_words(answer) else []), *notes_of(answer, found)]
    if options.as_json:
        emit_json(
            "simulate", chip=box.name, overrides=sorted(box.overrides), model=tables.model, batch=samples,
            distribution=ids.name, seed=options.seed, stopped=answer.stopped,
            results=[one.to_dict() for one in found], notes=[*large, *notes],
        )  # fmt: skip
    else:
        emit(simulated_text(answer, found, notes))
