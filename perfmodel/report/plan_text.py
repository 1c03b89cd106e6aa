"""Text of ``perfmodel plan``: the time and its bound, then which table goes where, and why."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from perfmodel.engine.placement import COPY, Scheme
from perfmodel.engine.schemes import EXCHANGED
from perfmodel.engine.steps import StepCost
from perfmodel.engine.training import WholeStep
from perfmodel.plan.limiting import limiting
from perfmodel.plan.listed import table_records
from perfmodel.plan.outcome import AlikeTables, Baseline, Planned
from perfmodel.plan.what_ifs import WhatIf
from perfmodel.report.bound_text import bound_words, cut_words, listed_fact
from perfmodel.report.columns import Column, columns_text
from perfmodel.report.projection_text import band, origin
from perfmodel.report.terminal import command_lines, facts, paragraph, sides, table, unbroken
from perfmodel.report.training_text import whole_text
from perfmodel.report.what_if_text import pass_line, what_if_lines
from perfmodel.schema.files import cell
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
_FEW = 3  # groups of copied tables; more share a line
_UNEVEN = 1.5  # ids of the fullest row part over the mean; a larger ratio is reported


def plan_text(
    answer: Planned,
    calibration_file: str | None = None,
    again: str = "",
    whole: WholeStep | None = None,
    capped: bool = False,
    other_pass: str = "",
    changes: Sequence[WhatIf] = (),
    equation: str = "",
) -> str:
    """The text of ``perfmodel plan``: the time, the bound, which table goes where, the steps, the limits.

    again       the command that saves this plan in a file; "": it is saved already
    whole       the step with its dense layers; None: none were given
    capped      whether ``--max-hbm`` limited the memory
    other_pass  the command that plans the other pass (forward, or a training step)
    changes     what would change the plan;  equation  the command that explains the longest step
    """
    parts = [pass_line(answer.training, other_pass)] if other_pass else []
    parts.append(headline(answer))
    parts += [gpu_lines(answer, capped), placements(answer), steps(answer), limits(answer)]
    parts.append(what_if_lines(changes, answer))
    if whole is not None:
        parts.append(whole_text(whole, answer.evaluator.batch * answer.evaluator.gpus))
    parts.append(footer(answer, calibration_file))
    if again:
        parts[-1] += f"\nTo keep the plan:\n{command_lines(again)}"
    if equation:
        parts[-1] += f"\nThe equation behind its longest step:\n{command_lines(equation)}"
    return "\n\n".join(part for part in parts if part)


def headline(answer: Planned) -> str:
    """The first lines: time with band, speed-up over simple plans, samples per second, and the bound."""
    cost, e = answer.found.cost, answer.evaluator
    what = "training step" if answer.training else "batch"
    where = "1 GPU" if e.gpus == 1 else f"each of {e.gpus} GPUs"
    first = f"{format_time(cost.time_s)} per {what} of {format_count(e.batch)} samples on {where}."
    compared = ", ".join(compared_with(item, cost.time_s) for item in answer.baselines)
    per_s = format_per_second(e.batch * e.gpus / cost.time_s, "samples")
    return "\n".join(
        [
            sides(first, f"band {band(cost.low_s, cost.high_s)}"),
            sides(paragraph(f"     {compared}"), per_s),
            *(
                paragraph(f"     {words}")
                for words in (cut_words(answer.found), bound_words(answer))
                if words
            ),
        ]
    )


def compared_with(item: Baseline, time_s: float) -> str:
    """``2.68× as fast as table-wise (319 µs)``; if that plan does not fit, how much memory it would need."""
    if item.time_s is None:
        return f"{item.name} would need {format_bytes(item.needs_bytes, binary=False)} on one GPU"
    return f"{format_ratio(item.time_s / time_s)} as fast as {item.name} ({format_time(item.time_s)})"


def gpu_lines(answer: Planned, capped: bool = False) -> str:
    """Lines for the number of GPUs, the memory of the fullest GPU, the ids, and the schemes of the bound."""
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
        f"{kept_words(answer, capped)}"
    )
    names = dict.fromkeys(each.name for each in e.tables.ids)
    ids = [] if list(names) == ["uniform"] else [("Ids", ", ".join(names))]
    return facts([("GPUs", gpus), ("Memory", fullest), *ids, listed_fact(answer)])


def kept_words(answer: Planned, capped: bool) -> str:
    """How much memory of each GPU the plan may not use, and what that memory is for."""
    left = answer.evaluator.setting.machine.value("hbm_bytes") - answer.found.limit_bytes
    size = format_bytes(left, binary=False) if left > 0 else "nothing"
    if capped and left > 0:
        return f"{size} of each GPU not used (--max-hbm)"
    return f"{size} of each GPU kept for CUDA, NCCL and dense layers"


def placements(answer: Planned) -> str:
    """A table with a line for each group of equal tables with one sharding, the most costly group first.

    If many groups are replicated, they share a line.
    """
    e = answer.evaluator
    copies = [group for group in answer.by_weight if group.scheme.copied]
    folded = copies if len(copies) > _FEW else []
    others = [group for group in answer.by_weight if not group.scheme.copied]
    listed = others if folded else list(answer.by_weight)
    rows = []
    for group in listed[:_MOST_GROUPS]:
        t = group.tables[0]
        more = f" +{len(group.tables) - 1}" if len(group.tables) > 1 else ""
        rows.append(
            [
                e.tables.names[t] + more,
                format_count(float(e.tables.rows[t])),
                f"{e.tables.dim[t]:.0f}",
                group.sharding,
                group.scheme.kind.facts.word,
                parts_text(group.scheme),
                ranks_text(answer.ranks(group), e.gpus),
                format_bytes(group.memory_bytes, binary=False),
                next_best(answer, group),
            ]
        )
    rows += [_copies(answer, folded)] if folded else []
    headers = ["table", "rows", "dim", "sharding", "exchange", "parts", "ranks", "per GPU", "next best"]
    text = table(headers, rows, left=(0, 3, 4, 6, 8), drop=(2, 7, 1))
    left_out = max(len(listed) - _MOST_GROUPS, 0)
    used = dict.fromkeys(group.scheme.kind for group in answer.groups)
    words = "; ".join(kind.legend for kind in used if kind in EXCHANGED)
    shorter = " (−: shorter)" if answer.given else ""
    of = " in TorchRec" if e.model.sets is not None else ""
    nearest = f"The next best scheme of a table{of} makes the plan so much longer{shorter}." if listed else ""
    nearest += " What each copied table would cost otherwise is in --json." if folded else ""
    shown = [group.scheme for group in answer.groups]
    shown += [g.reason.scheme for g in answer.groups if g.reason and g.reason.scheme]
    if any(scheme.hot_rows for scheme in shown):
        nearest += " * beside a copy of its hottest rows on every GPU."
    text += "\n" + paragraph(f"Parts are rows × columns. {nearest} {words}", 1)
    text += "".join(f"\n{line}" for line in [*hot_lines(answer), *uneven_lines(answer)])
    more = f"\n … and {left_out} more groups of tables (all are in --csv and --json)" if left_out else ""
    return text + more


def _copies(answer: Planned, groups: Sequence[AlikeTables]) -> list[str]:
    """The texts of the line for all tables that are replicated."""
    tables = [t for group in groups for t in group.tables]
    rows, dims = answer.evaluator.tables.rows[tables], answer.evaluator.tables.dim[tables]
    held = sum(group.memory_bytes * len(group.tables) for group in groups)
    least, most = f"{dims.min():.0f}", f"{dims.max():.0f}"
    return [
        f"{counted(len(tables), 'table')}",
        format_count(float(rows.sum())),
        least if least == most else f"{least}–{most}",
        groups[0].sharding,
        COPY.kind.facts.word,
        "-",
        "all",
        format_bytes(held, binary=False),
        "",
    ]


def hot_lines(answer: Planned) -> list[str]:
    """A line for each group of tables whose hot rows are replicated."""
    e, lines = answer.evaluator, []
    for group in answer.by_weight[:_MOST_GROUPS]:
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


def next_best(answer: Planned, group: AlikeTables) -> str:
    """The table's next best scheme, and how much longer the plan takes with it: ``+120 µs row-wise``."""
    reason = group.reason
    if reason is None:
        return ""
    if reason.scheme is None:
        ruled = answer.constrained or answer.found.restricted
        if ruled and reason.only:
            return "nothing else is allowed"
        return "no other allowed fits" if ruled else "nothing else fits"
    scheme = "copies" if reason.scheme.copied else reason.scheme.kind.facts.word
    parts = "" if reason.scheme.parts == 0 else f" {parts_text(reason.scheme)}"
    if format_time(abs(reason.more_s)) == "0 s":
        return unbroken(f"equal {scheme}{parts}")
    sign = "−" if reason.more_s < 0 else "+"
    return unbroken(f"{sign}{format_time(abs(reason.more_s))} {scheme}{parts}")


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
        Column("bytes", lambda row: format_bytes(row.payload_bytes), goes=3),
        Column("busiest", lambda row: str(row.rank) if row.imbalance > 1.0005 else "all"),
        Column("to mean", lambda row: format_ratio(row.imbalance), goes=2),
        Column("time", lambda row: format_time(row.time_s), total=format_time(cost.time_s)),
        Column("share", lambda row: format_fraction(row.time_s / cost.time_s)),
        Column("95 % band", lambda row: band(row.low_s, row.high_s), goes=1),
        Column("evidence", lambda row: str(row.evidence), left=True),
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
    slow = limiting(answer)
    if not slow.values:  # no value of the machine changes it, so this plan is timed, not searched again
        text += f"; this plan with {slow.words} takes {format_time(cost.time_s - slow.saving_s)}"
    full = float(memory.total_bytes.max()) / answer.found.limit_bytes
    if full > 0.9:
        text += f"; memory is {format_fraction(full)} full: more of it would allow more copies"
    return facts([("Limits", text + ".")])


def footer(answer: Planned, calibration_file: str | None) -> str:
    """The line of sources, and how many plans the search tried."""
    e, found = answer.evaluator, answer.found
    machine = e.setting.machine
    parts = [f"Machine {machine.name}"]
    assumed = [f"{k} = {machine.quantity(k)}" for k in sorted(machine.overrides)]
    if assumed:
        parts.append("assumed: " + ", ".join(assumed))
    names = ", ".join(dict.fromkeys(e.setting.links.calibrations))
    parts.append(f"calibration {origin(names, calibration_file)}")
    if answer.given:
        return paragraph(" · ".join(parts))
    tried = f"The search dealt {counted(found.tried, 'plan')} to the GPUs"
    return paragraph(f"{tried}.\n{' · '.join(parts)}")


def plan_csv(answer: Planned) -> str:
    """CSV with a line for each table, in the order of the model."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    records = table_records(answer)
    writer.writerow(records[0])
    for record in records:
        ranks = " ".join(str(rank) for rank in record["ranks"])
        writer.writerow({**record, "table": cell(record["table"]), "ranks": ranks}.values())
    return out.getvalue()
