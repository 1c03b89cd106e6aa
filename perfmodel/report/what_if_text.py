"""Text of a plan: whether it is for the forward pass or a training step, and changes that would help."""

from __future__ import annotations

from collections.abc import Sequence

from perfmodel.plan.outcome import Planned
from perfmodel.plan.what_ifs import WhatIf
from perfmodel.report.terminal import command_lines, paragraph, table, unbroken
from perfmodel.units import format_ratio, format_time

_NOT_SEARCHED = "not searched"
_SAME = format_ratio(1.0)
_CUT = "--time-limit left no time for it."


def pass_line(training: bool, other: str) -> str:
    """Whether a forward pass or a training step is planned. other  the command that plans the other"""
    if training:
        words = "A training step is planned (forward and backward). The forward pass alone:"
    else:
        words = "The forward pass is planned, as in inference. A training step:"
    return f"{paragraph(words)}\n{command_lines(other)}"


def what_if_lines(changes: Sequence[WhatIf], answer: Planned) -> str:
    """A table of changes, each with the time of the plan made for it; "no plan" or "not searched" else.

    Changes with which the samples per second stay the same are listed on one line below it.
    """
    now = answer.evaluator.batch * answer.evaluator.gpus / answer.found.cost.time_s
    if not changes:
        return ""
    same = [change for change in changes if _cells(change, now)[1] == _SAME]
    rows = [
        [f" {change.words}", *_cells(change, now), unbroken(change.option)]
        for change in changes
        if change not in same
    ]
    headers = ["What would change the plan", "time", "samples/s, × now", ""]
    why = [paragraph(f"No faster with {'; '.join(change.words for change in same)}.", 1)] if same else []
    why += [paragraph(f"{change.words}: {change.why}", 1) for change in changes if change.why]
    if any(change.cut_short for change in changes):
        why.append(paragraph(f"{_NOT_SEARCHED}: {_CUT}", 1))
    return "\n".join([table(headers, rows, left=(0, 3), indent=0), *why])


def _cells(change: WhatIf, now: float) -> tuple[str, str]:
    """The time of the plan for a change, and its samples per second divided by ``now``."""
    if change.time_s is None or change.samples_per_s is None:
        return _NOT_SEARCHED if change.cut_short else "no plan", ""
    return format_time(change.time_s), format_ratio(change.samples_per_s / now)
