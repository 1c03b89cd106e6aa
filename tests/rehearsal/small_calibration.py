"""``perfmodel``, whose plan of a calibration has the kernels of a GPU at sizes that a stand-in ends in time.

Run:    python tests/rehearsal/small_calibration.py calibrate --device cuda --ranks 1
Kernels, clocks, types and numbers of points stay those of a GPU.
"""

import sys

from calibrate.planning import kernel_cells
from perfmodel.cli import main

LOOKUPS = (64, 512)
SETS = (2**16, 2**18)
"""Bytes of the tables."""

COPIES = 2**20
BAGS = 2**20
"""Bytes: the longest copy, and the most that one gather reads and writes."""

kernel_cells.LOOKUPS["cuda"] = LOOKUPS
kernel_cells.MOST_BYTES["cuda"] = BAGS
kernel_cells.DEFAULT_COPY_LIMIT = COPIES
kernel_cells.MIB = 2**10  # sums of partial bags end at 16 KiB
kernel_cells.WORKING_SETS.update({("cuda", preset): SETS for preset in ("quick", "standard", "rigorous")})
print(
    f"REHEARSAL: sizes of a CPU that stands in for a GPU: {LOOKUPS[0]} to {LOOKUPS[1]} look-ups, tables of "
    f"{SETS[0] >> 10} to {SETS[1] >> 10} KiB, copies of at most {COPIES >> 10} KiB",
    file=sys.stderr,
)
main()
