"""Bucketize, on the CPU that stands in for a GPU, against one id after the other."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from cuda_memory import POISON, assert_guards_hold, guarded, poison  # noqa: E402
from oracles.kernels import bucketize as reference  # noqa: E402

from calibrate.cuda import launch as launching  # noqa: E402
from calibrate.cuda import scan  # noqa: E402
from calibrate.cuda.bucketize import LANES, Bucketizer, bucketize, kernels  # noqa: E402
from calibrate.cuda.gpu_build import compile_cubin  # noqa: E402
from calibrate.cuda.split import Shard, Split, make_split, row_wise  # noqa: E402
from calibrate.passes import lookup  # noqa: E402
from perfmodel.errors import BadInputError, PerfmodelError  # noqa: E402

CPU = torch.device("cpu")


pytestmark = pytest.mark.usefixtures("built")


def bags(rng: np.random.Generator, rows: Any, batch: int, length: int, dtype: Any) -> tuple[Any, Any]:
    """Ids [n] of bags of 0 .. 2 length ids, and offsets [T B + 1]."""
    lengths = rng.integers(0, 2 * length + 1, len(rows) * batch)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    rows_of_id = np.repeat(np.repeat(rows, batch), lengths)
    return (rng.random(offsets[-1]) * rows_of_id).astype(dtype), offsets


def assert_equal_to_reference(split: Split, batch: int, ids: Any, offsets: Any, **options: Any) -> Any:
    want = reference.bucketize(split, batch, ids, offsets)
    dtype = torch.from_numpy(ids).dtype
    made = Bucketizer(split, batch, len(ids), dtype, CPU, **options)
    memory = poison(made.buckets)
    for _ in range(2):  # the second call finds the state of the scan as the first did
        got = made.run(torch.from_numpy(ids), torch.from_numpy(offsets))
        n = int(got.offsets[-1])
        assert np.array_equal(got.lengths.numpy(), want["lengths"])
        assert got.offsets.tolist() == [0, *np.cumsum(want["lengths"]).tolist()]
        assert np.array_equal(got.ids[:n].numpy(), want["ids"]) and (got.ids[n:] == POISON).all()
        assert np.array_equal(got.counts.numpy(), want["counts"])
        assert got.rank_offsets.tolist() == [0, *np.cumsum(want["counts"]).tolist()]
    assert_guards_hold(memory)
    first = want["faults"][0] if want["faults"] else -1
    assert made.faults.tolist() == [2 * len(want["faults"]), first]
    return made


def three_ways() -> Split:
    """Table 0 on one rank, 1 in two columns, 2 in rows, 3 in rows and columns; rank 3 gets nothing."""
    shards = [Shard(2, 0), Shard(0, 1, 0, 1, 40), Shard(4, 1, 0, 0)]
    shards += [Shard(rank, 2, rank) for rank in range(3)]
    shards += [Shard(4 - part, 3, part, column, 1000 * column) for part in (0, 2, 3) for column in range(2)]
    shards += [Shard(1, 3, 1), Shard(1, 3, 1, 1)]
    return make_split([7, 100, 25, 8], [7, 100, 10, 2], 5, shards)


def test_a_split_that_can_be_followed_by_hand() -> None:
    """Two tables of 4 rows on 2 ranks, 2 samples; table 0: bags 3 0 1 | 2; table 1: bags none | 1 1 3."""
    ids, offsets = torch.tensor([3, 0, 1, 2, 1, 1, 3]), torch.tensor([0, 3, 4, 4, 7])
    got = bucketize(row_wise([4, 4], 2), 2, ids, offsets)
    assert got.lengths.tolist() == [[2, 0], [0, 2], [1, 1], [0, 1]]
    assert got.ids.tolist() == [0, 1, 3, 3, 1, 0, 3]  # rank 0: rows 0 1 | 2+1 2+1; rank 1: 3-2 2-2 | 2+3-2
    assert got.counts.tolist() == [4, 3] and got.rank_offsets.tolist() == [0, 4, 7]
    assert got.bucket_offsets.tolist() == [0, 2, 4, 6, 7]


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_every_split_is_the_reference(rng: np.random.Generator, order: None, lanes: int, dtype: Any) -> None:
    split = three_ways()
    ids, offsets = bags(rng, split.rows, 45, 3, dtype)
    assert_equal_to_reference(split, 45, ids, offsets, lanes=lanes)


@pytest.mark.parametrize(
    ("rows", "ranks", "batch", "length"),
    [([1], 1, 1, 1), ([1, 1], 3, 1, 0), ([5], 7, 1, 70), ([1000, 3], 4, 33, 1), ([40] * 12, 3, 300, 1)],
)
def test_shapes_at_the_edge(
    rng: np.random.Generator, rows: list[int], ranks: int, batch: int, length: int
) -> None:
    """One row, one rank, one sample, no id at all, few rows, long bags, 36 tiles for 24 blocks."""
    ids, offsets = bags(rng, rows, batch, length, np.int64)
    assert_equal_to_reference(row_wise(rows, ranks), batch, ids, offsets)


@pytest.mark.parametrize("lanes", LANES)
def test_parts_that_do_not_fit_take_further_turns(rng: np.random.Generator, lanes: int) -> None:
    split = three_ways()
    ids, offsets = bags(rng, split.rows, 5, 4, np.int64)
    made = assert_equal_to_reference(split, 5, ids, offsets, lanes=lanes, shared_bytes=1)
    assert made._shared_bytes == 4 * (max(32, 128 // lanes) + 1)


def test_more_sums_than_one_tile_holds(rng: np.random.Generator) -> None:
    """3 tables x 40 ranks x 90 samples = 10800 lengths: 11 tiles of the scan."""
    ids, offsets = bags(rng, [1000] * 3, 90, 1, np.int32)
    assert_equal_to_reference(row_wise([1000] * 3, 40), 90, ids, offsets)


@pytest.mark.parametrize("known", [0, 1, 7, 38, 69, 70, 99])
def test_a_tile_looks_back_to_the_last_one_that_knows(known: int) -> None:
    """Tile t sums t + 1. Of the 100 before ours, ``known`` was the last to know the sum up to its end."""
    tile, lengths = 100, torch.ones(101 * scan.TILE, dtype=torch.int32)
    state, offsets = scan.new_state(len(lengths), CPU), torch.full((len(lengths) + 1,), POISON)
    state[0] = tile  # the next ticket
    for before in range(tile):
        upto = (before + 1) * (before + 2) // 2
        state[1 + before] = 2**62 + before + 1 if before != known else -(2**63) + upto
    count = ctypes.c_int64(len(lengths))
    launching.launch(scan.SCAN_LENGTHS, CPU, 1, scan.THREADS, [lengths, count, state, offsets])
    assert offsets[tile * scan.TILE :].tolist() == list(range(5050, 5050 + scan.TILE + 1))
    assert int(state[1 + tile]) == -(2**63) + 5050 + scan.TILE


def test_a_scan_with_a_used_state_stops_itself() -> None:
    count = 3 * scan.TILE - 5
    lengths = torch.ones(count, dtype=torch.int32)
    offsets, memory = guarded(torch.zeros(count + 1, dtype=torch.int64))
    state, around = guarded(scan.new_state(count, CPU))
    state.zero_()
    scan.queue_scan(lengths, offsets, state)
    assert offsets.tolist() == list(range(count + 1))
    with pytest.raises(PerfmodelError, match="stopped itself"):
        scan.queue_scan(lengths, offsets, state)
    assert_guards_hold([memory, around])
    state.zero_()
    scan.queue_scan(lengths, offsets, state)
    assert offsets.tolist() == list(range(count + 1))


def test_tiles_that_run_at_the_same_time_find_each_other(rng: np.random.Generator) -> None:
    """Three threads take the 45 tiles of one scan in turn, each as a block: who looks back has to wait."""
    lengths = torch.from_numpy(rng.integers(0, 100, 45 * scan.TILE - 3).astype(np.int32))
    count, device = ctypes.c_int64(len(lengths)), lengths.device
    for _ in range(5):
        state, offsets = scan.new_state(len(lengths), device), torch.full((len(lengths) + 1,), POISON)
        arguments = [scan.SCAN_LENGTHS, device, 15, scan.THREADS, [lengths, count, state, offsets]]
        threads = [threading.Thread(target=launching.launch, args=arguments) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert offsets[0] == 0 and torch.equal(offsets[1:], lengths.cumsum(0))
        assert int(state[0]) == 45


@pytest.mark.parametrize("lanes", LANES)
def test_ids_outside_their_table_are_dropped_and_reported(rng: np.random.Generator, lanes: int) -> None:
    split = three_ways()
    ids, offsets = bags(rng, split.rows, 9, 4, np.int64)
    for position, wrong in ((len(ids) // 2, -1), (len(ids) - 1, 8), (len(ids) // 3, 2**62), (7, -(2**63))):
        ids[position] = wrong
    assert_equal_to_reference(split, 9, ids, offsets, lanes=lanes, shared_bytes=1)
    with pytest.raises(BadInputError, match=r"4 ids are outside their tables, the first at position 7\."):
        bucketize(split, 9, torch.from_numpy(ids), torch.from_numpy(offsets))
    bucketize(split, 9, torch.from_numpy(ids), torch.from_numpy(offsets), check=False)


def test_row_wise_equals_the_pass_bit_for_bit(rng: np.random.Generator) -> None:
    tables, ranks, block, batch = 3, 4, 13, 20
    rows = [ranks * block] * tables
    ids, offsets = (torch.from_numpy(values) for values in bags(rng, rows, batch, 6, np.int64))
    want = lookup.bucketize(ids, offsets.diff(), tables, block, ranks)
    got = bucketize(row_wise(rows, ranks, block=block), batch, ids, offsets)
    assert torch.equal(got.ids, want.ids)
    assert torch.equal(got.lengths.view(ranks, -1), want.lengths) and torch.equal(got.counts, want.counts)


@pytest.mark.parametrize("divisor", [1, 2, 3, 7, 10**6, 2**31 - 1, 2**40 + 1, 2**63 - 1])
def test_division_by_a_reciprocal_is_exact(divisor: int) -> None:
    for x in {0, 1, divisor - 1, divisor, min(5 * divisor - 1, 2**63 - 1), 2**63 - 1, 2**62 + 12345}:
        below = x * scan.reciprocal(divisor) >> 64
        assert below + (x - below * divisor >= divisor) == x // divisor


def test_large_blocks_and_rows_beyond_32_bits() -> None:
    """Only the ids tell where rows are: no table is there."""
    split = row_wise([2**62], 3, block=2**61 - 1)
    ids = torch.tensor([2**62 - 1, 0, 2**61 - 2, 2**61 - 1, 2**62 - 2])
    got = bucketize(split, 1, ids, torch.tensor([0, 5]))
    assert got.ids.tolist() == [0, 2**61 - 2, 0, 1, 0]  # parts 0, 0 | 1 | 2, 2


# ---- what is refused, and what it takes


def test_splits_that_cannot_be() -> None:
    for words, arguments in {
        r"0 tables": ([], [], 1, []),
        r"all must be at least 1": ([0], [1], 1, [Shard(0, 0)]),
        r"of 1 tables on 2 ranks": ([4], [4], 2, [Shard(2, 0)]),
        r"begins before": ([4], [4], 1, [Shard(0, 0, -1)]),
        r"two shards are equal": ([4], [4], 1, [Shard(0, 0), Shard(0, 0)]),
        r"1 row parts lie on no rank": ([4], [2], 1, [Shard(0, 0, 1)]),
        r"fewer than 2\^31": ([2**40], [2], 1, [Shard(0, 0)]),
    }.items():
        with pytest.raises(BadInputError, match=words):
            make_split(*arguments)


def test_what_cannot_be_bucketized() -> None:
    split, ids, offsets = row_wise([8], 2), torch.arange(4), torch.tensor([0, 2, 4])
    with pytest.raises(BadInputError, match=r"ids of torch.int16"):
        bucketize(split, 2, ids.to(torch.int16), offsets)
    with pytest.raises(BadInputError, match=r"offsets to bucketize are \(\(3,\), torch.int64\)"):
        bucketize(split, 3, ids, offsets)
    with pytest.raises(BadInputError, match=r"last row is 2147483648"):
        bucketize(make_split([8], [8], 1, [Shard(0, 0, first_row=2**31 - 7)]), 2, ids.int(), offsets)


def test_it_compiles_for_a_gpu_without_spilling() -> None:
    """An SM has 65536 registers: 56 let 9 blocks of 128 threads run at once, 48 let 10, or 5 of 256."""
    usage = compile_cubin(kernels(), "sm_90").usage
    assert len(usage) == len(kernels())
    for name, used in usage.items():
        assert used.spilled_bytes == 0 and used.registers <= (56 if "scatter" in name else 48), (name, used)
