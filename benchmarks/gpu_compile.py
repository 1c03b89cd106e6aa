"""Compile the kernels that tests and timings on a GPU use, many at a time, into the cache that they read.

Run:    python benchmarks/gpu_compile.py [--architecture sm_90] [--processes 16] [--every 1]
Needs:  the run-time compiler, no GPU. One kernel takes about a second, with NVSHMEM ten.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from gather import DIMS

from calibrate.cuda import nvshmem_build, row_wise_exchange
from calibrate.cuda.cache import Kernel
from calibrate.cuda.exchange_memory import METHODS
from calibrate.cuda.gather_layout import choose_width, divide_row
from calibrate.cuda.gather_pool import gather_kernel
from calibrate.cuda.gpu_build import compile_cubin
from calibrate.planning.kernel_cells import ELEMENT_BYTES

EXCHANGED = ((64, "fp32"), (12, "fp16"), (33, "fp32"), (128, "fp32"))
"""Columns and types of the rows that tests and gpu_timings.py exchange, in the order of the tests."""

Unit = tuple[Kernel, ...]
"""Kernels that are loaded together, and so compiled together."""


def list_units() -> Iterator[Unit]:
    """All that is compiled; what takes longest, the exchange, comes first."""
    for source in (row_wise_exchange.SOURCE_NVSHMEM, row_wise_exchange.SOURCE):
        loaded: set[Kernel] = set()  # over NVSHMEM only what no earlier exchange brought is loaded
        for (dim, dtype), method in itertools.product(EXCHANGED, METHODS):
            access = row_wise_exchange.choose_access(dim, dtype, choose_width(dim * ELEMENT_BYTES[dtype]))
            kernels = row_wise_exchange.kernels(dtype, access, method=method, source=source).values()
            yield tuple(kernel for kernel in kernels if kernel not in loaded)
            if source == row_wise_exchange.SOURCE_NVSHMEM:
                loaded |= set(kernels)
    for dim, (dtype, size), long in itertools.product(DIMS, ELEMENT_BYTES.items(), (False, True)):
        shape, _ = divide_row(dim * size, choose_width(dim * size))
        yield (gather_kernel(shape, dtype, long=long),)


def compile_unit(unit: Unit, architecture: str) -> str:
    """Compile a unit as it is loaded; what went wrong, else nothing."""
    try:
        if unit[0].source == row_wise_exchange.SOURCE_NVSHMEM:
            nvshmem_build.build(unit, architecture)
        else:
            compile_cubin(unit, architecture)
    except Exception as error:  # of whatever kind: the others are compiled all the same
        return f"{unit[0]}: {error}"
    return ""


def main() -> int:
    """0 where all compile."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--architecture", default="sm_90")
    parser.add_argument("--processes", type=int, default=min(16, os.cpu_count() or 1))
    parser.add_argument("--every", type=int, default=1, help="only each of so many: for a rehearsal")
    options = parser.parse_args()
    began_s, units = time.monotonic(), [unit for unit in list_units() if unit][:: options.every]
    with ProcessPoolExecutor(options.processes) as pool:
        errors = list(filter(None, pool.map(compile_unit, units, itertools.repeat(options.architecture))))
    print("\n".join(errors))
    good, took_s = f"{len(units) - len(errors)} of {len(units)}", time.monotonic() - began_s
    print(f"{good} units of kernels for {options.architecture} in {took_s:.0f} s")
    return int(bool(errors))


if __name__ == "__main__":
    sys.exit(main())
