"""The sources are a library: where nvcc is installed it compiles them too, over NVSHMEM with its headers."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("torch")

from gather_kernels import others, variants

from calibrate.cuda import bucketize, partial_bags, row_wise_exchange, unique
from calibrate.cuda.kernel import Kernel
from perfmodel.resources import kernels_path

EXCHANGE = row_wise_exchange.kernels("fp32", "int64", row_wise_exchange.row_access(128, "fp32", 16)).values()
KERNELS = [
    *variants()[::3],  # NVRTC compiles all of them
    *others(),
    *(kernel for family in (bucketize, partial_bags, unique) for kernel in family.kernels()),
    *EXCHANGE,
]
OVER_NVSHMEM = [Kernel(row_wise_exchange.SOURCE_NVSHMEM, kernel.name) for kernel in EXCHANGE]


def nvshmem_headers() -> list[str]:
    found = importlib.util.find_spec("nvidia")
    folders = found.submodule_search_locations or [] if found else []
    return [f"-I{Path(one, 'nvshmem', 'include')}" for one in folders if Path(one, "nvshmem").is_dir()]


def compiled(kernels: Sequence[Kernel], folder: Path, headers: Sequence[str] = ()) -> str:
    """What nvcc says of one file with the sources of these kernels; the kernels are in what it makes."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("NOT COMPILED with nvcc: it is not installed")
    unit, made = folder / "unit.cu", folder / "unit.cubin"
    sources = [f'#include "{name}"' for name in sorted({kernel.source for kernel in kernels})]
    entries = [f"auto entry_{at} = &{kernel.name};" for at, kernel in enumerate(kernels)]
    unit.write_text("\n".join([*sources, *entries, ""]))
    options = ["-std=c++17", "-arch=sm_90", "-cubin", "-rdc=true", "-Xptxas=-v", f"-I{kernels_path()}"]
    line = [nvcc, *options, *headers, str(unit), "-o", str(made)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    names = {kernel.name.removeprefix("pm::").split("<")[0] for kernel in kernels}
    assert all(name.encode() in made.read_bytes() for name in names)
    return done.stderr


def test_nvcc_compiles_all_sources_side_by_side(tmp_path: Path) -> None:
    """Who takes them as a library may want several in one file."""
    sources = {path.name for path in kernels_path().glob("*.cu")}
    assert {kernel.source for kernel in KERNELS} == sources - {row_wise_exchange.SOURCE_NVSHMEM}
    assert set(re.findall(r"(\d+) bytes spill stores", compiled(KERNELS, tmp_path))) == {"0"}


def test_nvcc_compiles_the_exchange_over_nvshmem(tmp_path: Path) -> None:
    """The library's own functions spill some bytes."""
    headers = nvshmem_headers()
    if not headers:
        pytest.skip("NOT COMPILED with nvcc: NVSHMEM's headers are not installed")
    compiled(OVER_NVSHMEM, tmp_path, headers)
