"""CuPy whose GPU is this CPU: machine code is looked at, and its kernels are run from the same sources.

Only what the project uses, named and called as in CuPy 14; anything else is an AttributeError.
A module of machine code lies beside a file that says which kernels it holds (calibrate.cuda.gpu_build); a
kernel that is launched is the same kernel, built for this CPU (calibrate.cuda.cpu_build).
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

__version__ = "14.0 (rehearsal)"
MOST_SHARED_BYTES = 227 * 1024
MOST_THREADS = 1024
FREE_SHARED_BYTES = 48 * 1024
"""What a block may take without leave."""


class RawKernel:
    """One kernel: of a module, or of a source, which is compiled and never run."""

    def __init__(self, code: str | None, name: str, *, kernel: Any = None) -> None:
        self._kernel = kernel
        self.kernel = SimpleNamespace(ptr=id(self))
        self.preferred_shared_memory_carveout = -1
        self._most = FREE_SHARED_BYTES
        by_pointer[id(self)] = self
        if code is not None:
            _compile(code, name)

    @property
    def max_dynamic_shared_size_bytes(self) -> int:
        """Dynamic shared memory that a block may take."""
        return self._most

    @max_dynamic_shared_size_bytes.setter
    def max_dynamic_shared_size_bytes(self, value: int) -> None:
        if not 0 <= value <= MOST_SHARED_BYTES:
            raise ValueError(f"CUDA_ERROR_INVALID_VALUE: {value} bytes of shared memory")
        self._most = value

    def __call__(self, grid: Any, block: Any, args: Any, *, shared_mem: int = 0) -> None:
        """Launch: three sizes of the grid and of a block, numpy scalars."""
        if device.current is None or stream.current is None:
            raise RuntimeError("a launch outside of a device, or of a stream")
        if min(*grid, *block) < 1 or np.prod(block) > MOST_THREADS or len(grid) != 3 or len(block) != 3:
            raise ValueError(f"CUDA_ERROR_INVALID_VALUE: grid {grid}, block {block}")
        if shared_mem > self._most:
            raise ValueError(f"CUDA_ERROR_INVALID_VALUE: {shared_mem} of {self._most} bytes of shared memory")
        values = [_c_value(one) for one in args]
        import stand_in_torch

        def run() -> None:
            if self._kernel is not None:
                _build(self._kernel).launch(self._kernel, grid, block, values, shared_mem)

        run()
        if stand_in_torch.capturing:
            stand_in_torch.capturing[-1].append(run)


by_pointer: dict[int, RawKernel] = {}


class RawModule:
    """Machine code from a file."""

    def __init__(self, *, path: str) -> None:
        if Path(path).read_bytes()[:4] != b"\x7fELF":
            raise ValueError("CUDA_ERROR_INVALID_IMAGE")
        from calibrate.cuda.gpu_build import ABOUT

        about = json.loads(Path(path).with_suffix(ABOUT).read_text(encoding="utf-8"))
        self._source, self._names = about["source"], {s: name for name, s in about["symbols"].items()}
        self.module = SimpleNamespace(ptr=id(self))

    def get_function(self, name: str) -> RawKernel:
        """The kernel with this symbol."""
        if name not in self._names:
            raise ValueError(f"CUDA_ERROR_NOT_FOUND: {name}")
        from calibrate.cuda.cache import Kernel

        return RawKernel(None, name, kernel=Kernel(self._source, self._names[name]))


def _compile(code: str, name: str) -> None:
    """As CuPy does: the name is that of an ``extern "C"`` function."""
    from cuda.bindings import nvrtc

    _, program = nvrtc.nvrtcCreateProgram(code.encode(), b"kern.cu", 0, [], [])
    options = [b"-arch=sm_90", b"-std=c++17"]
    (result,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if result != nvrtc.nvrtcResult.NVRTC_SUCCESS or f" {name}(" not in code:
        _, size = nvrtc.nvrtcGetProgramLogSize(program)
        log = b" " * size
        nvrtc.nvrtcGetProgramLog(program, log)
        raise RuntimeError(f"CompileException: {log.decode()}")


@cache
def _build(kernel: Any) -> Any:
    from calibrate.cuda.cpu_build import build

    return build([kernel])


def _c_value(value: Any) -> Any:
    """A numpy scalar as the CPU build takes an argument."""
    if not isinstance(value, (np.generic, np.ndarray)) or value.size != 1:
        raise TypeError(f"Unsupported type {type(value)}")
    return (ctypes.c_char * value.nbytes).from_buffer_copy(value.tobytes())


class _Current:
    """What is current, and the context that makes it so."""

    current: Any = None

    @contextmanager
    def __call__(self, *which: Any) -> Iterator[None]:
        before, self.current = self.current, which
        try:
            yield
        finally:
            self.current = before


device, stream = _Current(), _Current()


def _from_external(other: Any) -> Any:
    """A stream of torch."""
    version, pointer = other.__cuda_stream__()
    return stream(version, pointer)


def _occupancy(pointer: int, threads: int, shared_bytes: int) -> int:
    """Blocks of a multiprocessor at a time."""
    most = by_pointer[pointer].max_dynamic_shared_size_bytes
    if shared_bytes > most or threads > MOST_THREADS:
        return 0
    return max(0, min(2048 // threads, MOST_SHARED_BYTES // max(1, shared_bytes + 1024), 2))


cuda = SimpleNamespace(
    Device=device,
    Stream=SimpleNamespace(from_external=_from_external),
    driver=SimpleNamespace(occupancyMaxActiveBlocksPerMultiprocessor=_occupancy),
)
