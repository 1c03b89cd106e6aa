"""The answer of ``perfmodel alternatives``: side by side, and which wins where."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from perfmodel.passes.schemes import ROW_WISE, SHARDINGS, SHORT
from perfmodel.passes.steps import StepRow
from perfmodel.plan.other_ways.alternatives import best_of, cheapest_of, fastest_of, rivals_of
from perfmodel.plan.other_ways.conditions import needed
from perfmodel.plan.other_ways.one_alternative import Alternative
from perfmodel.plan.other_ways.winner_map import Crossing, MapCell
from perfmodel.report.columns import Column, columns_text
from perfmodel.report.projection_text import band
from perfmodel.report.terminal import facts, page_width, paragraph, table
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

_WORDS = (
    (("host", "GH200", "GB200"), "rows read in place in host memory"),
    (("cached",), "host memory through a cache in HBM"),
    (("SSD",), "rows on SSDs, through a cache in HBM"),
    (tuple(SHORT.values()), f"{ROW_WISE} with another exchange"),
    *(((name,), each.label) for name, each in SHARDINGS.items()),
)
"""What words of the map mean."""
PAID = (
    "GPU-hours, energy and cost are per 10⁹ samples and of whole machines: every GPU of a machine is paid, "
    "whether it works or not. Energy is at most: each machine at the highest power of its datasheet, without "
    "network switches and cooling; - where no datasheet says it. A GPU-hour of one machine may cost more "
    "than of another."
)
HYPOTHETICAL = "A memory that holds all rows is a hypothetical device: it is left out of the ranking."
_RATE_OF = {
    "fetch_rows": "host_link_bytes_per_s",
    "gather_host": "host_link_bytes_per_s",
    "read_ssd": "ssd_reads_per_s",
}


def alternatives_text(
    found: Sequence[Alternative], cells: Sequence[MapCell], crossings: Sequence[Crossing], currency: str = ""
) -> str:
    """The whole screen."""
    parts = [
        headline(found, currency),
        side_by_side(found, currency),
        conditions(found, best_of(list(found))),
    ]
    if cells:
        parts += [map_table(cells, is_global(found)), crossing_lines(crossings)]
    parts.append(_small_print(found, currency))
    return "\n\n".join(part for part in parts if part)


def is_global(found: Sequence[Alternative]) -> bool:
    """Whether all batches have as many samples on all GPUs together."""
    return any(each.equal is not None and each.equal.total is not None for each in found)


def headline(found: Sequence[Alternative], currency: str = "") -> str:
    """The winners in a sentence each, what was asked, and against what they are not sure."""
    first, *more = headlines(found, currency)
    return "\n".join([paragraph(first), *(paragraph(f"     {line}") for line in more)])


def headlines(found: Sequence[Alternative], currency: str = "") -> list[str]:
    """Fewest GPU-hours, least time, least money (with prices); what was asked; where bands overlap."""
    known = list(found)
    best, fastest, cheapest = best_of(known), fastest_of(known), cheapest_of(known)
    base = best.answer
    assert base is not None and best.equal is not None
    size = format_bytes(float(base.work.table_bytes[0]), binary=False)
    first = f"{_who(best, 'take')} the fewest GPU-hours for {size}"
    first += f": {format_number(best.gpu_hours)} per 10⁹ samples"
    first += f"{_than(best, rivals_of(known, best), lambda each: each.gpu_hours, 'fewer')}."
    second = f"{_who(fastest, 'be')} the fastest: {format_time(fastest.time_s)} per batch"
    second += f"{_than(fastest, rivals_of(known, fastest), lambda each: each.time_s, 'faster')}."
    money = ""
    if cheapest is not None and cheapest.cost is not None:
        money = f"{_who(cheapest, 'cost')} the least: {format_number(cheapest.cost)} {currency} for as many"
        money += " (of those with a price)." if any(each.unpriced for each in known) else "."
    total, each_gpu = best.equal.total, format_count(best.equal.of_gpu)
    asked = f"A batch of each has {each_gpu} samples per GPU"
    if total is not None:
        asked = f"A batch of each has {format_count(total)} samples ({each_gpu} per GPU in HBM)"
    close = [each.label for each in known if _overlap(each, best, lambda e: e.gpu_hours / e.time_s)]
    near = [each.label for each in known if _overlap(each, fastest, lambda e: 1.0)]
    unsure = [f"{what} not certain against: {', '.join(names)}"
              for what, names in (("the GPU-hours are", close), ("the time is", near)) if names]  # fmt: skip
    bands = f"Bands overlap, so {'; '.join(unsure)}." if unsure else ""
    lines = (first, second, money, f"{asked}, ids {base.forward.ids.name}.", bands)
    return [line for line in lines if line]


_VERBS = {"take": ("takes", "take"), "be": ("is", "are"), "cost": ("costs", "cost")}


def _who(each: Alternative, verb: str) -> str:
    """``Host memory on 52 GPUs takes``"""
    name = f"{each.label} on {counted(each.gpus, 'GPU')}"
    return f"{name[0].upper()}{name[1:]} {_VERBS[verb][each.label.startswith('SSDs')]}"


def _than(
    best: Alternative, rivals: Sequence[Alternative], measure: Callable[[Alternative], float], word: str
) -> str:
    """``, 2.3× fewer than the best plan in HBM (152 GPUs)``. Limits: no rival -> "" """
    if not rivals:
        return ""
    rival = min(rivals, key=measure)
    ratio = format_ratio(measure(rival) / measure(best))
    return f", {ratio} {word} than {_article(rival)} ({counted(rival.gpus, 'GPU')})"


def _overlap(each: Alternative, best: Alternative, scale: Callable[[Alternative], float]) -> bool:
    """Whether one that is sold may be as good within both bands. scale  from its time to what counts"""
    if each is best or each.stated or each.answer is None or best.answer is None:
        return False
    return each.answer.totals["low_s"] * scale(each) <= best.answer.totals["high_s"] * scale(best)


def columns_of(currency: str) -> tuple[Column, ...]:
    """What is said of each alternative that is possible; a currency where prices were given."""
    return (
        Column("alternative", lambda each: each.label, left=True),
        Column("GPUs", lambda each: format_count(each.gpus)),
        Column("paid", lambda each: format_count(each.gpus_paid)),
        Column("time/batch", lambda each: format_time(each.time_s)),
        Column("95 % band", lambda e: band(e.answer.totals["low_s"], e.answer.totals["high_s"]), goes=1),
        Column("samples/s", lambda each: rate_text(each.samples_per_s), goes=2),
        Column("GPU-h", lambda each: format_number(each.gpu_hours)),
        Column("kWh ≤", lambda each: _number(each.energy_kwh), goes=3),
        *([Column(currency, lambda each: _number(each.cost))] if currency else []),
    )


def side_by_side(found: Sequence[Alternative], currency: str) -> str:
    """One line an alternative; below them those that are not possible, and why."""
    text = columns_text(columns_of(currency), (each for each in found if each.answer))
    how = [(each.label, how_words(each)) for each in found if each.answer]
    text += f"\n\nHow\n{facts(how, indent=1)}"
    rest = [[f"{each.label} ({each.machine})", each.why] for each in found if each.answer is None]
    return text + ("\n\nNot possible\n" + table(["", ""], rest, left=(0, 1)) if rest else "")


def _number(value: float | None) -> str:
    return "-" if value is None else format_number(value)


def how_words(each: Alternative) -> str:
    """How rows are held, on what, why on so many GPUs, over which network, and how it is known."""
    gpus = f"; {counted(each.gpus, 'GPU')}: {each.gpus_why}" if each.gpus_why else ""
    if each.copies > 1 and each.answer is not None:
        gpus = f"; {each.copies} copies on {counted(each.answer.gpus, 'GPU')} each fill a machine"
    network = f"; {each.network}" if each.network else ""
    return f"{each.what}, on {each.machine}{gpus}{network}; {_known(each)}"


def rate_text(per_s: float) -> str:
    """``91.8 M/s``"""
    return format_per_second(per_s, "").replace(" /s", "/s")


def _known(each: Alternative) -> str:
    return str(each.answer.main_evidence) if each.answer else ""


def conditions(found: Sequence[Alternative], best: Alternative) -> str:
    """What would have to be true for each of the others to take as few GPU-hours."""
    lines = [(each.label, condition(each, best)) for each in found if condition(each, best)]
    title = f"What would have to be true to take as few GPU-hours ({format_number(best.gpu_hours)})"
    return f"{title}\n{facts(lines, indent=1)}" if lines else ""


def condition(each: Alternative, best: Alternative) -> str:
    """In a sentence. Limits: the best -> "" """
    if each.least_bytes_per_s is not None:
        return _least_rate(each, each.least_bytes_per_s)
    need = needed(each, best)
    if need is None:
        return ""
    step, times, goal = need.step, format_ratio(need.factor), f"{format_time(need.target_s)} per batch: "
    if need.alone:
        return f"{goal}{step.label} {times} faster{_as_rate(each, step, need.factor)}"
    what = "all exchanges together" if all(row.collective for row in need.steps) else "all steps"
    why = f"no single step is enough: without {step.label} ({format_time(step.time_s)}) the rest still takes"
    return f"{goal}{what} {times} faster; {why} {format_time(need.rest_s)}"


def _least_rate(each: Alternative, rate: float) -> str:
    """Of a memory that is only stated, and would be faster than what is sold."""
    memory = each.memory
    assert memory is not None
    own, many = format_rate(memory.bytes_per_s), int(memory.bytes_per_s / rate)
    who = f"for its {counted(memory.sharers, 'GPU')} together" if memory.sharers > 1 else "per GPU"
    more = f"; its {own} is enough for {format_count(many)} GPUs" if memory.sharers == 1 < many else ""
    return f"fewer, if it exists: {format_rate(rate)} {who} is enough{more}"


def _as_rate(each: Alternative, step: StepRow, factor: float) -> str:
    """The machine's value that this means, and the misses that would do as well."""
    key = _RATE_OF.get(step.name)
    if key is None or each.answer is None:
        return ""
    value = each.answer.setting.machine.value(key) * factor
    text = format_quantity(value, "1/s") if key == "ssd_reads_per_s" else format_rate(value)
    less = "" if step.name == "gather_host" else f", or {format_ratio(factor)} fewer misses"
    return f" (about {key} {text}{less})"


