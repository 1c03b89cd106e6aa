"""The kernels of the one-sided exchange compile for a GPU, by themselves and with NVSHMEM."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from calibrate.cuda import nvshmem_build
from calibrate.cuda.cache import Kernel
from calibrate.cuda.exchange_memory import METHODS
from calibrate.cuda.gpu_build import compile_cubin
from calibrate.cuda.row_wise_exchange import SOURCE_NVSHMEM, choose_access, kernels
from perfmodel.errors import NoHardwareError

WIDTHS = ((32, 16), (128, 16), (300, 4))
"""Columns, and bytes of an access."""


def all_kernels() -> list[Kernel]:
    """Of every type with every width."""
    made = {
        kernel
        for dtype in ("fp32", "fp16")
        for dim, width in WIDTHS
        for method in METHODS
        for kernel in kernels(dtype, choose_access(dim, dtype, width), method=method).values()
    }
    return sorted(made)


def test_it_compiles_for_a_gpu() -> None:
    """Three blocks of 256 threads on an SM: 80 registers at most, none spilled."""
    for name, usage in compile_cubin(all_kernels(), "sm_90").usage.items():
        assert usage.spilled_bytes == 0 and usage.registers <= 80, (name, usage)


def test_it_is_built_with_nvshmem() -> None:
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
    for name, usage in cubin.usage.items():
        assert usage.spilled_bytes == 0 and usage.registers <= 80, (name, usage)


def test_each_part_is_found_wherever_it_lies(tmp_path: Path) -> None:
    """Wheels that were carried lie in another folder than those that were there."""
    there, carried = tmp_path / "there", tmp_path / "carried"
    for name in nvshmem_build._PARTS:
        path = (carried if "cccl" in name else there) / "nvidia" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    found = nvshmem_build.find_wheels([str(tmp_path), str(carried), str(there)])
    assert found.load_host_library == there / "nvidia/nvshmem/lib/libnvshmem_host.so.3"
    headers = (there / "nvidia/nvshmem/include", there / "nvidia/cu13/include")
    assert found.includes == (*headers, carried / "nvidia/cu13/include/cccl")
    with pytest.raises(NoHardwareError, match=r"type_traits \(nvidia-cuda-cccl\) is in no folder") as caught:
        nvshmem_build.find_wheels([str(there)])
    assert "nvshmem.h" not in caught.value.message
