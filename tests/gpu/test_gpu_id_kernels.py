"""Bucketize, partial bags and different ids on one real GPU, whose blocks run at the same time.

tests/kernels/test_cuda_*.py compares them with the numpy references at small sizes; here sizes are those of a
step, and the reference is torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from calibrate.machine.local_gpus import find_gpus

if not find_gpus():
    pytest.skip("NOT TESTED on a GPU: there is none here", allow_module_level=True)
torch = pytest.importorskip("torch")

from sizes import REHEARSAL, sized  # noqa: E402

from calibrate.cuda.bucketize import Bucketizer  # noqa: E402
from calibrate.cuda.partial_bags import partial_sum  # noqa: E402
from calibrate.cuda.split import row_wise  # noqa: E402
from calibrate.cuda.unique import Uniquer  # noqa: E402
from calibrate.passes import lookup  # noqa: E402

GPU = torch.device("cuda")
TABLES, RANKS, BLOCK = 8, 16, 100_000


@pytest.fixture(autouse=True)
def seed() -> Iterator[None]:
    found = torch.seed() % 2**31
    print(f"seed {found}")
    torch.manual_seed(found)
    yield


def some_lengths(count: int, most: int) -> Any:
    return torch.randint(0, most + 1, (count,), device=GPU, dtype=torch.int32)


def offsets_of(lengths: Any) -> Any:
    return torch.cat([lengths.new_zeros(1, dtype=torch.int64), lengths.cumsum(0)])


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


@pytest.mark.parametrize("most", [1, 6, 20, 300])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_bucketize_is_that_of_the_pass(most: int, dtype: Any) -> None:
    batch = sized(2_000_000, 2_500) // (most * TABLES)
    lengths = some_lengths(TABLES * batch, most)
    offsets = offsets_of(lengths)
    ids = torch.randint(0, RANKS * BLOCK, (int(offsets[-1]),), device=GPU).to(dtype)
    split = row_wise([RANKS * BLOCK] * TABLES, RANKS, block=BLOCK)
    made = Bucketizer(split, batch, ids.numel(), dtype, GPU)
    replayed(lambda: made.run(ids, offsets))
    got = made.buckets
    want = lookup.bucketize(ids.long(), lengths.long(), TABLES, BLOCK, RANKS)
    assert torch.equal(got.ids.long(), want.ids)
    assert torch.equal(got.lengths.view(RANKS, -1).long(), want.lengths)
    assert torch.equal(got.counts, want.counts)
    assert made.faults.tolist() == [0, -1]


@pytest.mark.parametrize("dim", [32, 33, 128])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_partial_bags_add_up(dtype: Any, dim: int) -> None:
    bags = sized(20_000, 40)
    parts, out = torch.randn(RANKS, bags, dim, device=GPU).to(dtype), torch.empty(bags, dim, device=GPU)
    replayed(lambda: partial_sum(parts, out))
    assert torch.allclose(out.double(), parts.double().sum(0), rtol=1e-5, atol=1e-5)


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


def test_more_elements_than_32_bits_number() -> None:
    if REHEARSAL:
        pytest.skip("NOT TESTED in a rehearsal: sums of 2^31 elements take 30 GiB")
    if torch.cuda.mem_get_info()[0] < 30 * 2**30:
        pytest.skip("NOT TESTED on a GPU: sums of 2^31 elements and more take 30 GiB")
    bags = (2**31 + 2**20) // 64
    parts = torch.ones(2, bags, 64, device=GPU, dtype=torch.float16)
    parts[1, -1] = 3
    out = partial_sum(parts, torch.empty(bags, 64, device=GPU, dtype=torch.float16))
    assert bool((out[:-1] == 2).all()) and bool((out[-1] == 4).all())
