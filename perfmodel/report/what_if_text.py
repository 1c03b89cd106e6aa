"""What stands around a plan: which pass it is of, and what would change it."""

from __future__ import annotations

from collections.abc import Sequence

from perfmodel.plan.outcome import Planned
from perfmodel.plan.what_ifs import WhatIf
from perfmodel.report.terminal import command_lines, paragraph, table, unbroken
from perfmodel.units import format_ratio, format_time

_KEPT = "* Tables keep the schemes of this plan: the time was up. A longer --time-limit plans them anew."


def pass_line(training: bool, other: str) -> str:
    """Which pass is planned, and the line that plans the other one."""
    if training:
        words = "A training step is planned (forward and backward). The forward pass alone:"
    else:
        words = "The forward pass is planned, as in inference. A training step:"
    return f"{paragraph(words)}\n{command_lines(other)}"


def what_if_lines(changes: Sequence[WhatIf], answer: Planned) -> str:
    """What would change the plan: each planned anew."""
    now, rows = answer.evaluator.batch * answer.evaluator.gpus / answer.found.cost.time_s, []
    for change in changes:
        found, kept = ["no plan", ""], change.time_s is not None and not change.planned_anew
        if change.time_s is not None and change.samples_per_s is not None:
            found = [format_time(change.time_s) + "*" * kept, format_ratio(change.samples_per_s / now)]
        rows.append([f" {change.words}", *found, unbroken(change.option)])
    headers = ["What would change the plan", "time", "samples/s", ""]
    if not rows:
        return ""
    why = [paragraph(f"{change.words}: {change.why}", 1) for change in changes if change.why]
    if any(change.time_s and not change.planned_anew for change in changes):
        why.append(paragraph(_KEPT, 1))
    return "\n".join([table(headers, rows, left=(0, 3), indent=0), *why])
