"""Gather and pool on the CPU build against its specification, and how it is laid out on a GPU."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from oracles.kernels.gather_pool import check_bags, draw_tables  # noqa: E402
from recorded import assert_recorded  # noqa: E402

from calibrate.cuda import gather_pool as gp  # noqa: E402
from calibrate.cuda import kernel_launch as launching  # noqa: E402
from calibrate.cuda.cache import Kernel  # noqa: E402
from calibrate.cuda.device_tables import make_tables  # noqa: E402
from calibrate.cuda.gather_layout import GatherLayout, RowAccess, choose, choose_width, divide_row  # noqa: E402
from perfmodel.errors import BadInputError  # noqa: E402

CPU = torch.device("cpu")
LONG = GatherLayout(long=True, threads=64, run=1, blocks=2)
WIDTHS = ((50, 128), (3, 32), (1, 4), (40, 16), (9, 64), (20, 8))
CASES: dict[str, dict[str, Any]] = {
    "every-number-of-lanes": {"shapes": WIDTHS},
    "odd-columns-and-wide-rows": {"shapes": ((30, 33), (5, 260), (4, 7), (6, 1), (7, 2))},
    "fp16": {"shapes": ((30, 64), (9, 7), (5, 320)), "dtype": "fp16"},
    "long": {"shapes": WIDTHS[:2], "plan": LONG, "most": 70},
    "long-one-warp": {"shapes": WIDTHS[:2], "plan": replace(LONG, threads=32), "most": 70},
}
"""Tables (E, D), and how they are looked up."""


def kernels() -> list[Kernel]:
    """Those of all cases: where nothing is said, bags are short or long, as the numbers of a run fall."""
    rng, width = np.random.default_rng(0), RowAccess(1, 1, 2)
    of_cases = set[Kernel]()
    for case in CASES.values():
        tables, _ = draw_tables(case["shapes"], case.get("dtype", "fp32"), rng, CPU)
        for pooling in (1.0, 100.0):
            pool = gp.GatherPool(tables, 1, pooling, case.get("plan"))
            of_cases |= {item.kernel for item in pool.classes}
    of_huge_tables = {gp.gather_kernel(width, "fp16", long=long) for long in (False, True)}
    return sorted(of_cases | of_huge_tables)


pytestmark = pytest.mark.usefixtures("built")


def check(name: str, batch: int, seed: int, **more: Any) -> None:
    check_bags(batch=batch, seed=seed, **{"dtype": "fp32", **CASES[name], **more})


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("batch", [1, 13])
@pytest.mark.parametrize("wrong", [0.0, 0.2])
def test_bags_are_those_of_the_reference(name: str, batch: int, wrong: float, seed: int) -> None:
    """Also in whatever order threads run; ids out of range add nothing and are counted."""
    launching.cpu_order(kernels()[0], seed % 100)
    check(name, batch, seed, wrong=wrong)


@pytest.mark.parametrize("lengths", [[0] * 12, [1] * 12, [0, 0, 0, 40, 0, 1, 0, 0, 9, 8, 7, 0], [100] * 12])
@pytest.mark.parametrize("plan", [None, LONG])
def test_empty_short_and_long_bags(plan: GatherLayout | None, lengths: list[int], seed: int) -> None:
    check("long", 6, seed, plan=plan, lengths=np.array(lengths))


@pytest.mark.parametrize("name", ["every-number-of-lanes", "fp16"])
def test_an_output_that_is_not_aligned_is_written_narrowly(name: str, seed: int) -> None:
    check(name, 5, seed, guard=65)


@pytest.mark.parametrize("plan", [None, LONG])
@pytest.mark.parametrize(
    "offsets", [[0, 5, 3, 8], [-4, 2, 5, 8], [0, 2, 5, 2**40], [8, 5, 3, 0], [9, 9, 9, 9]]
)
def test_wrong_offsets_are_counted_and_read_nothing_outside(
    plan: GatherLayout | None, offsets: list[int]
) -> None:
    """Ids around the eight are of a row that is no number: a bag that read one would not be one either."""
    tables, _ = draw_tables(((4, 32),), "fp32", np.random.default_rng(1), CPU)
    tables.rows[0][3] = float("nan")
    pool, faults = gp.GatherPool(tables, 3, 3.0, plan), gp.make_faults(CPU)
    out = pool.make_out().fill_(float("nan"))
    ids = torch.full((24,), 3)
    ids[8:16] = 1
    pool(ids[8:16], torch.tensor(offsets), out, faults)
    assert bool(out.isfinite().all())
    bad = [i + 1 for i in range(3) if not 0 <= offsets[i] <= offsets[i + 1] <= 8]
    assert faults.tolist() == [0, -1, len(bad), bad[0]]


def test_faults_of_several_calls_add_up() -> None:
    tables, offsets = make_tables([torch.zeros(5, 32)]), torch.tensor([0, 3])
    pool, faults = gp.GatherPool(tables, 1, 3), gp.make_faults(CPU)
    for _ in range(2):
        pool(torch.tensor([0, 5, -1]), offsets, pool.make_out(), faults)
    assert faults.tolist() == [4, 1, 0, -1]
    narrow = [torch.zeros(5, dim).half() for dim in (8, 4)]  # in wide accesses too, of a row of 48 bytes
    assert [part.wide for part in gp.GatherPool(make_tables(narrow), 1).classes] == [True, True]
    wide = make_tables([torch.zeros(5, 20), torch.zeros(5, 32)])  # 16 bags on one multiprocessor
    assert [part.plan for part in gp.GatherPool(wide, 8, 1000).classes] == [GatherLayout(True, 32, 1, 6)]
    assert gp.GatherPool(tables, 0).make_out().shape == (0, 32)
    far = [torch.zeros(4).as_strided((1, 4), (2**stride, 1)) for stride in (29, 30)]  # 2 and 4 GiB apart
    two = make_tables([far[0], *tables.rows])
    assert gp.GatherPool(two, 2**30 - 1).batch == 2**30 - 1
    for these, batch in ((tables, -1), (two, 2**30), (make_tables([*tables.rows, *far]), 1)):
        with pytest.raises(BadInputError, match="too much, or less than nothing"):
            gp.GatherPool(these, batch)


@pytest.mark.parametrize(
    ("tables", "match"),
    [
        ([torch.zeros(5, 32).double()], r"torch.float64"),
        ([torch.zeros(5, 32), torch.zeros(5, 32).half()], r"cannot be looked up together"),
        ([torch.zeros(32, 5).T], r"has no rows"),
        ([torch.zeros(0, 32)], r"has no rows"),
        ([], r"no table"),
    ],
)
def test_tables_that_do_not_fit_are_refused(tables: list[Any], match: str) -> None:
    with pytest.raises(BadInputError, match=match):
        make_tables(tables)


@pytest.mark.parametrize("plan", [None, LONG])
def test_rows_beyond_2_to_the_32(plan: GatherLayout | None, tmp_path: Path) -> None:
    """4 billion and some rows of 2 bytes, in a file whose holes take no memory."""
    rows = 2**32 + 50
    table = torch.from_numpy(np.memmap(tmp_path / "rows", np.float16, "w+", shape=(rows, 1)))
    wanted = {3: 1.0, 2**31 + 3: 2.0, 2**32 + 3: 4.0, rows - 1: 8.0}
    for row, value in wanted.items():
        table[row] = value
    ids = torch.tensor([*wanted, rows, 2**40 + 3])
    pool = gp.GatherPool(make_tables([table]), 3, 2.0, plan)
    out, faults = pool.make_out(), gp.make_faults(CPU)
    pool(ids, torch.tensor([0, 1, 4, 6]), out, faults)
    assert out.flatten().tolist() == [1.0, 14.0, 0.0]
    assert faults.tolist() == [2, 4, 0, -1]


H200 = {"multiprocessors": 132, "blocks_at_once": 4 * 132}


def test_the_plan() -> None:
    """16 896 groups of 8 lanes run at once. As many bags: one each; 131 072 bags of 64: four turns of two.

    32 bags of 64 ids and 128-byte rows: 32 KiB x 132 are 33 792 rows, 1056 a bag. It has 64, 16 groups of
    4 rows: 128 lanes. 1024 groups are 62 lanes for each multiprocessor: blocks of 32.
    """
    layouts = [
        (False, 256, 1, 528),
        (False, 256, 2, 528),
        (True, 128, 1, 32),
        (False, 32, 1, 256),
        (False, 32, 1, 1),
    ]
    for bags, pooling, want in zip((16896, 131072, 32, 1024, 1), (64, 64, 64, 1, 4), layouts, strict=True):
        assert choose(bags, pooling, 128, RowAccess(8, 1, 16), **H200) == GatherLayout(*want)


@pytest.mark.parametrize("row_bytes", [4, 36, 128, 520, 2048, 5000])
def test_layouts_are_those_that_an_h200_was_measured_with(row_bytes: int) -> None:
    """Another one may be as right, and slower."""
    for element in (2, 4):
        shape, pieces = divide_row(row_bytes, choose_width(row_bytes))
        said = [pieces, shape.lanes, shape.chunks, shape.depth, shape.blocks]
        said += [shape.count_block_bytes(threads, element, long=threads > 99) for threads in (64, 128, 256)]
        for bags, pooling in product((0, 1, 40, 3000, 131_072), (0.5, 3, 64, 5000)):
            layout = choose(bags, pooling, row_bytes, shape, **H200)
            said += [10**6 * layout.long + layout.threads, layout.run, layout.blocks]
        assert_recorded(f"layouts {row_bytes} {element}", *said)
