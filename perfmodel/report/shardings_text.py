"""Text of ``perfmodel project --sharding all``: every sharding, and the fastest by table size."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import Any

from perfmodel.answer.answer import Answer
from perfmodel.answer.ranking import RUN, Size, find_fastest, find_ties
from perfmodel.answer.uniform_plans import Impossible
from perfmodel.engine.schemes import TORCHREC, WAYS
from perfmodel.report.columns import Column, columns_record, columns_text
from perfmodel.report.projection_text import explain_words, provenance
from perfmodel.report.ranking_text import join_words, throughput_words, time_words
from perfmodel.report.terminal import command_lines, paragraph, table
from perfmodel.units import format_bytes, format_count, format_fraction, format_ratio, format_time


def shardings_text(
    base: Answer,
    answers: Sequence[Answer | Impossible],
    sizes: Sequence[Size],
    calibration_file: str | None = None,
    again: Callable[[Sequence[str]], str] = shlex.join,
) -> str:
    """The text of ``perfmodel project --sharding all``: the fastest sharding, all of them, and by size.

    base   the row-wise projection of the same question
    """
    best = find_fastest(answers)
    parts = [
        headline(base, best, find_fastest_run(answers), find_ties(answers)),
        paragraph(f"GPUs     {base.gpu_count}"),
    ]
    parts.append(sharding_table(answers))
    if sizes:
        parts.append(sizes_table(sizes))
    parts.append(provenance(best, calibration_file))
    line = command_lines(again(["perfmodel", "project", *explain_words(best)]))
    parts.append(f"The equation behind the longest step:\n{line}")
    return "\n\n".join(parts)


def headline(base: Answer, best: Answer, lead: Answer | None, near: Sequence[Answer] = ()) -> str:
    """The fastest sharding that TorchRec runs, against one GPU that holds all tables, and the fastest of all.

    lead  the fastest that TorchRec runs and that fits, or None;  near  may be as fast as ``best``
    """
    if base.gpus == 1:
        return paragraph("The tables fit on one GPU, so nothing is sharded.")
    where, time = f"{format_count(base.gpus)} GPUs", format_time(best.time_s)
    if lead is None and best.fits:
        none = f"No sharding that {TORCHREC} runs fits {where}: {best.sharding} does"
        return paragraph(f"{none}, and takes {time} a batch.")
    if lead is None:
        return paragraph(f"No sharding fits {where}: {best.sharding} would take {time} a batch.")
    first = f"{lead.sharding}, the fastest that {TORCHREC} runs, on {where}: {time_words(lead)}"
    lines = [throughput_words(lead)]
    as_fast = [answer for answer in (best, *near) if answer.sharding != lead.sharding]
    if len(as_fast) > len(near):
        ratio = format_ratio(lead.time_s / best.time_s)
        lines.append(f"the fastest of all is {best.sharding}: {time}, {ratio} faster")
        lines += [f"{_name_times(near)} may be as fast as {best.sharding}"] if near else []
    elif as_fast:
        lines.append(f"{_name_times(as_fast)} may be as fast")
    return "\n".join([paragraph(first), *(paragraph(line, 5) for line in lines)])


def _name_times(answers: Sequence[Answer]) -> str:
    """The shardings, each with its time."""
    return join_words([f"{answer.sharding} ({format_time(answer.time_s)})" for answer in answers])


def find_fastest_run(answers: Sequence[Answer | Impossible]) -> Answer | None:
    """The fastest sharding that TorchRec runs over all GPUs, and that fits. Limits: none fits -> None"""
    run = [answer for answer in answers if answer.sharding in RUN and answer.fits]
    return find_fastest(run) if run else None


def sharding_table(answers: Sequence[Answer | Impossible]) -> str:
    """A line for each sharding, the fastest first; then what does not fit; below, the impossible and why."""
    possible = [answer for answer in answers if isinstance(answer, Answer)]
    possible.sort(key=lambda answer: (not answer.fits, float(f"{answer.time_s:.6g}")))
    text = columns_text(SHARDING, possible)
    if others := others_words(possible):
        text += f"\n{paragraph(others)}"
    rest = [[answer.sharding, answer.why] for answer in answers if isinstance(answer, Impossible)]
    if rest:
        text += "\n\nNot possible\n" + table(["", ""], rest, left=(0, 1))
    return text


def others_words(answers: Sequence[Answer]) -> str:
    """Who runs the shardings that TorchRec does not: ``Not TorchRec's: 3d (EMBark)``. Limits: none -> ''"""
    runners = {answer.sharding: WAYS[answer.sharding].runs or "nobody runs it" for answer in answers}
    others = [f"{name} ({who})" for name, who in runners.items() if who != TORCHREC]
    return f"Not {TORCHREC}'s: {join_words(others)}" if others else ""


