"""What a launch on a GPU tells CuPy, seen by a stand-in that writes it down."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import numpy as np
import one_gpu
import pytest
from oracles import environment
from waiting import PATIENCE_S

pytest.importorskip("torch")
pytest.importorskip("cuda.bindings.nvrtc")

from calibrate.cuda.kernel_launch import pack

PROGRAM = r"""
import ctypes
from dataclasses import replace
from pathlib import Path
import cupy, torch
from calibrate.cuda import kernel_launch
from calibrate.cuda.cache import Kernel

CLEAR = Kernel("gather_pool.cu", "pm::gather_pool<float, 1, 1, 4>")
gpu = torch.device("cuda", 0)

def write(kernel, grid, block, args, *, shared_mem):
    values = " ".join(one.tobytes()[::-1].hex() for one in args)
    most, carveout = kernel.max_dynamic_shared_size_bytes, kernel.preferred_shared_memory_carveout
    print(*grid, *block, shared_mem, most, carveout, cupy.stream.current, values)

def module(*, path):
    print("load", Path(path).read_bytes()[1:4].decode())
    return real(path=path)

real, cupy.RawModule = cupy.RawModule, module
cupy.RawKernel.__call__ = write
torch.cuda.current_stream().cuda_stream = 0x77
values = [None, torch.empty(0), ctypes.c_int64(-2), ctypes.c_uint64(2**64 - 1)]
values += [ctypes.c_int32(-3), ctypes.c_uint32(2**32 - 1)]
for shared in (0, 40_000, 100_000, 60_000):
    kernel_launch.launch(CLEAR, gpu, (5, 6), 64, values, shared)
kernel_launch.launch(CLEAR, gpu, 0, 64, values)
for shared in (92 * 1024, 230 * 1024):  # of 228 KiB
    kernel_launch.launch(replace(CLEAR, sm_shared_bytes=shared), gpu, (5, 6), 64, values)
print("blocks", kernel_launch.count_blocks(CLEAR, gpu, 256, 90_000), cupy.device.current, flush=True)
"""


def test_cupy_is_told_what_a_kernel_takes(kernel_home: object) -> None:
    """Grid, block, shared memory, leave for it, the carve-out in percent, torch's stream; then each argument.

    High bytes come first. Code is loaded once for a carve-out, an empty grid is not launched, and leave is
    never taken back.
    """
    variables = {**environment(), **one_gpu.variables(rehearse=True), "PERFMODEL_HOME": str(kernel_home)}
    line, limit_s = [sys.executable, "-c", PROGRAM], PATIENCE_S
    done = subprocess.run(line, env=variables, capture_output=True, text=True, timeout=limit_s, check=False)
    assert done.returncode == 0, done.stderr
    values = f"{16 * '0'} {16 * '0'} fffffffffffffffe {16 * 'f'} fffffffd ffffffff"
    assert done.stdout.splitlines() == [
        "load ELF",
        f"5 6 1 64 1 1 0 49152 -1 (0, 119) {values}",
        f"5 6 1 64 1 1 40000 40000 -1 (0, 119) {values}",
        f"5 6 1 64 1 1 100000 100000 -1 (0, 119) {values}",
        f"5 6 1 64 1 1 60000 100000 -1 (0, 119) {values}",
        "load ELF",
        f"5 6 1 64 1 1 0 49152 41 (0, 119) {values}",
        "load ELF",
        f"5 6 1 64 1 1 0 49152 100 (0, 119) {values}",
        "blocks 4 None",
    ]


def test_a_structure_is_passed_by_value() -> None:
    class Two(ctypes.Structure):
        _fields_ = (("one", ctypes.c_int32), ("other", ctypes.c_int64))

    made = pack(Two(1, 2))
    assert made.size == 1 and made.nbytes == 16
    assert made.tobytes() == np.array([1, 2]).astype("<i8").tobytes()
