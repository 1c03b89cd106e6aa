"""Text of ``perfmodel alternatives``: the comparison, and which alternative wins where."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from perfmodel.passes.steps import StepRow
from perfmodel.plan.other_ways.alternatives import (
    FAST,
    MEMORY_OF,
    best_of,
    cheapest_of,
    held_otherwise,
    rivals_of,
)
from perfmodel.plan.other_ways.conditions import needed, price_to_match
from perfmodel.plan.other_ways.criteria import COST, GPU_HOURS, THROUGHPUT, TIME, Criterion
from perfmodel.plan.other_ways.map_cells import Crossing, MapCell
from perfmodel.plan.other_ways.one_alternative import Alternative
from perfmodel.report.columns import Column, columns_text
from perfmodel.report.projection_text import band
from perfmodel.report.terminal import facts, paragraph, table
from perfmodel.report.winner_map_text import crossing_lines, map_table
from perfmodel.schema.prices import HourPrice
from perfmodel.units import (
    counted,
    format_bytes,
    format_count,
    format_number,
    format_per_second,
    format_quantity,
    format_rate,
    format_ratio,
    format_time,
)

PAID = (
    "GPU-h: hours of all GPUs that are paid for 10⁹ samples; every GPU of a machine (of a rack, where the "
    "price is of racks) is paid, whether it works or not. kWh ≤: their energy at most, each machine at "
    "the highest power of its datasheet, without network switches and cooling; - where no datasheet says it. "
    "A GPU-hour of one machine may cost more than of another."
)
HYPOTHETICAL = "A memory that holds all rows is a hypothetical device: it is left out of the ranking."
_RATE_OF = {
    "fetch_rows": "host_link_bytes_per_s",
    "gather_host": "host_link_bytes_per_s",
    "read_ssd": "ssd_reads_per_s",
}


def alternatives_text(
    found: Sequence[Alternative],
    cells: Sequence[MapCell],
    crossings: Sequence[Crossing],
    currency: str = "",
    by: Criterion = GPU_HOURS,
) -> str:
    """The text that ``perfmodel alternatives`` prints: the winner, all alternatives, conditions, the map.

    cells, crossings  the points of the map of winners, and the batches at which the winner changes
    currency          of the prices; "": no prices were given
    by                the criterion that ranks the alternatives
    """
    parts = [headline(found, currency, by), side_by_side(found, currency), conditions(found, currency, by)]
    if cells:
        parts += [map_table(cells, is_global(found)), crossing_lines(crossings)]
    parts.append(_small_print(found, currency))
    return "\n\n".join(part for part in parts if part)


def is_global(found: Sequence[Alternative]) -> bool:
    """Whether the alternatives were compared at an equal batch over all GPUs, instead of per GPU."""
    return any(each.equal is not None and each.equal.total is not None for each in found)


def headline(found: Sequence[Alternative], currency: str = "", by: Criterion = GPU_HOURS) -> str:
    """The first lines: a sentence for the winner by each criterion, and the batch that all process."""
    first, *more = headlines(found, currency, by)
    return "\n".join([paragraph(first), *(paragraph(f"     {line}") for line in more)])


def headlines(found: Sequence[Alternative], currency: str = "", by: Criterion = GPU_HOURS) -> list[str]:
    """A sentence for the winner by the requested criterion, by each other criterion, and on the equal batch.

    Throughput is a criterion only if ``by`` asks for it, and cost only if prices were given.
    """
    known = list(found)
    best = best_of(known, by)
    base = best.answer
    assert base is not None and best.equal is not None
    others = [each for each in (GPU_HOURS, TIME, COST) if each is not by]
    asked = [each for each in (by, *others) if each is not COST or cheapest_of(known) is not None]
    size = f" for {format_bytes(float(base.work.table_bytes[0]), binary=False)}"
    lines = [_winner_words(known, each, "" if at else size, currency) for at, each in enumerate(asked)]
    equal, each_gpu = best.equal, format_count(best.equal.of_gpu)
    step = "training step" if best.training else "batch"
    ids = f"ids {base.work.ids_words(base.forward.ids)}."
    held = f"Held alike is the {step} of a GPU: {each_gpu} samples, {ids}"
    if equal.total is not None:
        held = f"Held alike is the {step} of all GPUs together: {format_count(equal.total)} samples"
        held += f" ({each_gpu} per GPU {equal.where}), {ids}"
    if any(each.answer and each.samples % each.gpus for each in known):
        held += (
            " Where GPUs cannot share it evenly, batch/GPU is that of the fullest GPU, which sets the time."
        )
    return [*lines, held, *_held_otherwise(known, asked)]


def _held_otherwise(known: list[Alternative], asked: Sequence[Criterion]) -> list[str]:
    """Which alternative would win with the other equal batch (per GPU, or over all GPUs).

    asked  the criteria to check.  Limits: the same winner by each criterion -> an empty list
    """
    other = held_otherwise(known)
    won = {
        by: [best_of(each, by).name.removesuffix(FAST) for each in (known, other)] for by in asked if other
    }
    changed = [by for by in won if by is not COST and won[by][0] != won[by][1]]
    if not changed:
        return []
    equal = best_of(other, changed[0]).equal
    assert equal is not None
    held = f"{format_count(equal.of_gpu)} samples on each GPU"
    if equal.total is not None:
        held = f"{format_count(equal.total)} samples on all GPUs together"
    words = " ".join(_winner_words(other, by, "", "") for by in changed)
    words = words if words[1:2].isupper() else f"{words[:1].lower()}{words[1:]}"  # GB200 stays
    return [f"With {held} instead, on the same GPUs and with the same caches: {words}"]


@dataclass(frozen=True)
class _Said:
    """Words for a sentence "A takes the fewest GPU-hours, 2× fewer than B", by criterion.

    verbs  takes, take;  what  the fewest GPU-hours;  more  fewer;  goal  take as few GPU-hours
    value  returns the value of an alternative as text, with the currency
    """

    verbs: tuple[str, str]
    what: str
    more: str
    goal: str
    value: Callable[[Alternative, str], str]


_SAID = {
    TIME: _Said(
        ("is", "are"), "the fastest", "faster", "be as fast",
        lambda each, _: f"{format_time(each.time_s)} per batch",
    ),
    THROUGHPUT: _Said(
        ("processes", "process"), "the most samples per second", "more", "process as many samples per second",
        lambda each, _: rate_text(each.samples_per_s),
    ),
    GPU_HOURS: _Said(
        ("takes", "take"), "the fewest GPU-hours", "fewer", "take as few GPU-hours",
        lambda each, _: f"{format_number(each.gpu_hours)} per 10⁹ samples",
    ),
    COST: _Said(
        ("costs", "cost"), "the least", "less", "cost as little",
        lambda each, currency: f"{_number(each.cost)} {currency} per 10⁹ samples",
    ),
}  # fmt: skip


def _winner_words(known: list[Alternative], by: Criterion, size: str, currency: str) -> str:
    """Who wins, by how much over the next; or the alternatives whose bands leave the winner open."""
    said, best = _SAID[by], best_of(known, by)
    near = [best, *by.order(by.as_good(known, best))]
    some = " (of those with a price)" if by is COST and any(each.unpriced for each in known) else ""
    if len(near) > 1:
        who = [f"{_who(each)} ({said.value(each, currency)})" for each in near]
        return (
            f"Cannot tell which {said.verbs[0]} {said.what}{size}{some}: {', '.join(who[:-1])} or {who[-1]}."
        )
    name, rivals = _who(best), rivals_of(known, best)
    name = name if best.label == best.machine else f"{name[0].upper()}{name[1:]}"
    first = f"{name} {said.verbs[best.label.startswith('SSDs')]} {said.what}{size}"
    rival = min(rivals, key=by.measure, default=best)
    times = by.measure(rival) / by.measure(best)
    than = ""
    if rival is not best and math.isfinite(times):
        than = f", {format_ratio(times)} {said.more} than {_article(rival)} ({counted(rival.gpus, 'GPU')})"
    return f"{first}: {said.value(best, currency)}{some}{than}."


def _who(each: Alternative) -> str:
    """The alternative and its GPUs: ``host memory on 52 GPUs``."""
    return f"{each.label} on {counted(each.gpus, 'GPU')}"


def columns_of(currency: str) -> tuple[Column, ...]:
    """The columns of the table of alternatives; a column for the cost if ``currency`` is not ""."""
    return (
        Column("alternative", lambda each: each.label, left=True),
        Column("GPUs", lambda each: format_count(each.gpus)),
        Column("paid", lambda each: format_count(each.gpus_paid)),
        Column("batch/GPU", lambda each: format_count(each.batch), goes=4),
        Column("time", lambda each: format_time(each.time_s)),
        Column("95 % band", lambda e: band(e.answer.totals["low_s"], e.answer.totals["high_s"]), goes=1),
        Column("samples/s", lambda each: rate_text(each.samples_per_s), goes=2),
        Column("GPU-h", lambda each: format_number(each.gpu_hours)),
        Column("kWh ≤", lambda each: _number(each.energy_kwh), goes=3),
        *([Column(currency, lambda each: _number(each.cost))] if currency else []),
    )


def side_by_side(found: Sequence[Alternative], currency: str) -> str:
    """A line for each possible alternative; below them the impossible ones, with the reason."""
    text = columns_text(columns_of(currency), (each for each in found if each.answer))
    how = [(each.label, how_words(each)) for each in found if each.answer]
    text += f"\n\nHow\n{facts(how, indent=1)}"
    rest = [[f"{each.label} ({each.machine})", each.why] for each in found if each.answer is None]
    return text + ("\n\nNot possible\n" + table(["", ""], rest, left=(0, 1)) if rest else "")


def _number(value: float | None) -> str:
    return "-" if value is None else format_number(value)


def how_words(each: Alternative) -> str:
    """Where the rows are stored, on which machine, why so many GPUs, over which network, and the evidence."""
    gpus = f"; {counted(each.gpus, 'GPU')}: {each.gpus_why}" if each.gpus_why else ""
    if each.copies > 1 and each.answer is not None:
        gpus = f"; {each.copies} copies on {counted(each.answer.gpus, 'GPU')} each fill a machine"
    network = f"; {each.network}" if each.network else ""
    return f"{each.what}, on {each.machine}{gpus}{network}; {_known(each)}"


def rate_text(per_s: float) -> str:
    """A number per second, without a noun: ``91.8 M/s``."""
    return format_per_second(per_s, "").replace(" /s", "/s")


def _known(each: Alternative) -> str:
    return str(each.answer.main_evidence) if each.answer else ""


def conditions(found: Sequence[Alternative], currency: str = "", by: Criterion = GPU_HOURS) -> str:
    """A title, and for each alternative that does not win, the change with which it would win."""
    best, lines = best_of(list(found), by), needed_words(found, currency, by)
    title = f"What would have to be true to {by_goal(by)} ({_SAID[by].value(best, currency)})"
    return f"{paragraph(title)}\n{facts(lines, indent=1)}" if lines else ""


def by_goal(by: Criterion) -> str:
    """The goal of a criterion in words: ``take as few GPU-hours``."""
    return _SAID[by].goal


def needed_words(
    found: Sequence[Alternative], currency: str = "", by: Criterion = GPU_HOURS
) -> list[tuple[str, str]]:
    """Pairs of an alternative's name, and the price or the faster step with which it would equal the best."""
    best = best_of(list(found), by)
    told = [(each.label, price_words(each, found, by, currency), condition(each, best, by)) for each in found]
    return [(label, "; or ".join(filter(None, words))) for label, *words in told if any(words)]


