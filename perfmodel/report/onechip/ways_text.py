"""Text of ``perfmodel chip ways`` and ``chip explain``: the fastest way to look tables up, and equations."""

from __future__ import annotations

import shlex

from perfmodel.onechip.explain import StepExplained, WayExplained
from perfmodel.onechip.ways import WaysMap
from perfmodel.onechip.work import Way
from perfmodel.passes.terms import Term
from perfmodel.report.explanation_text import where
from perfmodel.report.terminal import command_lines, facts, paragraph, table
from perfmodel.schema.chip import Chip, list_chips
from perfmodel.schema.distributions import UNIFORM, Distribution
from perfmodel.units import counted, format_count, format_time

_INDENT = 4
_KEPT = 4  # columns of a map: on the narrowest screen, the first column of every four remains


def ways_text(found: WaysMap) -> str:
    """A table of the fastest way to look a table up, by its rows and by the look-ups of a batch."""
    chip = found.chip
    columns, element = counted(found.dim, "column"), counted(int(found.element_bytes), "byte")
    shape = f"{columns} of {element}, {found.pooling:g} per bag"
    head = facts(
        [
            (chip.name, f"one core with a whole table; {shape}, ids {found.ids.name}"),
            ("cells", "fastest way; rows down, look-ups of a batch (whole bags) across"),
        ]
    )
    rows = [
        [format_count(float(m)), *(Way(way).label for way in line)]
        for m, line in zip(found.rows, found.best.tolist(), strict=True)
    ]
    between = tuple(range(2, len(found.look_ups) + 1, 2))
    further = tuple(range(3, len(found.look_ups) + 1, _KEPT))
    drop = [between, further]
    cells = table(["rows", *(format_count(float(n)) for n in found.look_ups)], rows, drop=drop)
    return "\n\n".join([head, cells, *_explained(found)])


def _explained(found: WaysMap) -> list[str]:
    """A line and the command that explains a number in the middle of the table; none without a command."""
    row, column = (size // 2 for size in found.best.shape)
    column -= column % _KEPT
    bags = max(1, round(float(found.look_ups[column]) / found.pooling))
    shape = float(found.rows[row]), found.dim, found.element_bytes, bags, found.pooling
    line = explain_line(found.chip, Way(int(found.best[row, column])), *shape, found.ids)
    title = paragraph("The equations of a cell, with the numbers in them:")
    return [f"{title}\n{line}"] if line else []


def explain_line(
    chip: Chip,
    way: Way,
    rows: float,
    dim: float,
    element_bytes: float,
    batch: int,
    pooling: float,
    ids: Distribution,
) -> str:
    """The ``perfmodel chip explain`` command for a way to look up a table of this shape.

    Limits: a chip file, a chip with changed values, or elements of neither 4 nor 2 bytes -> ""
    """
    dtype = {4.0: "", 2.0: " --dtype fp16"}.get(element_bytes)
    if chip.name not in list_chips() or chip.overrides or dtype is None:
        return ""
    words = f"perfmodel chip explain {way.label} --chip {chip.name} --rows {rows:.0f} --dim {dim:.0f}"
    words += f"{dtype} --batch {batch} --pooling {pooling:g}"
    return command_lines(words if ids == UNIFORM else f"{words} --distribution {shlex.quote(ids.name)}")


def way_text(found: WayExplained) -> str:
    """The time to look a table up in this way, and the equation and time of each of its steps."""
    chip = found.chip
    title = f"{found.way.label} on one core of {chip.name}: {format_time(found.time_s)} for a whole batch"
    parts = [
        f"{paragraph(title)}\n{paragraph(f'ids {found.ids.name}; modelled, not measured')}",
        _numbers(found.shape),
        *(_part(number, part) for number, part in enumerate(found.parts, start=1)),
        _sum(found),
        paragraph(f"perfmodel chips {chip.name} has each value of the chip with its source{_changed(chip)}."),
    ]
    return "\n\n".join(parts)


def _changed(chip: Chip) -> str:
    changed = ", ".join(f"{key} = {chip.quantity(key)}" for key in sorted(chip.overrides))
    return f"; assumed: {changed}" if changed else ""


def _numbers(terms: tuple[Term, ...]) -> str:
    rows = [
        [term.symbol, term.text, "; ".join(w for w in (term.meaning, term.source) if w)] for term in terms
    ]
    return table(["term", "value", "meaning"], rows, left=(0, 1, 2))


def _part(number: int, part: StepExplained) -> str:
    head = f"{number}. {part.title}: {format_time(part.time_s)}"
    if part.wait_s > 0 and part.busy_s > 0:
        head += (
            f" ({format_time(part.wait_s)} until the first arrives, {format_time(part.busy_s)} after that)"
        )
    lines = [
        paragraph(head),
        paragraph(part.computed.text, indent=_INDENT),
        _numbers(part.terms),
        *(paragraph(line, indent=_INDENT) for line in (*part.working, *part.notes)),
        facts([("source", part.computed.source)], indent=_INDENT),
        *where(part.computed),
    ]
    return "\n".join(lines)


def _sum(found: WayExplained) -> str:
    whole = " + ".join(format_time(part.time_s) for part in found.parts)
    lines = [f"{whole} = {format_time(found.time_s)}, as in chip ways --chip {found.chip.name}"]
    if found.preload_s > 0:
        lines.append(f"rows that stay are copied once, in {format_time(found.preload_s)}, not in each batch")
    return "Together\n" + "\n".join(paragraph(line, indent=_INDENT) for line in lines)
