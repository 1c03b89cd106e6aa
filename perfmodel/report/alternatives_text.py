"""The answer of ``perfmodel alternatives``: side by side, and which wins where."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from perfmodel.passes.schemes import ROW_WISE, SHARDINGS, SHORT
from perfmodel.passes.steps import StepRow
from perfmodel.plan.other_ways.alternatives import ON_SSD, best_of, rival_of
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
    best = best_of(list(found))
    parts = [headline(found, best), side_by_side(found, currency), conditions(found, best)]
    if cells:
        parts += [map_table(cells), crossing_lines(crossings)]
    parts.append(_small_print(found, currency))
    return "\n\n".join(part for part in parts if part)


def headline(found: Sequence[Alternative], best: Alternative) -> str:
    """The winner in a sentence, what was asked, and against what it is not sure."""
    first, *more = headlines(found, best)
    return "\n".join([paragraph(first), *(paragraph(f"     {line}") for line in more)])


def headlines(found: Sequence[Alternative], best: Alternative) -> list[str]:
    """The same, a sentence each, the last one only where bands overlap."""
    base = best.answer
    assert base is not None
    size = format_bytes(float(base.work.table_bytes[0]), binary=False)
    rival, than = rival_of(list(found), best), ""
    if rival is not None:
        ratio, over = rival.time_s / best.time_s, counted(rival.gpus, "GPU")
        than = f", {format_ratio(ratio)} faster than {_article(rival)} ({over})"
    takes = "take" if best.name == ON_SSD else "takes"
    first = f"{best.label} {takes} the fewest GPU-hours for {size}: {counted(best.gpus, 'GPU')}, "
    first += f"{format_time(best.time_s)} per batch{than}."
    ids = base.forward.ids.name
    second = f"{format_count(best.batch)} samples per GPU in a batch, ids {ids}"
    close = [each.label for each in found if _overlap(each, best)]
    third = f"bands overlap, so this is not certain against: {', '.join(close)}" if close else ""
    lines = (first[0].upper() + first[1:], second, third)
    return [line for line in lines if line]


def _overlap(each: Alternative, best: Alternative) -> bool:
    """Whether an alternative that is sold may be as fast within both bands."""
    if each is best or each.stated or each.answer is None or best.answer is None:
        return False
    return each.answer.totals["low_s"] <= best.answer.totals["high_s"]


def columns_of(currency: str) -> tuple[Column, ...]:
    """What is said of each alternative that is possible; a currency where prices were given."""
    return (
        Column("alternative", lambda each: each.label, left=True),
        Column("GPUs", lambda each: format_count(each.gpus)),
        Column("time/batch", lambda each: format_time(each.time_s)),
        Column("95 % band", lambda e: band(e.answer.totals["low_s"], e.answer.totals["high_s"]), goes=2),
        Column("samples/s", lambda each: rate_text(each.samples_per_s), goes=3),
        Column("per GPU", lambda each: rate_text(each.samples_per_s / each.gpus), goes=1),
        Column("GPU-h", lambda each: format_number(each.gpu_hours)),
        Column("kWh ≤", lambda each: _number(each.energy_kwh), goes=4),
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
    """How rows are held, on what, why on so many GPUs, and how it is known."""
    gpus = f"; {counted(each.gpus, 'GPU')}: {each.gpus_why}" if each.gpus_why else ""
    return f"{each.what}, on {each.machine}{gpus}; {_known(each)}"


def rate_text(per_s: float) -> str:
    """``91.8 M/s``"""
    return format_per_second(per_s, "").replace(" /s", "/s")


def _known(each: Alternative) -> str:
    return str(each.answer.main_evidence) if each.answer else ""


def conditions(found: Sequence[Alternative], best: Alternative) -> str:
    """What would have to be true for each of the others to be as fast."""
    lines = [(each.label, condition(each, best)) for each in found if condition(each, best)]
    title = f"What would have to be true to be as fast ({format_time(best.time_s)})"
    return f"{title}\n{facts(lines, indent=1)}" if lines else ""


def condition(each: Alternative, best: Alternative) -> str:
    """In a sentence. Limits: the best, one that is faster and sold -> "" """
    if each.least_bytes_per_s is not None:
        return _least_rate(each, each.least_bytes_per_s)
    need = needed(each, best)
    if need is None:
        return ""
    step, times = need.step, format_ratio(need.factor)
    if need.alone:
        return f"{step.label} {times} faster{_as_rate(each, step, need.factor)}"
    what = "all exchanges together" if all(row.collective for row in need.steps) else "all steps"
    why = f"no single step is enough: without {step.label} ({format_time(step.time_s)}) the rest still takes"
    return f"{what} {times} faster; {why} {format_time(need.rest_s)}"


def _least_rate(each: Alternative, rate: float) -> str:
    """Of a memory that is only stated, and would be faster than what is sold."""
    memory = each.memory
    assert memory is not None
    own, many = format_rate(memory.bytes_per_s), int(memory.bytes_per_s / rate)
    who = f"for its {counted(memory.sharers, 'GPU')} together" if memory.sharers > 1 else "per GPU"
    more = f"; its {own} is enough for {format_count(many)} GPUs" if memory.sharers == 1 < many else ""
    return f"faster, if it exists: {format_rate(rate)} {who} is enough{more}"


def _as_rate(each: Alternative, step: StepRow, factor: float) -> str:
    """The machine's value that this means, and the misses that would do as well."""
    key = _RATE_OF.get(step.name)
    if key is None or each.answer is None:
        return ""
    value = each.answer.setting.machine.value(key) * factor
    text = format_quantity(value, "1/s") if key == "ssd_reads_per_s" else format_rate(value)
    less = "" if step.name == "gather_host" else f", or {format_ratio(factor)} fewer misses"
    return f" (about {key} {text}{less})"