def map_title(of_all: bool) -> str:
    """What the map shows. of_all  whether its batches are of all GPUs"""
    by = "samples in a batch" if of_all else "samples per GPU in a batch"
    return f"The alternative with the fewest GPU-hours (whole machines), by {by}"


def map_table(cells: Sequence[MapCell], of_all: bool) -> str:
    """Fewest GPU-hours: ids and table sizes down, batches across; on a narrow terminal a line for each."""
    batches = sorted({cell.batch for cell in cells})
    keys = sorted(dict.fromkeys((cell.table_bytes, cell.ids) for cell in cells), key=lambda key: key[0])
    of = {(cell.table_bytes, cell.ids, cell.batch): cell for cell in cells}
    rows = []
    for size, ids in keys:
        row = [_cell(of[size, ids, batch]) for batch in batches]
        rows.append([format_bytes(size, binary=False) if size else "", ids, *row])
    headers = ["tables", "ids", *(format_count(batch) for batch in batches)]
    title = paragraph(map_title(of_all))
    widest = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    if sum(widest) + 2 * len(widest) <= page_width():
        text = table(headers, rows, left=tuple(range(len(headers))))
    else:
        text = facts([(", ".join(filter(None, row[:2])), _runs(batches, row[2:])) for row in rows], indent=1)
    return f"{title}\n{text}\n{paragraph(legend(cells))}"


