"""The answer of ``perfmodel chip plan`` as a person reads it: how long, how good, what goes where."""

from __future__ import annotations

import numpy as np

from perfmodel.effort import EFFORTS
from perfmodel.onechip.answer import ChipAnswer, Sensed
from perfmodel.onechip.batch import LIMIT_WORDS
from perfmodel.onechip.groups import TablesCutAlike
from perfmodel.report.onechip.ways_text import explain_line
from perfmodel.report.terminal import facts, paragraph, sides, table, unbroken
from perfmodel.units import (
    counted,
    format_bytes,
    format_count,
    format_fraction,
    format_per_second,
    format_ratio,
    format_time,
)

_MOST_GROUPS = 40
_FAR = 0.1  # of the time of a batch
_WORTH_SAYING = 0.95
_AS_FAST = 1e-4
_WORTH_A_WORD = 0.005
_MOST_EFFORT = max(EFFORTS, key=lambda name: EFFORTS[name])
_ENDED = {
    "no improvement": "nothing better was found",
    "effort": "the effort was spent",
    "time-limit": "--time-limit was over",
    "interrupt": "Ctrl-C came",
}
_LEGEND = {
    "GM": "GM: rows are gathered from global memory",
    "L1": "L1: rows stay in the core and are gathered there",
    "GM-UB": "GM-UB: the table streams past bags that stay in the core",
    "L1-UB": "L1-UB: rows that stay in the core stream past bags there",
}


def mapping_text(answer: ChipAnswer) -> str:
    """The whole screen."""
    parts = [headline(answer), core_lines(answer), placements(answer), sensitivity(answer), footer(answer)]
    return "\n\n".join(part for part in parts if part)


def headline(answer: ChipAnswer) -> str:
    """Time, speed-up over the symmetric mappings, gap to the bound, samples per second."""
    time_s, batch, chip = answer.time_s, int(answer.cost.batch), answer.cost.chip
    first = (
        f"{format_time(time_s)} per batch of {counted(batch, 'sample')} on the {counted(chip.cores, 'core')} "
        f"of {chip.name}."
    )
    gathered, fitting = answer.global_memory.time_s, answer.best_symmetric.time_s
    compared = (
        f"{format_ratio(gathered / time_s)} as fast as symmetric-GM ({format_time(gathered)}), "
        f"{format_ratio(fitting / time_s)} as fast as the best symmetric mapping ({format_time(fitting)})"
    )
    compared += waits_nowhere(answer)
    said = [cut_words(answer), compared, bound_words(answer), more_effort_words(answer)]
    per_s = format_per_second(batch / time_s, "samples")
    return "\n".join([sides(first, per_s), *(paragraph(f"     {words}") for words in said if words)])


def cut_words(answer: ChipAnswer) -> str:
    """That the clock cut the search short, and how far it came; else nothing."""
    if answer.stopped != "time-limit":
        return ""
    done = format_fraction(answer.done)
    return f"stopped by --time-limit after {done} of the work: another run may find another plan"


def more_effort_words(answer: ChipAnswer) -> str:
    """That the effort was spent far from the bound, and what to do.

    Limits: ended by something else, near the bound, no more effort -> nothing;  no bound -> as if it were far
    """
    near = answer.gap is not None and answer.gap <= _FAR
    if answer.stopped != "effort" or near or answer.effort == _MOST_EFFORT:
        return ""
    return f"The effort was spent: --effort {_MOST_EFFORT} may find a faster mapping."


def waits_nowhere(answer: ChipAnswer) -> str:
    """The speed-up over symmetric-GM whose cores do not wait for each other; nothing where it is as slow."""
    loose = answer.in_any_order.seconds
    if loose >= answer.global_memory.time_s * _WORTH_SAYING:
        return ""
    return f", {format_ratio(loose / answer.time_s)} as symmetric-GM without waits ({format_time(loose)})"


def no_bound(answer: ChipAnswer) -> str:
    """Why nothing is said of other mappings."""
    return f"There is no bound, because {ended(answer)} before all choices were costed."


def bound_words(answer: ChipAnswer) -> str:
    """What could be left to gain, in a sentence or two; without a bound why there is none."""
    least, gap = answer.bound_s, answer.gap
    if answer.symmetric:
        own = "It is the best symmetric mapping. If each core had its own tables, a batch would take "
        own += format_time(answer.owned_s)
        if least is None:
            return f"{own}. {no_bound(answer)}"
        return f"{own}; {any_mapping(answer, least)}."
    made = "It is optimized for the worst of the distributions below." if answer.robust else ""
    if least is None or gap is None:
        return f"{made} {no_bound(answer)}".strip()
    if answer.robust:
        return f"{made} A mapping for these ids alone would take at least {format_time(least)}."
    return (
        f"No mapping of these cuts is faster than {format_time(least)}: "
        f"at most {format_fraction(gap)} can be gained."
    )


