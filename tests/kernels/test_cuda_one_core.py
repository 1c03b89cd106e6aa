"""Four ways to look tables up on one core give the same bags, whoever does what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from oracles.kernels import one_core as reference  # noqa: E402

from calibrate.cuda import launch as launching  # noqa: E402
from calibrate.cuda.device_tables import make_tables  # noqa: E402
from calibrate.cuda.faults import new_faults  # noqa: E402
from calibrate.cuda.gpu_build import ARCHITECTURES, compile_cubin  # noqa: E402
from calibrate.cuda.one_core import GPU_THREADS, OneCore, core_bytes, kernels, shapes_of  # noqa: E402
from calibrate.cuda.one_core_plan import WAYS, CorePlan, Item, TableShape, asymmetric, fitted, symmetric  # noqa: E402
from perfmodel.errors import BadInputError  # noqa: E402

CPU = torch.device("cpu")
GUARD = 64
POISON = -12345.0
REGISTERS = 65536 // GPU_THREADS


pytestmark = pytest.mark.usefixtures("built")


@pytest.fixture(params=[0, 1, 7], ids=lambda order: f"order{order}")
def order(request: pytest.FixtureRequest) -> Iterator[None]:
    kernel = kernels()[0]
    launching.cpu_order(kernel, request.param)
    yield
    launching.cpu_order(kernel, 0)


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    seed = int(np.random.SeedSequence().generate_state(1)[0])
    print(f"seed {seed}")  # pytest shows it with a failure
    return np.random.default_rng(seed)


def bags(
    rng: np.random.Generator, rows: Sequence[int], batch: int, longest: int, dtype: Any
) -> tuple[Any, Any]:
    """Ids of random bags, the first of each table empty, and their offsets."""
    lengths = rng.integers(0, longest + 1, (len(rows), batch))
    lengths[:, 0] = 0
    ids = [rng.integers(0, count, lengths[table].sum()) for table, count in enumerate(rows)]
    offsets = np.concatenate([[0], np.cumsum(lengths.ravel())])
    return torch.from_numpy(np.concatenate(ids)).to(dtype), torch.from_numpy(offsets)


def run(
    tables: Any, plan: CorePlan, ids: Any, offsets: Any, batch: int, pooling: str = "sum", threads: int = 64
) -> tuple[Any, Any]:
    """Bags, written into poisoned memory with guards around it, and faults."""
    count = batch * sum(tables.dims)
    memory = torch.full((count + 2 * GUARD,), POISON)
    out = memory[GUARD : GUARD + count].view(batch, -1)
    faults = new_faults(CPU)
    lookup = OneCore(tables, plan, batch, pooling)
    lookup(ids, offsets, out, faults=faults, threads=threads, check=False)
    assert (memory[:GUARD] == POISON).all() and (memory[-GUARD:] == POISON).all()
    return out, tuple(faults.tolist())


def agree(
    tables: Any, plan: CorePlan, ids: Any, offsets: Any, batch: int, pooling: str = "sum", threads: int = 64
) -> None:
    got, faults = run(tables, plan, ids, offsets, batch, pooling, threads)
    rows = [table.double().numpy() for table in tables.rows]
    want, wrong = reference.lookup(rows, ids.numpy(), offsets.numpy(), batch, pooling)
    assert faults == wrong
    np.testing.assert_allclose(got.numpy(), want, rtol=2e-5, atol=2e-5)


def made_tables(rng: np.random.Generator, shapes: Sequence[tuple[int, int]], dtype: Any) -> Any:
    return make_tables([torch.from_numpy(rng.standard_normal(shape)).to(dtype) for shape in shapes])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rows", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("ids", [torch.int32, torch.int64], ids=str)
def test_every_way_gives_the_same_bags(
    way: str, rows: Any, ids: Any, rng: np.random.Generator, order: None
) -> None:
    tables = made_tables(rng, [(50, 8), (1, 4), (7, 1), (33, 6), (20, 132)], rows)
    many, offsets = bags(rng, [50, 1, 7, 33, 20], 9, 5, ids)
    plan = symmetric(shapes_of(tables, 3), [way] * 5, 9, 4, 16_000)
    agree(tables, plan, many, offsets, 9)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("dim", "batch"), [(1, 1), (3, 2), (4, 33), (7, 5), (31, 3), (260, 3)])
def test_widths_that_no_access_divides(way: str, dim: int, batch: int, rng: np.random.Generator) -> None:
    tables = made_tables(rng, [(19, dim)], torch.float16 if dim % 2 else torch.float32)
    ids, offsets = bags(rng, [19], batch, 70, torch.int64)
    agree(tables, symmetric(shapes_of(tables, 9), [way], batch, 2, 40_000), ids, offsets, batch, threads=96)


@pytest.mark.parametrize("way", WAYS)
def test_a_mean_divides_by_the_ids_of_the_bag(way: str, rng: np.random.Generator) -> None:
    tables = make_tables([torch.arange(12.0).view(3, 4)])
    ids, offsets = torch.tensor([0, 2, 2, 1]), torch.tensor([0, 0, 3, 4])
    plan = symmetric(shapes_of(tables, 2), [way], 3, 1, 4000)
    got, _ = run(tables, plan, ids, offsets, 3, "mean")
    want = [[0, 0, 0, 0], [16 / 3, 19 / 3, 22 / 3, 25 / 3], [4, 5, 6, 7]]
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-6)


@pytest.mark.parametrize("way", WAYS)
def test_ids_out_of_range_add_nothing_and_are_named(way: str, rng: np.random.Generator) -> None:
    tables = made_tables(rng, [(40, 12), (6, 133)], torch.float32)
    ids, offsets = bags(rng, [40, 6], 20, 6, torch.int64)
    inside = int(offsets[20])
    ids[3], ids[inside - 1], ids[-1], ids[5] = 40, -1, 2**33, 6
    plan = symmetric(shapes_of(tables, 3), [way] * 2, 20, 3, 20_000)
    agree(tables, plan, ids, offsets, 20)
    with pytest.raises(BadInputError, match=r"3 ids outside their tables, the first at position 3\."):
        OneCore(tables, plan, 20)(ids, offsets)


@pytest.mark.parametrize("way", ["GM", "L1", "GM-UB", "L1-UB"])
def test_columns_apart_are_bags_together_and_faults_count_once(way: str, rng: np.random.Generator) -> None:
    tables = made_tables(rng, [(40, 20)], torch.float32)
    ids, offsets = bags(rng, [40], 6, 6, torch.int32)
    ids[2] = -7
    shape = shapes_of(tables, 3)[0]
    parts = [(0, 8), (8, 3), (11, 9)]
    items = [fitted(shape, Item(0, way, 0, 6, first, count), 8000) for first, count in parts]
    agree(tables, CorePlan(((items[0], items[2]), (items[1],))), ids, offsets, 6)


def test_a_table_that_stays_whole_has_no_chunks(rng: np.random.Generator) -> None:
    tables = made_tables(rng, [(50, 8), (1, 4)], torch.float32)
    ids, offsets = bags(rng, [50, 1], 23, 5, torch.int64)
    plan = symmetric(shapes_of(tables, 3), ["L1-UB"] * 2, 23, 2, 2000, whole=lambda shape, item: True)
    items = [item for own in plan.cores for item in own]
    assert all(item.chunk_rows == 0 for item in items) and max(item.passes for item in items) == 2
    assert all(item.resident_rows == (50, 1)[item.table] for item in items)
    agree(tables, plan, ids, offsets, 23)


def test_streams_in_many_passes_chunks_and_windows(rng: np.random.Generator, order: None) -> None:
    tables = made_tables(rng, [(50, 8)], torch.float32)
    ids, offsets = bags(rng, [50], 23, 12, torch.int64)
    one = Item(0, "L1-UB", 0, 23, 0, 8)
    for resident, chunk, passes, room in [
        (0, 7, 5, 40),
        (10, 1, 23, 3),
        (49, 3, 4, 1),
        (50, 2, 6, 100),
        (0, 50, 1, 5),
    ]:
        item = replace(one, resident_rows=resident, chunk_rows=chunk, pass_bags=passes, id_room=room)
        agree(tables, CorePlan(((item,),)), ids, offsets, 23)


def test_rows_that_stay_are_those_of_the_item_before_or_are_fetched(rng: np.random.Generator) -> None:
    tables = made_tables(rng, [(30, 8), (30, 8)], torch.float32)
    ids, offsets = bags(rng, [30, 30], 8, 4, torch.int64)
    shapes = shapes_of(tables, 2)

    def item(table: int, way: str, first: int) -> Item:
        return fitted(shapes[table], Item(table, way, first, 2, 0, 8), 4000)

    order = [
        (0, "L1", 0),
        (0, "L1", 2),
        (1, "L1", 0),
        (0, "GM", 4),
        (1, "L1", 2),
        (1, "GM-UB", 4),
        (1, "L1", 6),
        (0, "L1-UB", 6),
    ]
    agree(tables, CorePlan((tuple(item(*one) for one in order),)), ids, offsets, 8)


def test_rows_that_lie_apart_and_begin_anywhere(rng: np.random.Generator) -> None:
    wide = torch.from_numpy(rng.standard_normal((25, 37))).float()
    tables = make_tables([wide[:, 1:14], wide[:, 16:32]])
    ids, offsets = bags(rng, [25, 25], 7, 4, torch.int64)
    for way in WAYS:
        agree(tables, symmetric(shapes_of(tables, 2), [way] * 2, 7, 2, 5000), ids, offsets, 7)


def test_cores_that_own_tables(rng: np.random.Generator, order: None) -> None:
    def cost(shape: TableShape, item: Item) -> float:
        """Look-ups from global memory cost 5 each; rows and look-ups inside a core 1."""
        n, width = item.bags * shape.pooling, item.columns / shape.dim
        if item.way == "GM":
            return 5 * n * width
        return (n + item.resident_rows + item.passes * (shape.rows - item.resident_rows)) * width

    sizes = [(300, 16), (20, 16), (9, 8), (90, 6), (2000, 12), (60, 32)]
    tables = made_tables(rng, sizes, torch.float32)
    ids, offsets = bags(rng, [rows for rows, _ in sizes], 40, 6, torch.int64)
    plan = asymmetric(shapes_of(tables, 3), 40, 4, 7000, cost)
    every = [item for items in plan.cores for item in items]
    assert {item.way for item in every} >= {"GM", "L1"} and any(item.first_column for item in every)
    agree(tables, plan, ids, offsets, 40)


def test_no_ids_at_all_are_bags_of_zeros(rng: np.random.Generator) -> None:
    tables = made_tables(rng, [(5, 8)], torch.float32)
    for way in WAYS:
        plan = symmetric(shapes_of(tables), [way], 4, 2, 5000)
        got, _ = run(tables, plan, torch.empty(0, dtype=torch.int64), torch.zeros(5, dtype=torch.int64), 4)
        assert (got == 0).all()


def test_what_cannot_run_is_said_before_it_does(rng: np.random.Generator) -> None:
    tables = made_tables(rng, [(5, 8)], torch.float32)
    plan = symmetric(shapes_of(tables), ["GM"], 4, 2, 5000)
    lookup = OneCore(tables, plan, 4)
    ids, offsets = torch.zeros(4, dtype=torch.int64), torch.arange(5)
    with pytest.raises(BadInputError, match=r"offsets \[5\] of int64"):
        lookup(ids, offsets[:4])
    with pytest.raises(BadInputError, match=r"ids \[N\] of int32 or int64"):
        lookup(ids.float(), offsets)
    with pytest.raises(BadInputError, match=r"blocks of 40 threads"):
        lookup(ids, offsets, threads=40)
    with pytest.raises(BadInputError, match=r"rows of bf16"):
        OneCore(made_tables(rng, [(5, 8)], torch.bfloat16), plan, 4)
    with pytest.raises(BadInputError, match=r"exactly once"):
        OneCore(tables, CorePlan(plan.cores[:1]), 4)
    large = TableShape(core_bytes(CPU) // 32 + 1, 8)
    tables = made_tables(rng, [(large.rows, 8)], torch.float32)
    with pytest.raises(BadInputError, match=r"bytes of a core's memory"):
        OneCore(tables, symmetric([large], ["L1"], 4, 1, 2 * core_bytes(CPU)), 4)
    many = make_tables([torch.zeros(1, 1).expand(2**31, 1)])
    with pytest.raises(BadInputError, match=r"2147483648 rows"):
        OneCore(many, symmetric(shapes_of(many), ["GM"], 4, 2, 5000), 4)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_it_compiles_for_gpus_and_spills_nothing(architecture: str) -> None:
    usage = compile_cubin(kernels(), architecture).usage
    assert len(usage) == len(kernels())
    for name, used in usage.items():
        assert used.spilled_bytes == 0 and used.registers <= REGISTERS, (name, used)
