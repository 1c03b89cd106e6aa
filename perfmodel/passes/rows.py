"""Bytes of rows in memory, by the type of their elements, as FBGEMM's kernels store them.

Forward passes have the rows of its inference kernels, training those of its training kernels. The former
pad rows of fp32 too, but shards of TorchRec have a multiple of 4 columns, which need no padding; they
know neither bf16 nor fp64, whose rows are counted as the training kernels have them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfmodel.model import sharding
from perfmodel.schema.constants import load_kernel_constants
from perfmodel.schema.workload import DTYPE_BYTES, DTYPES

Array = NDArray[np.float64]

WIDTHS = np.array([float(DTYPE_BYTES[name]) for name in DTYPES])
"""Bytes of an element of each of ``DTYPES``."""
_SCALED = np.isin(DTYPES, ["int8"])
"""Which of them have a scale and a bias in each row: FBGEMM's 8-bit floats have none."""
_PADDED = np.isin(DTYPES, ["fp16", "fp8", "int8"])


def row_bytes(dtype: ArrayLike, elements: ArrayLike, *, training: bool) -> Array:
    """``sharding.row_bytes`` of rows of so many elements.

    dtype  types, as places in ``DTYPES``;  training  whether they are rows of FBGEMM's training kernels
    """
    code, value = np.asarray(dtype, dtype=np.int64), load_kernel_constants().value
    scale = value("trained_row_scale_bytes" if training else "row_scale_bytes") * _SCALED[code]
    align = np.where(_PADDED[code] & (not training), value("row_align_bytes"), 1.0)
    return sharding.row_bytes(elements, WIDTHS[code], scale, align)
