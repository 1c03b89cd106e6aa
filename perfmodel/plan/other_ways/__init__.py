"""What else one could do than shard over the GPU memory of many GPUs."""
