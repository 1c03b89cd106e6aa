"""Compile the kernels that tests and timings on a GPU use, many at a time, into the cache that they read.

Run:    python benchmarks/gpu_compile.py [--architecture sm_90] [--processes 16] [--every 1]
Needs:  the run-time compiler, no GPU. One kernel takes about a second: a benchmark that waits for each of a
        hundred measures little in its time.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from gather_cells import DIMS, DTYPE_BYTES, MORE_DIMS

from calibrate.cuda import nvshmem_build, row_wise_exchange, unique
from calibrate.cuda.exchange_memory import METHODS
from calibrate.cuda.gather_layout import access_width, shape_of
from calibrate.cuda.gather_pool import ELEMENT_BYTES, GatherOptions
from calibrate.cuda.gather_variants import VARIANTS
from calibrate.cuda.gpu_build import compile_cubin
from calibrate.cuda.kernel import Kernel


def kernels() -> list[Kernel]:
    """Those of the benchmark of gather and pool in every variant, and all of the other families."""
    made: dict[tuple[str, str], Kernel] = {}
    for dim, (dtype, size), long in itertools.product(
        (*DIMS, *MORE_DIMS), DTYPE_BYTES.items(), (False, True)
    ):
        shape, _ = shape_of(dim * size, access_width(dim * size), size)
        options = GatherOptions(out_dtype=dtype)
        every = [options.kernel(shape, dtype, variant, long=long) for variant in VARIANTS]
        made |= {(one.source, one.name): one for one in every}
    return [*made.values(), *unique.kernels()]


EXCHANGED = ((64, "fp32"), (12, "fp16"), (33, "fp32"), (128, "bf16"), (128, "fp32"))
"""Columns and types of the rows that tests and gpu_stages.py exchange, in the order of the tests."""

Unit = tuple[Kernel, ...]
"""Kernels that are loaded together, and so compiled together."""


def exchanges() -> list[Unit]:
    """Those of the one-sided exchange; over NVSHMEM, without those that an earlier one brought."""
    made: list[Unit] = []
    for source in (row_wise_exchange.SOURCE, row_wise_exchange.SOURCE_NVSHMEM):
        seen: set[Kernel] = set()
        for (dim, dtype), method in itertools.product(EXCHANGED, METHODS):
            row_bytes = dim * ELEMENT_BYTES[dtype]
            access = row_wise_exchange.row_access(dim, dtype, access_width(row_bytes))
            every = row_wise_exchange.kernels(dtype, "int64", access, method=method, source=source)
            made.append(tuple(one for one in every.values() if one not in seen))
            if source == row_wise_exchange.SOURCE_NVSHMEM:
                seen |= set(made[-1])
    return list(dict.fromkeys(made))


def units() -> list[Unit]:
    """All that is compiled; what takes longest comes first."""
    return [*exchanges(), *((one,) for one in kernels())]


def compiled(unit: Unit, architecture: str) -> str:
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
    asked = parser.parse_args()
    began_s, wanted = time.monotonic(), units()[:: asked.every]
    with ProcessPoolExecutor(asked.processes) as pool:
        told = list(pool.map(compiled, wanted, itertools.repeat(asked.architecture)))
    wrong = [one for one in told if one]
    print("\n".join(wrong))
    took_s = time.monotonic() - began_s
    good = f"{len(wanted) - len(wrong)} of {len(wanted)}"
    print(f"{good} units of kernels for {asked.architecture} in {took_s:.0f} s")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