def _name_parts(answer: Answer) -> str:
    """Numbers of row parts and column parts of a table: ``8 × 16``; "copies" if it is replicated."""
    if answer.plan is None:
        return ""
    scheme = answer.plan.scheme
    return "copies" if scheme.parts == 0 else f"{scheme.row_parts} × {scheme.col_parts}"


def _read(**values: Callable[[Answer], Any]) -> dict[str, Callable[[Answer | Impossible], Any]]:
    """Functions for ``Column.data``; for an impossible sharding the result is None. values  by key"""

    def read(value: Callable[[Answer], Any]) -> Callable[[Answer | Impossible], Any]:
        return lambda answer: value(answer) if isinstance(answer, Answer) else None

    return {key: read(value) for key, value in values.items()}


def _memory(answer: Answer) -> str:
    held = format_bytes(answer.gpu_count.memory_bytes, binary=False)
    return held + ("" if answer.fits else " (too much)")


def _longest(answer: Answer) -> str:
    return f"{answer.longest_step.label} {format_fraction(answer.longest_step.share)}"


_SHARDING = {"sharding": lambda answer: answer.sharding} | _read(
    exchange=lambda answer: answer.plan.scheme.kind.key if answer.plan else None
)
_PARTS = _read(
    row_parts=lambda answer: answer.plan.scheme.row_parts if answer.plan else None,
    col_parts=lambda answer: answer.plan.scheme.col_parts if answer.plan else None,
)
_TIMES = _read(
    time_s=lambda a: a.time_s, low_s=lambda a: a.totals["low_s"], high_s=lambda a: a.totals["high_s"]
)
_MEMORY = _read(memory_bytes=lambda answer: answer.gpu_count.memory_bytes) | {
    "fits": lambda answer: answer.fits
}
_STEP = _read(longest_step=lambda a: a.longest_step.name, longest_share=lambda a: a.longest_step.share)
SHARDING = (
    Column("sharding", lambda answer: answer.sharding, left=True, data=_SHARDING),
    Column("parts", _name_parts, left=True, goes=2, data=_PARTS),
    Column(data={"runs": lambda answer: WAYS[answer.sharding].runs or None}),
    Column("time", lambda answer: format_time(answer.time_s), data=_TIMES),
    Column(
        "slowdown", lambda answer: format_ratio(answer.slowdown), data=_read(slowdown=lambda a: a.slowdown)
    ),
    Column(
        "95 % band",
        lambda answer: " – ".join(map(format_ratio, answer.band)),
        goes=1,
        data=_read(slowdown_low=lambda a: a.band[0], slowdown_high=lambda a: a.band[1]),
    ),
    Column("memory/GPU", _memory, data=_MEMORY),
    Column("longest step", _longest, left=True, data=_STEP),
    Column(
        data=_read(evidence=lambda a: str(a.evidence))
        | {"why_not": lambda answer: getattr(answer, "why", None)}
    ),
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
            "winner": lambda size: size.best.sharding,
            "undecided": lambda size: [answer.sharding for answer in size.undecided],
            "shardings": lambda size: [columns_record(SHARDING, answer) for answer in size.answers],
        },
    ),
    Column("slowdown", lambda size: format_ratio(size.best.slowdown) if size.best.fits else ""),
    Column(
        "95 % band",
        lambda size: " – ".join(map(format_ratio, size.best.band)) if _spread(size) else "",
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
    return "≈ " * bool(size.undecided) + size.best.sharding if size.best.fits else "none fits"


def _leading(size: Size) -> str | None:
    lead = find_fastest_run(size.answers)
    return lead.sharding if lead else None


def _run(size: Size) -> str:
    """The fastest sharding that TorchRec runs, and its slowdown: what ``project`` leads with at this size."""
    lead = find_fastest_run(size.answers)
    if size.base.gpus == 1:
        return ""
    return f"{lead.sharding} {format_ratio(lead.slowdown)}" if lead else "none fits"


def sizes_table(sizes: Sequence[Size]) -> str:
    """A table with a line for each table size: the fastest sharding, and the fastest that TorchRec runs."""
    title = "Which wins where (as many GPUs as each size needs"
    title += "; ≈: which wins cannot be told)" if any(size.undecided for size in sizes) else ")"
    return f"{paragraph(title)}\n{columns_text(SIZES, sizes)}"
