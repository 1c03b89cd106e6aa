"""The CUDA sources compile for an H100, by NVRTC, by nvcc and with NVSHMEM: copies, registers, no spills."""

from __future__ import annotations

import fcntl
import importlib.util
import re
import shutil
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

pytest.importorskip("torch")

from calibrate.cuda import nvshmem_build
from calibrate.cuda.cache import Kernel
from calibrate.cuda.exchange_memory import METHODS
from calibrate.cuda.gather_layout import BYTES_IN_FLIGHT, ROW_ACCESSES, THREADS, RowAccess
from calibrate.cuda.gather_pool import gather_kernel
from calibrate.cuda.gpu_build import Cubin, compile_cubin
from calibrate.cuda.row_wise_exchange import SOURCE_NVSHMEM, choose_access, kernels
from perfmodel.errors import NoHardwareError
from perfmodel.resources import kernels_path
from perfmodel.schema.files import home_folder

COMMON = [
    gather_kernel(shape, "fp32", long=long)
    for shape in (RowAccess(32, 1, 16), RowAccess(8, 1, 16))
    for long in (False, True)
]
"""Both kernels of gather and pool, for the rows of most tables."""

OTHERS = [
    *(gather_kernel(RowAccess(lanes, 1, 16), "fp32") for lanes in (1, 2, 4, 16)),
    *(gather_kernel(RowAccess(32, 2, width), "fp32") for width in (16, 8, 4)),
    *(gather_kernel(RowAccess(32, 2, width), "fp16") for width in (16, 2)),
    gather_kernel(RowAccess(16, 1, 16), "fp16"),
]
"""One of each other kind."""

EXCHANGE = sorted(
    {
        kernel
        for dtype in ("fp32", "fp16")
        for dim, width in ((32, 16), (128, 16), (300, 4))  # columns, bytes of an access
        for method in METHODS
        for kernel in kernels(dtype, choose_access(dim, dtype, width), method=method).values()
    }
)
INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]+)")
FUNCTION = re.compile(r"^\.text\.(\w+):$", re.MULTILINE)
REGISTERS, SHARED_BYTES, ALL_BYTES = 65536, 227 * 1024, 256 * 1024
"""Of a multiprocessor; ALL_BYTES: with the L1 cache."""


