"""Options of a table on a chip: against ids that are replayed, against one H200, and what they may not do."""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from recorded import assert_recorded

from perfmodel.chip.chip_plan import place_tables
from perfmodel.chip.look_up_options import GM, GM_UB, L1, L1_UB, LookUpOptions, TableOnChip
from perfmodel.engine.tables import PlanTables
from perfmodel.resources import data_path
from perfmodel.schema.machine import load_chip
from perfmodel.schema.workload import Table, TableSet, parse_distribution


def table(chip: str = "ascend-910", ids: str = "uniform", batch: int = 1024, **shape: Any) -> TableOnChip:
    one = Table(**{"name": "t", "rows": 10_000, "dim": 16, "pooling": 4.0, **shape})
    law = parse_distribution(ids)
    return place_tables(load_chip(chip), PlanTables.of(TableSet("set", (one,)), law), batch)[0]


def cut(of: TableOnChip, way: int, slices: int = 1, parts: int = 1, kept: float = 0) -> LookUpOptions:
    """The option of a table that is cut so."""
    cuts = (np.array([value]) for value in (way, slices, parts, float(kept)))
    return of.price(LookUpOptions(*cuts, *[np.zeros(1)] * 4))


def replay(skew: float, rows: int, number: int, held: int, seed: int) -> int:
    """Misses of a buffer that keeps the ``held`` rows that were asked for last."""
    p = np.arange(1, rows + 1) ** -skew
    buffer: OrderedDict[int, None] = OrderedDict()
    misses = 0
    for row in np.random.default_rng(seed).choice(rows, number, p=p / p.sum()).tolist():
        misses += row not in buffer
        buffer[row] = None
        buffer.move_to_end(row)
        if len(buffer) > held:
            buffer.popitem(last=False)
    return misses


@pytest.mark.parametrize(
    ("ids", "rows", "slices"), [("zipf:1.05", 3000, 8), ("uniform", 3000, 8), ("zipf:1.2", 500, 1)]
)
def test_rows_past_a_cache_of_a_core_are_those_of_a_replay(ids: str, rows: int, slices: int) -> None:
    """A multiprocessor's cache of 256 KB, with rows of 512 bytes, in three cases: hot, even, all rows fit."""
    asked = table("h100-sxm", ids, 4096, rows=rows, dim=128, pooling=8.0)
    number = 4096 // slices * 8
    share, _ = asked.count_past_core(np.array([float(number)]))
    held = int(asked.chip.value("core_cache_bytes") / asked.row)
    skew = parse_distribution(ids).skew
    replayed = [replay(skew, rows, number, held, seed) / number for seed in range(3)]
    assert share[0] == pytest.approx(np.mean(replayed), rel=0.03)


ONE_CORE = data_path("measurements", "kernels/h200-one_core.jsonl").read_text().splitlines()


@pytest.mark.parametrize("ids", ["uniform", "one row"])
@pytest.mark.parametrize(("way", "name"), [(GM, "GM"), (L1, "L1"), (GM_UB, "GM-UB")])
def test_ways_take_what_one_h200_measured(ids: str, way: int, name: str) -> None:
    """26 tables, every core has 31 of 4096 bags of each; in L1 tables that do not fit are gathered."""
    run = next(line for line in map(json.loads, ONE_CORE) if (line["ids"], line["plan"]) == (ids, name))
    rows = enumerate(run["tables"])
    tables = [Table(name=f"t{k}", rows=int(m), dim=int(d), pooling=pool) for k, (m, d, pool) in rows]
    laws = parse_distribution("one-row" if ids == "one row" else ids)
    chip = load_chip("h200-sxm")
    time_s = 0.0
    on_chip = place_tables(chip, PlanTables.of(TableSet("measured", tuple(tables)), laws), run["batch"])
    ways = {item[1]: item[2] for item in run["items"]}
    for number, asked in enumerate(on_chip):
        used = way if ways[number] == way else GM
        time_s += float(cut(asked, used, 132, kept=asked.rows * (used == L1)).piece_ps[0]) * 1e-12
    assert time_s == pytest.approx(run["time_s"], rel=0.25)


