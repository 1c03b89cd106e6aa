"""Gather and pool on one real GPU: the specification, in a graph, and what faults do."""

from __future__ import annotations

import numpy as np
import pytest

from calibrate.machine.node import find_gpus

if not find_gpus():
    pytest.skip("NOT TESTED on a GPU: there is none here", allow_module_level=True)
torch = pytest.importorskip("torch")
pytest.importorskip("cuda.bindings")
pytest.importorskip("cupy")

from oracles.kernels import gather_pool as reference  # noqa: E402
from sizes import REHEARSAL, sized  # noqa: E402

from calibrate.cuda import gather_pool as gp  # noqa: E402
from calibrate.cuda.device_tables import make_tables  # noqa: E402
from calibrate.cuda.gather_layout import GatherLayout  # noqa: E402

GPU = torch.device("cuda", 0)
TYPES = {"fp32": torch.float32, "fp16": torch.float16}
SHAPES = (
    ((50, 128), (30, 33))
    if REHEARSAL
    else ((5000, 128), (300, 32), (1, 4), (4000, 16), (900, 64), (20, 33), (70, 260), (50, 7))
)
PLANS = {"chosen": None, "long": GatherLayout(True, 128, 1, 500), "runs": GatherLayout(False, 256, 5, 300)}


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_bags_are_those_of_the_reference(dtype: str, plan: str) -> None:
    seed = int(np.random.default_rng().integers(2**31))
    rng, batch = np.random.default_rng(seed), sized(301, 20)
    rows = [
        torch.from_numpy(rng.standard_normal(shape).astype(np.float32)).to(TYPES[dtype]) for shape in SHAPES
    ]
    tables, values = make_tables([one.to(GPU) for one in rows]), [one.double().numpy() for one in rows]
    bags = batch * len(values)
    lengths = rng.integers(0, 40, bags) * (rng.random(bags) < 0.7)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ids = np.concatenate([rng.integers(0, len(values[bag // batch]), lengths[bag]) for bag in range(bags)])
    wrong = rng.random(len(ids)) < 0.01
    ids[wrong] = rng.choice([-1, 5000, 2**31 - 1], int(wrong.sum()))
    prepared = gp.GatherPool(tables, batch, float(lengths.mean()), PLANS[plan])
    shape = prepared.make_out().shape
    memory = torch.full((shape.numel() + 128,), 97.0, device=GPU)
    out, faults = memory[64:-64].view(shape), gp.make_faults(GPU)
    given = [torch.from_numpy(one.astype(np.int64)).to(GPU) for one in (ids, offsets)]
    prepared(*given, out, faults)
    want = np.concatenate(reference.gather_pool(values, batch, ids, offsets), 1)
    np.testing.assert_allclose(out.double().cpu(), want, rtol=1e-5, atol=1.1e-4, err_msg=f"seed {seed}")
    assert bool((memory[:64] == 97).all() and (memory[-64:] == 97).all())
    bad = reference.wrong_ids([len(one) for one in values], batch, ids, offsets)
    assert faults.tolist() == [len(bad), bad[0] if len(bad) else -1, 0, -1], seed


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
