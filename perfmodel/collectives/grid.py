"""The grid of sizes on which the times of a group of ranks are tabulated: eight per octave, from 1 byte."""

from __future__ import annotations

import numpy as np

PER_OCTAVE = 8
OCTAVES = 48
GRID_LOG2 = np.arange(OCTAVES * PER_OCTAVE + 1) / PER_OCTAVE
GRID_BYTES = np.exp2(GRID_LOG2)
LARGEST_BYTES = float(GRID_BYTES[-1])
