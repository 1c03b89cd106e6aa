"""Four ways to look tables up on one core, on one real GPU: the same bags from all SMs, whoever does what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from calibrate.machine.local_gpus import find_gpus

if not find_gpus():
    pytest.skip("NOT TESTED on a GPU: there is none here", allow_module_level=True)
torch = pytest.importorskip("torch")

from sizes import REHEARSAL, sized  # noqa: E402

from calibrate.cuda.device_tables import make_tables  # noqa: E402
from calibrate.cuda.one_core import OneCore, core_bytes, cores, shapes_of  # noqa: E402
from calibrate.cuda.one_core_plan import WAYS, CorePlan, Item, TableShape, asymmetric, fitted, symmetric  # noqa: E402
from perfmodel.errors import BadInputError  # noqa: E402

GPU = torch.device("cuda")
SIZES = (
    ((3, 128), (63, 16), (155, 6))
    if REHEARSAL
    else ((3, 128), (63, 128), (976, 128), (1543, 128), (7122, 128), (20_265, 128), (155, 6), (400, 33))
)
BATCH, POOLING = sized(3000, 60), 5


@pytest.fixture(autouse=True)
def seed() -> Iterator[None]:
    found = torch.seed() % 2**31
    print(f"seed {found}")
    torch.manual_seed(found)
    yield


def made(dtype: Any) -> Any:
    """Tables of small whole numbers: sums are exact in any order."""
    return make_tables([torch.randint(-8, 8, size, device=GPU).to(dtype) for size in SIZES])


def bags(tables: Any, ids: Any) -> tuple[Any, Any, Any]:
    """Ids, offsets, and torch's bags."""
    lengths = torch.randint(0, 2 * POOLING + 1, (len(SIZES), BATCH), device=GPU)
    offsets = torch.cat([lengths.new_zeros(1), lengths.flatten().cumsum(0)])
    parts, want = [], []
    for table, rows in enumerate(tables.rows):
        ends = torch.cat([lengths.new_zeros(1), lengths[table].cumsum(0)])
        parts.append(torch.randint(0, rows.shape[0], (int(ends[-1]),), device=GPU))
        bag = torch.nn.functional.embedding_bag
        want.append(bag(parts[-1], rows.float(), ends, mode="sum", include_last_offset=True))
    return torch.cat(parts).to(ids), offsets, torch.cat(want, 1)


def where_it_fits(shape: TableShape, way: str) -> str:
    try:
        fitted(shape, Item(0, way, 0, BATCH, 0, shape.dim), core_bytes(GPU))
    except BadInputError:
        return "GM"
    return way


def cost(shape: TableShape, item: Item) -> float:
    """Look-ups from global memory cost 4 each; rows and look-ups inside a core 1."""
    n, width = item.bags * shape.pooling, item.columns / 128
    if item.way == "GM":
        return 4 * n * width
    return (n + item.resident_rows + item.passes * (shape.rows - item.resident_rows)) * width


def every_plan(shapes: list[TableShape]) -> dict[str, CorePlan]:
    number, room = cores(GPU), core_bytes(GPU)
    plans = {
        way: symmetric(shapes, [where_it_fits(shape, way) for shape in shapes], BATCH, number, room)
        for way in WAYS
    }
    plans["owned"] = asymmetric(shapes, BATCH, number, room, cost)
    return plans


@pytest.mark.parametrize("rows", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("ids", [torch.int32, torch.int64], ids=str)
def test_all_plans_give_torchs_bags(rows: Any, ids: Any) -> None:
    tables = made(rows)
    some, offsets, want = bags(tables, ids)
    for name, plan in every_plan(shapes_of(tables, POOLING)).items():
        out = torch.full_like(want, torch.nan)
        OneCore(tables, plan, BATCH)(some, offsets, out)
        assert torch.equal(out, want), name


def test_a_launch_waits_for_nothing_and_can_be_captured() -> None:
    tables = made(torch.float32)
    some, offsets, want = bags(tables, torch.int64)
    lookup = OneCore(tables, every_plan(shapes_of(tables, POOLING))["owned"], BATCH)
    out, faults = torch.full_like(want, torch.nan), torch.tensor([0, -1], device=GPU)
    lookup(some, offsets, out, faults=faults, check=False)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        lookup(some, offsets, out, faults=faults, check=False)
    for _ in range(3):
        out.fill_(torch.nan)
        graph.replay()
        assert torch.equal(out, want)
    assert faults.tolist() == [0, -1]


def test_ids_out_of_range_are_named() -> None:
    tables = made(torch.float32)
    some, offsets, _ = bags(tables, torch.int64)
    some[7], some[100] = -1, 2**40
    for plan in every_plan(shapes_of(tables, POOLING)).values():
        with pytest.raises(BadInputError, match=r"2 ids outside their tables, the first at position 7\."):
            OneCore(tables, plan, BATCH)(some, offsets)
