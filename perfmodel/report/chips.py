"""Text of ``perfmodel chips`` and ``perfmodel simulate``."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import numpy as np

from perfmodel.onechip.replay import MOST_REQUESTS, Replayed
from perfmodel.onechip.ways import WaysMap
from perfmodel.onechip.work import WAYS, Way
from perfmodel.report.terminal import command_lines, facts, paragraph, table
from perfmodel.schema.chip import CHIP_KEYS, Chip, list_chips
from perfmodel.schema.distributions import UNIFORM, Distribution
from perfmodel.units import counted, format_bytes, format_count, format_time

_LETTERS = {Way.GM: "GM", Way.L1: "L1", Way.GM_UB: "GM-UB", Way.L1_UB: "L1-UB"}


def chips_text(chips: Sequence[Chip]) -> str:
    """One line a chip."""
    rows = []
    for chip in chips:
        cache = chip.value("cache_bytes")
        rows.append(
            [
                chip.name,
                str(chip.cores),
                format_bytes(chip.value("local_bytes")),
                "the same" if chip.buffers.shared else format_bytes(chip.value("vector_bytes")),
                "stay" if chip.buffers.persist else "copied anew",
                str(chip.quantity("gm_bytes_per_s")),
                format_bytes(cache, binary=False) if cache else "none",
            ]
        )
    headers = ["chip", "cores", "local buffer", "vector buffer", "its rows", "memory", "cache"]
    return "\n\n".join(
        [
            table(headers, rows, left=(0, 4), drop=(4, 6)),
            facts([(chip.name, chip.title) for chip in chips], indent=1),
            paragraph(
                "perfmodel chips NAME shows every value with its source; "
                "--ways where each way to look up wins."
            ),
        ]
    )


def chip_text(chip: Chip) -> str:
    """Every value of a chip, with unit, evidence, source and reason."""
    parts = [paragraph(f"{chip.name}   {chip.title}")]
    if chip.notes:
        parts.append(paragraph(chip.notes, indent=1))
    memories = "one memory" if chip.buffers.shared else "two memories"
    rows_do = "stay from batch to batch" if chip.buffers.persist else "are copied anew for every batch"
    parts.append(facts([("buffers", f"{memories}; rows {rows_do}. {chip.buffers.source}.")], indent=1))
    rows = []
    for key in CHIP_KEYS:
        quantity = chip.quantity(key)
        rows.append([key, str(quantity), str(quantity.evidence), f"{quantity.source}. {quantity.why}"])
    parts.append(table(["value", "", "evidence", "source and reason"], rows, left=(0, 2, 3)))
    return "\n\n".join(parts)


def ways_text(found: WaysMap) -> str:
    """The map as text: the fastest way of each cell, and from where each beats GM."""
    chip = found.chip
    columns, element = counted(found.dim, "column"), counted(int(found.element_bytes), "byte")
    shape = f"{columns} of {element}, {found.pooling:g} a bag"
    head = facts(
        [
            (chip.name, f"one core that has a whole table; {shape}, ids {found.ids.name}"),
            ("cells", "fastest way; rows down, look-ups of a batch (whole bags) across"),
        ]
    )
    rows = [
        [format_count(float(m)), *(_LETTERS[Way(way)] for way in line)]
        for m, line in zip(found.rows, found.best.tolist(), strict=True)
    ]
    between = tuple(range(2, len(found.look_ups) + 1, 2))
    cells = table(["rows", *(format_count(float(n)) for n in found.look_ups)], rows, drop=[between])
    crossing = [
        [format_count(float(m)), *(_crossing(float(found.crossing[way, at])) for way in WAYS[1:])]
        for at, m in enumerate(found.rows)
    ]
    below = table(["rows", *(_LETTERS[way] for way in WAYS[1:])], crossing)
    return "\n\n".join(
        [
            head,
            cells,
            paragraph(
                "look-ups from which a way beats GM, in closed form, without passes and cache; "
                "never: nowhere in the map above"
            )
            + "\n"
            + below,
            *_explained(found),
        ]
    )


def _explained(found: WaysMap) -> list[str]:
    """The line that explains the fastest way of the cell in the middle."""
    row, column = (size // 2 for size in found.best.shape)
    bags = max(1, round(float(found.look_ups[column]) / found.pooling))
    shape = float(found.rows[row]), found.dim, found.element_bytes, bags, found.pooling
    line = explain_line(found.chip, Way(int(found.best[row, column])), *shape, found.ids)
    return [f"The equations of a cell, with the numbers in them:\n{line}"] if line else []


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
    """``perfmodel explain`` of a way, to copy. Limits: a chip of a file, or a changed one -> nothing"""
    dtype = {4.0: "", 2.0: " --dtype fp16"}.get(element_bytes)
    if chip.name not in list_chips() or chip.overrides or dtype is None:
        return ""
    words = f"perfmodel explain {way.label} --on-chip {chip.name} --rows {rows:.0f} --dim {dim:.0f}{dtype}"
    words += f" --batch {batch} --pooling {pooling:g}"
    return command_lines(words if ids == UNIFORM else f"{words} --distribution {shlex.quote(ids.name)}")


def _crossing(look_ups: float) -> str:
    if np.isnan(look_ups):
        return "too large"
    if np.isinf(look_ups):
        return "never"
    return format_count(float(np.ceil(look_ups))) if look_ups >= 1 else "always"


def simulated_text(head: Sequence[tuple[str, str]], found: Sequence[Replayed], notes: Sequence[str]) -> str:
    """Predicted beside simulated times."""
    rows = []
    for one in found:
        seen = one.simulated
        rows.append(
            [
                one.what,
                one.way,
                format_time(one.predicted_s) if np.isfinite(one.predicted_s) else "too large",
                format_time(seen.seconds) if seen else "not simulated",
                f"{100 * one.error:+.1f} %" if seen else "",
                format_bytes(seen.gm_bytes, binary=False) if seen else "",
                f"{100 * seen.hits / seen.requests:.0f} %" if seen and seen.requests else "",
            ]
        )
    headers = ["", "way", "predicted", "simulated", "error", "memory moved", "from cache"]
    text = table(headers, rows, left=(0, 1), drop=(6, 5))
    errors = np.array([abs(one.error) for one in found if one.simulated is not None])
    said = [*notes, *_why_not(found)]
    if errors.size > 1:
        said.insert(
            0,
            f"error: median {100 * np.median(errors):.1f} %, nine of ten within "
            f"{100 * np.quantile(errors, 0.9):.1f} %, {errors.size} simulated.",
        )
    return "\n\n".join([facts(list(head)), text, *(paragraph(note) for note in said)])


def _why_not(found: Sequence[Replayed]) -> list[str]:
    """Why some were not simulated."""
    left = [one for one in found if one.simulated is None]
    said = []
    if any(np.isinf(one.predicted_s) for one in left):
        said.append("Too large: the buffers of a core do not hold what that way keeps in them.")
    if any(np.isfinite(one.predicted_s) for one in left):
        most = format_count(float(MOST_REQUESTS))
        said.append(f"Not simulated: more than {most} requests would go out; give a smaller --batch.")
    return said
