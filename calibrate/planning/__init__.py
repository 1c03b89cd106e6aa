"""Contents of a run: presets, sizes, groups of ranks, grids of kernels and passes."""
