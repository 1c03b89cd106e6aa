"""Text of ``perfmodel plan``: the time, which table goes where, steps, what would help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from perfmodel.answer import Answer
from perfmodel.answer.what_would_help import Sensitivity
from perfmodel.engine.placement import Scheme
from perfmodel.engine.schemes import EXCHANGED
from perfmodel.engine.training import WholeStep
from perfmodel.plan.outcome import AlikeTables, Baseline, Planned
from perfmodel.report.projection_text import (
    band,
    change_table,
    find_file,
    join_quantities,
    provenance,
    step_table,
)
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
_FEW = 3  # groups of copied tables; more are no lines of their own


def plan_text(
    planned: Planned,
    answer: Answer,
    whole: WholeStep | None,
    changes: Sequence[Sensitivity],
    commands: Mapping[str, str],
) -> str:
    """The text of ``perfmodel plan``: the time, what limits it, which table goes where, steps.

    answer    the same plan, as ``project`` has answers
    whole     the step with its dense layers; None: none were given
    changes   what would make it faster;  commands  to go on with, by what they are for
    """
    parts = [f"{headline(planned)}\n\n{fact_lines(planned)}", placements(planned), paragraph(answer.uneven)]
    parts += [step_table(answer, whole=True), change_table(changes) if changes else ""]
    if whole is not None:
        parts.append(dense_lines(whole, answer.samples_per_s * answer.time_s))
    lines = [f"{words}:\n{command_lines(line)}" for words, line in commands.items()]
    parts.append("\n".join([provenance(answer, find_file(answer)), *lines]))
    return "\n\n".join(part for part in parts if part)


def headline(planned: Planned) -> str:
    """The first lines: time, band, samples a second, speed-up over simple plans, how it ended, the bound."""
    cost = planned.costed.cost
    e = planned.evaluator
    what = "training step" if planned.training else "forward pass"
    where = "1 GPU" if e.gpus == 1 else f"each of {e.gpus} GPUs"
    sentence = f"{format_time(cost.time_s)} per {what} of {format_count(e.batch)} samples on {where}."
    compared = "; ".join(compare_words(baseline, cost.time_s) for baseline in planned.baselines)
    per_s = format_per_second(e.batch * e.gpus / cost.time_s, "samples")
    lines = [sides(sentence, f"band {band(cost.low_s, cost.high_s)}")]
    lines.append(sides(paragraph(f"     {compared}"), per_s))
    lines += [paragraph(f"     {words}") for words in (cut_words(planned), bound_words(planned)) if words]
    return "\n".join(lines)


def bound_words(planned: Planned) -> str:
    """The bound in words; "" for a bound far below the plan, or for a plan that was given."""
    if not planned.bounded:
        return ""
    return f"At least {format_time(planned.result.bound_s)} for any plan of these shardings."


def cut_words(planned: Planned) -> str:
    """What cut the search short, and how much was done; "" if nothing did."""
    if planned.result.stopped != "interrupt":
        return ""
    done = format_fraction(planned.result.done)
    return f"stopped by Ctrl-C after {done} of the work: another run may find another plan"


def compare_words(baseline: Baseline, time_s: float) -> str:
    """``2.68× as fast as table-wise (319 µs)``; if that plan does not fit, why not."""
    if baseline.time_s is None:
        return f"{baseline.name} does not fit: {baseline.why}"
    ratio = format_ratio(baseline.time_s / time_s)
    return f"{ratio} as fast as {baseline.name} ({format_time(baseline.time_s)})"


def fact_lines(planned: Planned) -> str:
    """Lines for the number of GPUs, the memory of the fullest GPU, the ids, and what limits the plan."""
    e = planned.evaluator
    size = format_bytes(e.memories.table_bytes, binary=False)
    domains = f", {e.setting.machine.links.scale_up} domains of {e.domain}" if 1 < e.domain < e.gpus else ""
    gpus = f"{format_count(e.gpus)}{domains}, for {counted(len(e.tables), 'table')} of {size}"
    names = dict.fromkeys(law.name for law in e.tables.ids)
    ids = [] if list(names) == ["uniform"] else [("Ids", ", ".join(names))]
    return facts([("GPUs", gpus), ("Memory", memory_words(planned)), *ids, ("Limits", limit_words(planned))])


def memory_words(planned: Planned) -> str:
    """How full the fullest GPU is, and how much of each GPU is kept free."""
    total = planned.costed.memory.total_bytes
    limit_bytes = planned.result.limit_bytes
    left_bytes = planned.evaluator.setting.machine.value("hbm_bytes") - limit_bytes
    write = partial(format_bytes, binary=False)
    held = join_quantities(write(float(total.max())), "of", write(limit_bytes))
    where = f"on the fullest (rank {int(np.argmax(total))}), {write(float(total.mean()))} on average"
    return f"{held} {where}; {write(left_bytes) if left_bytes > 0 else 'nothing'} of each GPU kept free"


def limit_words(planned: Planned) -> str:
    """What limits the plan: its longest step, imbalance, latency."""
    cost = planned.costed.cost
    row = cost.limiting
    text = f"the longest step is {row.label}, {format_fraction(row.share)} of the time"
    if row.imbalance > 1.05:
        text += f", as rank {row.rank} has {format_ratio(row.imbalance)} the bytes of the mean rank"
    floor = sum(step.time_s for step in cost.rows if step.collective and step.time_s < 1.5 * step.floor_s)
    if floor > 0.2 * cost.time_s:
        text += f"; collectives near their latency floor take {format_fraction(floor / cost.time_s)}"
    return f"{text}."


def placements(planned: Planned) -> str:
    """A table with a line for each group of equal tables with one sharding, the most costly group first.

    If many groups are replicated, a sentence below is about all of them.
    """
    copies = [(group, share) for group, share in planned.by_share if group.scheme.copied]
    folded = copies if copies[_FEW:] else []
    cut = [(group, share) for group, share in planned.by_share if not (folded and group.scheme.copied)]
    rows = [_list_cells(planned, group, share) for group, share in cut[:_MOST_GROUPS]]
    headers = ["table", "rows × dim", "size", "sharding", "exchange", "parts", "GPUs", "share"]
    kinds = dict.fromkeys(group.scheme.kind for group in planned.groups)
    words = "; ".join(kind.legend for kind in kinds if kind in EXCHANGED)
    hot = any(group.scheme.hot_rows for group in planned.groups)
    starred = " * beside a copy of its hottest rows on every GPU." if hot else ""
    legend = paragraph(f"Parts are rows × columns. Share is of the time beside latency.{starred} {words}", 1)
    lines = [table(headers, rows, left=(0, 3, 4, 6), drop=(2, 4)), legend] if rows else []
    if folded:
        e = planned.evaluator
        tables = [table for group, _ in folded for table in group.tables]
        size = float(e.tables.count_bytes(training=e.memories.training)[tables].sum())
        words = f"{counted(len(tables), 'table')}, {format_bytes(size, binary=False)}, on every GPU"
        lines.append(f" {words}: {format_fraction(sum(share for _, share in folded))} of the time.")
    lines += _list_hot(planned)
    if left := len(cut[_MOST_GROUPS:]):
        lines.append(f" … and {left} more groups of tables (all are in --json)")
    return "\n".join(lines)


def _list_cells(planned: Planned, group: AlikeTables, share: float) -> list[str]:
    """The texts of the line of a group of equal tables. share  of the time [-]"""
    e = planned.evaluator
    sample = group.tables[0]
    size = e.tables.count_bytes(training=e.memories.training)[list(group.tables)].sum()
    return [
        _name_group(planned, group),
        f"{format_count(float(e.tables.rows[sample]))} × {e.tables.dim[sample]:.0f}",
        format_bytes(float(size), binary=False),
        group.sharding,
        group.scheme.kind.facts.word,
        parts_text(group.scheme),
        ranks_text(planned.list_ranks(group), e.gpus),
        format_fraction(share),
    ]


def _name_group(planned: Planned, group: AlikeTables) -> str:
    """The first of some equal tables, and how many more there are: ``t3 +2``."""
    sample, *others = group.tables
    return planned.evaluator.tables.names[sample] + (f" +{len(others)}" if others else "")


def _list_hot(planned: Planned) -> list[str]:
    """A line for each group of tables whose hot rows are replicated."""
    e = planned.evaluator
    lines = []
    for group, _ in planned.by_share[:_MOST_GROUPS]:
        t = group.tables[0]
        if hot := group.scheme.hot_rows:
            share = format_fraction(e.hot_share(t, hot))
            size = format_bytes(float(np.sum(e.memories.count_copies(t, hot))), binary=False)
            rows = f"hottest {counted(hot, 'row')} ({share} of look-ups, {size})"
            lines.append(paragraph(f"{_name_group(planned, group)}: {rows} on every GPU", 1))
    return lines


def parts_text(scheme: Scheme) -> str:
    """Row and column parts of a table: ``128×1``; with * if its hot rows are replicated; "-" if all are."""
    hot = "*" if scheme.hot_rows else ""
    return "-" if scheme.copied else f"{scheme.row_parts}×{scheme.col_parts}{hot}"


def ranks_text(ranks: NDArray[np.int64], gpus: int) -> str:
    """Ranks in words: ``all``, ``8–15``, ``0, 3, 9`` or ``12 of 128``."""
    if ranks.size in (0, gpus):
        return "all"
    if 1 < ranks.size == np.ptp(ranks) + 1:
        return f"{ranks.min()}–{ranks.max()}"
    if ranks.size <= 3:
        return ", ".join(str(rank) for rank in ranks)
    return f"{ranks.size} of {gpus}"


def dense_lines(whole: WholeStep, samples: float) -> str:
    """The step with dense layers, overlapped and in sequence, and where the layers' time is from.

    samples  in a batch of all GPUs together
    """
    dense = whole.dense
    what = "a training step" if whole.training else "a batch alone"
    sentence = f"With dense layers: {format_time(whole.step_s)} {what}, kernels and communication overlapped."
    exposed = f"{format_time(whole.communication_s)} of it exchanges ({format_time(whole.exposed_s)} exposed)"
    serial = f"{format_time(whole.parts.serial_time)} one after the other, {exposed}."
    passes = "forward and backward" if whole.training else "forward"
    source = f"as given: {passes}, all of it after the embeddings"
    if dense.name:
        source = f"{dense.name}: {format_fraction(dense.share)} of {format_flops(dense.rate)}/s (datasheet)"
    if whole.parts.dense_reduce:
        reduced = format_bytes(dense.reduced_bytes, binary=False)
        source += f"; their gradients, {reduced}, are all-reduced"
    error = f"The band has an error of {format_fraction(dense.error)} of it."
    if not dense.error:
        error = "The band leaves its error out: give it, e.g. --dense 3ms±10%."
    words = f"{format_time(dense.time_s)} per batch on each GPU, {source}. {error}"
    lines = [sides(sentence, f"band {band(whole.low_s, whole.high_s)}")]
    lines.append(sides(paragraph(f"     {serial}"), format_per_second(samples / whole.step_s, "samples")))
    return "\n".join([*lines, "", facts([("Dense", words)])])
