"""Text of ``perfmodel project --sharding all``: every sharding, and the fastest by table size."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import Any

from perfmodel.answer import Projection
from perfmodel.answer.ranking import RUN
from perfmodel.answer.sharding_answers import ShardingAnswer, Size, undecided, winner
from perfmodel.engine.schemes import TORCHREC, WAYS
from perfmodel.report.columns import Column, columns_record, columns_text
from perfmodel.report.projection_text import Again, footer, gpu_line
from perfmodel.report.ranking_text import join_words, throughput_words, time_words
from perfmodel.report.terminal import paragraph, table
from perfmodel.units import format_bytes, format_count, format_fraction, format_ratio, format_time


def shardings_text(
    base: Projection,
    found: Sequence[ShardingAnswer],
    sizes: Sequence[Size],
    calibration_file: str | None = None,
    again: Again = shlex.join,
) -> str:
    """The text of ``perfmodel project --sharding all``: the fastest sharding, all of them, and by size.

    base   the row-wise projection of the same question
    """
    best = winner(found)
    parts = [
        headline(base, best, fastest_run(found), undecided(found)),
        gpu_line(base).split("  row-wise shards")[0].split("\nMemory")[0].rstrip(),
    ]
    parts.append(sharding_table(found))
    if sizes:
        parts.append(sizes_table(sizes))
    assert best.answer is not None
    parts.append(footer(best.answer, calibration_file, again))
    return "\n\n".join(parts)


def headline(
    base: Projection, best: ShardingAnswer, lead: ShardingAnswer | None, near: Sequence[ShardingAnswer] = ()
) -> str:
    """The fastest sharding that TorchRec runs, against one GPU that holds all tables, and the fastest of all.

    lead  the fastest that TorchRec runs and that fits, or None;  near  may be as fast as ``best``
    """
    if best.answer is None or base.gpus == 1:
        return paragraph("The tables fit on one GPU, so nothing is sharded.")
    where = f"{format_count(base.gpus)} GPUs"
    time = format_time(best.answer.time_s)
    if lead is None or lead.answer is None:
        if best.fits:
            none = f"No sharding that {TORCHREC} runs fits {where}: {best.way} does"
            return paragraph(f"{none}, and takes {time} a batch.")
        return paragraph(f"No sharding fits {where}: {best.way} would take {time} a batch.")
    first = f"{lead.way}, the fastest that {TORCHREC} runs, on {where}: {time_words(lead.answer)}"
    lines = [throughput_words(lead.answer)]
    as_fast = [each for each in (best, *near) if each.way != lead.way]
    if len(as_fast) > len(near):
        ratio = format_ratio(lead.answer.time_s / best.answer.time_s)
        lines.append(f"the fastest of all is {best.way}: {time}, {ratio} faster")
        lines += [f"{_named(near)} may be as fast as {best.way}"] if near else []
    elif as_fast:
        lines.append(f"{_named(as_fast)} may be as fast")
    return "\n".join([paragraph(first), *(paragraph(line, 5) for line in lines)])


def _named(shardings: Sequence[ShardingAnswer]) -> str:
    """The shardings, each with its time."""
    return join_words(
        [f"{each.way} ({format_time(each.answer.time_s)})" for each in shardings if each.answer]
    )


def fastest_run(found: Sequence[ShardingAnswer]) -> ShardingAnswer | None:
    """The fastest sharding that TorchRec runs over all GPUs, and that fits. Limits: none fits -> None"""
    run = [each for each in found if each.way in RUN and each.answer and each.fits]
    return winner(run) if run else None


def sharding_table(found: Sequence[ShardingAnswer]) -> str:
    """A line for each sharding, the fastest first; below them the impossible ones, with the reason."""
    times = {each.way: each.answer.time_s for each in found if each.answer}
    possible = sorted((c for c in found if c.answer), key=lambda c: float(f"{times[c.way]:.6g}"))
    text = columns_text(SHARDING, possible)
    if others := others_words(possible):
        text += f"\n{paragraph(others)}"
    rest = [[each.way, each.why] for each in found if each.answer is None]
    if rest:
        text += "\n\nNot possible\n" + table(["", ""], rest, left=(0, 1))
    return text


def others_words(found: Sequence[ShardingAnswer]) -> str:
    """Who runs the shardings that TorchRec does not: ``Not TorchRec's: 3d (EMBark)``. Limits: none -> ''"""
    runners = {each.way: WAYS[each.way].runs or "nobody runs it" for each in found}
    others = [f"{way} ({who})" for way, who in runners.items() if who != TORCHREC]
    return f"Not {TORCHREC}'s: {join_words(others)}" if others else ""


def parts_text(each: ShardingAnswer) -> str:
    """Numbers of row parts and column parts of a table: ``8 × 16``; "copies" if it is replicated."""
    if each.plan is None:
        return ""
    scheme = each.plan.scheme
    return "copies" if scheme.parts == 0 else f"{scheme.row_parts} × {scheme.col_parts}"


