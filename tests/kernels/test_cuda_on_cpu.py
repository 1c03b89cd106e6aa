"""The stand-in for a GPU keeps a GPU's promises, and says so where a kernel breaks them."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from calibrate.cuda import kernel_launch as launching  # noqa: E402
from calibrate.cuda.cache import Kernel  # noqa: E402
from calibrate.cuda.gpu_build import compile_cubin  # noqa: E402
from perfmodel.errors import PerfmodelError  # noqa: E402

SOURCE = str(Path(__file__).parent / "cuda_sources" / "emulator.cu")
NAMES = (
    "block_sum", "reverse", "groups", "votes", "early", "stuck", "whole_number", "first_fault", "unwritten",
)  # fmt: skip
KERNELS = {name: Kernel(SOURCE, f"pm::{name}") for name in NAMES}
CPU = torch.device("cpu")


def kernels() -> list[Kernel]:
    return list(KERNELS.values())


pytestmark = pytest.mark.usefixtures("built")


def run(name: str, grid: int, block: int, *arguments: Any, shared_bytes: int = 0) -> None:
    launching.launch(KERNELS[name], CPU, grid, block, arguments, shared_bytes)


def test_blocks_add_up_what_their_threads_hold(order: None) -> None:
    out = torch.full((3,), -1)
    run("block_sum", 3, 96, torch.arange(288), out)
    assert out.tolist() == [95 * 48, 95 * 48 + 96 * 96, 95 * 48 + 2 * 96 * 96]


def test_shared_memory_holds_after_a_barrier(order: None) -> None:
    out = torch.full((50,), -1, dtype=torch.int32)
    run("reverse", 1, 50, torch.arange(50, dtype=torch.int32), out, shared_bytes=200)
    assert out.tolist() == list(range(49, -1, -1))


def test_groups_of_lanes_shuffle_among_themselves(order: None) -> None:
    terms = torch.tensor([0, 1, 8, 3], dtype=torch.int32)
    out = torch.full((32,), -1, dtype=torch.int32)
    run("groups", 1, 32, terms, out)
    sums = [sum((lane ^ i % 8) * (i + 1) for i in range(int(terms[lane // 8]))) for lane in range(32)]
    assert out.tolist() == sums


def test_votes_matches_and_shifts(order: None) -> None:
    values = torch.arange(32, dtype=torch.int32) % 3
    out = torch.zeros(64, dtype=torch.int32)
    run("votes", 1, 32, values, out)
    got = out.numpy().view(np.uint32)
    same = [sum(1 << other for other in range(32) if other % 3 == lane % 3) for lane in range(32)]
    assert got[:32].tolist() == same
    assert got[32:].tolist() == [0, *(values[:-1].tolist())]


def test_code_that_is_not_there_is_a_defect_with_the_compilers_words() -> None:
    with pytest.raises(PerfmodelError, match=r"does not compile for a CPU:\n[^b](.*\n)*.*error: .*nothing"):
        launching.prebuild([Kernel(SOURCE, "pm::nothing")], CPU)


def test_threads_that_ended_hold_nobody_up() -> None:
    out = torch.zeros(64, dtype=torch.int32)
    run("early", 1, 64, out)
    assert out.tolist() == [1] * 40 + [0] * 24


def test_a_barrier_that_not_all_reach_is_an_error() -> None:
    with pytest.raises(PerfmodelError, match="waits forever"):
        run("stuck", 1, 32, torch.zeros(32, dtype=torch.int32))


def test_ids_out_of_range_are_counted_and_the_first_is_named() -> None:
    ids = torch.tensor([0, 9, -1, 4, 10, 3])
    faults = torch.tensor([0, -1])
    run("first_fault", 2, 4, ids, ctypes.c_int64(9), ctypes.c_int64(6), faults)
    assert faults.tolist() == [3, 1]


def test_shared_memory_that_nobody_wrote_is_poisoned() -> None:
    out = torch.zeros(32, dtype=torch.int32)
    run("unwritten", 1, 32, out, shared_bytes=128)
    assert set(out.numpy().view(np.uint32).tolist()) == {0xA5A5A5A5}


def test_it_compiles_for_a_gpu_too() -> None:
    cubin = compile_cubin(list(KERNELS.values()), "sm_90")
    assert set(cubin.symbols) == {kernel.name for kernel in KERNELS.values()}
    assert cubin.code[:4] == b"\x7fELF"
    assert len(cubin.usage) == len(KERNELS)
    assert all(usage.spilled_bytes == 0 for usage in cubin.usage.values())
