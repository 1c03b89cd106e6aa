"""Builds the same sources for a CPU, with g++ and ``kernels/cpu.hpp``: correct, slow, without a GPU."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from ctypes import c_size_t, c_void_p
from pathlib import Path

from calibrate.cuda.cache import SYMBOL_ENTRY, Kernel, fetch_cached
from calibrate.machine.node import get_output
from perfmodel.errors import NoHardwareError, PerfmodelError
from perfmodel.resources import kernels_path

_WARNINGS = ("-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas")
OPTIONS = ("-std=c++17", "-O2", "-fPIC", "-shared", "-U_FORTIFY_SOURCE", *_WARNINGS)
CHECKED = ("-O0", "-fsanitize=undefined", "-fno-sanitize-recover=undefined")
"""For tests: misaligned accesses, shifts and overflows end the process; no optimisation (``-O0``)."""

RESULTS = {
    -1: "got the wrong number of arguments",
    1: "waits forever: a barrier that not all of its threads reach, or a signal that never comes",
    2: "found no memory for its threads",
    3: "asks for more shared memory than a GPU has",
    4: "stopped itself: its arguments would make it write outside its memory",
}


class CpuLibrary:
    """Kernels built for this CPU."""

    def __init__(self, path: Path, kernels: Sequence[Kernel]) -> None:
        """path  of the built library;  kernels  in it, in the order of its entries."""
        self._library = ctypes.CDLL(str(path))
        self._entries = {
            kernel: getattr(self._library, f"{SYMBOL_ENTRY}{index}") for index, kernel in enumerate(kernels)
        }
        for entry in self._entries.values():
            entry.restype = ctypes.c_int
            entry.argtypes = [c_void_p, c_void_p, c_size_t, c_void_p, c_size_t]  # as ``launch`` calls it

    def launch(
        self,
        kernel: Kernel,
        grid: Sequence[int],
        block: Sequence[int],
        arguments: Sequence[ctypes._SimpleCData[object]],
        shared_bytes: int = 0,
    ) -> None:
        """Run ``grid`` blocks of ``block`` threads (x, y, z) to the end. arguments  in the kernel's order"""
        grid_sizes = (ctypes.c_uint * 3)(*grid)
        block_sizes = (ctypes.c_uint * 3)(*block)
        pointers = (c_void_p * len(arguments))(*[ctypes.addressof(argument) for argument in arguments])
        result = self._entries[kernel](grid_sizes, block_sizes, shared_bytes, pointers, len(arguments))
        if result:
            raise PerfmodelError(f"{kernel} {RESULTS[result]}.", "this is a defect: report it.")

    def order(self, order: int) -> None:
        """Set the order in which threads take turns: 0 rising, 1 falling, other values seed random orders."""
        self._library.pm_cpu_order(order)


def build(kernels: Sequence[Kernel], *, checked: bool = False) -> CpuLibrary:
    """A library of ``kernels``, all of one source, from the cache or built with g++.

    checked  whether alignment and overflow are checked, which ends the process if they are wrong
    Raises NoHardwareError without g++, PerfmodelError with the compiler's message for invalid code.
    """
    compiler = os.environ.get("CXX") or shutil.which("g++")
    if compiler is None:
        raise NoHardwareError(
            "there is neither a GPU nor a C++ compiler to run the kernels.", "apt install g++, or set CXX."
        )
    ordered = sorted(kernels)
    (source,) = {kernel.source for kernel in ordered}
    options = [*OPTIONS, *(CHECKED if checked else ())]
    version = get_output(compiler, "-dumpfullversion")
    names = [kernel.name for kernel in ordered]
    parts = ["cpu", platform.machine(), compiler, version, source, *options, *names]
    entries = [f"PM_CPU_ENTRY({SYMBOL_ENTRY}{index}, {name})" for index, name in enumerate(names)]
    text = "\n".join([f'#include "{source}"', "PM_CPU_LIBRARY", *entries, ""])

    def make(path: Path) -> None:
        """Compile ``text`` to the library ``path``."""
        with tempfile.TemporaryDirectory() as folder:
            unit = Path(folder, "unit.cpp")
            unit.write_text(text)
            # A .cu that is included keeps its own includes: they lie in the same folder.
            line = [compiler, *options, "-x", "c++", f"-I{kernels_path()}", str(unit), "-o", str(path)]
            done = subprocess.run(line, capture_output=True, text=True, check=False)
        if done.returncode:
            raise PerfmodelError(
                f"kernels/{source} does not compile for a CPU:\n{done.stderr[-4000:]}",
                "this is a defect: report it.",
            )

    return CpuLibrary(fetch_cached(parts, ".so", make), ordered)
