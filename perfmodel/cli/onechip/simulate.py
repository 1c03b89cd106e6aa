"""``perfmodel chip simulate``: look-ups on one chip, request by request, beside what is predicted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfmodel.cli.effort import EFFORT, EffortOption, LimitOption, limit_of
from perfmodel.cli.ids import AlphaOption, DistributionOption, ids_of
from perfmodel.cli.onechip.options import ChipOption, ChipSetOption, chip_of
from perfmodel.cli.options import JsonOption
from perfmodel.cli.output import emit, emit_json, warn_all
from perfmodel.errors import BadInputError

if TYPE_CHECKING:
    from perfmodel.onechip.cost import ChipCost
    from perfmodel.onechip.replay import Replayed
    from perfmodel.onechip.traces import Trace
    from perfmodel.plan.pricing.tables import PlanTables

_DEFAULT_BATCH = "512"
_MOST_LOOK_UPS = 5_000_000
_SHOWN = 40


def simulate(
    chip: ChipOption,
    model: Annotated[
        str, typer.Option("--model", metavar="NAME", help="A set of tables (perfmodel models), or a file.")
    ],
    batch: Annotated[
        str | None, typer.Option("--batch", metavar="N", help=f"Samples ({_DEFAULT_BATCH}).")
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            metavar="NAME",
            help="Simulate each way of this table instead of mappings. Repeat for more.",
        ),
    ] = None,
    way: Annotated[
        str | None,
        typer.Option("--way", metavar="WAY", help="With --table: GM, L1, GM-UB or L1-UB (default: all)."),
    ] = None,
    one_core: Annotated[
        bool,
        typer.Option("--one-core", help="With --table: the whole batch on one core, not a slice on each."),
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            metavar="FILE",
            help="With --table: use your own ids, .npz or CSV, instead of random ones.",
        ),
    ] = None,
    alpha: AlphaOption = None,
    distribution: DistributionOption = None,
    settings: ChipSetOption = None,
    effort: EffortOption = EFFORT,
    time_limit: LimitOption = None,
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="Seed of the ids and of the addresses of the tables.")
    ] = 0,
    as_json: JsonOption = False,
) -> None:
    """Compare predicted with simulated times, for the mappings of chip plan or for single tables.

    The simulator follows every request through queues, buffers and a cache. It uses no closed form.

    \b
    Examples
      perfmodel chip simulate --chip ascend-910 --model criteo-kaggle --distribution zipf:1.05
      perfmodel chip simulate --chip h100-sxm --model criteo-kaggle --table t4 --one-core
      perfmodel chip simulate --chip ascend-910 --model mine.csv --trace ids.npz --table users
    """
    from perfmodel.onechip.answer import answer_on, too_large
    from perfmodel.onechip.cost import ChipCost
    from perfmodel.onechip.popular import popularities
    from perfmodel.onechip.replay import replay_mappings
    from perfmodel.onechip.traces import draw, read_trace
    from perfmodel.plan.pricing.tables import PlanTables
    from perfmodel.report.onechip.mapping_text import cut_words
    from perfmodel.report.onechip.simulated_text import off_words, owned_words, simulated_text
    from perfmodel.units import counted, parse_count

    if (way or one_core) and not table:
        raise BadInputError(f"{'--way' if way else '--one-core'} belongs to --table.", "name a table.")
    if (time_limit or effort != EFFORT) and table:
        raise BadInputError(
            f"{'--time-limit' if time_limit else '--effort'} applies to mappings, which --table leaves out.",
            "leave one of them out.",
        )
    limit_s = limit_of(time_limit)
    box = chip_of(chip, settings)
    ids = ids_of(alpha, distribution)
    tables = PlanTables.load(model, ids)
    if trace is not None:
        _check_trace(batch, alpha, distribution, table)
        given = read_trace(trace, tables, tables.names)
        _check_asked(given, trace, tables, table or [])
        samples, popular, law = given.batch, given.popularity(tables), f"of {trace}"
    else:
        samples = parse_count(batch or _DEFAULT_BATCH, "--batch")
        _check_size(samples, tables, table)
        popular, law = popularities([ids] * len(tables), tables.rows), ids.name
    if table:
        cost = ChipCost(box, tables, samples, popular)
        drawn, said = given if trace is not None else draw(tables, samples, popular, seed), []
        found, notes = _tables(cost, drawn, tables, table, way, one_core, seed)
        stopped, cut = None, ""
    else:
        answer = answer_on(box, tables, samples, ids, effort=effort, time_limit_s=limit_s, seed=seed)
        found = replay_mappings(answer, seed=seed)
        notes, said = _mapping_notes(found), owned_words(answer)
        stopped, cut = answer.stopped, cut_words(answer)
    said += off_words(found)
    large = too_large(box, _bytes(tables, table))
    warn_all(large)
    if as_json:
        emit_json(
            "simulate", chip=box.name, overrides=sorted(box.overrides), model=tables.model, batch=samples,
            distribution=law, seed=seed, stopped=stopped, results=[one.to_dict() for one in found],
            notes=[*large, *said],
        )  # fmt: skip
        return
    head = [
        (tables.model, f"{counted(len(tables), 'table')}, {counted(samples, 'sample')}, ids {law}"),
        (box.name, f"{counted(box.cores, 'core')}; {box.title}"),
        *([("Search", cut)] if cut else []),
    ]
    emit(simulated_text(head, found, [*notes, *said]))


def _check_trace(
    batch: str | None, alpha: str | None, distribution: str | None, table: list[str] | None
) -> None:
    other = "--batch" if batch else "--alpha" if alpha else "--distribution" if distribution else ""
    if other:
        raise BadInputError(
            f"{other} and --trace cannot be combined.", "the trace says it: leave one of them out."
        )
    if not table:
        raise BadInputError(
            "--trace goes with --table alone: mappings are made for ids of a known popularity.",
            "name the tables whose ids are to be looked up, e.g. --table users.",
        )


def _check_asked(given: Trace, trace: Path, tables: PlanTables, names: list[str]) -> None:
    """Limits: a table that is to be looked up and has no ids in the trace -> BadInputError"""
    asked = [name for name, ids in zip(tables.names, given.ids, strict=True) if ids.size]
    missing = [name for name in names if name in tables.names and name not in asked]
    if missing:
        raise BadInputError(
            f"no ids of {missing[0]} in {trace}.",
            f"the trace has ids of {', '.join(asked[:_SHOWN]) or 'no table'}: name one of them, or "
            f"write the ids of {missing[0]} to it.",
        )


def _check_size(samples: int, tables: PlanTables, names: list[str] | None) -> None:
    look_ups = sum(
        float(pooling) * samples
        for name, pooling in zip(tables.names, tables.pooling, strict=True)
        if not names or name in names
    )
    if look_ups > _MOST_LOOK_UPS:
        raise BadInputError(
            f"--batch {samples} asks for {look_ups:.2g} look-ups.",
            f"at most {_MOST_LOOK_UPS:.0e} are simulated: give a smaller batch, or --table.",
        )


def _bytes(tables: PlanTables, names: list[str] | None) -> float:
    """Of the tables that are looked up [bytes]."""
    each = tables.rows * tables.dim * tables.element_bytes
    return float(
        sum(size for name, size in zip(tables.names, each, strict=True) if not names or name in names)
    )


def _tables(
    cost: ChipCost,
    trace: Trace,
    tables: PlanTables,
    names: list[str],
    way: str | None,
    one_core: bool,
    seed: int,
) -> tuple[list[Replayed], list[str]]:
    """Every way, or one, of some tables.

    Limits: a way that is asked for by name and does not fit -> BadInputError
    """
    from perfmodel.onechip.replay import EVERY_CORE, ONE_CORE, chosen, replay_table
    from perfmodel.onechip.work import WAYS
    from perfmodel.schema.files import unknown_name

    labels = {one.label.lower(): one for one in WAYS}
    if way is not None and way.lower() not in labels:
        raise unknown_name("way", way, [one.label for one in WAYS])
    found, notes = [], []
    for name in names:
        if name not in tables.names:
            raise unknown_name("table", name, tables.names[:_SHOWN])
        at = tables.names.index(name)
        some = [
            replay_table(cost, trace, at, one, ONE_CORE if one_core else EVERY_CORE, name=name, seed=seed)
            for one in ([labels[way.lower()]] if way else WAYS)
        ]
        if way is not None and some[0].predicted_s == float("inf"):
            raise BadInputError(
                f"{some[0].way} of table {name} does not fit the buffers of a core of {cost.chip.name}: "
                f"{tables.rows[at]:.0f} rows of {tables.dim[at]:.0f} columns are too many.",
                "use GM, or leave out --way to see which ways fit.",
            )
        found += some
        best = chosen(some)
        if best is not None:
            loss = best[0].simulated.seconds / best[1].simulated.seconds - 1  # type: ignore[union-attr]
            notes.append(
                f"{name}: predicted fastest {best[0].way}, "
                + (
                    "and so it is."
                    if best[0] is best[1]
                    else f"simulated {best[1].way}; {loss:.1%} are lost."
                )
            )
    return found, notes


def _mapping_notes(found: list[Replayed]) -> list[str]:
    first, last = found[0], found[-1]
    if first.simulated is None or last.simulated is None or last is first:
        return []
    said, seen = first.predicted_s / last.predicted_s, first.simulated.seconds / last.simulated.seconds
    return [f"{last.what} against {first.what}: {said:.2f} x as fast predicted, {seen:.2f} x simulated."]