SHAPES: tuple[dict[str, Any], ...] = (
    {"rows": 1, "pooling": 1.0, "batch": 7},
    {"rows": 3000, "dim": 33, "pooling": 2.5},
    {"rows": 20_000, "pooling": 30.0, "batch": 100},
    {"rows": 2_000_000, "dim": 128, "batch": 5000},
)


@pytest.mark.parametrize("ids", ["uniform", "zipf:1.05", "one-row"])
@pytest.mark.parametrize("chip", ["ascend-910", "h100-sxm"])
def test_options_are_those_that_were_listed_before(chip: str, ids: str) -> None:
    """Whole picoseconds and bytes, each column weighted by the place in it."""
    for number, shape in enumerate(SHAPES):
        asked, said = table(chip, ids, **shape), []
        for o in (asked.options, asked.symmetric):
            columns = [values.reshape(o.way.size, -1).T for values in vars(o).values()]
            finite = np.nan_to_num(np.vstack([*columns, o.alone_ps]), posinf=7)
            said += (finite @ np.arange(1, o.way.size + 1)).tolist()
        assert_recorded(f"options {chip} {ids} {number}", *said)


def test_more_slices_never_make_a_piece_longer_and_more_rows_kept_never_either() -> None:
    asked = table(ids="zipf:1.05", rows=1_000_000)
    slices = [float(cut(asked, GM, number).piece_ps[0]) for number in (1, 2, 4, 8, 16, 32)]
    assert slices == sorted(slices, reverse=True)
    kept = [float(cut(asked, L1_UB, 1, kept=rows).piece_ps[0]) for rows in (1, 10, 100, 1000)]
    assert kept == sorted(kept, reverse=True)


def test_what_does_not_fit_takes_for_ever() -> None:
    large = table(rows=20_000)  # 1.28 MB, more than the local buffer of 1 MiB
    assert cut(large, L1, kept=16_384).piece_ps[0] < cut(large, L1, kept=16_385).piece_ps[0] == np.inf
    assert cut(large, L1, parts=2, kept=10_000).piece_ps[0] < np.inf
    assert np.isfinite(large.options.piece_ps).all()
    wide = table(dim=65_536)  # a row of 256 KiB: not two chunks and a bag in the vector buffer
    assert not np.isin(wide.options.way, (GM_UB, L1_UB)).any()
    single = cut(table(dim=20_000), GM_UB)  # rows of 80 kB: two chunks and a bag, so a pass for each bag
    read_s = 1024 * 10_000 * 80_000 / load_chip("ascend-910").value("cache_bytes_per_s")
    assert single.piece_ps[0] < np.inf and single.shared_ps[0, 1] * 1e-12 == pytest.approx(read_s)


@pytest.mark.parametrize("chip", ["ascend-910", "h100-sxm"])
def test_a_buffer_that_stays_is_filled_once(chip: str) -> None:
    resident = cut(table(chip, rows=1000), L1, kept=1000)
    persists = load_chip(chip).buffers.persist
    assert (float(resident.held_bytes[0]) > 0) == persists
    moved = 1000 * 64 / load_chip(chip).value("gm_bytes_per_s") * 1e12
    empty = cut(table(chip, rows=1000), GM_UB)
    assert (float(resident.shared_ps[0, 0]) > float(empty.shared_ps[0, 0]) - moved / 2) == (not persists)


@pytest.mark.parametrize(
    ("slices", "batch", "reads"), [(1, 2340, 1), (1, 2341, 2), (2, 4680, 2), (2, 9360, 4)]
)
@pytest.mark.parametrize("rows", [2**19, 600_000])
def test_a_table_streams_once_for_each_slice_and_pass(slices: int, batch: int, reads: int, rows: int) -> None:
    """A pass has 2340 bags of 84 bytes, beside two chunks of 32 KiB, in 256 KiB. A bag moves 40 + 64 bytes.

    The smaller table fills the cache of 32 MiB; the larger one does not fit: the memory is read each time.
    """
    streamed, chip = cut(table(rows=rows, batch=batch), GM_UB, slices), load_chip("ascend-910")
    memory_bytes = 64 * rows * (reads if rows == 600_000 else 1) + 104 * batch
    loads_s = memory_bytes / chip.value("gm_bytes_per_s"), 64 * rows * reads / chip.value("cache_bytes_per_s")
    assert streamed.shared_ps[0] * 1e-12 == pytest.approx(loads_s, rel=1e-6)
