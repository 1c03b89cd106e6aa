"""``explain load`` as a screen: each number with its equation, and the steps of the pass."""

from __future__ import annotations

from perfmodel.report.explanation_text import where
from perfmodel.report.terminal import paragraph, sides, table
from perfmodel.service.explanation import LoadExplanation, LoadNumber
from perfmodel.units import format_count, format_time

_INDENT = 4


def load_explanation_text(found: LoadExplanation) -> str:
    """Title, the numbers in the order of ``load``, the steps of the pass with their slow ranks."""
    parts = [paragraph(found.title), *map(_number, found.numbers), _steps(found)]
    return "\n\n".join(parts)


def _number(each: LoadNumber) -> str:
    lines = [sides(each.name, each.text)]
    lines.append(paragraph(each.equation.text, indent=_INDENT))
    lines += [paragraph(line, indent=_INDENT) for line in each.working]
    return "\n".join([*lines, *where(each.equation)])


def _steps(found: LoadExplanation) -> str:
    rows = [
        [
            each.label,
            *(format_time(time) for time in (each.one_s, each.asked_s, each.full_s)),
            format_count(each.measured) if each.measured else "-",
            format_time(each.late_s) if each.measured else "-",
            format_time(each.late_p99_s) if each.measured else "-",
            f"explain {each.name.replace('_', '-')}",
        ]
        for each in found.parts
    ]
    sums = [sum(getattr(each, key) for each in found.parts) for key in ("one_s", "asked_s", "full_s")]
    late = format_time(sum(each.late_s for each in found.parts))
    rows.append(["", *map(format_time, sums), "", late, "", ""])
    one, asked, full = (format_count(each) for each in found.requests)
    title = paragraph(
        f"The pass t(n) of {one} request, {asked} (a batch at this load) and {full} (a full batch); g: ranks "
        "that the mean time was measured on; what the slowest of G ranks adds, on average and at its p99"
    )
    headers = ["step", f"n = {one}", f"n = {asked}", f"n = {full}", "g", "slowest", "p99", ""]
    return f"{title}\n{table(headers, rows, left=(0, 7), drop=(7,))}"
