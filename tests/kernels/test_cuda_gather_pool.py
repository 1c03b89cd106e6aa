"""Gather and pool on the CPU build against its specification, and what the compiler makes of it for GPUs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from gather_kernels import gpu_code, others, variants  # noqa: E402
from oracles.kernels import gather_pool as reference  # noqa: E402

from calibrate.cuda import gather_pool as gp  # noqa: E402
from calibrate.cuda import launch as launching  # noqa: E402
from calibrate.cuda.device_tables import DeviceTables, make_tables, to_int8  # noqa: E402
from calibrate.cuda.gather_layout import BYTES_IN_FLIGHT, GatherLayout, RowAccess, choose, shape_of  # noqa: E402
from calibrate.cuda.gather_variants import (  # noqa: E402
    ASSUMED,
    TABLE_NAME,
    VARIANTS,
    GatherShape,
    GatherVariant,
    TimedVariant,
    write_table,
)  # fmt: skip
from calibrate.cuda.gpu_build import Usage  # noqa: E402
from calibrate.cuda.kernel import Kernel  # noqa: E402
from perfmodel.errors import BadInputError  # noqa: E402

CPU = torch.device("cpu")
TYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
ROUNDING = {"fp32": 1e-5, "fp16": 1e-3, "bf16": 8e-3}
LONG = GatherLayout(long=True, threads=64, run=1, blocks=2)
GUARD = 64
KERNELS = [*variants(), *others()]


PLAIN = gp.GatherOptions()


@dataclass(frozen=True)
class Case:
    """Tables (E, D) of one type, and how they are looked up."""

    tables: tuple[tuple[int, int], ...]
    dtype: str = "fp32"
    options: gp.GatherOptions = PLAIN
    plan: GatherLayout | None = None
    most: int = 12  # ids of a bag
    variant: GatherVariant = ASSUMED


WIDTHS = ((50, 128), (3, 32), (1, 4), (40, 16), (9, 64), (20, 8))
CASES = {
    "every-number-of-lanes": Case(WIDTHS),
    "ids-of-32-bits": Case(WIDTHS[:2], options=gp.GatherOptions(id_bytes=4)),
    "odd-columns-and-wide-rows": Case(((30, 33), (5, 260), (4, 7), (6, 1), (7, 2))),
    "fp16": Case(((30, 64), (9, 7), (5, 320)), "fp16", gp.GatherOptions(out_dtype="fp16")),
    "bf16": Case(((30, 64), (9, 6)), "bf16", gp.GatherOptions(out_dtype="bf16")),
    "int8": Case(((30, 64), (9, 33), (5, 12), (8, 24), (8, 600)), "int8"),
    "int8-to-fp16": Case(((30, 64), (9, 12)), "int8", gp.GatherOptions(out_dtype="fp16")),
    "table-by-table": Case(((30, 32), (5, 32)), options=gp.GatherOptions(layout="table")),
    "long": Case(WIDTHS[:2], plan=LONG, most=70),
    "long-one-warp": Case(WIDTHS[:2], plan=replace(LONG, threads=32), most=70),
    "long-int8": Case(((30, 64), (9, 12)), "int8", plan=LONG, most=70),
}
EIGHT = GatherVariant(near=False, accesses=8, half=True)
"""On a CPU variants differ in the accesses on their way alone; all cases above have 4."""
CASES |= {
    "eight-accesses": Case(((30, 256), (5, 32), (4, 7)), variant=EIGHT, most=20),
    "eight-accesses-long": Case(WIDTHS[:2], plan=LONG, most=70, variant=EIGHT),
}


def tables_of(case: Case, rng: Any) -> tuple[DeviceTables, list[Any]]:
    """Tables, and their values as the reference sees them."""
    made = [torch.from_numpy(rng.standard_normal(shape).astype(np.float32)) for shape in case.tables]
    if case.dtype == "int8":
        rows = [to_int8(one, 16 if index % 2 == 0 else 1) for index, one in enumerate(made)]
        dims = [dim for _, dim in case.tables]
        return make_tables(rows, dims), [
            reference.int8_values(one.numpy(), dim) for one, dim in zip(rows, dims, strict=True)
        ]
    made = [one.to(TYPES[case.dtype]) for one in made]
    return make_tables(made), [one.double().numpy() for one in made]


def prepared(case: Case, tables: DeviceTables, batch: int, pooling: float = 3.0) -> gp.GatherPool:
    return gp.GatherPool(tables, batch, case.options, pooling, case.plan, case.variant)


def kernels() -> list[Kernel]:
    """Those of all cases: where nothing is said, bags are short or long, as the numbers of a run fall."""
    rng, width = np.random.default_rng(0), RowAccess(1, 1, 2)
    of_cases = {
        each.kernel
        for case in CASES.values()
        for pooling in (1.0, 100.0)
        for each in prepared(case, tables_of(case, rng)[0], 1, pooling).classes
    }
    of_huge_tables = {gp.GatherOptions().kernel(width, "fp16", long=long) for long in (False, True)}
    return sorted(of_cases | of_huge_tables)


pytestmark = pytest.mark.usefixtures("built")


@pytest.fixture
def seed() -> int:
    return int.from_bytes(os.urandom(4), "little")


def looked_up(
    case: Case, batch: int, seed: int, guard: int = GUARD, wrong: float = 0.0, lengths: Any = None
) -> tuple[Any, Any, list[int], list[int]]:
    """Bags, those of the reference, faults, positions of wrong ids; around the output nothing is written."""
    rng = np.random.default_rng(seed)
    tables, values = tables_of(case, rng)
    bags = batch * len(values)
    if lengths is None:
        lengths = rng.integers(0, case.most + 1, bags) * (rng.random(bags) < 0.7)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ids = np.concatenate(
        [rng.integers(0, len(values[bag // batch]), lengths[bag]) for bag in range(bags)] or [[]]
    )
    bad = rng.random(len(ids)) < wrong
    ids[bad] = rng.choice([-1, -(2**31), 2**31 - 1, 50, 51], int(bad.sum()))
    kind = {4: np.int32, 8: np.int64}[case.options.id_bytes]
    kernel = prepared(case, tables, batch, len(ids) / max(1, bags))
    shape = kernel.new_out().shape
    memory = torch.full((shape.numel() + 2 * guard,), 97.0, dtype=kernel.new_out().dtype)
    out, faults = memory[guard : guard + shape.numel()].view(shape), gp.new_gather_faults(CPU)
    kernel(torch.from_numpy(ids.astype(kind)), torch.from_numpy(offsets.astype(kind)), out, faults)
    assert bool((memory[:guard] == 97).all() and (memory[guard + shape.numel() :] == 97).all()), seed
    wanted = reference.gather_pool(values, batch, ids, offsets)
    joined = np.concatenate(wanted, 1) if case.options.layout == "sample" else np.stack(wanted)
    return (
        out.double().numpy(),
        joined,
        faults.tolist(),
        reference.wrong_ids([len(v) for v in values], batch, ids, offsets),
    )


def close(case: Case, got: Any, want: Any, seed: int) -> None:
    rounding = ROUNDING[case.options.out_dtype]
    np.testing.assert_allclose(got, want, rtol=rounding, atol=5e-5 + rounding, err_msg=f"seed {seed}")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("batch", [1, 13])
def test_bags_are_those_of_the_reference(name: str, batch: int, seed: int) -> None:
    got, want, faults, _ = looked_up(CASES[name], batch, seed)
    close(CASES[name], got, want, seed)
    assert faults == [0, -1, 0, -1], seed


@pytest.mark.parametrize("name", ["every-number-of-lanes", "int8", "long"])
@pytest.mark.parametrize("order", [1, 12345])
def test_in_whatever_order_threads_run(name: str, order: int, seed: int) -> None:
    kernel = prepared(CASES[name], tables_of(CASES[name], np.random.default_rng(0))[0], 1).classes[0].kernel
    launching.cpu_order(kernel, order)
    try:
        got, want, _, _ = looked_up(CASES[name], 9, seed)
    finally:
        launching.cpu_order(kernel, 0)
    close(CASES[name], got, want, seed)


@pytest.mark.parametrize("lengths", [[0] * 12, [1] * 12, [0, 0, 0, 40, 0, 1, 0, 0, 9, 8, 7, 0], [100] * 12])
@pytest.mark.parametrize("name", ["ids-of-32-bits", "int8-to-fp16", "long"])
def test_empty_short_and_long_bags(name: str, lengths: list[int], seed: int) -> None:
    got, want, faults, _ = looked_up(CASES[name], 6, seed, lengths=np.array(lengths))
    close(CASES[name], got, want, seed)
    assert faults[0] == faults[2] == 0


@pytest.mark.parametrize("name", ["every-number-of-lanes", "ids-of-32-bits", "int8", "long", "long-int8"])
def test_ids_out_of_range_add_nothing_and_are_counted(name: str, seed: int) -> None:
    got, want, faults, wrong = looked_up(CASES[name], 13, seed, wrong=0.2)
    close(CASES[name], got, want, seed)
    assert faults == [len(wrong), wrong[0], 0, -1], seed


@pytest.mark.parametrize("name", ["every-number-of-lanes", "fp16", "int8-to-fp16"])
def test_an_output_that_is_not_aligned_is_written_narrowly(name: str, seed: int) -> None:
    got, want, _, _ = looked_up(CASES[name], 5, seed, guard=GUARD + 1)
    close(CASES[name], got, want, seed)


@pytest.mark.parametrize("plan", [None, LONG])
@pytest.mark.parametrize(
    "offsets", [[0, 5, 3, 8], [-4, 2, 5, 8], [0, 2, 5, 2**40], [8, 5, 3, 0], [9, 9, 9, 9]]
)
def test_wrong_offsets_are_counted_and_read_nothing_outside(
    plan: GatherLayout | None, offsets: list[int]
) -> None:
    """Ids around the eight are of a row that is no number: a bag that read one would not be one either."""
    case = Case(((4, 32),), plan=plan)
    tables, _ = tables_of(case, np.random.default_rng(1))
    tables.rows[0][3] = float("nan")
    kernel, faults = prepared(case, tables, 3), gp.new_gather_faults(CPU)
    out = kernel.new_out().fill_(float("nan"))
    ids = torch.full((24,), 3)
    ids[8:16] = 1
    kernel(ids[8:16], torch.tensor(offsets), out, faults)
    assert bool(out.isfinite().all())
    bad = [i + 1 for i in range(3) if not 0 <= offsets[i] <= offsets[i + 1] <= 8]
    assert faults.tolist() == [0, -1, len(bad), bad[0]]


def test_it_says_what_torch_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    table, lengths = torch.randn(50, 32), torch.from_numpy(rng.integers(0, 9, 20))
    offsets = gp.offsets_of(lengths)
    ids = torch.from_numpy(rng.integers(0, 50, int(offsets[-1])))
    want = torch.nn.functional.embedding_bag(ids, table, offsets, mode="sum", include_last_offset=True)
    got = gp.gather_pool(make_tables([table]), ids, offsets)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


def test_what_is_not_a_number_stays_none() -> None:
    table = torch.tensor([[1.0, float("nan")], [float("-inf"), 2.0]]).repeat(1, 16)
    got = gp.gather_pool(make_tables([table]), torch.tensor([0, 1]), torch.tensor([0, 2]))
    torch.testing.assert_close(got, torch.tensor([[float("-inf"), float("nan")] * 16]), equal_nan=True)


def test_faults_are_errors_that_name_the_first() -> None:
    tables, offsets = make_tables([torch.zeros(5, 32)]), torch.tensor([0, 3])
    with pytest.raises(BadInputError, match=r"2 ids lie outside their tables, the first at position 1"):
        gp.gather_pool(tables, torch.tensor([0, 5, -1]), offsets)
    with pytest.raises(
        BadInputError, match=r"1 offsets fall or lie outside the ids, the first at position 1"
    ):
        gp.gather_pool(tables, torch.tensor([0, 1]), offsets)
    prepared, faults = gp.GatherPool(tables, 1, gp.GatherOptions(), 3), gp.new_gather_faults(CPU)
    for _ in range(2):
        prepared(torch.tensor([0, 5, -1]), offsets, prepared.new_out(), faults)
    assert faults.tolist() == [4, 1, 0, -1]


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"ids": torch.zeros(3)}, r"do not fit"),
        ({"offsets": torch.zeros(2, dtype=torch.int32)}, r"do not fit"),
        ({"offsets": torch.zeros(0, dtype=torch.int64)}, r"0 offsets"),
    ],
)
def test_what_does_not_fit_is_refused(wrong: dict[str, Any], match: str) -> None:
    right = {"ids": torch.zeros(3, dtype=torch.int64), "offsets": torch.tensor([0, 3]), **wrong}
    with pytest.raises(BadInputError, match=match):
        gp.gather_pool(make_tables([torch.zeros(5, 32)]), **right)


@pytest.mark.parametrize(
    ("wrong", "match"),
    [({"out_dtype": "fp8"}, r"type of the bags 'fp8' is unknown"), ({"layout": "row"}, r"layout 'row'")],
)
def test_unknown_options_are_refused(wrong: dict[str, Any], match: str) -> None:
    with pytest.raises(BadInputError, match=match):
        gp.GatherPool(make_tables([torch.zeros(5, 32)]), 1, gp.GatherOptions(**wrong))


@pytest.mark.parametrize("plan", [None, LONG])
def test_rows_beyond_2_to_the_32(plan: GatherLayout | None, tmp_path: Path) -> None:
    """4 billion and some rows of 2 bytes, in a file whose holes take no memory."""
    rows = 2**32 + 50
    table = torch.from_numpy(np.memmap(tmp_path / "rows", np.float16, "w+", shape=(rows, 1)))
    wanted = {3: 1.0, 2**31 + 3: 2.0, 2**32 + 3: 4.0, rows - 1: 8.0}
    for row, value in wanted.items():
        table[row] = value
    ids = torch.tensor([*wanted, rows, 2**40 + 3])
    kernel = gp.GatherPool(make_tables([table]), 3, gp.GatherOptions(), 2.0, plan)
    out, faults = kernel.new_out(), gp.new_gather_faults(CPU)
    kernel(ids, torch.tensor([0, 1, 4, 6]), out, faults)
    assert out.flatten().tolist() == [1.0, 14.0, 0.0]
    assert faults.tolist() == [2, 4, 0, -1]


def test_the_launcher_takes_the_variant_that_was_the_fastest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, ids = make_tables([torch.ones(50, 32)]), torch.arange(24)
    monkeypatch.setenv("PERFMODEL_HOME", str(tmp_path))
    monkeypatch.setattr(gp, "_gpu_name", lambda device: "a GPU")
    shape = GatherShape("fp32", 8, 128, 50 * 128, 12, 2.0)
    seen = [
        TimedVariant(gpu="a GPU", alpha=0, variant=one.name, time_s=1.0 + (one != EIGHT), **vars(shape))
        for one in VARIANTS
    ]
    for timed, want in (([], ASSUMED), (seen, EIGHT)):
        if timed:
            write_table(tmp_path / TABLE_NAME, timed)
        pool = gp.GatherPool(table, 12, gp.GatherOptions(), 2.0)
        assert [one.kernel for one in pool.classes] == [
            gp.GatherOptions().kernel(RowAccess(8, 1, 16), "fp32", want)
        ]
        assert pool.classes[0].shape.accesses == want.accesses
    bags = gp.gather_pool(table, ids, torch.arange(0, 25, 2))
    assert bags.tolist() == [[2.0] * 32] * 12


def test_no_samples() -> None:
    nothing = torch.zeros(0, dtype=torch.int64)
    assert gp.gather_pool(make_tables([torch.zeros(5, 32)]), nothing, torch.tensor([0])).shape == (0, 32)


# ---- how it lies on a GPU ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row_bytes", "width", "element", "want", "pieces"),
    [
        (16, 16, 4, RowAccess(1, 1, 16), 1),
        (128, 16, 4, RowAccess(8, 1, 16), 1),
        (192, 16, 4, RowAccess(16, 1, 16), 1),
        (512, 16, 4, RowAccess(32, 1, 16), 1),
        (1024, 16, 4, RowAccess(32, 2, 16), 1),
        (4096, 16, 4, RowAccess(32, 2, 16), 4),
        (132, 4, 4, RowAccess(32, 2, 4), 1),
        (1024, 16, 1, RowAccess(32, 1, 16), 2),
        (1, 1, 1, RowAccess(1, 1, 1), 1),
    ],
)
def test_lanes_cover_a_row(row_bytes: int, width: int, element: int, want: RowAccess, pieces: int) -> None:
    assert shape_of(row_bytes, width, element) == (want, pieces)


H200 = {"multiprocessors": 132, "blocks_at_once": 4 * 132}


@pytest.mark.parametrize(
    ("bags", "pooling", "row_bytes", "want"),
    [
        # 16 896 groups of 8 lanes run at once. As many bags: one each.
        (16896, 64, 128, GatherLayout(False, 256, 1, 528)),
        # 131 072 bags of 1 id: 8 each is as even as it gets, and 7.76 turns become 8.
        (131072, 1, 128, GatherLayout(False, 256, 8, 512)),
        # 128 ids are two bags of 64; 131 072 bags of 64 take four turns of 2 bags each.
        (131072, 64, 128, GatherLayout(False, 256, 2, 528)),
        # 32 bags of 128 ids and 128-byte rows: 32 KiB x 132 are 33 792 rows, 1056 a bag; it has 128,
        # 16 groups of 8 rows each: 128 lanes.
        (32, 128, 128, GatherLayout(True, 128, 1, 32)),
        (1, 10**6, 128, GatherLayout(True, 256, 1, 1)),
        # short bags, however few: a group has all of a bag's rows on their way
        (32, 8, 128, GatherLayout(False, 32, 1, 8)),
        # 1024 groups are 62 lanes for each multiprocessor: blocks of 32
        (1024, 1, 128, GatherLayout(False, 32, 1, 256)),
    ],
)
def test_the_plan(bags: int, pooling: float, row_bytes: int, want: GatherLayout) -> None:
    assert choose(bags, pooling, row_bytes, RowAccess(8, 1, 16), **H200) == want


def test_work_is_spread_evenly() -> None:
    """No group has a bag a turn more than the mean; no multiprocessor is idle while another has two warps."""
    rng = np.random.default_rng(5)
    for _ in range(300):
        lanes = 2 ** int(rng.integers(0, 6))
        bags, pooling = int(2 ** rng.uniform(0, 24)), float(2 ** rng.uniform(-1, 10))
        plan = choose(bags, pooling, lanes * 16, RowAccess(lanes, 1, 16), **H200)
        assert plan.threads in (32, 64, 128, 256)
        assert 0 < plan.blocks * plan.threads <= H200["blocks_at_once"] * 256
        if plan.long:
            in_flight = bags * plan.threads * 8 * 16
            assert pooling > 8 and (plan.threads in (32, 256) or in_flight < 2 * 132 * BYTES_IN_FLIGHT)
            continue
        tiles, groups = -(-bags // plan.run), plan.blocks * plan.threads // lanes
        turns = -(-tiles // groups)
        assert turns * plan.run <= bags / (H200["blocks_at_once"] * 256 // lanes) + turns
        assert plan.blocks >= min(132, -(-tiles * lanes // 32))


@pytest.fixture(scope="module")
def usage() -> Mapping[str, Usage]:
    return gpu_code().usage


def test_every_kernel_compiles_and_spills_nothing(usage: Mapping[str, Usage]) -> None:
    assert len(usage) == len(KERNELS)
    assert {name: used.spilled_bytes for name, used in usage.items() if used.spilled_bytes} == {}


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda one: one.name)
def test_enough_bytes_are_in_flight(variant: GatherVariant, usage: Mapping[str, Usage]) -> None:
    """By Little's law, for as many blocks as the variant says; the rest of the memory is L1 cache."""
    for dim, blocks in ((32, 4), (128, 4)):
        shape = variant.access(shape_of(4 * dim, 16, 4)[0])
        kernel = gp.GatherOptions().kernel(shape, "fp32", variant)
        used = usage[kernel.name]
        blocks = 2 if variant.half else blocks
        assert 65536 // (256 * used.registers) >= blocks
        assert kernel.sm_shared_bytes <= 227 * 1024
        assert 256 * blocks * variant.accesses * 16 >= BYTES_IN_FLIGHT
        assert (
            256 * 1024 - kernel.sm_shared_bytes
            >= (96 if variant.accesses == 8 and not variant.half else 160) * 1024
        )


@pytest.mark.parametrize(("dim", "registers", "threads"), [(4, 64, 768), (16, 64, 1024), (256, 80, 768)])
def test_other_rows_have_enough_in_flight(
    dim: int, registers: int, threads: int, usage: Mapping[str, Usage]
) -> None:
    shape, _ = shape_of(4 * dim, 16, 4)
    kernel = gp.GatherOptions().kernel(shape, "fp32")
    used = usage[kernel.name]
    room = min(
        65536 // (256 * used.registers), 227 * 1024 // (kernel.sm_shared_bytes // (4 if dim < 256 else 3))
    )
    assert used.registers <= registers
    assert 256 * room >= threads
    assert 256 * room * ASSUMED.accesses * 16 >= BYTES_IN_FLIGHT