def _answers(**values: Callable[[Projection], Any]) -> dict[str, Callable[[ShardingAnswer], Any]]:
    """Functions for ``Column.data`` that read a sharding's projection, by key.

    values  by key, a function of the projection; for an impossible sharding the result is None
    """

    def of(value: Callable[[Projection], Any]) -> Callable[[ShardingAnswer], Any]:
        return lambda each: None if each.answer is None else value(each.answer)

    return {key: of(value) for key, value in values.items()}


def _memory(each: ShardingAnswer) -> str:
    return format_bytes(each.memory_bytes, binary=False) + ("" if each.fits else " (too much)")


def _longest(each: ShardingAnswer) -> str:
    longest = each.limiting
    return "" if longest is None else f"{longest.label} {format_fraction(longest.share)}"


_WAY = {"sharding": lambda each: each.way, "exchange": lambda each: each.exchange}
_RUNS = {"runs": lambda each: WAYS[each.way].runs or None}
_PARTS = {
    "row_parts": lambda each: each.plan.scheme.row_parts if each.plan else None,
    "col_parts": lambda each: each.plan.scheme.col_parts if each.plan else None,
}
_TIMES = _answers(
    time_s=lambda a: a.time_s, low_s=lambda a: a.totals["low_s"], high_s=lambda a: a.totals["high_s"]
)
_MEMORY = {
    "memory_bytes": lambda each: each.memory_bytes if each.answer else None,
    "fits": lambda each: each.fits and each.answer is not None,
}
_LONGEST = {
    "longest_step": lambda each: each.limiting.name if each.limiting else None,
    "longest_share": lambda each: each.limiting.share if each.limiting else None,
}
_KNOWN = _answers(evidence=lambda a: str(a.evidence)) | {"why_not": lambda each: each.why or None}
_BAND = _answers(slowdown_low=lambda a: a.band[0], slowdown_high=lambda a: a.band[1])
SHARDING = (
    Column("sharding", lambda each: each.way, left=True, data=_WAY),
    Column("parts", parts_text, left=True, goes=2, data=_PARTS),
    Column(data=_RUNS),
    Column("time", lambda each: format_time(each.answer.time_s), data=_TIMES),
    Column(
        "slowdown",
        lambda each: format_ratio(each.answer.slowdown),
        data=_answers(slowdown=lambda a: a.slowdown),
    ),
    Column("95 % band", lambda each: " – ".join(map(format_ratio, each.answer.band)), goes=1, data=_BAND),
    Column("memory/GPU", _memory, data=_MEMORY),
    Column("longest step", _longest, left=True, data=_LONGEST),
    Column(data=_KNOWN),
)
"""Columns of the comparison of shardings."""


SIZES = (
    Column(
        "tables",
        lambda size: format_bytes(size.table_bytes, binary=False),
        data={"table_bytes": lambda size: size.table_bytes},
    ),
    Column("GPUs", lambda size: format_count(size.base.gpus), data={"gpus": lambda size: size.base.gpus}),
    Column(
        "wins",
        lambda size: _wins(size),
        left=True,
        data={
            "winner": lambda size: size.best.way,
            "undecided": lambda size: [each.way for each in size.undecided],
            "shardings": lambda size: [columns_record(SHARDING, each) for each in size.found],
        },
    ),
    Column("slowdown", lambda size: format_ratio(_slowdown(size.best)) if size.best.fits else ""),
    Column(
        "95 % band",
        lambda size: " – ".join(map(format_ratio, size.best.answer.band)) if _spread(size) else "",
        goes=1,
    ),
    Column(
        f"{TORCHREC}'s", lambda size: _run(size), left=True, data={"leading": lambda size: _leading(size)}
    ),
)
"""Columns of the comparison by table size."""


def _spread(size: Size) -> bool:
    """Whether tables of this size need several GPUs, and a sharding fits them."""
    return size.base.gpus > 1 and size.best.fits


def _wins(size: Size) -> str:
    if size.base.gpus == 1:
        return "fits one GPU"
    return "≈ " * bool(size.undecided) + size.best.way if size.best.fits else "none fits"


def _leading(size: Size) -> str | None:
    lead = fastest_run(size.found)
    return lead.way if lead else None


def _run(size: Size) -> str:
    """The fastest sharding that TorchRec runs, and its slowdown: what ``project`` leads with at this size."""
    lead = fastest_run(size.found)
    if size.base.gpus == 1:
        return ""
    return f"{lead.way} {format_ratio(lead.answer.slowdown)}" if lead and lead.answer else "none fits"


def _slowdown(best: ShardingAnswer) -> float:
    return best.answer.slowdown if best.answer else 1.0


def sizes_table(sizes: Sequence[Size]) -> str:
    """A table with a line for each table size: the fastest sharding, and the fastest that TorchRec runs."""
    title = "Which wins where (as many GPUs as each size needs"
    title += "; ≈: which wins cannot be told)" if any(size.undecided for size in sizes) else ")"
    return f"{paragraph(title)}\n{columns_text(SIZES, sizes)}"