def price_words(
    each: Alternative, found: Sequence[Alternative], by: Criterion = COST, currency: str = ""
) -> str:
    """The price per hour at which ``each`` would cost as much as the cheapest alternative.

    For the cheapest itself: the price up to which it stays the cheapest. Without prices: the price of its
    GPU-hour as a multiple of the best alternative's.
    Limits: a criterion other than cost and GPU-hours, an impossible alternative, the best's machine -> ""
    """
    best = best_of(list(found), by)
    if by not in (COST, GPU_HOURS) or each.answer is None or each.stated or each.name in MEMORY_OF:
        return ""
    if by is GPU_HOURS:
        if currency or each.machine == best.machine:
            return ""
        share = format_ratio(best.gpu_hours / each.gpu_hours)
        return f"a GPU-hour at {share} the price of {best.machine}'s costs as much"
    rest = [one for one in found if one.cost is not None and one.machine != each.machine]
    other = best_of(rest, by) if each is best and rest else best
    price = price_to_match(each, other.cost)
    if other.machine == each.machine or price is None:
        return ""
    now = f" ({each.hour.words(currency)} now)" if each.hour else ""
    words = HourPrice(price, each.hour.gpus if each.hour else None).words(currency)
    if each is best:
        return f"the cheapest up to {words}{now}"
    return f"at most {words}{now}" if each.hour else f"at most {words}: no price is given"


