"""Timed operations besides single collectives: kernels of a look-up, and whole row-wise passes."""
