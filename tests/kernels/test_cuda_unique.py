"""Different ids of buckets on the CPU that stands in for a GPU, against one id after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_memory import POISON, assert_guards_hold, guarded, poison

torch = pytest.importorskip("torch")

from oracles.kernels import unique as reference  # noqa: E402

from calibrate.cuda.gpu_build import compile_cubin  # noqa: E402
from calibrate.cuda.unique import Uniquer, kernels, unique  # noqa: E402
from perfmodel.errors import BadInputError  # noqa: E402

CPU = torch.device("cpu")


pytestmark = pytest.mark.usefixtures("built")


def buckets_of(rng: np.random.Generator, buckets: int, ids: int) -> Any:
    """Offsets [K + 1] of ``ids`` ids; some buckets have none."""
    return np.concatenate([[0], np.sort(rng.integers(0, ids + 1, buckets - 1)), [ids]]).astype(np.int64)


def assert_equal_to_reference(made: Uniquer, ids: Any, offsets: Any) -> None:
    """``ids`` may be more than the last bucket holds."""
    different, inverse, counts, faults = reference.unique(ids, offsets)
    memory, n = poison(made.unique), int(offsets[-1])
    strided = torch.from_numpy(np.repeat(offsets, 3))[::3]
    before = made.faults.tolist()[0]
    got = made.run(torch.from_numpy(ids), strided)
    assert np.array_equal(got.ids[: len(different)].numpy(), different)
    assert (got.ids[len(different) :] == POISON).all() and (got.inverse[n:] == POISON).all()
    assert np.array_equal(got.inverse[:n].numpy(), inverse)
    assert np.array_equal(got.counts.numpy(), counts)
    assert got.offsets.tolist() == [0, *np.cumsum(counts).tolist()]
    assert made.faults.tolist()[0] - before == len(faults)
    assert_guards_hold(memory)


def test_by_hand() -> None:
    """Bucket 0: 7 3 7 7; bucket 1: none; bucket 2: 3 5 3; one more id behind the last bucket."""
    got = unique(torch.tensor([7, 3, 7, 7, 3, 5, 3, 9]), torch.tensor([0, 4, 4, 7]))
    assert got.ids[:4].tolist() == [7, 3, 3, 5]
    assert got.inverse[:7].tolist() == [0, 1, 0, 0, 0, 1, 0]
    assert got.counts.tolist() == [2, 0, 2] and got.offsets.tolist() == [0, 2, 2, 4]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(
    ("buckets", "ids", "rows"), [(1, 1, 1), (3, 50, 20), (9, 2500, 300), (40, 3000, 10**9)]
)
def test_different_ids_are_those_of_the_reference(
    rng: np.random.Generator, order: None, buckets: int, ids: int, rows: int, dtype: Any
) -> None:
    made = Uniquer(buckets, ids, torch.from_numpy(np.empty(0, dtype)).dtype, CPU)
    for room in (0, ids // 2):  # the second call finds slots and state as the first left them
        offsets = buckets_of(rng, buckets, ids - room)
        assert_equal_to_reference(made, rng.integers(0, rows, ids).astype(dtype), offsets)


def slot_of(id_: int, slots: int) -> int:
    """Where unique.cu begins to look for an id."""
    mixed = id_ * 0x9E3779B97F4A7C15 % 2**64
    mixed = (mixed ^ mixed >> 32) * 0xD6E8FEB86659FD93 % 2**64
    return (mixed ^ mixed >> 32) * slots >> 64


def test_ids_that_all_want_the_last_slot_of_their_bucket() -> None:
    """Buckets of 5 ids have 10 slots each: what does not find the tenth free goes on at the first."""
    last = [id_ for id_ in range(1000) if slot_of(id_, 10) == 9][:5]
    made = Uniquer(2, 10, torch.int64, CPU)
    made._keys, memory = guarded(made._keys)
    assert_equal_to_reference(made, np.array([*last, *last[::-1]]), np.array([0, 5, 10]))
    slots = made._keys.view(2, 10)
    assert sorted(slots[0][[9, 0, 1, 2, 3]].tolist()) == last == sorted(slots[1][[9, 0, 1, 2, 3]].tolist())
    assert_guards_hold([memory])


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_negative_ids_are_dropped_and_reported(rng: np.random.Generator, dtype: Any) -> None:
    ids, offsets = rng.integers(0, 30, 90).astype(dtype), np.array([0, 40, 90])
    ids[[17, 41, 80]] = -1, np.iinfo(dtype).min, -5
    assert_equal_to_reference(Uniquer(2, 90, torch.from_numpy(ids).dtype, CPU), ids, offsets)
    with pytest.raises(BadInputError, match=r"3 ids are negative or not there, the first at position 17\."):
        unique(torch.from_numpy(ids), torch.from_numpy(offsets))


def test_offsets_beyond_the_ids_are_reported() -> None:
    with pytest.raises(BadInputError, match=r"1 ids are negative or not there, the first at position 3\."):
        unique(torch.tensor([1, 2, 1]), torch.tensor([0, 2, 5]))


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_it_compiles_for_gpus_without_spilling(architecture: str) -> None:
    """48 registers let 5 blocks of 256 threads run at once on an SM of 65536."""
    usage = compile_cubin(kernels(), architecture).usage
    assert len(usage) == len(kernels())
    for name, used in usage.items():
        assert used.spilled_bytes == 0 and used.registers <= 48, (name, used)
