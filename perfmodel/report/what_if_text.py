"""What stands around a plan: which pass it is of, and what would change it."""

from __future__ import annotations

from collections.abc import Sequence

from perfmodel.plan.outcome import Planned
from perfmodel.plan.what_ifs import WhatIf
from perfmodel.report.terminal import command_lines, paragraph, table, unbroken
from perfmodel.units import format_ratio, format_time

_NOT_SEARCHED = "not searched: the time limit was reached. {} leaves time for it."


def pass_line(training: bool, other: str) -> str:
    """Which pass is planned, and the line that plans the other one."""
    if training:
        words = "A training step is planned (forward and backward). The forward pass alone:"
    else:
        words = "The forward pass is planned, as in inference. A training step:"
    return f"{paragraph(words)}\n{command_lines(other)}"


def what_if_lines(changes: Sequence[WhatIf], answer: Planned) -> str:
    """What would change the plan; a time only where a search looked for the plan with the change."""
    now, rows = answer.evaluator.batch * answer.evaluator.gpus / answer.found.cost.time_s, []
    for change in changes:
        found = ["not searched" if change.longer else "no plan", ""]
        if not change.longer and change.time_s is not None and change.samples_per_s is not None:
            found = [format_time(change.time_s), format_ratio(change.samples_per_s / now)]
        limits = " (the limit)" if change.limits else ""
        rows.append([f" {change.words}{limits}", *found, unbroken(change.option)])
    headers = ["What would change the plan", "time", "samples/s", ""]
    if not rows:
        return ""
    why = [paragraph(f"{change.words}: {change.why}", 1) for change in changes if change.why]
    longer = next((change.longer for change in changes if change.longer), "")
    if longer:
        why.append(paragraph(_NOT_SEARCHED.format(unbroken(longer)), 1))
    return "\n".join([table(headers, rows, left=(0, 3), indent=0), *why])
