"""Text of ``explain load``: each number with its equation, and the steps of the pass."""

from __future__ import annotations

from collections.abc import Callable

from perfmodel.report.explanation_text import number_text
from perfmodel.report.terminal import command_lines, paragraph, table
from perfmodel.service.explanation import LoadExplanation
from perfmodel.units import format_count, format_time


def load_explanation_text(
    found: LoadExplanation, command: Callable[[str], str], host: str | None = None
) -> str:
    """The numbers of ``perfmodel load`` with their equations, the steps of the pass, and commands for them.

    command  returns the command that explains a step, from the step's name
    host     how the host issues the pass, if its time is included; None: not included
    """
    numbers = map(number_text, found.numbers)
    return "\n\n".join([paragraph(found.title), *numbers, _steps(found), _commands(found, command, host)])


def _steps(found: LoadExplanation) -> str:
    rows = [
        [
            each.label,
            *(format_time(time) for time in (each.one_s, each.asked_s, each.full_s)),
            format_count(each.measured) if each.measured else "-",
            format_time(each.late_s) if each.measured else "-",
            format_time(each.late_p99_s) if each.measured else "-",
        ]
        for each in found.parts
    ]
    sums = [sum(getattr(each, key) for each in found.parts) for key in ("one_s", "asked_s", "full_s")]
    late = format_time(sum(each.late_s for each in found.parts))
    rows.append(["", *map(format_time, sums), "", late, ""])
    one, asked, full = (format_count(each) for each in found.requests)
    title = paragraph(
        f"The pass t(n) of {one} request, {asked} (a batch at this load) and {full} (a full batch); g: ranks "
        "that the mean time was measured on; what the slowest of G ranks adds, on average and at its p99"
    )
    headers = ["step", f"n = {one}", f"n = {asked}", f"n = {full}", "g", "slowest", "p99"]
    return f"{title}\n{table(headers, rows, left=(0,))}"


def _commands(found: LoadExplanation, command: Callable[[str], str], host: str | None) -> str:
    """The commands that explain the steps of a full batch; command, host  as in ``load_explanation_text``"""
    full = format_count(found.requests[2])
    words = f"The equation behind each time of the column n = {full}"
    if host is not None:
        words += f", of the device alone (the times above include the host, {host})"
    typed = [command(each.name.replace("_", "-")) for each in found.parts]
    if not all(typed):
        return paragraph(f"{words}: keep the plan in a file (perfmodel plan --out), and name it with --plan.")
    lines = [command_lines(each) for each in typed]
    return "\n".join([paragraph(f"{words}:"), *lines])
