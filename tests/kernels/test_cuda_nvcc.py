"""The sources are a library: where nvcc is installed it compiles them too, over NVSHMEM with its headers."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("torch")

from gather_kernels import others, variants

from calibrate.cuda import bucketize, one_core, partial_bags, row_wise_exchange, unique
from calibrate.cuda.kernel import Kernel
from perfmodel.resources import kernels_path

EXCHANGE = row_wise_exchange.kernels("fp32", "int64", row_wise_exchange.row_access(128, "fp32", 16))
KERNELS = {
    "gather_pool": [*variants()[::3], *others()],  # NVRTC compiles all of them
    "one_core": one_core.kernels(),
    "bucketize": bucketize.kernels(),
    "partial_bags": partial_bags.kernels(),
    "unique": unique.kernels(),
    "exchange": list(EXCHANGE.values()),
    "exchange_nvshmem": [
        Kernel(row_wise_exchange.SOURCE_NVSHMEM, kernel.name) for kernel in EXCHANGE.values()
    ],
}


def nvshmem_headers() -> list[str]:
    found = importlib.util.find_spec("nvidia")
    folders = found.submodule_search_locations or [] if found else []
    return [f"-I{Path(one, 'nvshmem', 'include')}" for one in folders if Path(one, "nvshmem").is_dir()]


def test_nvcc_compiles_all_sources_side_by_side(tmp_path: Path) -> None:
    """Who takes them as a library may want several in one file."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("NOT COMPILED with nvcc: it is not installed")
    unit = tmp_path / "unit.cu"
    files = sorted(path.name for path in kernels_path().glob("*.cu") if path.name != "exchange_nvshmem.cu")
    unit.write_text("".join(f'#include "{name}"\n' for name in files))
    line = [
        nvcc,
        "-std=c++17",
        "-arch=sm_90",
        "-cubin",
        f"-I{kernels_path()}",
        str(unit),
        "-o",
        str(tmp_path / "made"),
    ]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.parametrize("family", KERNELS)
def test_nvcc_compiles_it(family: str, tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("NOT COMPILED with nvcc: it is not installed")
    headers = nvshmem_headers() if family == "exchange_nvshmem" else []
    if family == "exchange_nvshmem" and not headers:
        pytest.skip("NOT COMPILED with nvcc: NVSHMEM's headers are not installed")
    unit, made = tmp_path / "unit.cu", tmp_path / "unit.cubin"
    entries = [f"auto entry_{at} = &{kernel.name};" for at, kernel in enumerate(KERNELS[family])]
    unit.write_text("\n".join([f'#include "{KERNELS[family][0].source}"', *entries, ""]))
    options = [
        "-std=c++17",
        "-arch=sm_90",
        "-cubin",
        "-rdc=true",
        "-Xptxas=-v",
        f"-I{kernels_path()}",
        *headers,
    ]
    line = [nvcc, *options, str(unit), "-o", str(made)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    if family != "exchange_nvshmem":  # the library's own functions spill some bytes
        assert set(re.findall(r"(\d+) bytes spill stores", done.stderr)) == {"0"}
    names = {kernel.name.removeprefix("pm::").split("<")[0] for kernel in KERNELS[family]}
    assert all(name.encode() in made.read_bytes() for name in names)
