"""Text of ``perfmodel chip plan``: the time, how close it is to the bound, and where each table goes."""

from __future__ import annotations

import numpy as np

from perfmodel.effort import EFFORTS
from perfmodel.onechip.answer import ChipAnswer
from perfmodel.onechip.batch import LIMIT_WORDS
from perfmodel.onechip.groups import TablesCutAlike
from perfmodel.report.terminal import facts, paragraph, sides, table
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
_MOST_EFFORT = max(EFFORTS, key=lambda name: EFFORTS[name])
_ENDED = {
    "no improvement": "nothing better was found",
    "effort": "the effort was spent",
    "time-limit": "--time-limit was over",
    "interrupt": "Ctrl-C came",
}
_CORES = "Core time is the sum over all cores of a line; #17 among the cores is core 17 alone."
_LEGEND = {
    "GM": "GM: rows are gathered from global memory",
    "L1": "L1: rows stay in the core and are gathered there",
    "GM-UB": "GM-UB: the table streams past bags that stay in the core",
    "L1-UB": "L1-UB: rows that stay in the core stream past bags there",
}


def mapping_text(answer: ChipAnswer) -> str:
    """The text of ``perfmodel chip plan``: time, bound, cores, where each table goes, and sources."""
    return "\n\n".join([headline(answer), core_lines(answer), placements(answer), footer(answer)])


def headline(answer: ChipAnswer) -> str:
    """The first lines: the time, how much faster than symmetric mappings, how much faster it could be."""
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


def waits_nowhere(answer: ChipAnswer) -> str:
    """How much faster it is than symmetric-GM without waits between cores there; "" if by as much."""
    loose = answer.any_order_s
    if loose >= answer.global_memory.time_s * _WORTH_SAYING:
        return ""
    return f", {format_ratio(loose / answer.time_s)} as symmetric-GM without waits ({format_time(loose)})"


def cut_words(answer: ChipAnswer) -> str:
    """That --time-limit cut the search short, and how much was done; "" otherwise."""
    if answer.stopped != "time-limit":
        return ""
    done = format_fraction(answer.done)
    return f"stopped by --time-limit after {done} of the work: another run may find another plan"


def more_effort_words(answer: ChipAnswer) -> str:
    """The advice to search longer, if the effort ended the search far from the bound; else ""."""
    if answer.stopped != "effort" or answer.gap <= _FAR or answer.effort == _MOST_EFFORT:
        return ""
    return f"The effort was spent: --effort {_MOST_EFFORT} may find a faster mapping."


def bound_words(answer: ChipAnswer) -> str:
    """A sentence: no mapping is faster than the bound, so at most this share of the time can be saved."""
    least = format_time(answer.bound_s)
    if not answer.symmetric:
        gap = format_fraction(answer.gap)
        return f"No mapping of these cuts is faster than {least}: at most {gap} can be gained."
    own = format_time(answer.searched.seconds)
    over = "no mapping of these cuts is faster"
    if answer.bound_s < answer.time_s:
        over = f"with any mapping, a batch takes at least {least}"
    return (
        "It is the best symmetric mapping. If each core had its own tables, a batch would take "
        f"{own}; {over}."
    )


def core_lines(answer: ChipAnswer) -> str:
    """Lines on the tables, the limiting resource, how busy cores are and how full their buffers."""
    core_s = answer.core_s
    alone = {"core": float(core_s.max()), **answer.shared_s}
    others = ", ".join(f"{name} {format_time(value)}" for name, value in alone.items() if value > 0)
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
            ("Limits", f"{LIMIT_WORDS[answer.limit]}; alone, {others}"),
            ("Cores", cores),
            ("Buffers", _buffers(answer)),
        ]
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
    """A table with a line for each group of equal tables with the same cut: way, parts, cores, time."""
    rows = [_line(answer, group) for group in answer.groups[:_MOST_GROUPS]]
    headers = ["table", "rows", "way", "cut", "kept rows", "cores", "core time"]
    text = table(headers, rows, left=(0, 2), drop=(1, 4))
    left = len(answer.groups) - len(rows)
    used = dict.fromkeys(way.label for group in answer.groups for way in group.ways)
    words = "; ".join(_LEGEND[way] for way in _LEGEND if way in used)
    note = "Cuts are rows × columns × batch; beside GM, of the first rows, which are the hottest."
    if answer.symmetric:
        note = "Every core looks up a slice of the batch in every table."
    text += "\n" + paragraph(f"{note} {_CORES} {words}.", 1)
    return text + (f"\n … and {left} more groups of tables (--json has all)" if left else "")


def _line(answer: ChipAnswer, group: TablesCutAlike) -> list[str]:
    t, cut = group.tables[0], group.cut
    more = f" +{len(group.tables) - 1}" if len(group.tables) > 1 else ""
    cores, rows = group.cores.size, float(answer.tables.rows[t])
    return [
        answer.tables.names[t] + more,
        format_count(rows),
        "+".join(way.label for way in reversed(group.ways)),
        f"{cut.row_parts}×{cut.col_parts}×{cut.slices}" if cut and cut.row_parts else "-",
        format_count(min(cut.head, rows)) if cut and cut.row_parts else "-",
        "all" if cores == answer.cost.chip.cores else f"{cores}" if cores > 1 else f"#{group.cores[0]}",
        format_time(group.core_s),
    ]


def ended(answer: ChipAnswer) -> str:
    """Why the search for a mapping ended, in words."""
    return _ENDED[answer.stopped]


def footer(answer: ChipAnswer) -> str:
    """The sources of the numbers, and how many mappings the search tried."""
    chip = answer.cost.chip
    parts = [f"Chip {chip.name}: perfmodel chips {chip.name} has each value with its source"]
    assumed = [f"{key} = {chip.quantity(key)}" for key in sorted(chip.overrides)]
    if assumed:
        parts.append("assumed: " + ", ".join(assumed))
    spent = (
        f"{counted(answer.searched.tried, 'mapping')} tried with --effort {answer.effort}: {ended(answer)}"
    )
    words = "symmetric: every core looks up a slice of the batch, all cores at one table at a time"
    return paragraph(f"Modelled, not measured · {words} · {spent}\n{' · '.join(parts)}")
