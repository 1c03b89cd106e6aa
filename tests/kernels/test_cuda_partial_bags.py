"""Sums and packing of partial bags on the CPU that stands in for a GPU, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from cuda_memory import POISON, assert_guards_hold, guarded, poison  # noqa: E402
from oracles.kernels import partial_bags as reference  # noqa: E402

from calibrate.cuda.gpu_build import compile_cubin  # noqa: E402
from calibrate.cuda.partial_bags import (  # noqa: E402
    Packer,
    SparseSum,
    kernels,
    pack,
    partial_sum,
    sparse_sum,
)
from perfmodel.errors import BadInputError  # noqa: E402

CPU = torch.device("cpu")
TYPES = (torch.float32, torch.float16, torch.bfloat16)
PAIRS = [(kind, out) for kind in TYPES for out in {kind, torch.float32}]
ROUNDING = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
SHAPES = [(1, 1, 1), (3, 5, 7), (2, 33, 4), (9, 10, 64), (4, 3, 132), (5, 300, 8), (2, 200, 33)]
"""Sources, bags, columns: fewer and more than are in flight, columns that 4 does and does not divide, more
elements than the 12 blocks of 256 threads take in one turn."""


pytestmark = pytest.mark.usefixtures("built")


def floats(rng: np.random.Generator, dtype: Any, *shape: int) -> Any:
    return torch.from_numpy(rng.standard_normal(shape)).to(dtype)


def some_lengths(rng: np.random.Generator, sources: int, bags: int) -> Any:
    """About half of the bags are empty."""
    lengths = rng.integers(0, 4, (sources, bags)) * rng.integers(0, 2, (sources, bags))
    return torch.from_numpy(lengths.astype(np.int32))


def exact(tensor: Any) -> Any:
    return tensor.double().numpy()


def assert_rounded_sum(out: Any, want: Any, parts: Any) -> None:
    """fp32 sums of G numbers are off by at most G - 1 roundings of what they add, and one of the type."""
    largest = np.abs(exact(parts)).sum(0)
    allowed = (parts.shape[0] * 2.0**-24 + ROUNDING[out.dtype]) * largest + 2.0**-25
    assert (np.abs(exact(out) - want) <= allowed).all()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("dtype", "out_dtype"), PAIRS)
def test_sums_are_those_of_float64(
    rng: np.random.Generator, shape: tuple[int, int, int], dtype: Any, out_dtype: Any
) -> None:
    parts = floats(rng, dtype, *shape)
    out, memory = guarded(torch.empty(shape[1:], dtype=out_dtype))
    assert partial_sum(parts, out) is out
    assert_rounded_sum(out, reference.partial_sum(exact(parts)), parts)
    assert_guards_hold([memory])


@pytest.mark.parametrize("dim", [4, 5])
def test_sums_add_sources_in_rising_order(rng: np.random.Generator, order: None, dim: int) -> None:
    parts, want = floats(rng, torch.float32, 11, 200, dim), torch.zeros(200, dim)
    for part in parts:
        want += part
    assert torch.equal(partial_sum(parts, torch.empty(200, dim)), want)


@pytest.mark.parametrize(("first", "apart"), [(0, 96), (1, 96), (0, 81), (4, 84)])
def test_sources_that_lie_apart_and_not_at_multiples_of_16_bytes(
    rng: np.random.Generator, first: int, apart: int
) -> None:
    memory = floats(rng, torch.float32, 500)
    parts = memory[first:].as_strided((5, 20, 4), (apart, 4, 1))
    out = partial_sum(parts, torch.empty(20, 4))
    assert_rounded_sum(out, reference.partial_sum(exact(parts)), parts)


def test_no_bag_is_no_work() -> None:
    assert partial_sum(torch.empty(3, 0, 4), torch.empty(0, 4)).numel() == 0


def test_packing_by_hand() -> None:
    """2 destinations, 3 bags of 1 column: bags 0 and 2 go to the first, bag 1 to the second."""
    lengths = torch.tensor([[1, 0, 5], [0, 2, 0]], dtype=torch.int32)
    bags = torch.tensor([[[10.0], [11.0], [12.0]], [[20.0], [21.0], [22.0]]])
    got = pack(lengths, bags)
    assert got.rows[:3, 0].tolist() == [10, 12, 21] and got.bag_numbers[:3].tolist() == [0, 2, 1]
    assert got.counts.tolist() == [2, 1] and got.offsets.tolist() == [0, 1, 1, 2, 2, 3, 3]
    out = sparse_sum(got.rows[:3], got.bag_numbers[:3], got.counts, 3)
    assert out[:, 0].tolist() == [10, 21, 12]


@pytest.mark.parametrize("shape", [*SHAPES, (7, 400, 3)])
@pytest.mark.parametrize("dtype", TYPES)
def test_packed_bags_are_those_of_the_reference(
    rng: np.random.Generator, shape: tuple[int, int, int], dtype: Any
) -> None:
    made = Packer(*shape, dtype, CPU)
    memory = poison(made.packed)
    for _ in range(2):  # the second call finds the state of the scan as the first did
        lengths, bags = some_lengths(rng, *shape[:2]), floats(rng, dtype, *shape)
        rows, numbers, counts = reference.pack(lengths.numpy(), exact(bags))
        made.packed.rows.fill_(POISON)
        got, n = made.run(lengths, bags), len(rows)
        assert np.array_equal(exact(got.rows[:n]), rows) and (got.rows[n:] == POISON).all()
        assert np.array_equal(got.bag_numbers[:n].numpy(), numbers)
        assert np.array_equal(got.counts.numpy(), counts)
        assert got.offsets.tolist() == [0, *(lengths.view(-1) > 0).cumsum(0).tolist()]
    assert_guards_hold(memory)


@pytest.mark.parametrize("first", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_bags_to_pack_need_not_begin_at_multiples_of_16_bytes(
    rng: np.random.Generator, dtype: Any, first: int
) -> None:
    bags = floats(rng, dtype, 2 * 9 * 8 + first)[first:].view(2, 9, 8)
    lengths = some_lengths(rng, 2, 9)
    rows, _, _ = reference.pack(lengths.numpy(), exact(bags))
    assert np.array_equal(exact(pack(lengths, bags).rows[: len(rows)]), rows)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("dtype", "out_dtype"), PAIRS)
def test_packed_bags_add_up_as_full_ones(
    rng: np.random.Generator, shape: tuple[int, int, int], dtype: Any, out_dtype: Any
) -> None:
    lengths = some_lengths(rng, *shape[:2])
    bags = floats(rng, dtype, *shape) * (lengths > 0)[:, :, None]
    packed = pack(lengths, bags)
    n = int(packed.counts.sum())
    made = SparseSum(*shape, n + 2, dtype, CPU, out_dtype=out_dtype)  # room for two rows more
    made.out, memory = guarded(made.out)
    rows = torch.cat([packed.rows[:n], torch.full((2, shape[2]), torch.nan, dtype=dtype)])
    numbers = torch.cat([packed.bag_numbers[:n], torch.zeros(2, dtype=torch.int32)])
    for _ in range(2):
        out = made.run(rows, numbers, packed.counts)
        assert torch.equal(out, partial_sum(bags, torch.empty(shape[1:], dtype=out_dtype)))
    want = reference.sparse_sum(exact(packed.rows[:n]), numbers, packed.counts, shape[1])
    assert_rounded_sum(out, want, bags)
    assert made.faults.tolist() == [0, -1]
    assert_guards_hold([memory])


@pytest.mark.parametrize(
    ("numbers", "counts", "words"),
    [
        ([0, 3, 1], [2, 1], r"1 packed rows .* the first at position 1\."),
        ([0, 2, -1], [1, 2], r"1 packed rows .* the first at position 2\."),
        ([0, 1, 1], [1, 2], r"1 packed rows"),
        ([0, 1, 2], [1, 3], r"1 packed rows .* the first at position 3\."),
        ([0, 1, 2], [4, 1], r"2 packed rows .* the first at position 3\."),
    ],
    ids=["beyond the bags", "before the bags", "twice", "not there", "not there, nor the next"],
)
def test_rows_that_have_no_place_are_reported(numbers: list[int], counts: list[int], words: str) -> None:
    rows, bags = torch.ones(3, 2), torch.tensor(numbers, dtype=torch.int32)
    with pytest.raises(BadInputError, match=words):
        sparse_sum(rows, bags, torch.tensor(counts), 3)
    assert sparse_sum(rows, bags, torch.tensor(counts), 3, check=False).sum() <= 6


def test_what_cannot_be_added_or_packed() -> None:
    bags, lengths = torch.ones(2, 3, 4), torch.ones(2, 3, dtype=torch.int32)
    for parts, out in (
        (bags, torch.empty(4, 3)),
        (bags.transpose(1, 2), torch.empty(4, 3)),
        (bags[:0], bags[0]),
    ):
        with pytest.raises(BadInputError, match=r"cannot be added"):
            partial_sum(parts, out)
    with pytest.raises(BadInputError, match=r"float32 .* into torch.float16"):
        partial_sum(bags, torch.empty(3, 4, dtype=torch.float16))
    with pytest.raises(BadInputError, match=r"torch.float64 cannot be packed"):
        pack(lengths, bags.double())
    with pytest.raises(BadInputError, match=r"lengths are \(2, 3\) of torch.int64"):
        pack(lengths.long(), bags)
    with pytest.raises(BadInputError, match=r"counts are \(2,\) of torch.int32"):
        sparse_sum(bags[0], lengths[0], torch.ones(2, dtype=torch.int32), 3)
    with pytest.raises(BadInputError, match=r"70000 sources"):
        SparseSum(70_000, 1, 1, 1, torch.float32, CPU)


def test_it_compiles_for_a_gpu_without_spilling() -> None:
    """64 registers let 4 blocks of 256 threads run at once on an SM of 65536."""
    usage = compile_cubin(kernels(), "sm_90").usage
    assert len(usage) == len(kernels())
    for name, used in usage.items():
        assert used.spilled_bytes == 0 and used.registers <= 64, (name, used)
