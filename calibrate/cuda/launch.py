"""One way to launch a kernel on tensors, on the GPU or the CPU where they lie."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from calibrate.cuda.cpu_build import CpuLibrary, build
from calibrate.cuda.gpu_build import Cubin, compile_cubin
from calibrate.cuda.kernel import Kernel
from perfmodel.errors import PerfmodelError

CPU_BLOCKS = 3
"""Blocks that a CPU is said to run at once: few, so that blocks which take several turns are exercised."""

_cpu: dict[Kernel, CpuLibrary] = {}
_gpu: dict[tuple[int, Kernel], Any] = {}
_allowed: dict[tuple[int, Kernel], int] = {}
"""Dynamic shared memory that a loaded kernel may take [bytes], where it was asked for."""


def launch(
    kernel: Kernel,
    device: Any,
    grid: int | Sequence[int],
    block: int,
    arguments: Sequence[Any],
    shared_bytes: int = 0,
) -> None:
    """Queue a kernel on torch's current stream of ``device`` (a torch.device); on a CPU run it.

    arguments  tensors (their address), None (a null pointer) or ctypes values, in the kernel's order
    shared_bytes  dynamic shared memory of a block [bytes]
    Nothing is launched for an empty grid.
    """
    sizes = (*([grid] if isinstance(grid, int) else grid), 1, 1)[:3]
    if 0 in sizes:
        return
    values = [_value(argument) for argument in arguments]
    if device.type == "cpu":
        _cpu_library(kernel).launch(kernel, sizes, (block, 1, 1), values, shared_bytes)
        return
    import torch

    driver = _driver()
    with torch.cuda.device(device):  # the driver launches in the current context, whatever the stream's is
        stream = torch.cuda.current_stream(device).cuda_stream
        function = gpu_function(kernel, device, shared_bytes)
        packed = packed_values(values)
        _ok(driver, driver.cuLaunchKernel(function, *sizes, block, 1, 1, shared_bytes, stream, packed, 0))


def packed_values(values: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """ctypes values as cuda-bindings takes a kernel's arguments: numbers, and their types.

    A null pointer is None to ctypes, which cuda-bindings refuses: it is 0 here.
    """
    numbers = tuple(0 if value.value is None else value.value for value in values)
    return numbers, tuple(type(value) for value in values)


def blocks_at_once(kernel: Kernel, device: Any, block: int, shared_bytes: int = 0) -> int:
    """Blocks of ``kernel`` that run at the same time on the whole device: the grid of a persistent kernel."""
    if device.type == "cpu":
        return CPU_BLOCKS
    import torch

    driver = _driver()
    with torch.cuda.device(device):
        function = gpu_function(kernel, device, shared_bytes)
        each = _ok(driver, driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, block, shared_bytes))
    if each < 1:
        raise PerfmodelError(f"no block of {kernel} fits the GPU.", "this is a defect: report it.")
    return int(each) * int(torch.cuda.get_device_properties(device).multi_processor_count)


def prebuild(kernels: Sequence[Kernel], device: Any, *, checked: bool = False) -> None:
    """Build many kernels of one source together, which takes less time than one by one.

    checked  on a CPU: with checks of alignment and overflow, which end the process
    """
    if device.type == "cpu":
        library = build(kernels, checked=checked)
        _cpu.update(dict.fromkeys(kernels, library))
        return
    _load(kernels, device)


def cpu_order(kernel: Kernel, order: int) -> None:
    """On a CPU, in which order the threads of a block take turns: 0 rising, 1 falling, others random."""
    _cpu_library(kernel).order(order)


def gpu_function(kernel: Kernel, device: Any, shared_bytes: int = 0) -> Any:
    """The driver's handle of a kernel, allowed to take ``shared_bytes``; the device is the current one.

    Without leave a block takes 48 KiB at most, its static shared memory among them: leave is asked for any.
    """
    key = _index(device), kernel
    if key not in _gpu:
        _load([kernel], device)
    if shared_bytes > _allowed.get(key, 0):
        driver = _driver()
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        _ok(driver, driver.cuFuncSetAttribute(_gpu[key], attribute, shared_bytes))
        _allowed[key] = shared_bytes
    return _gpu[key]


def is_built(kernel: Kernel, device: Any) -> bool:
    """Whether a kernel can be launched on ``device`` without building it first."""
    return kernel in _cpu if device.type == "cpu" else (_index(device), kernel) in _gpu


def forget(kernels: Sequence[Kernel], device: Any) -> None:
    """Kernels of a GPU that are built again before their next launch."""
    for kernel in kernels:
        for known in (_gpu, _allowed):
            known.pop((_index(device), kernel), None)


def load_gpu_functions(kernels: Sequence[Kernel], device: Any, cubin: Cubin) -> Any:
    """Load machine code on a GPU; returns the driver's handle of it (a CUlibrary)."""
    import torch

    driver = _driver()
    with torch.cuda.device(device):
        torch.cuda.current_stream(device).synchronize()  # the device's context is this thread's from here on
        library = _ok(driver, driver.cuLibraryLoadData(cubin.code, [], [], 0, [], [], 0))
        for kernel in kernels:
            handle = _ok(driver, driver.cuLibraryGetKernel(library, cubin.symbols[kernel.name].encode()))
            function = _ok(driver, driver.cuKernelGetFunction(handle))
            if kernel.sm_shared_bytes:
                attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
                _ok(driver, driver.cuFuncSetAttribute(function, attribute, carveout_percent(kernel, device)))
            _gpu[_index(device), kernel] = function
    return library


def carveout_percent(kernel: Kernel, device: Any) -> int:
    """The part of a multiprocessor's largest shared memory that a kernel's blocks take, rounded up.

    The driver takes the next larger size that the GPU has (H100: 0, 8, 16, 32, 64, 100, 132, 164, 196 or 228
    KiB), and what is left is L1 cache. Limits: more than there is -> 100
    """
    import torch

    most = int(torch.cuda.get_device_properties(device).shared_memory_per_multiprocessor)
    return min(100, -(-100 * kernel.sm_shared_bytes // most))


def _load(kernels: Sequence[Kernel], device: Any) -> None:
    import torch

    major, minor = torch.cuda.get_device_capability(device)
    load_gpu_functions(kernels, device, compile_cubin(kernels, f"sm_{major}{minor}"))


def _index(device: Any) -> int:
    """Number of a GPU: cuda is the current one."""
    import torch

    return int(torch.cuda.current_device() if device.index is None else device.index)


def _cpu_library(kernel: Kernel) -> CpuLibrary:
    if kernel not in _cpu:
        _cpu[kernel] = build([kernel])
    return _cpu[kernel]


def _value(argument: Any) -> Any:
    if argument is None:
        return ctypes.c_void_p(0)
    if isinstance(argument, ctypes._SimpleCData):
        return argument
    return ctypes.c_void_p(argument.data_ptr())


@lru_cache
def _driver() -> Any:
    from cuda.bindings import driver

    return driver


def _ok(driver: Any, answer: tuple[Any, ...]) -> Any:
    result, *values = answer
    if result != driver.CUresult.CUDA_SUCCESS:
        raise PerfmodelError(f"the CUDA driver says {result.name}.", "see the launch that is named above.")
    return values[0] if values else None
