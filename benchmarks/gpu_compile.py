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

from calibrate.cuda import bucketize, one_core, partial_bags, unique
from calibrate.cuda.gather_layout import access_width, shape_of
from calibrate.cuda.gather_pool import GatherOptions
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
    others = (*bucketize.kernels(), *one_core.kernels(), *partial_bags.kernels(), *unique.kernels())
    return [*made.values(), *others]


def compiled(kernel: Kernel, architecture: str) -> str:
    """A kernel by itself, as it is loaded; what went wrong, else nothing."""
    try:
        compile_cubin([kernel], architecture)
    except Exception as error:  # of whatever kind: the others are compiled all the same
        return f"{kernel}: {error}"
    return ""


def main() -> int:
    """0 where all compile."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--architecture", default="sm_90")
    parser.add_argument("--processes", type=int, default=min(16, os.cpu_count() or 1))
    parser.add_argument("--every", type=int, default=1, help="only each of so many: for a rehearsal")
    asked = parser.parse_args()
    began_s, wanted = time.monotonic(), kernels()[:: asked.every]
    with ProcessPoolExecutor(asked.processes) as pool:
        told = list(pool.map(compiled, wanted, itertools.repeat(asked.architecture)))
    wrong = [one for one in told if one]
    print("\n".join(wrong))
    took_s = time.monotonic() - began_s
    print(f"{len(wanted) - len(wrong)} of {len(wanted)} kernels for {asked.architecture} in {took_s:.0f} s")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
