"""What a run measures: presets, sizes, groups of ranks, grids of kernels and passes."""
