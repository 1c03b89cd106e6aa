"""Sums of partial bags on the CPU that stands in for a GPU, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from cuda_memory import assert_guards_hold, guarded  # noqa: E402
from oracles.kernels import partial_bags as reference  # noqa: E402

from calibrate.cuda.gpu_build import compile_cubin  # noqa: E402
from calibrate.cuda.partial_bags import kernels, partial_sum  # noqa: E402
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


def test_what_cannot_be_added() -> None:
    bags = torch.ones(2, 3, 4)
    for parts, out in (
        (bags, torch.empty(4, 3)),
        (bags.transpose(1, 2), torch.empty(4, 3)),
        (bags[:0], bags[0]),
    ):
        with pytest.raises(BadInputError, match=r"cannot be added"):
            partial_sum(parts, out)
    with pytest.raises(BadInputError, match=r"float32 .* into torch.float16"):
        partial_sum(bags, torch.empty(3, 4, dtype=torch.float16))


def test_it_compiles_for_a_gpu_without_spilling() -> None:
    """64 registers let 4 blocks of 256 threads run at once on an SM of 65536."""
    usage = compile_cubin(kernels(), "sm_90").usage
    assert len(usage) == len(kernels())
    for name, used in usage.items():
        assert used.spilled_bytes == 0 and used.registers <= 64, (name, used)
