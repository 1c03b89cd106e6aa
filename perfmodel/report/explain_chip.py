"""Text of ``perfmodel explain WAY --on-chip``."""

from __future__ import annotations

from perfmodel.onechip.explain import Part, WayExplained
from perfmodel.passes.terms import Term
from perfmodel.report.chip import LIMITS
from perfmodel.report.terminal import facts, paragraph, table
from perfmodel.units import format_time

_INDENT = 4


def way_text(found: WayExplained) -> str:
    """Title and time, the table, a section for each step, the sum, the values of the chip."""
    chip = found.chip
    title = f"{found.way.label} on one core of {chip.name}: {format_time(found.time_s)} for a whole batch"
    parts = [
        f"{paragraph(title)}\n{paragraph(f'ids {found.ids.name}; modelled, not measured')}",
        _numbers(found.shape),
        *(_part(number, part) for number, part in enumerate(found.parts, start=1)),
        _sum(found),
        _constants(found),
    ]
    return "\n\n".join(parts)


def _numbers(terms: tuple[Term, ...]) -> str:
    rows = [
        [term.symbol, term.text, "; ".join(w for w in (term.meaning, term.source) if w)] for term in terms
    ]
    return table(["term", "value", "meaning"], rows, left=(0, 1, 2))


def _part(number: int, part: Part) -> str:
    head = f"{number}. {part.title}: {format_time(part.time_s)}"
    if part.wait_s > 0 and part.busy_s > 0:
        head += (
            f" ({format_time(part.wait_s)} until the first has come, {format_time(part.busy_s)} after that)"
        )
    lines = [
        paragraph(head),
        paragraph(part.equation, indent=_INDENT),
        _numbers(part.terms),
        *(paragraph(note, indent=_INDENT) for note in part.notes),
        facts([("source", part.reference)], indent=_INDENT),
    ]
    return "\n".join(lines)


def _sum(found: WayExplained) -> str:
    whole = " + ".join(format_time(part.time_s) for part in found.parts)
    lines = [f"{whole} = {format_time(found.time_s)}, as in chips {found.chip.name} --ways"]
    if found.preload_s > 0:
        lines.append(f"rows that stay are copied once, in {format_time(found.preload_s)}, and not in a batch")
    lines.append(
        f"a batch of nothing else takes {format_time(found.batch_s)}, which {LIMITS[found.limit]} decides: "
        "what simulate --one-core predicts"
    )
    return "Together\n" + "\n".join(paragraph(line, indent=_INDENT) for line in lines)


def _constants(found: WayExplained) -> str:
    rows = [
        [term.symbol, term.text, term.evidence, f"{term.meaning}: {term.source}"] for term in found.constants
    ]
    return table(["value of the chip", "", "evidence", "meaning and source"], rows, left=(0, 1, 2, 3))