def any_mapping(answer: ChipAnswer, least: float) -> str:
    """What a batch takes at least, in a few words; of an answer that takes no more, that it is the best."""
    if least >= answer.time_s:
        return "no mapping of these cuts is faster"
    return f"with any mapping, a batch takes at least {format_time(least)}"


def core_lines(answer: ChipAnswer) -> str:
    """What limits, how busy the cores are, and what their buffers hold."""
    core_s = answer.core_s
    shared = {name: value for name, value in answer.batch.shared_s.items() if value > 0}
    others = ", ".join(f"{name} {format_time(value)}" for name, value in shared.items())
    if answer.limit != "core":
        others = f"core {format_time(float(core_s.max()))}, {others}"
    idle = format_fraction(1 - float(core_s.mean()) / answer.time_s)
    size = format_bytes(answer.tables.total_bytes, binary=False)
    none = int(np.sum(core_s == 0))
    least = f"least {format_time(float(core_s.min()))}"
    if none:
        least = f"{'one core has' if none == 1 else f'{none} cores have'} no table"
    cores = (
        f"busiest {format_time(float(core_s.max()))} (core {int(np.argmax(core_s))}), "
        f"mean {format_time(float(core_s.mean()))}, {least}; "
        f"idle for {idle} of a batch on average"
    )
    return facts(
        [
            ("Tables", f"{counted(len(answer.tables), 'table')} of {size}, ids {answer.ids.name}"),
            ("Limits", f"{LIMIT_WORDS[answer.limit]}{by_chance(answer)}; alone, {others}"),
            ("Cores", cores),
            ("Buffers", _buffers(answer)),
        ]
    )


def by_chance(answer: ChipAnswer) -> str:
    """What a batch takes beyond its busiest core, where cores decide: one of them has bad luck."""
    most = float(answer.core_s.max())
    if answer.symmetric or answer.limit != "core" or answer.time_s <= most * (1 + _WORTH_A_WORD):
        return ""
    return (
        f": {format_time(most)} on average, and {format_time(answer.time_s - most)} more by chance "
        "(cache misses, and look-ups that happen to go to one core)"
    )


def _buffers(answer: ChipAnswer) -> str:
    chip, held = answer.cost.chip, answer.held_bytes
    room = chip.value("local_bytes")
    at = int(np.argmax(held))
    text = (
        f"rows take {format_bytes(float(held[at]))} of {format_bytes(room)} in the fullest (core {at}), "
        f"{format_fraction(float(held.mean()) / room)} on average"
    )
    if chip.buffers.persist:
        return f"{text}; copied once, in {format_time(answer.preload_s)}"
    return f"{text}; copied again for each batch"


def placements(answer: ChipAnswer) -> str:
    """One line for equal tables that are cut alike."""
    rows = [_line(answer, group) for group in answer.groups[:_MOST_GROUPS]]
    headers = ["table", "rows", "way", "cut", "cores", "core time", "saves", "because", "next best"]
    text = table(headers, rows, left=(0, 2, 7, 8), drop=(3, 1, 5))
    left = len(answer.groups) - len(rows)
    used = dict.fromkeys(way.label for group in answer.groups for way in group.ways)
    words = "; ".join(_LEGEND[way] for way in _LEGEND if way in used)
    note = (
        "Cuts are rows × columns × batch; beside GM, of the first rows, which get that share of the "
        "look-ups. Saves: core time if all rows were gathered, divided by this one; below 1×, the way "
        "relieves what the cores share. Next best: how much longer a batch would take with that way"
    )
    shown = [group.reason for group in answer.groups[:_MOST_GROUPS]]
    note += (
        "." if all(why is None or why.whole for why in shown) else " (~: estimated, not of a whole batch)."
    )
    if answer.symmetric:
        note = "Every core looks up a slice of the batch in every table."
    text += "\n" + paragraph(f"{note} {words}.", 1)
    return text + (f"\n … and {left} more groups of tables (--json has all)" if left else "")


