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

from gather_kernels import COMMON, PLAIN, gpu_code, others, variants

from calibrate.cuda.gather_layout import RowAccess
from calibrate.cuda.gather_variants import VARIANTS, GatherVariant
from calibrate.cuda.gpu_build import Cubin, compile_cubin

INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]+)")
FUNCTION = re.compile(r"^\.text\.(\w+):$", re.MULTILINE)
NARROW = PLAIN.kernel(RowAccess(32, 2, 4), "fp32", GatherVariant(False, 8, False))
REGISTERS = 65536
"""Of a multiprocessor."""


def disassembler() -> str | None:
    """nvdisasm: of the CUDA toolkit, or of the wheel nvidia-cuda-nvdisasm."""
    found = importlib.util.find_spec("nvidia")
    folders = found.submodule_search_locations or [] if found else []
    wheels = [str(path) for folder in folders for path in Path(folder).glob("*/bin/nvdisasm")]
    return next(iter(wheels), shutil.which("nvdisasm"))


@cache
def machine_code() -> dict[str, Counter[str]]:
    """How often each instruction stands in every kernel for sm_90, disassembled in two starts of the tool."""
    tool = disassembler()
    if tool is None:
        pytest.skip("NOT LOOKED AT: nvdisasm is not installed (pip install nvidia-cuda-nvdisasm)")
    return {
        name: count
        for cubin in (gpu_code(), compile_cubin([NARROW], "sm_90"))
        for name, count in instructions(tool, cubin).items()
    }


def instructions(tool: str, cubin: Cubin) -> dict[str, Counter[str]]:
    listed = subprocess.run([tool, "-c", str(cubin.path)], capture_output=True, text=True, check=True).stdout
    _, *parts = FUNCTION.split(listed)
    seen = {
        symbol: Counter(INSTRUCTION.findall(text))
        for symbol, text in zip(parts[::2], parts[1::2], strict=True)
    }
    return {name: seen[symbol] for name, symbol in cubin.symbols.items()}


@pytest.mark.parametrize("long", [False, True], ids=["runs", "long"])
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda one: one.name)
def test_rows_take_the_way_that_the_variant_says(variant: GatherVariant, long: bool) -> None:
    """LDGSTS is cp.async; BYPASS: past the L1 cache. Ids of 8 bytes go through it: no other way is there."""
    for shape in COMMON:
        seen = machine_code()[PLAIN.kernel(shape, "fp32", variant, long=long).name]
        rows = {
            name: count for name, count in seen.items() if name.startswith("LDGSTS") and name.endswith("128")
        }
        assert rows and all(("BYPASS" in name) != variant.near for name in rows), rows
        assert any(name.startswith("LDGSTS") and name.endswith("64") for name in seen)
        assert not any(name.split(".")[0] in ("LDL", "STL") for name in seen), (
            "memory of its own: something is spilled"
        )


def test_rows_that_are_not_aligned_go_through_the_l1_cache() -> None:
    seen = machine_code()[NARROW.name]
    rows = {name for name in seen if name.startswith("LDGSTS")}
    assert "LDGSTS.E" in rows and not any("BYPASS" in name for name in rows), rows


def test_registers_let_so_many_blocks_run_as_a_variant_says() -> None:
    """The last template argument; nothing is spilled for it."""
    kernels = [*variants(), *others()]
    usage = gpu_code().usage
    for kernel in kernels:
        blocks, used = int(kernel.name.rstrip(">").rsplit(" ", 1)[1]), usage[kernel.name]
        assert used.spilled_bytes == 0 and 256 * blocks * used.registers <= REGISTERS, (kernel, used)
