"""Kernels of gather and pool that tests compile: all variants for most tables, one of each other kind."""

from __future__ import annotations

import fcntl
from collections.abc import Sequence

from calibrate.cuda.gather_layout import RowAccess
from calibrate.cuda.gather_pool import GatherOptions
from calibrate.cuda.gather_variants import VARIANTS
from calibrate.cuda.gpu_build import Cubin, compile_cubin
from calibrate.cuda.kernel import Kernel
from perfmodel.schema.home import home_folder

PLAIN = GatherOptions()
COMMON = RowAccess(32, 1, 16), RowAccess(8, 1, 16)


def variants(options: GatherOptions = PLAIN, shapes: Sequence[RowAccess] = COMMON) -> list[Kernel]:
    """Both kernels for the rows of most tables, in every variant."""
    return [
        options.kernel(shape, "fp32", variant, long=long)
        for shape in shapes
        for variant in VARIANTS
        for long in (False, True)
    ]


def others() -> list[Kernel]:
    """One kernel of each kind that other tables and options take."""
    options = [
        GatherOptions(id_bytes=4),
        GatherOptions(out_dtype="fp16"),
        GatherOptions(out_dtype="bf16"),
    ]
    rows = [
        *((RowAccess(lanes, 1, 16), "fp32") for lanes in (1, 2, 4, 16)),
        *((RowAccess(32, 2, width), "fp32") for width in (16, 8, 4)),
        *((RowAccess(32, 2, width), "fp16") for width in (16, 2)),
        *((RowAccess(16, 1, 16), dtype) for dtype in ("fp16", "bf16")),
        *((RowAccess(lanes, 1, 16), "int8") for lanes in (4, 8)),
        (RowAccess(32, 2, 1), "int8"),
    ]
    made = [one.kernel(COMMON[index % 2], "fp32") for index, one in enumerate(options)]
    return made + [PLAIN.kernel(shape, dtype) for shape, dtype in rows]


def gpu_code() -> Cubin:
    """All of them for an H100, compiled once: other workers wait. Whoever ends, however, frees the lock."""
    with (home_folder() / "gather_kernels.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return compile_cubin([*variants(), *others()], "sm_90")
