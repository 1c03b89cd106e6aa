"""Alternatives to sharding over the memory of many GPUs: host memory, C2C links, SSDs, one large memory."""
