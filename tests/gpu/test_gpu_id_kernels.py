"""Different ids on one real GPU, whose blocks run at the same time.

tests/kernels/test_cuda_unique.py compares them with the numpy reference at small sizes; here they are those
of a step, and the reference is torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from calibrate.machine.local_gpus import find_gpus

if not find_gpus():
    pytest.skip("NOT TESTED on a GPU: there is none here", allow_module_level=True)
torch = pytest.importorskip("torch")

from sizes import sized  # noqa: E402

from calibrate.cuda.unique import Uniquer  # noqa: E402

GPU = torch.device("cuda")


@pytest.fixture(autouse=True)
def seed() -> Iterator[None]:
    found = torch.seed() % 2**31
    print(f"seed {found}")
    torch.manual_seed(found)
    yield


def replayed(call: Callable[[], Any]) -> None:
    """Run once with waiting forbidden, then three times in a graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())  # which fills what the call reads
    with torch.cuda.stream(stream):
        call()
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            call()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            call()
        for _ in range(3):
            graph.replay()
    torch.cuda.synchronize()


@pytest.mark.parametrize("rows", [100, 10**6, 2**31 - 1])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_different_ids_come_in_the_order_of_first_occurrence(dtype: Any, rows: int) -> None:
    n, buckets = sized(3_000_000, 3_000), 24
    ids = (torch.rand(n, device=GPU, dtype=torch.float64).pow(3) * rows).to(dtype)
    cuts = torch.randint(0, n + 1, (buckets - 1,), device=GPU).sort()[0]
    offsets = torch.cat([cuts.new_zeros(1), cuts, cuts.new_full((1,), n)])
    made = Uniquer(buckets, n, dtype, GPU)
    replayed(lambda: made.run(ids, offsets))
    got, bucket = made.unique, torch.repeat_interleave(offsets.diff())
    key = bucket * 2**32 + ids.long()
    assert int(got.counts.sum()) == torch.unique(key).numel() and made.faults.tolist() == [0, -1]
    at = got.offsets[bucket] + got.inverse
    assert torch.equal(got.ids[at], ids)
    first = torch.full((int(got.counts.sum()),), n, device=GPU)
    first.scatter_reduce_(0, at, torch.arange(n, device=GPU), "amin")
    assert bool((first.diff() > 0).all())
