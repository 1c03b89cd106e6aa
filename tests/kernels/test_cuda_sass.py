"""What the compiler makes of the row stream for an H100: which copies, how many registers, no spills."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

pytest.importorskip("torch")

from gather_kernels import COMMON, gpu_code, kernels

from calibrate.cuda.gather_layout import BYTES_IN_FLIGHT, ROW_ACCESSES, THREADS, RowAccess
from calibrate.cuda.gather_pool import gather_kernel

INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]+)")
FUNCTION = re.compile(r"^\.text\.(\w+):$", re.MULTILINE)
REGISTERS, SHARED_BYTES, ALL_BYTES = 65536, 227 * 1024, 256 * 1024
"""Of a multiprocessor; ALL_BYTES: with the L1 cache."""


@cache
def machine_code() -> dict[str, Counter[str]]:
    """How often each instruction stands in every kernel for sm_90."""
    package = importlib.util.find_spec("nvidia")
    folders = package.submodule_search_locations or [] if package else []
    wheels = [str(path) for folder in folders for path in Path(folder).glob("*/bin/nvdisasm")]
    tool = next(iter(wheels), shutil.which("nvdisasm"))
    if tool is None:
        pytest.skip("NOT LOOKED AT: nvdisasm is not installed (pip install nvidia-cuda-nvdisasm)")
    cubin = gpu_code()
    listed = subprocess.run([tool, "-c", str(cubin.path)], capture_output=True, text=True, check=True).stdout
    _, *parts = FUNCTION.split(listed)
    pairs = zip(parts[::2], parts[1::2], strict=True)
    seen = {symbol: Counter(INSTRUCTION.findall(text)) for symbol, text in pairs}
    return {name: seen[symbol] for name, symbol in cubin.symbols.items()}


@pytest.mark.parametrize("long", [False, True], ids=["runs", "long"])
def test_rows_and_ids_are_copied_through_the_l1_cache(long: bool) -> None:
    """LDGSTS is cp.async; BYPASS: past the L1 cache."""
    for shape in COMMON:
        seen = machine_code()[gather_kernel(shape, "fp32", long=long).name]
        copies = {name for name in seen if name.startswith("LDGSTS")}
        assert {name.rsplit(".", 1)[1] for name in copies} == {"64", "128"}
        assert not any("BYPASS" in name for name in copies)
        assert not any(name.split(".")[0] in ("LDL", "STL") for name in seen), "something is spilled"


def test_rows_that_are_not_aligned_are_copied_in_words() -> None:
    seen = machine_code()[gather_kernel(RowAccess(32, 2, 4), "fp32").name]
    assert "LDGSTS.E" in seen


def test_registers_and_shared_memory_let_the_blocks_run_that_hide_the_latency() -> None:
    """By Little's law; nothing is spilled, and more than half of the memory is L1 cache."""
    usage = gpu_code().usage
    assert len(usage) == len(kernels())
    for kernel in kernels():
        used, chunks, width = usage[kernel.name], *map(int, kernel.name[:-1].split(", ")[2:])
        blocks = RowAccess(1, chunks, width).blocks
        assert used.spilled_bytes == 0 and THREADS * blocks * used.registers <= REGISTERS, (kernel, used)
        assert kernel.sm_shared_bytes <= SHARED_BYTES
        if width == 16:
            assert THREADS * blocks * ROW_ACCESSES * width >= BYTES_IN_FLIGHT
    for shape in COMMON:
        assert ALL_BYTES - gather_kernel(shape, "fp32").sm_shared_bytes >= 160 * 1024