def legend(cells: Sequence[MapCell]) -> str:
    """What the words of the winners mean."""
    shown = {word for cell in cells for word in cell.winner.split()}
    told = [(" and ".join(word for word in words if word in shown), meaning) for words, meaning in _WORDS]
    network = "; GH200: on InfiniBand" if "GH200" in shown else ""
    words = "; ".join(f"{who}: {meaning}" for who, meaning in told if who)
    return f"{words}{network}. All tables are cut alike."


def _runs(batches: Sequence[int], winners: Sequence[str]) -> str:
    """``64 – 1 024: host; 4 096 – 16 384: sparse``"""
    runs = []
    for winner, group in itertools.groupby(zip(batches, winners, strict=True), key=lambda pair: pair[1]):
        at = [format_count(batch) for batch, _ in group]
        runs.append(f"{at[0]} – {at[-1]}: {winner}" if len(at) > 1 else f"{at[0]}: {winner}")
    return "; ".join(runs)


def _cell(cell: MapCell) -> str:
    if not cell.winner:
        return "none"
    return cell.winner


def crossing_lines(found: Sequence[Crossing]) -> str:
    """Batches at which the winner changes, in closed form."""
    lines = [crossing_words(each) for each in found]
    title = paragraph("Crossings of GPU-hours, with the GPUs at work (a + b S = a′ + b′ S)")
    return f"{title}\n{facts(lines, indent=1)}" if lines else ""


def crossing_words(each: Crossing) -> tuple[str, str]:
    """Where, and who overtakes whom at which batch."""
    size = f"{format_bytes(each.table_bytes, binary=False)}, " if each.table_bytes else ""
    low, high = each.between
    inside = low <= each.batch <= high
    apart = f"between {format_count(low)} and {format_count(high)}"
    at = f"at about {format_count(each.batch)}" if inside else apart
    first, then = (counted(gpus, "GPU") for gpus in each.gpus)
    return f"{size}{each.ids}", f"{each.then} ({then}) overtakes {each.first} ({first}) {at} samples"


def paid_words(found: Sequence[Alternative]) -> list[str]:
    """What is counted, which GPUs are paid and do not work, and which prices are missing."""
    idle = [f"{each.label} {format_count(each.gpus_paid - each.gpus)} of {format_count(each.gpus_paid)}"
            for each in found if each.answer and each.gpus < each.gpus_paid]  # fmt: skip
    missing = [f"{each.unpriced} for {each.label}" for each in found if each.unpriced]
    return [
        PAID,
        *([f"Paid and not in use: {', '.join(idle)}."] if idle else []),
        *([f"No cost is shown where the file has no price: {', '.join(missing)}."] if missing else []),
    ]


def _article(each: Alternative) -> str:
    """``the best plan in HBM``, ``host memory``"""
    return f"the {each.label}" if each.label.startswith("best") else each.label


def _small_print(found: Sequence[Alternative], currency: str) -> str:
    lines = paid_words(found)
    if any(each.stated and each.answer for each in found):
        lines += [HYPOTHETICAL]
    if not currency:
        lines += ["For costs: --prices prices.toml, with prices of a machine per hour and of a TB per month."]
    return "\n".join(paragraph(line) for line in lines)
