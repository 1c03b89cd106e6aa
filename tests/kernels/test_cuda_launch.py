"""What a launch on a GPU tells the driver, seen by a driver that only writes down what it is told."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("cuda.bindings.nvrtc")

DRIVER = r"""
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
using wide = unsigned long long;
extern "C" {
int nothing() { return 0; }
int cuLibraryLoadData(uint64_t* library, const unsigned char* code, void*, void*, unsigned options) {
  *library = 1;
  return std::printf("load %02x%c%c%c %u\n", code[0], code[1], code[2], code[3], options) < 0;
}
int cuLibraryGetKernel(uint64_t* kernel, uint64_t library, const char* name) {
  *kernel = 2 + library;
  return std::strstr(name, "scan_lengths") == nullptr;
}
int cuKernelGetFunction(uint64_t* function, uint64_t kernel) { return *function = 2 + kernel, 0; }
int cuFuncSetAttribute(uint64_t function, int what, int value) {
  return std::printf("allow %d %d %d\n", int(function), what, value) < 0;
}
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, uint64_t, int threads, size_t shared) {
  *blocks = 7;
  return std::printf("ask %d %zu\n", threads, shared) < 0;
}
int cuLaunchKernel(uint64_t function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned,
                   unsigned, unsigned shared, uint64_t stream, void** values, void** extra) {
  std::printf("launch %d: %u %u %u, %u, %u, %llx, %d:", int(function), x, y, z, threads, shared,
              wide(stream), extra == nullptr);
  uint64_t eight[4];
  uint32_t four[2];
  for (int i = 0; i < 4; ++i) std::memcpy(&eight[i], values[i], 8);
  for (int i = 0; i < 2; ++i) std::memcpy(&four[i], values[4 + i], 4);
  return std::printf(" %llx %llx %llx %llx %x %x\n", wide(eight[0]), wide(eight[1]),
                     wide(eight[2]), wide(eight[3]), four[0], four[1]) < 0;
}
int cuGetProcAddress_v2(const char* name, void** found, int, uint64_t, int* status) {
  void* own = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  *found = dlsym(own, name);
  if (*found == nullptr) *found = reinterpret_cast<void*>(nothing);
  if (status != nullptr) *status = 0;
  return 0;
}
int cuGetProcAddress(const char* name, void** found, int version, uint64_t flags) {
  return cuGetProcAddress_v2(name, found, version, flags, nullptr);
}
}
"""

PROGRAM = r"""
import contextlib, ctypes, types
from dataclasses import replace
import torch
from calibrate.cuda import launch
from calibrate.cuda.scan import SCAN_LENGTHS

properties = types.SimpleNamespace(multi_processor_count=10, shared_memory_per_multiprocessor=228 * 1024)
stream = types.SimpleNamespace(cuda_stream=0x77, synchronize=lambda: None)
torch.cuda.device = lambda device: contextlib.nullcontext()
torch.cuda.current_stream = lambda device: stream
torch.cuda.get_device_capability = lambda device: (9, 0)
torch.cuda.get_device_properties = lambda device: properties
gpu = torch.device("cuda", 0)
values = [None, torch.empty(0), ctypes.c_int64(-2), ctypes.c_uint64(2**64 - 1)]
values += [ctypes.c_int32(-3), ctypes.c_uint32(2**32 - 1)]
for shared in (0, 40_000, 100_000, 60_000):
    launch.launch(SCAN_LENGTHS, gpu, (5, 6), 64, values, shared)
launch.launch(SCAN_LENGTHS, gpu, 0, 64, values)
for shared in (92 * 1024, 230 * 1024):
    launch.launch(replace(SCAN_LENGTHS, sm_shared_bytes=shared), gpu, (5, 6), 64, values)
print("blocks", launch.blocks_at_once(SCAN_LENGTHS, gpu, 256, 90_000), flush=True)
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="NOT TESTED: a driver is made with g++")
def test_the_driver_is_told_what_a_kernel_takes(tmp_path: Path) -> None:
    (tmp_path / "driver.cpp").write_text(DRIVER)
    library = tmp_path / "libcuda.so.1"
    made = ["g++", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(library), "driver.cpp", "-ldl"]
    subprocess.run(made, cwd=tmp_path, check=True)
    paths = os.pathsep.join([str(tmp_path), os.environ.get("LD_LIBRARY_PATH", "")])
    environment = {**os.environ, "LD_LIBRARY_PATH": paths, "PERFMODEL_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    launched = "launch 5: 5 6 1, 64, {}, 77, 1: 0 0 fffffffffffffffe ffffffffffffffff fffffffd ffffffff"
    assert done.stdout.splitlines() == [
        "load 7fELF 0",
        launched.format(0),
        "allow 5 8 40000",  # 8: CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        launched.format(40_000),
        "allow 5 8 100000",
        launched.format(100_000),
        launched.format(60_000),
        "load 7fELF 0",
        "allow 5 9 41",  # 9: CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 92 of 228 KiB
        launched.format(0),
        "load 7fELF 0",
        "allow 5 9 100",
        launched.format(0),
        "ask 256 90000",
        "blocks 70",
    ]