def compile_gather() -> Cubin:
    """Compiled once: other workers wait. Whoever ends, however, frees the lock."""
    with (home_folder() / "gather_kernels.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return compile_cubin(COMMON + OTHERS, "sm_90")


@cache
def list_instructions() -> dict[str, Counter[str]]:
    """How often each instruction stands in every kernel of gather and pool."""
    package = importlib.util.find_spec("nvidia")
    folders = package.submodule_search_locations or [] if package else []
    wheels = [str(path) for folder in folders for path in Path(folder).glob("*/bin/nvdisasm")]
    tool = next(iter(wheels), shutil.which("nvdisasm"))
    if tool is None:
        pytest.skip("NOT LOOKED AT: nvdisasm is not installed (pip install nvidia-cuda-nvdisasm)")
    cubin = compile_gather()
    listed = subprocess.run([tool, "-c", str(cubin.path)], capture_output=True, text=True, check=True).stdout
    _, *parts = FUNCTION.split(listed)
    pairs = zip(parts[::2], parts[1::2], strict=True)
    seen = {symbol: Counter(INSTRUCTION.findall(text)) for symbol, text in pairs}
    return {name: seen[symbol] for name, symbol in cubin.symbols.items()}


@pytest.mark.parametrize("kernel", COMMON, ids=str)
def test_rows_and_ids_are_copied_through_the_l1_cache(kernel: Kernel) -> None:
    """LDGSTS is cp.async; BYPASS: past the L1 cache."""
    seen = list_instructions()[kernel.name]
    copies = {name for name in seen if name.startswith("LDGSTS")}
    assert {name.rsplit(".", 1)[1] for name in copies} == {"64", "128"}
    assert not any("BYPASS" in name for name in copies)
    assert not any(name.split(".")[0] in ("LDL", "STL") for name in seen), "something is spilled"
    assert "LDGSTS.E" in list_instructions()[OTHERS[6].name]  # rows that are not aligned: in words


def test_registers_and_shared_memory_let_the_blocks_run_that_hide_the_latency() -> None:
    """By Little's law; nothing is spilled, and more than half of the memory is L1 cache."""
    usage = compile_gather().usage
    assert len(usage) == len(COMMON + OTHERS)
    for kernel in COMMON + OTHERS:
        used, chunks, width = usage[kernel.name], *map(int, kernel.name[:-1].split(", ")[2:])
        blocks = RowAccess(1, chunks, width).blocks
        assert used.spilled_bytes == 0 and THREADS * blocks * used.registers <= REGISTERS, (kernel, used)
        assert kernel.sm_shared_bytes <= SHARED_BYTES
        if width == 16:
            assert THREADS * blocks * ROW_ACCESSES * width >= BYTES_IN_FLIGHT
    assert all(ALL_BYTES - kernel.sm_shared_bytes >= 160 * 1024 for kernel in COMMON[::2])


def check_exchange(cubin: Cubin) -> None:
    """Three blocks of 256 threads on an SM: 80 registers at most, none spilled."""
    for name, usage in cubin.usage.items():
        assert usage.spilled_bytes == 0 and usage.registers <= 80, (name, usage)


def test_the_exchange_compiles_for_a_gpu() -> None:
    check_exchange(compile_cubin(EXCHANGE, "sm_90"))


def test_the_exchange_is_built_with_nvshmem() -> None:
    try:
        nvshmem_build.find_wheels()
    except NoHardwareError as error:
        pytest.skip(f"NOT BUILT with NVSHMEM: {error}")
    fused = kernels("fp32", choose_access(128, "fp32", 16), source=SOURCE_NVSHMEM)
    cubin = nvshmem_build.build(list(fused.values()), "sm_90")
    assert cubin.code[:4] == b"\x7fELF"
    assert all(cubin.symbols[kernel.name].encode() in cubin.code for kernel in fused.values())
    for name in ("device_state", "ibgda_device_state", "device_lib_version"):  # for nvshmemx_culibrary_init
        assert f"\0nvshmemi_{name}_d\0".encode() in cubin.code
    check_exchange(cubin)


def test_each_part_of_nvshmem_is_found_wherever_it_lies(tmp_path: Path) -> None:
    """Wheels that were carried lie in another folder than those that were there."""
    there, carried = tmp_path / "there", tmp_path / "carried"
    for name in nvshmem_build._PARTS:
        path = (carried if "cccl" in name else there) / "nvidia" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    wheels = nvshmem_build.find_wheels([str(tmp_path), str(carried), str(there)])
    assert wheels.host_library == there / "nvidia/nvshmem/lib/libnvshmem_host.so.3"
    headers = (there / "nvidia/nvshmem/include", there / "nvidia/cu13/include")
    assert wheels.includes == (*headers, carried / "nvidia/cu13/include/cccl")
    with pytest.raises(NoHardwareError, match=r"type_traits \(nvidia-cuda-cccl\) is in no folder") as caught:
        nvshmem_build.find_wheels([str(there)])
    assert "nvshmem.h" not in caught.value.message


def test_nvcc_compiles_all_sources_side_by_side(tmp_path: Path) -> None:
    """The sources are a library. One of each template: NVRTC compiles all others."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("NOT COMPILED with nvcc: it is not installed")
    wide = kernels("fp32", choose_access(128, "fp32", 16)).values()
    templates = {kernel.name.split("<")[0]: kernel for kernel in (*COMMON, *wide)}
    sources = {kernel.source for kernel in templates.values()}
    assert sources == {path.name for path in kernels_path().glob("*.cu")} - {SOURCE_NVSHMEM}
    unit, cubin = tmp_path / "unit.cu", tmp_path / "unit.cubin"
    includes = [f'#include "{name}"' for name in sorted(sources)]
    entries = [f"auto entry_{number} = &{kernel.name};" for number, kernel in enumerate(templates.values())]
    unit.write_text("\n".join([*includes, *entries, ""]))
    options = ["-std=c++17", "-arch=sm_90", "-cubin", "-rdc=true", f"-I{kernels_path()}"]
    line = [nvcc, *options, str(unit), "-o", str(cubin)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert all(name.removeprefix("pm::").encode() in cubin.read_bytes() for name in templates)
