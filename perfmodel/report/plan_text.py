"""Text of ``perfmodel plan``: the time, which table goes where, the fullest GPUs, steps, what would help."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from perfmodel.answer.what_would_help import Sensitivity
from perfmodel.engine.placement import COPY, Scheme
from perfmodel.engine.schemes import EXCHANGED
from perfmodel.engine.steps import StepCost
from perfmodel.engine.training import WholeStep
from perfmodel.plan.outcome import AlikeTables, Baseline, Planned
from perfmodel.report.columns import Column, columns_text
from perfmodel.report.figures.gpu_columns import Shown
from perfmodel.report.figures.placements import hold_pieces, sum_pieces
from perfmodel.report.projection_text import band, change_table, origin
from perfmodel.report.terminal import command_lines, facts, paragraph, sides, table
from perfmodel.units import (
    counted,
    format_bytes,
    format_count,
    format_flops,
    format_fraction,
    format_per_second,
    format_ratio,
    format_time,
)

_MOST_GROUPS = 20
_FEW = 3  # groups of copied tables; more share a line
_FULLEST = 3  # GPUs that are listed
_NAMED = 3  # kinds of work of such a GPU
_UNEVEN = 1.5  # ids of the fullest row part over the mean; a larger ratio is reported


def plan_text(
    answer: Planned,
    calibration_file: str | None,
    keep: str,
    whole: WholeStep | None,
    changes: Sequence[Sensitivity],
    equation: str,
) -> str:
    """The text of ``perfmodel plan``: the time, which table goes where, the fullest GPUs, steps, limits.

    keep      the command that saves this plan in a file; "": it is saved already
    whole     the step with its dense layers; None: none were given
    changes   what would make it faster;  equation  the command that explains the longest step
    """
    parts = [f"{headline(answer)}\n\n{gpu_lines(answer)}", placements(answer), fullest_gpus(answer)]
    parts += [steps(answer), limits(answer), change_table(changes, "What would help") if changes else ""]
    if whole is not None:
        parts.append(dense_lines(whole, answer.evaluator.batch * answer.evaluator.gpus))
    commands = {"To keep the plan": keep, "The equation behind its longest step": equation}
    lines = [f"{words}:\n{command_lines(line)}" for words, line in commands.items() if line]
    parts.append("\n".join([footer(answer, calibration_file), *lines]))
    return "\n\n".join(part for part in parts if part)


def headline(answer: Planned) -> str:
    """The first lines: time with band, speed-up over simple plans, samples per second, and the bound."""
    cost, e = answer.found.cost, answer.evaluator
    what = "training step" if answer.training else "forward pass"
    where = "1 GPU" if e.gpus == 1 else f"each of {e.gpus} GPUs"
    first = f"{format_time(cost.time_s)} per {what} of {format_count(e.batch)} samples on {where}."
    compared = ", ".join(compared_with(item, cost.time_s) for item in answer.baselines)
    per_s = format_per_second(e.batch * e.gpus / cost.time_s, "samples")
    more = [words for words in (cut_words(answer), bound_words(answer)) if words]
    return "\n".join(
        [
            sides(first, f"band {band(cost.low_s, cost.high_s)}"),
            sides(paragraph(f"     {compared}"), per_s),
            *(paragraph(f"     {words}") for words in more),
        ]
    )


def bound_words(answer: Planned) -> str:
    """The bound in words; "" for a bound far below the plan, or for a plan that was given."""
    if not answer.bounded:
        return ""
    return f"At least {format_time(answer.found.bound_s)} for any plan of these shardings."


def cut_words(answer: Planned) -> str:
    """What cut the search short, and how much was done; "" if nothing did."""
    found = answer.found
    if found.stopped != "interrupt":
        return ""
    done = format_fraction(found.done)
    return f"stopped by Ctrl-C after {done} of the work: another run may find another plan"


def compared_with(item: Baseline, time_s: float) -> str:
    """``2.68× as fast as table-wise (319 µs)``; if that plan does not fit, how much memory it would need."""
    if item.time_s is None:
        return f"{item.name} would need {format_bytes(item.needs_bytes, binary=False)} on one GPU"
    return f"{format_ratio(item.time_s / time_s)} as fast as {item.name} ({format_time(item.time_s)})"


def gpu_lines(answer: Planned) -> str:
    """Lines for the number of GPUs, the memory of the fullest GPU, and the ids."""
    e, memory = answer.evaluator, answer.found.memory
    total = memory.total_bytes
    at = int(np.argmax(total))
    size = format_bytes(e.memories.table_bytes, binary=False)
    domains = f", {e.setting.machine.links.scale_up} domains of {e.domain}" if 1 < e.domain < e.gpus else ""
    gpus = f"{format_count(e.gpus)}{domains}, for {counted(len(e.tables), 'table')} of {size}"
    parts = [
        f"{name} {format_bytes(float(value[at]), binary=False)}"
        for name, value in (
            ("rows", memory.rows_bytes),
            ("optimizer", memory.optimizer_bytes),
            ("buffers", memory.buffer_bytes),
        )
        if value[at] > 0
    ]
    limit = format_bytes(answer.found.limit_bytes, binary=False)
    fullest = (
        f"{format_bytes(float(total[at]), binary=False)} of {limit} on the fullest "
        f"(rank {at}: {', '.join(parts)}); {format_bytes(float(total.mean()), binary=False)} on average; "
        f"{kept_words(answer)}"
    )
    names = dict.fromkeys(each.name for each in e.tables.ids)
    ids = [] if list(names) == ["uniform"] else [("Ids", ", ".join(names))]
    return facts([("GPUs", gpus), ("Memory", fullest), *ids])


def kept_words(answer: Planned) -> str:
    """How much memory of each GPU the plan may not use."""
    left = answer.evaluator.setting.machine.value("hbm_bytes") - answer.found.limit_bytes
    return f"{format_bytes(left, binary=False) if left > 0 else 'nothing'} of each GPU kept free"


def placements(answer: Planned) -> str:
    """A table with a line for each group of equal tables with one sharding, the most costly group first.

    If many groups are replicated, they share a line.
    """
    shares = answer.by_share
    copies = [(group, share) for group, share in shares if group.scheme.copied]
    folded = copies if len(copies) > _FEW else []
    others = [(group, share) for group, share in shares if not (folded and group.scheme.copied)]
    rows = [_placement_row(answer, group, share) for group, share in others[:_MOST_GROUPS]]
    rows += [_copies_row(answer, folded)] if folded else []
    headers = ["table", "rows × dim", "size", "sharding", "exchange", "parts", "GPUs", "share"]
    text = table(headers, rows, left=(0, 3, 4, 6), drop=(2, 4))
    used = dict.fromkeys(group.scheme.kind for group in answer.groups)
    words = "; ".join(kind.legend for kind in used if kind in EXCHANGED)
    hot = any(group.scheme.hot_rows for group in answer.groups)
    starred = " * beside a copy of its hottest rows on every GPU." if hot else ""
    text += "\n" + paragraph(f"Parts are rows × columns.{starred} {words}", 1)
    text += "".join(f"\n{line}" for line in [*hot_lines(answer), *uneven_lines(answer)])
    left_out = max(len(others) - _MOST_GROUPS, 0)
    more = f"\n … and {left_out} more groups of tables (all are in --json)" if left_out else ""
    return text + more


def _placement_row(answer: Planned, group: AlikeTables, share: float) -> list[str]:
    """The texts of the line of a group of equal tables. share  of the time [-]"""
    e, first = answer.evaluator, group.tables[0]
    more = f" +{len(group.tables) - 1}" if len(group.tables) > 1 else ""
    size = e.tables.count_bytes(training=e.memories.training)[list(group.tables)].sum()
    return [
        e.tables.names[first] + more,
        f"{format_count(float(e.tables.rows[first]))} × {e.tables.dim[first]:.0f}",
        format_bytes(float(size), binary=False),
        group.sharding,
        group.scheme.kind.facts.word,
        parts_text(group.scheme),
        ranks_text(answer.ranks(group), e.gpus),
        format_fraction(share),
    ]


def _copies_row(answer: Planned, groups: Sequence[tuple[AlikeTables, float]]) -> list[str]:
    """The texts of the line for all tables that are replicated."""
    tables = [t for group, _ in groups for t in group.tables]
    e = answer.evaluator
    size = e.tables.count_bytes(training=e.memories.training)[tables].sum()
    return [
        f"{counted(len(tables), 'table')}",
        f"{format_count(float(e.tables.rows[tables].sum()))} rows",
        format_bytes(float(size), binary=False),
        groups[0][0].sharding,
        COPY.kind.facts.word,
        "-",
        "all",
        format_fraction(sum(share for _, share in groups)),
    ]


def fullest_gpus(answer: Planned) -> str:
    """A table of the GPUs with most work: their time over the mean, memory, and what takes most of the time.

    GPUs that hold parts of the same tables and have as much work share a line.
    """
    shown = Shown.of(answer)
    total, held = shown.shares.total_s, answer.found.memory.total_bytes
    tables, ranks = answer.plan.shards
    alike: dict[tuple[str, str, bytes], list[int]] = {}
    for rank in np.argsort(-total, kind="stable").tolist():
        memory = format_bytes(float(held[rank]), binary=False)
        key = format_time(float(total[rank])), memory, tables[ranks == rank].tobytes()
        alike.setdefault(key, []).append(rank)
    rows = []
    for (time, memory, _), same in list(alike.items())[:_FULLEST]:
        own_s = float(total[same[0]])
        works = sum_pieces(shown, hold_pieces(shown, same[0]))[:_NAMED]
        why = ", ".join(f"{words} {format_fraction(time_s / own_s)}" for words, time_s in works)
        ratio = format_ratio(own_s / float(total.mean()))
        rows.append([ranks_text(np.sort(same), total.size), time, ratio, memory, why])
    return table(
        ["fullest GPUs", "own work", "to mean", "memory", "most of it"], rows, left=(0, 4), drop=(2,)
    )


def hot_lines(answer: Planned) -> list[str]:
    """A line for each group of tables whose hot rows are replicated."""
    e, lines = answer.evaluator, []
    for group, _ in answer.by_share[:_MOST_GROUPS]:
        t, hot = group.tables[0], group.scheme.hot_rows
        if hot:
            name = e.tables.names[t] + (f" +{len(group.tables) - 1}" if len(group.tables) > 1 else "")
            share = format_fraction(e.hot_share(t, hot))
            size = format_bytes(float(np.sum(e.memories.count_copies(t, hot))), binary=False)
            text = f"{name}: hottest {counted(hot, 'row')} ({share} of look-ups, {size}) on every GPU"
            lines.append(paragraph(text, 1))
    return lines


def uneven_lines(answer: Planned) -> list[str]:
    """A note if a row part with hot rows gets far more ids than the mean part that times assume."""
    e = answer.evaluator
    found = [(e.fullest_part(group.tables[0], group.scheme), group.tables[0]) for group in answer.groups]
    most, t = max(found)
    if most < _UNEVEN:
        return []
    name = e.tables.names[t]
    text = f"The part of {name} with its hottest row gets {format_ratio(most)} the ids of the mean part"
    return [paragraph(f"{text}: the times count the mean.", 1)]


def parts_text(scheme: Scheme) -> str:
    """Row and column parts of a table: ``128×1``; with * if its hot rows are replicated; "-" if all are."""
    hot = "*" if scheme.hot_rows else ""
    return "-" if scheme.copied else f"{scheme.row_parts}×{scheme.col_parts}{hot}"


def ranks_text(ranks: NDArray[np.int64], gpus: int) -> str:
    """Ranks in words: ``all``, ``8–15``, ``0, 3, 9`` or ``12 of 128``."""
    if ranks.size in (0, gpus):
        return "all"
    if ranks.size > 1 and ranks[-1] - ranks[0] == ranks.size - 1:
        return f"{ranks[0]}–{ranks[-1]}"
    if ranks.size <= 3:
        return ", ".join(str(rank) for rank in ranks)
    return f"{ranks.size} of {gpus}"


def steps(answer: Planned) -> str:
    """A table of the steps: bytes, time and share, which rank is busiest, and its bytes over the mean."""
    cost = answer.found.cost
    columns = (
        Column("step", lambda row: row.label, left=True),
        Column("bytes", lambda row: format_bytes(row.payload_bytes), goes=2),
        Column("busiest", lambda row: str(row.rank) if row.imbalance > 1.0005 else "all"),
        Column("to mean", lambda row: format_ratio(row.imbalance), goes=1),
        Column("time", lambda row: format_time(row.time_s), total=format_time(cost.time_s)),
        Column("share", lambda row: format_fraction(row.time_s / cost.time_s)),
        Column("95 % band", lambda row: band(row.low_s, row.high_s)),
        Column("evidence", lambda row: str(row.evidence), left=True, goes=3),
    )
    return columns_text(columns, cost.rows)


def longest(cost: StepCost) -> tuple[str, str]:
    """The name of the longest step, and ""; if several print the same time, their names, and `` each``."""
    first = cost.limiting
    words = format_time(first.time_s)
    names = [row.label for row in cost.rows if format_time(row.time_s) == words]
    if len(names) == 1:
        return names[0], ""
    return f"{', '.join(names[:-1])} and {names[-1]}", " each"


def limits(answer: Planned) -> str:
    """Lines on what limits the plan: its longest step, imbalance, latency, memory."""
    cost, memory = answer.found.cost, answer.found.memory
    row = cost.limiting
    names, each = longest(cost)
    text = f"{names} take{'' if each else 's'} {format_fraction(row.time_s / cost.time_s)} of it{each}"
    if row.imbalance > 1.05:
        text += f", as rank {row.rank} has {format_ratio(row.imbalance)} the bytes of the mean rank"
    floor = sum(item.time_s for item in cost.rows if item.collective and item.time_s < 1.5 * item.floor_s)
    if floor > 0.2 * cost.time_s:
        text += f"; collectives near their latency floor take {format_fraction(floor / cost.time_s)}"
    full = float(memory.total_bytes.max()) / answer.found.limit_bytes
    if full > 0.9:
        text += f"; memory is {format_fraction(full)} full: more of it would allow more copies"
    return facts([("Limits", text + ".")])


def footer(answer: Planned, calibration_file: str | None) -> str:
    """The line of sources."""
    e = answer.evaluator
    machine = e.setting.machine
    parts = [f"Machine {machine.name}"]
    assumed = [f"{k} = {machine.quantity(k)}" for k in sorted(machine.overrides)]
    if assumed:
        parts.append("assumed: " + ", ".join(assumed))
    names = ", ".join(dict.fromkeys(e.setting.links.calibrations))
    parts.append(f"calibration {origin(names, calibration_file)}")
    return paragraph(" · ".join(parts))


def dense_lines(whole: WholeStep, samples: float) -> str:
    """The step with dense layers, overlapped and in sequence, and where the layers' time is from.

    samples  in a batch of all GPUs together
    """
    dense, step_s, serial_s = whole.dense, whole.step_s, whole.parts.serial_time
    what = "a training step" if whole.training else "a batch alone"
    first = f"With dense layers: {format_time(step_s)} {what}, kernels and communication overlapped."
    gain = format_ratio(serial_s / step_s)
    serial = f"{format_time(serial_s)} one after the other: overlap makes it {gain} as fast."
    share = (
        f"Embedding communication {format_time(whole.communication_s)} "
        f"({format_fraction(whole.communication_s / serial_s)} of all, one after the other), "
        f"{format_time(whole.exposed_s)} of it exposed "
        f"({format_fraction(whole.exposed_s / step_s)} of the overlapped step)."
    )
    which = "forward and backward" if whole.training else "forward"
    source = f"as given: {which}, all of it after the embeddings"
    if dense.name:
        source = f"{dense.name}: {format_fraction(dense.share)} of {format_flops(dense.rate)}/s (datasheet)"
    if whole.parts.dense_reduce:
        reduced = format_bytes(dense.reduced_bytes, binary=False)
        source += f"; their gradients, {reduced}, are all-reduced"
    error = f"The band has an error of {format_fraction(dense.error)} of it."
    if not dense.error:
        error = "The band leaves its error out: give it, e.g. --dense 3ms±10%."
    words = f"{format_time(dense.time_s)} per batch on each GPU, {source}. {error}"
    lines = [sides(first, f"band {band(whole.low_s, whole.high_s)}")]
    lines.append(sides(paragraph(f"     {serial}"), format_per_second(samples / step_s, "samples")))
    return "\n".join([*lines, paragraph(f"     {share}"), "", facts([("Dense", words)])])
