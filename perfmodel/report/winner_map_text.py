"""Text of the map of ``perfmodel alternatives``: which alternative wins where, and where that changes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from perfmodel.passes.schemes import ROW_WISE, SHARDINGS, SHORT
from perfmodel.plan.other_ways.map_cells import CANNOT_TELL, HBM, Crossing, MapCell
from perfmodel.report.terminal import facts, page_width, paragraph, table
from perfmodel.units import counted, format_bytes, format_count

_WORDS = (
    ((HBM,), "rows in the HBM"),
    (("host", "GH200", "GB200"), "rows read in host memory, in place or through a cache"),
    (("cached",), "host memory through a cache in HBM"),
    (("SSD",), "rows on SSDs, through a cache in HBM"),
    (tuple(SHORT.values()), f"{ROW_WISE} with another exchange"),
    *(((name,), each.label) for name, each in SHARDINGS.items()),
)
"""The meaning of words in the map."""


def map_title(of_all: bool) -> str:
    """The title of the map. of_all  whether a batch is over all GPUs together, not per GPU"""
    by = "samples in a batch" if of_all else "samples per GPU in a batch"
    return f"The alternative with the fewest GPU-hours (whole machines), by {by}"


def map_table(cells: Sequence[MapCell], of_all: bool) -> str:
    """A table of winners by GPU-hours: a row for each table size and kind of ids, a column for each batch.

    of_all  as in ``map_title``.  On a narrow terminal it becomes a list
    """
    batches = sorted({cell.batch for cell in cells})
    keys = sorted(dict.fromkeys((cell.table_bytes, cell.ids) for cell in cells), key=lambda key: key[0])
    of = {(cell.table_bytes, cell.ids, cell.batch): cell for cell in cells}
    rows = []
    for size, ids in keys:
        row = [_cell(of[size, ids, batch]) for batch in batches]
        rows.append([format_bytes(size, binary=False) if size else "", ids, *row])
    headers = ["tables", "ids", *(format_count(batch) for batch in batches)]
    title = paragraph(map_title(of_all))
    widest = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    if sum(widest) + 2 * len(widest) <= page_width():
        text = table(headers, rows, left=tuple(range(len(headers))))
    else:
        text = facts([(", ".join(filter(None, row[:2])), _runs(batches, row[2:])) for row in rows], indent=1)
    return f"{title}\n{text}\n{paragraph(legend(cells))}"


def legend(cells: Sequence[MapCell]) -> str:
    """The meaning of each short name in the map, and of marks where the winner is uncertain."""
    shown = {word for cell in cells for word in cell.shown.split()}
    told = [(" and ".join(word for word in words if word in shown), meaning) for words, meaning in _WORDS]
    network = "; GH200: on InfiniBand" if "GH200" in shown else ""
    words = "; ".join(f"{who}: {meaning}" for who, meaning in told if who)
    unsure = ""
    if any(cell.as_good for cell in cells):
        unsure = f"A or B, and {CANNOT_TELL} of more: nobody can say which takes fewer GPU-hours; "
        unsure += "a place alone: nor with which exchange; "
    return f"{unsure}{words}{network}. All tables are cut alike."


def _runs(batches: Sequence[int], winners: Sequence[str]) -> str:
    """Winners by ranges of batches: ``64 – 1 024: host; 4 096 – 16 384: sparse``."""
    runs = []
    for winner, group in itertools.groupby(zip(batches, winners, strict=True), key=lambda pair: pair[1]):
        at = [format_count(batch) for batch, _ in group]
        runs.append(f"{at[0]} – {at[-1]}: {winner}" if len(at) > 1 else f"{at[0]}: {winner}")
    return "; ".join(runs)


def _cell(cell: MapCell) -> str:
    return cell.shown or "none"


def crossing_lines(found: Sequence[Crossing]) -> str:
    """Lines with the batch at which the winner changes, for each table size and kind of ids."""
    lines = [crossing_words(each) for each in found]
    title = paragraph(
        "Crossings of GPU-hours in the middle of their bands, with the GPUs at work (a + b S = a′ + b′ S)"
    )
    return f"{title}\n{facts(lines, indent=1)}" if lines else ""


def crossing_words(each: Crossing) -> tuple[str, str]:
    """A label (table size, ids), and the batch at which an alternative overtakes another."""
    size = f"{format_bytes(each.table_bytes, binary=False)}, " if each.table_bytes else ""
    low, high = each.between
    inside = low <= each.batch <= high
    apart = f"between {format_count(low)} and {format_count(high)}"
    at = f"at about {format_count(each.batch)}" if inside else apart
    first, then = (counted(gpus, "GPU") for gpus in each.gpus)
    return f"{size}{each.ids}", f"{each.then} ({then}) overtakes {each.first} ({first}) {at} samples"