def condition(each: Alternative, best: Alternative, by: Criterion = GPU_HOURS) -> str:
    """Which step would have to be how much faster to equal ``best``. Limits: ``each`` is the best -> "" """
    if each.least_bytes_per_s is not None and by is GPU_HOURS:
        return _least_rate(each, each.least_bytes_per_s)
    need = needed(each, best, by)
    if need is None:
        return ""
    step, times, goal = need.step, format_ratio(need.factor), f"{format_time(need.target_s)} per batch: "
    if need.alone:
        limit = _beyond([step], need.factor)
        return f"{goal}{step.label} {times} faster{_as_rate(each, step, need.factor)}{limit}"
    what = "all exchanges together" if all(row.collective for row in need.steps) else "all steps"
    why = f"no single step is enough: without {step.label} ({format_time(step.time_s)}) the rest still takes"
    return f"{goal}{what} {times} faster{_beyond(need.steps, need.factor)}; {why} {format_time(need.rest_s)}"


def _beyond(steps: Sequence[StepRow], factor: float) -> str:
    """A note if no bandwidth makes the steps ``factor`` times faster because of their latency; else ""."""
    latency = sum(step.floor_s for step in steps)
    if latency * factor <= sum(step.time_s for step in steps):
        return ""
    return f", which no bandwidth reaches: their latency alone is {format_time(latency)}"


