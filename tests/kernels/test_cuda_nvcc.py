"""The sources are a library: where nvcc is installed it compiles them too, all in one file."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("torch")

import gather_kernels

from calibrate.cuda import row_wise_exchange
from perfmodel.resources import kernels_path

EXCHANGE = row_wise_exchange.kernels("fp32", row_wise_exchange.choose_access(128, "fp32", 16)).values()
KERNELS = {kernel.name.split("<")[0]: kernel for kernel in (*gather_kernels.kernels(), *EXCHANGE)}
"""One of each template: NVRTC compiles all others."""


def test_nvcc_compiles_all_sources_side_by_side(tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("NOT COMPILED with nvcc: it is not installed")
    files = {path.name for path in kernels_path().glob("*.cu")}
    assert {kernel.source for kernel in KERNELS.values()} == files - {row_wise_exchange.SOURCE_NVSHMEM}
    unit, cubin = tmp_path / "unit.cu", tmp_path / "unit.cubin"
    sources = [f'#include "{name}"' for name in sorted({kernel.source for kernel in KERNELS.values()})]
    entries = [f"auto entry_{number} = &{kernel.name};" for number, kernel in enumerate(KERNELS.values())]
    unit.write_text("\n".join([*sources, *entries, ""]))
    options = ["-std=c++17", "-arch=sm_90", "-cubin", "-rdc=true", f"-I{kernels_path()}"]
    line = [nvcc, *options, str(unit), "-o", str(cubin)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert all(name.removeprefix("pm::").encode() in cubin.read_bytes() for name in KERNELS)
