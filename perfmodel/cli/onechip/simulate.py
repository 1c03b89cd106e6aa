"""``perfmodel chip simulate``: look-ups on one chip, request by request, beside what is predicted."""

from __future__ import annotations

from typing import Annotated

import typer

from perfmodel.cli.effort import EffortOption, LimitOption, limit_of
from perfmodel.cli.ids import AlphaOption, DistributionOption, ids_of
from perfmodel.cli.onechip.options import ChipOption, ChipSetOption, chip_of
from perfmodel.cli.options import JsonOption
from perfmodel.cli.output import emit, emit_json, warn_all
from perfmodel.effort import DEFAULT_EFFORT
from perfmodel.errors import BadInputError

_DEFAULT_BATCH = "512"
_MOST_LOOK_UPS = 5_000_000


def simulate(
    chip: ChipOption,
    model: Annotated[
        str, typer.Option("--model", metavar="NAME", help="A set of tables (perfmodel models), or a file.")
    ],
    batch: Annotated[
        str | None, typer.Option("--batch", metavar="N", help=f"Samples ({_DEFAULT_BATCH}).")
    ] = None,
    alpha: AlphaOption = None,
    distribution: DistributionOption = None,
    settings: ChipSetOption = None,
    effort: EffortOption = DEFAULT_EFFORT,
    time_limit: LimitOption = None,
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="Seed of the ids and of the addresses of the tables.")
    ] = 0,
    as_json: JsonOption = False,
) -> None:
    """Compare predicted with simulated times, for the mappings of chip plan.

    The simulator follows every request through queues, buffers and a cache. It uses no closed form.

    \b
    Examples
      perfmodel chip simulate --chip ascend-910 --model criteo-kaggle --distribution zipf:1.05
      perfmodel chip simulate --chip h100-sxm --model criteo-kaggle --batch 2048 --json
    """
    from perfmodel.onechip.answer import answer_on, too_large
    from perfmodel.onechip.replay import replay_mappings
    from perfmodel.plan.pricing.tables import PlanTables
    from perfmodel.report.onechip.mapping_text import cut_words
    from perfmodel.report.onechip.simulated_text import notes_of, simulated_text
    from perfmodel.units import parse_count

    limit_s = limit_of(time_limit)
    box = chip_of(chip, settings)
    ids = ids_of(alpha, distribution)
    tables = PlanTables.load(model, ids)
    samples = parse_count(batch or _DEFAULT_BATCH, "--batch")
    look_ups = samples * float(tables.pooling.sum())
    if look_ups > _MOST_LOOK_UPS:
        raise BadInputError(
            f"--batch {samples} asks for {look_ups:.2g} look-ups.",
            f"at most {_MOST_LOOK_UPS:.0e} are simulated: give a smaller batch.",
        )
    answer = answer_on(box, tables, samples, ids, effort=effort, time_limit_s=limit_s, seed=seed)
    found = replay_mappings(answer, seed=seed)
    large = too_large(box, tables.total_bytes)
    warn_all(large)
    notes = [*([f"Search: {cut_words(answer)}."] if cut_words(answer) else []), *notes_of(answer, found)]
    if as_json:
        emit_json(
            "simulate", chip=box.name, overrides=sorted(box.overrides), model=tables.model, batch=samples,
            distribution=ids.name, seed=seed, stopped=answer.stopped,
            results=[one.to_dict() for one in found], notes=[*large, *notes],
        )  # fmt: skip
    else:
        emit(simulated_text(answer, found, notes))