def _least_rate(each: Alternative, rate: float) -> str:
    """The bandwidth ``rate`` at which a hypothetical memory would need fewer GPU-hours than the others."""
    memory = each.memory
    assert memory is not None
    own, many = format_rate(memory.bytes_per_s), int(memory.bytes_per_s / rate)
    who = f"for its {counted(memory.sharers, 'GPU')} together" if memory.sharers > 1 else "per GPU"
    more = f"; its {own} is enough for {format_count(many)} GPUs" if memory.sharers == 1 < many else ""
    return f"fewer, if it exists: {format_rate(rate)} {who} is enough{more}"


def _as_rate(each: Alternative, step: StepRow, factor: float) -> str:
    """The machine's bandwidth at which ``step`` is ``factor`` times faster, or as many times fewer misses."""
    key = _RATE_OF.get(step.name)
    if key is None or each.answer is None:
        return ""
    value = each.answer.setting.machine.value(key) * factor
    text = format_quantity(value, "1/s") if key == "ssd_reads_per_s" else format_rate(value)
    less = "" if step.name == "gather_host" else f", or {format_ratio(factor)} fewer misses"
    return f" (about {key} {text}{less})"


def hour_words(found: Sequence[Alternative], currency: str) -> str:
    """The price of an hour of each machine that has a price, and how many GPUs it buys."""
    each = {one.machine: _hour_of(one, currency) for one in found if one.hour and one.answer}
    return f"Prices: {'; '.join(each.values())}." if each else ""


def _hour_of(one: Alternative, currency: str) -> str:
    """An hour's price: ``gb200-nvl72 50 EUR/h, of a machine of 4 GPUs (18 are an NVLink domain of 72)``."""
    assert one.answer is not None and one.hour is not None
    machine, words = one.answer.setting.machine, f"{one.machine} {one.hour.words(currency)}"
    if one.hour.gpus is not None:
        times = format_count(one.hour.units(one.machines, machine.gpus_per_node))
        return f"{words}, paid {times}× for {counted(one.gpus, 'GPU')}"
    link = machine.links.scale_up
    domain = f" ({machine.nodes_per_domain} are an {link} domain of {machine.nvlink_domain_gpus})"
    more = domain if machine.nodes_per_domain > 1 else ""
    return f"{words}, of a machine of {counted(machine.gpus_per_node, 'GPU')}{more}"


def paid_words(found: Sequence[Alternative]) -> list[str]:
    """Which costs are counted, which GPUs are paid but idle, and which prices are missing."""
    idle = [f"{each.label} {format_count(each.gpus_paid - each.gpus)} of {format_count(each.gpus_paid)}"
            for each in found if each.answer and each.gpus < each.gpus_paid]  # fmt: skip
    missing = [f"{each.unpriced} for {each.label}" for each in found if each.unpriced]
    return [
        PAID,
        *([f"Paid and not in use: {', '.join(idle)}."] if idle else []),
        *([f"No cost is shown where the file has no price: {', '.join(missing)}."] if missing else []),
    ]


def _article(each: Alternative) -> str:
    """Its name in a sentence: ``the best plan in HBM``, ``host memory``."""
    return f"the {each.label}" if each.label.startswith("best") else each.label


def _small_print(found: Sequence[Alternative], currency: str) -> str:
    lines = paid_words(found)
    if any(each.stated and each.answer for each in found):
        lines += [HYPOTHETICAL]
    lines += [hour_words(found, currency)] if currency else []
    if not currency:
        lines += ["For costs: --prices prices.toml, with prices of a machine per hour and of a TB per month."]
    return "\n".join(paragraph(line) for line in lines)
