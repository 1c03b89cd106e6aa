"""Kernels of gather and pool that tests compile: of most tables, and one of each other kind."""

from __future__ import annotations

import fcntl

from calibrate.cuda.cache import Kernel
from calibrate.cuda.gather_layout import RowAccess
from calibrate.cuda.gather_pool import gather_kernel
from calibrate.cuda.gpu_build import Cubin, compile_cubin
from perfmodel.schema.files import home_folder

COMMON = RowAccess(32, 1, 16), RowAccess(8, 1, 16)


def kernels() -> list[Kernel]:
    """Both kernels for the rows of most tables; those that other tables take."""
    common = [gather_kernel(shape, "fp32", long=long) for shape in COMMON for long in (False, True)]
    others = [
        *((RowAccess(lanes, 1, 16), "fp32") for lanes in (1, 2, 4, 16)),
        *((RowAccess(32, 2, width), "fp32") for width in (16, 8, 4)),
        *((RowAccess(32, 2, width), "fp16") for width in (16, 2)),
        (RowAccess(16, 1, 16), "fp16"),
    ]
    return common + [gather_kernel(shape, dtype) for shape, dtype in others]


def gpu_code() -> Cubin:
    """All of them for an H100, compiled once: other workers wait. Whoever ends, however, frees the lock."""
    with (home_folder() / "gather_kernels.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return compile_cubin(kernels(), "sm_90")
