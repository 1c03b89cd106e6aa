"""Alternatives to sharding over the GPU memory of many GPUs."""
