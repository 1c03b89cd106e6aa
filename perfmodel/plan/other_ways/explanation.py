"""The numbers of ``perfmodel alternatives``, explained: each with its equation and the values in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perfmodel.model import serving_cost
from perfmodel.passes.equations import Equation, ExplainedNumber
from perfmodel.plan.other_ways.alternatives import FAST, MEMORY_OF, best_of, rent_of
from perfmodel.plan.other_ways.conditions import least_rate, needed
from perfmodel.plan.other_ways.criteria import GPU_HOURS, Criterion
from perfmodel.plan.other_ways.map_cells import Crossing
from perfmodel.plan.other_ways.one_alternative import SAMPLES, Alternative
from perfmodel.schema.prices import Prices
from perfmodel.units import (
    counted,
    format_count,
    format_number,
    format_per_second,
    format_rate,
    format_ratio,
    format_time,
)

_N = f"N = {SAMPLES:g}"


def explain_alternatives(
    found: Sequence[Alternative],
    crossed: Sequence[Crossing],
    prices: Prices | None = None,
    by: Criterion = GPU_HOURS,
) -> tuple[ExplainedNumber, ...]:
    """The equation of each number of each possible alternative, then of each crossing."""
    best = best_of(list(found), by)
    rows = (number for each in found if each.answer for number in _of_one(each, best, prices, by))
    return (*rows, *map(_of_crossing, crossed))


def _of_one(
    each: Alternative, best: Alternative, prices: Prices | None, by: Criterion
) -> Iterator[ExplainedNumber]:
    label, key = each.label, each.name
    S, t = format_count(each.samples), format_time(each.time_s)
    rate, hours = each.samples_per_s, each.gpu_hours
    who = format_per_second(rate / each.gpus, "samples")
    yield ExplainedNumber(
        f"{label}: samples/s",
        f"{key}.samples_per_s",
        rate,
        format_per_second(rate, "samples"),
        Equation.of(serving_cost.samples_per_s),
        (f"S = {S}, t = {t}; of each of {counted(each.gpus, 'GPU')} {who}",),
    )
    paid, used = format_count(each.gpus_paid), counted(each.gpus, "GPU")
    machines = f"{counted(each.machines, 'machine')} for {used}"
    equation = Equation.of(serving_cost.hours_paid)
    told = f"{format_number(hours)} h"
    working = (f"t = {t}, S = {S}, {_N}, n = {paid} GPUs, all of {machines}: {told}",)
    yield ExplainedNumber(f"{label}: GPU-hours", f"{key}.gpu_hours", hours, told, equation, working)
    told = f"{format_number(each.machine_hours)} h"
    working = (f"t = {t}, S = {S}, {_N}, n = {machines}: {told}",)
    yield ExplainedNumber(
        f"{label}: machine-hours", f"{key}.machine_hours", each.machine_hours, told, equation, working
    )
    if each.energy_kwh is not None and each.answer is not None:
        power, energy = each.answer.setting.machine.value("node_w"), f"{format_number(each.energy_kwh)} kWh"
        yield ExplainedNumber(
            f"{label}: energy at most",
            f"{key}.energy_kwh_at_most",
            each.energy_kwh,
            energy,
            Equation.of(serving_cost.energy_kwh),
            (f"h = {told}, P = {format_number(power)} W (datasheet of {each.machine}): {energy}",),
        )
    yield from _money(each, prices)
    yield from _condition(each, best, by)


def _money(each: Alternative, prices: Prices | None) -> Iterator[ExplainedNumber]:
    """Costs of machines and of rented memory; none without prices."""
    if prices is None or each.cost is None or each.answer is None or each.hour is None:
        return
    text = f"{format_number(each.cost)} {prices.currency}"
    what = "machines" if each.hour.gpus is None else f"{counted(each.hour.gpus, 'GPU')}"
    working = [f"{format_number(each.priced_hours)} h of {what} at {each.hour.words(prices.currency)}"]
    equation = Equation.of(serving_cost.hours_paid, "machine-hours × price of an hour + storage_cost")
    rented = MEMORY_OF.get(each.name.removesuffix(FAST))
    if rented:
        size, hours, paid = float(each.answer.work.table_bytes[0]), each.hours(1), rent_of(each, prices)
        month = f"{format_number(prices.tb_month[rented])} {prices.currency}/TB/month"
        held = f"{format_number(size / serving_cost.BYTES_PER_TB)} TB for {format_number(hours)} h"
        working.append(f"and {held} at {month}: {format_number(paid)} {prices.currency} (storage_cost)")
    yield ExplainedNumber(
        f"{each.label}: cost", f"{each.name}.cost", each.cost, text, equation, tuple(working)
    )


def _condition(each: Alternative, best: Alternative, by: Criterion) -> Iterator[ExplainedNumber]:
    """The condition to be as good as ``best``: speed-up of steps, or the least rate of a memory."""
    t, fewest = format_time(each.time_s), f"{format_number(best.gpu_hours)} GPU-hours of {best.label}"
    if by is not GPU_HOURS:
        fewest = f"{by.name} of {best.label}"
    least = format_time(by.target_s(each, best))
    if each.least_bytes_per_s is not None and by is GPU_HOURS:
        yield ExplainedNumber(
            f"{each.label}: rate that is enough",
            f"{each.name}.least_bytes_per_s",
            each.least_bytes_per_s,
            format_rate(each.least_bytes_per_s),
            Equation.of(least_rate, "t(rate) = t*, halved until both ends are within 0.1 %     [bytes/s]"),
            (f"t* = {least}, for the {fewest}; at its own rate t = {t}",),
        )
    need = needed(each, best, by)
    if need is None:
        return
    part, names = sum(step.time_s for step in need.steps), " + ".join(step.label for step in need.steps)
    factor = format_ratio(need.factor)
    yield ExplainedNumber(
        f"{each.label}: faster to be as good as {best.label}",
        f"{each.name}.needed.times_faster",
        need.factor,
        factor,
        Equation.of(serving_cost.speedup_to_match),
        (f"s = {format_time(part)} ({names}), t = {t}, t* = {least}, for the {fewest}: f = {factor}",),
    )


def _of_crossing(each: Crossing) -> ExplainedNumber:
    low, high = map(format_count, each.between)
    first, then = (counted(gpus, "GPU") for gpus in each.gpus)
    working = [f"{each.then} ({then}) overtakes {each.first} ({first}) between {low} and {high} samples"]
    if each.lines is not None:
        (a, b), (a2, b2) = ([f"{value:.6g} GPU-s" for value in line] for line in each.lines)
        working.append(f"a = {a}, b = {b}; a' = {a2}, b' = {b2}, through both batches")
    else:
        working.append("the lines through both batches do not meet between them: their geometric mean")
    return ExplainedNumber(
        f"crossing at {each.table_bytes / serving_cost.BYTES_PER_TB:g} TB, {each.ids}",
        "crossings.batch",
        each.batch,
        f"{format_count(each.batch)} samples",
        Equation.of(serving_cost.crossing_batch),
        tuple(working),
    )