def map_table(cells: Sequence[MapCell]) -> str:
    """Fewest GPU-hours: ids and table sizes down, batches across; on a narrow terminal a line for each."""
    batches = sorted({cell.batch for cell in cells})
    keys = sorted(dict.fromkeys((cell.table_bytes, cell.ids) for cell in cells), key=lambda key: key[0])
    of = {(cell.table_bytes, cell.ids, cell.batch): cell for cell in cells}
    rows = []
    for size, ids in keys:
        row = [_cell(of[size, ids, batch]) for batch in batches]
        rows.append([format_bytes(size, binary=False) if size else "", ids, *row])
    headers = ["tables", "ids", *(format_count(batch) for batch in batches)]
    title = paragraph(
        "The alternative with the fewest GPU-hours, by samples per GPU in a batch "
        "(each GPU has its own batch, so it is also the fastest)"
    )
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
    return f"{'; '.join(f'{who}: {meaning}' for who, meaning in told if who)}. All tables are cut alike."


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
    title = paragraph("Crossings of GPU-hours, with the GPUs of both (a + b B = a′ + b′ B)")
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


def money_words(found: Sequence[Alternative]) -> list[str]:
    """Who pays whole machines and who a share, what costs the least, and which prices are missing."""
    shown = [each for each in found if each.answer]
    whole = [f"{each.label} {counted(round(each.machines), 'machine')}" for each in shown if each.whole]
    shares = [f"{each.label} {each.gpus} of {each.node}" for each in shown
              if not each.whole and each.gpus < each.node]  # fmt: skip
    first = "In HBM a GPU costs its share of the price of its machine"
    lines = [f"{first}, whose other GPUs are free for other work{_listed('; in use are', shares)}."]
    if whole:
        lines += [
            "Rows in host memory or on SSDs take the machine, so whole machines are paid, and the GPUs that "
            f"are not in use with them: {', '.join(whole)}."
        ]
    priced = [each for each in shown if each.cost is not None and not each.stated]
    if priced:
        least = min(priced, key=lambda each: each.cost or 0.0)
        lines += [
            f"The ranking is by the hours of the GPUs in use. The lowest cost is that of {_article(least)}."
        ]
    missing = [f"{each.unpriced} ({each.label})" for each in found if each.unpriced]
    if missing:
        lines += [f"No cost is shown where the file has no price: {', '.join(missing)}."]
    return lines


def _article(each: Alternative) -> str:
    """``the best plan in HBM``, ``host memory``"""
    return f"the {each.label}" if each.label.startswith("best") else each.label


def _listed(before: str, names: Sequence[str]) -> str:
    return f"{before} {', '.join(names)}" if names else ""


def _small_print(found: Sequence[Alternative], currency: str) -> str:
    lines = [
        "GPU-hours, energy and cost are per 10⁹ samples; GPU-hours and energy are those of the GPUs in use. "
        "Energy is that of the boards alone, at full power."
    ]
    if currency:
        lines += money_words(found)
    if any(each.stated and each.answer for each in found):
        lines += [HYPOTHETICAL]
    if not currency:
        lines += ["For costs: --prices prices.toml, with prices of a machine per hour and of a TB per month."]
    return "\n".join(paragraph(line) for line in lines)