def _line(answer: ChipAnswer, group: TablesCutAlike) -> list[str]:
    t, cut = group.tables[0], group.cut
    more = f" +{len(group.tables) - 1}" if len(group.tables) > 1 else ""
    parts = f"{cut.row_parts}×{cut.col_parts}×{cut.slices}" if cut and cut.row_parts else "-"
    why = group.reason
    return [
        answer.tables.names[t] + more,
        format_count(float(answer.tables.rows[t])),
        "+".join(way.label for way in reversed(group.ways)),
        parts,
        _cores(answer, group),
        format_time(group.core_s),
        format_ratio(why.saves) if why else "",
        why.because if why else "",
        next_best(group, float(answer.tables.rows[t]), answer.time_s),
    ]


def _cores(answer: ChipAnswer, group: TablesCutAlike) -> str:
    count = group.cores.size
    return "all" if count == answer.cost.chip.cores else f"{count}" if count > 1 else f"#{group.cores[0]}"


def next_best(group: TablesCutAlike, rows: float, batch_s: float) -> str:
    """The best other way; where it is the same one, of how many of the table's ``rows``.

    Limits: less than ``_AS_FAST`` of a batch of ``batch_s`` -> as fast;  the search ended before it -> not
            tried;  a symmetric mapping -> nothing
    """
    why = group.reason
    if why is None:
        return "" if group.cut is None else "not tried"
    if why.other is None:
        return "none has room"
    size = ""
    if why.other.way in group.ways:
        head = why.other.head or rows  # 0: all of them are spread in global memory
        size = " of all rows" if head >= rows else f" of {counted(int(head), 'row')}"
    more = "as fast:" if abs(why.more_s) < _AS_FAST * batch_s else f"+{format_time(why.more_s)}"
    return unbroken(f"{'' if why.whole else '~'}{more} {why.other.way.label}") + size


def sensitivity(answer: ChipAnswer) -> str:
    """The same mapping with other ids, best and worst."""
    rows = [_sensed(each, answer) for each in answer.sensed]
    spread = [_spread([getattr(each, name) for each in answer.sensed]) for name in _COLUMNS]
    rows.append(["worst to best", *spread, "", ""])
    headers = ["ids, this mapping", "symmetric-GM", "best symmetric", "this mapping", "speed-up", "limit"]
    note = f"Best symmetric: the best way of each table for ids {answer.ids.name}, the same in every line."
    return table(headers, rows, left=(0, 5), drop=(2, 5)) + "\n" + paragraph(note, 1)


_COLUMNS = ("global_memory_s", "best_symmetric_s", "time_s")


def _sensed(each: Sensed, answer: ChipAnswer) -> list[str]:
    mark = " (made for)" if each.ids == answer.ids and not answer.robust else ""
    times = [format_time(getattr(each, name)) for name in _COLUMNS]
    return [each.ids.name + mark, *times, format_ratio(each.global_memory_s / each.time_s), each.limit]


def _spread(times: list[float]) -> str:
    return format_ratio(max(times) / min(times))


def ended(answer: ChipAnswer) -> str:
    """What ended the search."""
    return _ENDED[answer.stopped]


def not_looked_at(answer: ChipAnswer) -> list[str]:
    """What the search did not come to."""
    left = answer.cuts.sample.size - answer.cuts.looked_at
    if left <= 0:
        return []
    return [f"{counted(left, 'kind')} of tables were left in global memory: {ended(answer)}"]


def footer(answer: ChipAnswer) -> str:
    """Where the numbers come from, and what was searched."""
    chip = answer.cost.chip
    parts = [f"Chip {chip.name}: perfmodel chips {chip.name} has each value with its source"]
    assumed = [f"{key} = {chip.quantity(key)}" for key in sorted(chip.overrides)]
    if assumed:
        parts.append("assumed: " + ", ".join(assumed))
    parts += not_looked_at(answer)
    spent = f"{counted(answer.tried, 'mapping')} tried with --effort {answer.effort}: {ended(answer)}"
    words = "symmetric: every core looks up a slice of the batch, all cores at one table at a time"
    said = paragraph(f"Modelled, not measured · {words} · {spent}\n{' · '.join(parts)}")
    largest = answer.groups[0]
    t, at = answer.tables, largest.tables[0]
    rows, dim, pooling = float(t.rows[at]), float(t.dim[at]), float(t.pooling[at])
    shape = rows, dim, float(t.element_bytes[at]), int(answer.cost.batch), pooling
    line = explain_line(chip, largest.ways[0], *shape, answer.ids)
    return said + (f"\nThe equation of a way, on one core that has a whole table:\n{line}" if line else "")
