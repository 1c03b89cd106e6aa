"""The answer of ``perfmodel project --sharding all``: every way to shard, and which wins at which size."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perfmodel.passes.schemes import ROW_WISE
from perfmodel.plan.as_projection import Compared, winner
from perfmodel.plan.sizes import Size
from perfmodel.project import Projection
from perfmodel.report.projection_text import footer, gpu_line, short_label
from perfmodel.report.terminal import paragraph, table
from perfmodel.units import format_bytes, format_count, format_fraction, format_ratio, format_time


def shardings_text(
    base: Projection,
    found: Sequence[Compared],
    sizes: Sequence[Size],
    calibration_file: str | None = None,
    again: Callable[[Sequence[str]], str] | None = None,
) -> str:
    """The whole screen; ``base`` is the row-wise projection of the same question."""
    best = winner(found)
    parts = [headline(base, best), gpu_line(base).split("  row-wise shards")[0].split("\nMemory")[0].rstrip()]
    parts.append(sharding_table(found))
    if sizes:
        parts.append(sizes_table(sizes))
    assert best.answer is not None
    parts.append(footer(best.answer, calibration_file, again))
    return "\n\n".join(parts)


def headline(base: Projection, best: Compared) -> str:
    """The winner in one sentence, against row-wise and against the local look-up."""
    if best.answer is None or base.gpus == 1:
        return paragraph("The tables fit on one GPU, so nothing is sharded.")
    ratio = base.time_s / best.answer.time_s
    than = "" if best.way == ROW_WISE else f", {format_ratio(ratio)} faster than {ROW_WISE}"
    where, time = f"{format_count(base.gpus)} GPUs", format_time(best.answer.time_s)
    first = f"{best.way} wins on {where}: {time} per batch{than}."
    if not best.fits:
        first = f"No sharding fits {where}: {best.way} would take {time} per batch."
    low, high = best.answer.band
    second = (
        f"     {format_ratio(best.answer.slowdown)} slower than if the tables fitted in one GPU "
        f"(band {format_ratio(low)} – {format_ratio(high)})"
    )
    return f"{paragraph(first)}\n{paragraph(second)}"


def sharding_table(found: Sequence[Compared]) -> str:
    """One line a way, the fastest first; below them those that are impossible, and why."""
    possible = sorted((c for c in found if c.answer), key=lambda c: c.answer.time_s if c.answer else 0.0)
    rows = [_row(each) for each in possible]
    headers = ["sharding", "parts", "time", "slowdown", "95 % band", "memory/GPU", "longest step"]
    text = table(headers, rows, left=(0, 1, 6), drop=(4, 1))
    rest = [[each.way, each.why] for each in found if each.answer is None]
    if rest:
        text += "\n\nNot possible\n" + table(["", ""], rest, left=(0, 1))
    return text


def _row(each: Compared) -> list[str]:
    answer, longest = each.answer, each.limiting
    assert answer is not None and longest is not None
    low, high = answer.band
    return [
        each.way,
        parts_text(each),
        format_time(answer.time_s),
        format_ratio(answer.slowdown),
        f"{format_ratio(low)} – {format_ratio(high)}",
        format_bytes(each.memory_bytes, binary=False) + ("" if each.fits else " (too much)"),
        f"{short_label(longest)} {format_fraction(longest.share)}",
    ]


def parts_text(each: Compared) -> str:
    """``8 × 16``: row parts and column parts of a table."""
    if each.alike is None:
        return ""
    scheme = each.alike.scheme
    return "copies" if scheme.parts == 0 else f"{scheme.row_parts} × {scheme.col_parts}"


def sizes_table(sizes: Sequence[Size]) -> str:
    """Which way wins at which size of the tables, one line each."""
    rows = []
    for size in sizes:
        best, base = size.best, size.base
        low, high = best.answer.band if best.answer else (1.0, 1.0)
        second = size.second
        rows.append(
            [
                format_bytes(size.table_bytes, binary=False),
                format_count(base.gpus),
                "fits one GPU" if base.gpus == 1 else best.way,
                parts_text(best) if base.gpus > 1 else "",
                format_ratio(best.answer.slowdown if best.answer else 1.0),
                f"{format_ratio(low)} – {format_ratio(high)}" if base.gpus > 1 else "",
                format_ratio(base.slowdown),
                f"{second.way} {format_ratio(second.answer.slowdown)}" if second and second.answer else "",
            ]
        )
    headers = ["tables", "GPUs", "wins", "parts", "slowdown", "95 % band", ROW_WISE, "next best"]
    title = "Which wins where (as many GPUs as each size needs)"
    return f"{title}\n" + table(headers, rows, left=(2, 3, 7), drop=(5, 3))
