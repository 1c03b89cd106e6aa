"""``perfmodel``, whose plan of a calibration has the kernels of a GPU at sizes that a stand-in ends in time.

Run:    python tests/rehearsal/small_calibration.py calibrate --device cuda --ranks 1
Kernels, clocks, types and numbers of points stay those of a GPU.
"""

import sys

from calibrate.planning import kernel_cells
from perfmodel.cli import main

for preset in ("quick", "standard"):
    kernel_cells.GRIDS["cuda", preset] = kernel_cells.KernelGrid(
        (32, 64), table_bytes=(2**16, 2**18), lookups=(64, 512), most_bytes=2**20, copy_bytes=2**20
    )
print("REHEARSAL: sizes of a CPU that stands in for a GPU: tables of at most 256 KiB", file=sys.stderr)
main()
