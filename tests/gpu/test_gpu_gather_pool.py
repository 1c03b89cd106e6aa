"""Gather and pool on one real GPU: the specification, in a graph, and what faults do."""

from __future__ import annotations

import pytest

from calibrate.machine.node import find_gpus

if not find_gpus():
    pytest.skip("NOT TESTED on a GPU: there is none here", allow_module_level=True)
torch = pytest.importorskip("torch")
pytest.importorskip("cuda.bindings")
pytest.importorskip("cupy")

from oracles.kernels.gather_pool import check_bags  # noqa: E402
from sizes import REHEARSAL, sized  # noqa: E402

from calibrate.cuda import gather_pool as gp  # noqa: E402
from calibrate.cuda.device_tables import make_tables  # noqa: E402
from calibrate.cuda.gather_layout import GatherLayout  # noqa: E402

GPU = torch.device("cuda", 0)
SHAPES = ((5000, 128), (300, 32), (1, 4), (4000, 16), (900, 64), (20, 33), (70, 260), (50, 7))
PLANS = {"chosen": None, "long": GatherLayout(True, 128, 1, 500), "runs": GatherLayout(False, 256, 5, 300)}


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_bags_are_those_of_the_reference(dtype: str, plan: str) -> None:
    seed, shapes = int(torch.randint(2**31, ())), ((50, 128), (30, 33)) if REHEARSAL else SHAPES
    check_bags(shapes, dtype, sized(301, 20), seed, plan=PLANS[plan], most=40, device=GPU, wrong=0.01)


def test_wrong_offsets_are_reported_and_nothing_outside_is_read() -> None:
    tables, ids = make_tables([torch.ones(10, 64, device=GPU)]), torch.zeros(8, dtype=torch.int64, device=GPU)
    for offsets in ([0, 5, 3, 8], [-4, 2, 5, 8], [0, 2, 5, 2**40], [9, 9, 9, 9]):
        pool, faults = gp.GatherPool(tables, 3), gp.make_faults(GPU)
        pool(ids, torch.tensor(offsets, device=GPU), pool.make_out(), faults)
        assert faults.tolist()[:2] == [0, -1] and faults[2] > 0


def test_a_graph_looks_up_what_its_ids_say_when_it_is_replayed() -> None:
    table = torch.randn(10_000, 64, device=GPU)
    prepared = gp.GatherPool(make_tables([table]), 500, 4)
    ids, offsets = torch.zeros(2000, dtype=torch.int64, device=GPU), torch.arange(0, 2001, 4, device=GPU)
    out, faults = prepared.make_out(), gp.make_faults(GPU)
    prepared(ids, offsets, out, faults)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        prepared(ids, offsets, out, faults)
    for _ in range(3):
        ids.copy_(torch.randint(0, 10_000, (2000,), device=GPU))
        out.fill_(float("nan"))
        graph.replay()
        want = torch.nn.functional.embedding_bag(ids, table, offsets, mode="sum", include_last_offset=True)
        torch.testing.assert_close(out, want, rtol=1e-5, atol=1e-5)
    assert faults.tolist() == [0, -1, 0, -1]
