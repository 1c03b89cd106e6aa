"""Text of ``perfmodel project --sharding all``: every sharding of one question."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from perfmodel.answer.answer import Answer
from perfmodel.answer.ranking import RUN, find_fastest, find_ties
from perfmodel.answer.uniform_plans import Impossible
from perfmodel.engine.placement import Scheme
from perfmodel.engine.schemes import PLANNED, TORCHREC, WAYS
from perfmodel.report.columns import Column, columns_text
from perfmodel.report.projection_text import explain_words, provenance
from perfmodel.report.ranking_text import Line, gpu_words, join_words, throughput_words, time_words
from perfmodel.report.terminal import command_lines, paragraph, table
from perfmodel.units import format_bytes, format_count, format_fraction, format_ratio, format_time


def shardings_text(
    base: Answer,
    answers: Sequence[Answer | Impossible],
    calibration_file: str | None,
    line: Line,
) -> str:
    """The text of ``perfmodel project --sharding all``: the fastest sharding, and all of them.

    base  the row-wise projection of the same question;  line  the command line that was typed
    """
    best = find_fastest(answers)
    parts = [
        _write_headline(base, best, find_fastest_run(answers), find_ties(answers)),
        paragraph(f"row-wise: {gpu_words(base)}"),
        _list_shardings(answers),
    ]
    parts.append(provenance(best, calibration_file))
    explain = line.text(("as_json", "sharding"), ["--sharding", best.sharding, *explain_words(best)])
    parts.append(f"The equation behind the longest step:\n{command_lines(explain)}")
    return "\n\n".join(parts)


def _write_headline(base: Answer, best: Answer, lead: Answer | None, near: Sequence[Answer]) -> str:
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
    lines = [throughput_words(lead)]
    as_fast = [answer for answer in (best, *near) if answer.sharding != lead.sharding]
    if len(as_fast) > len(near):
        ratio = format_ratio(lead.time_s / best.time_s)
        lines.append(f"the fastest of all is {best.sharding}: {time}, {ratio} faster")
        lines += [f"{_name_times(near)} may be as fast as {best.sharding}"] if near else []
    elif as_fast:
        lines.append(f"{_name_times(as_fast)} may be as fast")
    title = f"{lead.sharding}, the fastest of {TORCHREC}'s that cuts tables, on {where}: {time_words(lead)}"
    return "\n".join([paragraph(title), *(paragraph(line, 5) for line in lines)])


def _name_times(answers: Sequence[Answer]) -> str:
    """The shardings, each with its time."""
    return join_words([f"{answer.sharding} ({format_time(answer.time_s)})" for answer in answers])


def find_fastest_run(answers: Sequence[Answer | Impossible]) -> Answer | None:
    """The fastest sharding that TorchRec runs over all GPUs, and that fits. Limits: none fits -> None"""
    run = [answer for answer in answers if answer.sharding in RUN and answer.fits]
    return find_fastest(run) if run else None


def _list_shardings(answers: Sequence[Answer | Impossible]) -> str:
    """A line for each sharding, the fastest first; then what does not fit; below, the impossible and why."""
    possible = [answer for answer in answers if isinstance(answer, Answer)]
    possible.sort(key=lambda answer: (not answer.fits, float(f"{answer.time_s:.6g}")))
    text = columns_text(SHARDING, possible)
    runners = {answer.sharding: WAYS[answer.sharding].runs or "nobody runs it" for answer in possible}
    foreign = [f"{name} ({runner})" for name, runner in runners.items() if runner != TORCHREC]
    if foreign:
        text += "\n" + paragraph(f"Not {TORCHREC}'s: {join_words(foreign)}")
    if refused := [[answer.sharding, answer.why] for answer in answers if isinstance(answer, Impossible)]:
        text += "\n\nNot possible\n" + table(["", ""], refused, left=(0, 1))
    return text


def _name_parts(answer: Answer) -> str:
    """Numbers of row parts and column parts of a table: ``8 × 16``; "copies" if it is replicated."""
    scheme = find_scheme(answer)
    if scheme is None:
        return ""
    return "copies" if scheme.parts == 0 else f"{scheme.row_parts} × {scheme.col_parts}"


def _show_memory(answer: Answer) -> str:
    held = format_bytes(answer.gpu_count.memory_bytes, binary=False)
    return held + ("" if answer.fits else " (too much)")


def _read(**values: Callable[[Answer], Any]) -> dict[str, Callable[[Answer | Impossible], Any]]:
    """Functions for ``Column.data``; for an impossible sharding the result is None. values  by key"""

    def read_guarded(value: Callable[[Answer], Any]) -> Callable[[Answer | Impossible], Any]:
        return lambda answer: value(answer) if isinstance(answer, Answer) else None

    return {key: read_guarded(value) for key, value in values.items()}


def find_scheme(answer: Answer) -> Scheme | None:
    """The scheme of all tables; None: each has its own, or the plan is not known."""
    return answer.plan.scheme if answer.plan else None


def _read_scheme(name: str) -> Callable[[Answer], Any]:
    return lambda answer: getattr(find_scheme(answer), name, None)


def find_runner(sharding: str) -> str:
    """Who runs a sharding; "" if nobody does. Limits: a plan is one that TorchRec can run"""
    return TORCHREC if sharding == PLANNED else WAYS[sharding].runs


_NAME: dict[str, Callable[[Any], Any]] = {"sharding": lambda answer: answer.sharding}
_RUNS: dict[str, Callable[[Any], Any]] = {"runs": lambda answer: find_runner(answer.sharding) or None}
_FITS: dict[str, Callable[[Any], Any]] = {"fits": lambda answer: answer.fits}
_WHY: dict[str, Callable[[Any], Any]] = {"why_not": lambda answer: getattr(answer, "why", None)}
_EXCHANGE = _read(exchange=lambda answer: scheme.kind.key if (scheme := find_scheme(answer)) else None)
_PARTS = _read(row_parts=_read_scheme("row_parts"), col_parts=_read_scheme("col_parts"))
_TIMES = _read(
    time_s=lambda a: a.time_s, low_s=lambda a: a.totals["low_s"], high_s=lambda a: a.totals["high_s"]
)
_BAND = _read(slowdown_low=lambda answer: answer.band[0], slowdown_high=lambda answer: answer.band[1])
_MEMORY = _read(memory_bytes=lambda answer: answer.gpu_count.memory_bytes)
_STEP = _read(longest_step=lambda a: a.longest_step.name, longest_share=lambda a: a.longest_step.share)
SHARDING = (
    Column("sharding", lambda answer: answer.sharding, left=True, data=_NAME | _EXCHANGE),
    Column("parts", _name_parts, left=True, goes=2, data=_PARTS | _RUNS),
    Column("time", lambda answer: format_time(answer.time_s), data=_TIMES),
    Column("slowdown", lambda a: format_ratio(a.slowdown), data=_read(slowdown=lambda a: a.slowdown)),
    Column("95 % band", lambda answer: " – ".join(map(format_ratio, answer.band)), data=_BAND),
    Column("memory/GPU", _show_memory, data=_MEMORY | _FITS),
    Column(
        "longest step",
        lambda a: f"{a.longest_step.label} {format_fraction(a.longest_step.share)}",
        left=True,
        goes=1,
        data=_STEP | _read(evidence=lambda answer: str(answer.evidence)) | _WHY,
    ),
)
"""Columns of the comparison of shardings."""
