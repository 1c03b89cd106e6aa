"""Text of ``perfmodel project --sharding all``: every sharding of one question."""

from __future__ import annotations

from collections.abc import Sequence

from perfmodel.answer.answer import Answer
from perfmodel.answer.ranking import RUN, find_fastest, find_ties
from perfmodel.answer.uniform_plans import Impossible
from perfmodel.engine.schemes import PLANNED, TORCHREC, WAYS
from perfmodel.report.columns import Column, columns_text
from perfmodel.report.projection_text import explain_words, find_file, provenance
from perfmodel.report.ranking_text import Line, gpu_words, join_words, throughput_words, time_words
from perfmodel.report.terminal import command_lines, paragraph, table
from perfmodel.units import format_bytes, format_count, format_fraction, format_ratio, format_time


def shardings_text(base: Answer, answers: Sequence[Answer | Impossible], line: Line) -> str:
    """The text of ``perfmodel project --sharding all``: the fastest sharding, and all of them.

    base  the row-wise projection of the same question;  line  the command line that was typed
    """
    best = find_fastest(answers)
    parts = [_write_headline(base, answers), paragraph(f"row-wise: {gpu_words(base)}")]
    parts += [_list_shardings(answers), provenance(best, find_file(best))]
    explain = line.text(("as_json", "sharding"), ["--sharding", best.sharding, *explain_words(best)])
    parts.append(f"The equation behind the longest step:\n{command_lines(explain)}")
    return "\n\n".join(parts)


def _write_headline(base: Answer, answers: Sequence[Answer | Impossible]) -> str:
    """The fastest sharding that TorchRec runs, against one GPU that holds all tables; what is as fast."""
    if base.gpus == 1:
        return paragraph("The tables fit on one GPU, so nothing is sharded.")
    best = find_fastest(answers)
    where = f"{format_count(base.gpus)} GPUs"
    run = [answer for answer in answers if answer.sharding in RUN and answer.fits]
    if not run:
        time = f"{'takes' if best.fits else 'would take'} {format_time(best.time_s)} a batch"
        return paragraph(f"No sharding that {TORCHREC} runs fits {where}: {best.sharding} {time}.")
    lead = find_fastest(run)
    title = f"{lead.sharding}, the fastest of {TORCHREC}'s that cuts tables, on {where}: {time_words(lead)}"
    lines = [paragraph(title), paragraph(throughput_words(lead), 5)]
    words = [f"the fastest of all: {_name_time(best)}"] if best is not lead else []
    ties = [_name_time(answer) for answer in find_ties(answers) if answer is not lead]
    words += [f"{join_words(ties)} may be as fast"] if ties else []
    return "\n".join([*lines, *([paragraph(" · ".join(words), 5)] if words else [])])


def _name_time(answer: Answer) -> str:
    return f"{answer.sharding} ({format_time(answer.time_s)})"


def _list_shardings(answers: Sequence[Answer | Impossible]) -> str:
    """A line for each sharding, the fastest first; then what does not fit; below, the impossible and why."""
    possible = [answer for answer in answers if isinstance(answer, Answer)]
    possible.sort(key=lambda answer: (not answer.fits, float(f"{answer.time_s:.6g}")))
    text = columns_text(_SHARDING, possible)
    runners = {answer.sharding: WAYS[answer.sharding].runs or "nobody runs it" for answer in possible}
    foreign = [f"{name} ({runner})" for name, runner in runners.items() if runner != TORCHREC]
    if foreign:
        text += "\n" + paragraph(f"Not {TORCHREC}'s: {join_words(foreign)}")
    if refused := [
        [answer.sharding, answer.explain()] for answer in answers if isinstance(answer, Impossible)
    ]:
        text += "\n\nNot possible\n" + table(["", ""], refused, left=(0, 1))
    return text


def _name_parts(answer: Answer) -> str:
    """Numbers of row parts and column parts of a table: ``8 × 16``; "copies" if it is replicated."""
    scheme = answer.plan.scheme if answer.plan else None
    if scheme is None:
        return ""
    return "copies" if scheme.parts == 0 else f"{scheme.row_parts} × {scheme.col_parts}"


def find_runner(sharding: str) -> str:
    """Who runs a sharding; "" if nobody does. Limits: a plan is one that TorchRec can run"""
    return TORCHREC if sharding == PLANNED else WAYS[sharding].runs


_SHARDING = (
    Column("sharding", lambda answer: answer.sharding, left=True),
    Column("parts", _name_parts, left=True, goes=2),
    Column("time", lambda answer: format_time(answer.time_s)),
    Column("slowdown", lambda answer: format_ratio(answer.slowdown)),
    Column("95 % band", lambda answer: " – ".join(map(format_ratio, answer.band))),
    Column(
        "memory/GPU",
        lambda answer: (
            format_bytes(answer.gpu_count.memory_bytes, binary=False) + ("" if answer.fits else " (too much)")
        ),
    ),
    Column(
        "longest step",
        lambda answer: f"{answer.longest_step.label} {format_fraction(answer.longest_step.share)}",
        left=True,
        goes=1,
    ),
)
"""Columns of the comparison of shardings."""
_TIMES = "time_s", "low_s", "high_s", "slowdown", "slowdown_low", "slowdown_high"
_CUT = "exchange", "row_parts", "col_parts", "memory_bytes", "longest_step", "longest_share"


def record_cut(answer: Answer | Impossible) -> dict[str, object]:
    """How an answer cuts its tables, and what that takes, for JSON; None where it is impossible."""
    names = ("sharding", *_CUT[:3], "runs", *_CUT[3:4], "fits", *_CUT[4:], "why_not")  # the keys' order
    record: dict[str, object] = dict.fromkeys(names)
    record |= {"sharding": answer.sharding, "runs": find_runner(answer.sharding) or None, "fits": answer.fits}
    if isinstance(answer, Impossible):
        return record | {"why_not": answer.explain()}
    scheme = answer.plan.scheme if answer.plan else None
    step = answer.longest_step
    cut = (scheme.kind.key, scheme.row_parts, scheme.col_parts) if scheme else (None,) * 3
    held = answer.gpu_count.memory_bytes
    return record | dict(zip(_CUT, (*cut, held, step.name, step.share), strict=True))


def record_sharding(answer: Answer | Impossible) -> dict[str, object]:
    """A sharding of the comparison, for JSON: ``record_cut``, its times and its evidence."""
    times: dict[str, object] = dict.fromkeys((*_TIMES, "evidence"))
    if isinstance(answer, Answer):
        times = {name: answer.totals[name] for name in _TIMES} | {"evidence": str(answer.evidence)}
    return record_cut(answer) | times
