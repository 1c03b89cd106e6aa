"""Launches a kernel on tensors, on the GPU or the CPU that holds them.

On a GPU, CuPy loads the machine code from ``gpu_build``, sets attributes of kernels and launches them on
torch's current stream.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from calibrate.cuda.cache import Kernel
from calibrate.cuda.cpu_build import CpuLibrary, build
from calibrate.cuda.gpu_build import INSTALL, Cubin, compile_cubin
from perfmodel.errors import NoHardwareError, PerfmodelError

CPU_BLOCKS = 3
"""Blocks that a CPU is assumed to run at once: few, so that tests cover blocks that take several turns."""

_cpu: dict[Kernel, CpuLibrary] = {}
_gpu: dict[tuple[int, Kernel], Any] = {}
_allowed = defaultdict[tuple[int, Kernel], int](int)
"""Dynamic shared memory that was allowed for a loaded kernel [bytes]."""


def launch(
    kernel: Kernel,
    device: Any,
    grid: int | Sequence[int],
    block: int,
    arguments: Sequence[Any],
    shared_bytes: int = 0,
) -> None:
    """Queue a kernel on torch's current stream of ``device`` (a torch.device); on a CPU, run it.

    arguments  tensors (their address), None (a null pointer) or ctypes values, in the kernel's order
    shared_bytes  dynamic shared memory of a block [bytes]
    An empty grid launches nothing.
    """
    sizes = (*([grid] if isinstance(grid, int) else grid), 1, 1)[:3]
    if 0 in sizes:
        return
    values = [_convert(argument) for argument in arguments]
    if device.type == "cpu":
        _build_library(kernel).launch(kernel, sizes, (block, 1, 1), values, shared_bytes)
        return
    function = load_function(kernel, device, shared_bytes)
    with _on(device) as stream, stream:  # CuPy launches on its current stream
        function(sizes, (block, 1, 1), tuple(pack(value) for value in values), shared_mem=shared_bytes)


def pack(value: Any) -> Any:
    """A ctypes value in the form that CuPy takes: a numpy scalar, or a numpy array of one entry.

    Limits: a null pointer -> 0;  a structure -> its bytes
    """
    if isinstance(value, ctypes.Structure):
        return np.frombuffer(bytes(value), np.dtype((np.void, ctypes.sizeof(value))))
    if isinstance(value, ctypes.c_void_p):
        return np.uint64(value.value or 0)
    return np.dtype(type(value)).type(value.value)


def count_blocks(kernel: Kernel, device: Any, block: int, shared_bytes: int = 0) -> int:
    """Number of blocks of ``block`` threads that run at once on the whole device."""
    if device.type == "cpu":
        return CPU_BLOCKS
    import torch

    function = load_function(kernel, device, shared_bytes)
    with _on(device):
        occupancy = _cupy().cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor
        blocks = occupancy(function.kernel.ptr, block, shared_bytes)
    if not blocks:
        raise PerfmodelError(f"no block of {kernel} fits the GPU.", "this is a defect: report it.")
    return int(blocks) * int(torch.cuda.get_device_properties(device).multi_processor_count)


def prebuild(kernels: Sequence[Kernel], device: Any, *, checked: bool = False) -> None:
    """Build many kernels of one source together, which is faster than one by one.

    checked  on a CPU: with checks of alignment and overflow, which end the process
    """
    if device.type == "cpu":
        library = build(kernels, checked=checked)
        _cpu.update(dict.fromkeys(kernels, library))
        return
    _load(kernels, device)


def cpu_order(kernel: Kernel, order: int) -> None:
    """On a CPU, set the order in which threads of a block take turns: 0 rising, 1 falling, others random."""
    _build_library(kernel).order(order)


def load_function(kernel: Kernel, device: Any, shared_bytes: int = 0) -> Any:
    """CuPy's RawKernel of a kernel, with ``shared_bytes`` of dynamic shared memory allowed.

    A block gets at most 48 KiB, static shared memory included, unless more is allowed explicitly.
    """
    key = _index(device), kernel
    if key not in _gpu:
        _load([kernel], device)
    if shared_bytes > _allowed[key]:
        with _on(device):
            _gpu[key].max_dynamic_shared_size_bytes = shared_bytes
        _allowed[key] = shared_bytes
    return _gpu[key]


def is_built(kernel: Kernel, device: Any) -> bool:
    """Whether a kernel can be launched on ``device`` without being built first."""
    return kernel in _cpu if device.type == "cpu" else (_index(device), kernel) in _gpu


def forget(kernels: Sequence[Kernel], device: Any) -> None:
    """Make kernels of a GPU be built again before their next launch."""
    for kernel in kernels:
        for loaded in (_gpu, _allowed):
            loaded.pop((_index(device), kernel), None)


def load_gpu_functions(kernels: Sequence[Kernel], device: Any, cubin: Cubin) -> int:
    """Load the machine code of these kernels on a GPU; returns the driver's handle (a CUmodule)."""
    with _on(device):
        module = _cupy().RawModule(path=str(cubin.path))
        for kernel in kernels:
            function = module.get_function(cubin.symbols[kernel.name])
            if kernel.sm_shared_bytes:
                function.preferred_shared_memory_carveout = compute_carveout(kernel, device)
            _gpu[_index(device), kernel] = function
        return int(module.module.ptr)


def compute_carveout(kernel: Kernel, device: Any) -> int:
    """Percentage of a multiprocessor's largest shared memory that a kernel's blocks take, rounded up.

    The driver uses the next larger size that the GPU has (H100: 0, 8, 16, 32, 64, 100, 132, 164, 196 or 228
    KiB), and the rest is L1 cache. Limits: more than the GPU has -> 100
    """
    import torch

    available = int(torch.cuda.get_device_properties(device).shared_memory_per_multiprocessor)
    return min(100, -(-100 * kernel.sm_shared_bytes // available))


def _load(kernels: Sequence[Kernel], device: Any) -> None:
    """Compile kernels of one source for this GPU, from the cache if possible, and load them."""
    import torch

    major, minor = torch.cuda.get_device_capability(device)
    load_gpu_functions(kernels, device, compile_cubin(kernels, f"sm_{major}{minor}"))


def _index(device: Any) -> int:
    """Index of a GPU; ``cuda`` without a number: the current GPU."""
    import torch

    return int(torch.cuda.current_device() if device.index is None else device.index)


def _build_library(kernel: Kernel) -> CpuLibrary:
    if kernel not in _cpu:
        _cpu[kernel] = build([kernel])
    return _cpu[kernel]


def _convert(argument: Any) -> Any:
    """An argument of a kernel as a ctypes value: None as a null pointer, a tensor as its address."""
    if argument is None:
        return ctypes.c_void_p()
    if isinstance(argument, (ctypes._SimpleCData, ctypes.Structure)):
        return argument
    return ctypes.c_void_p(argument.data_ptr())


@contextmanager
def _on(device: Any) -> Iterator[Any]:
    """Context in which the GPU of ``device`` is CuPy's current one; yields torch's current stream there."""
    import torch

    cuda = _cupy().cuda
    with cuda.Device(_index(device)):
        yield cuda.Stream.from_external(torch.cuda.current_stream(device))


def _cupy() -> Any:
    if importlib.util.find_spec("cupy") is None:
        raise NoHardwareError("CuPy, which launches kernels on a GPU, is not installed.", INSTALL)
    import cupy

    return cupy
