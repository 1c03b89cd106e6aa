"""Limits of options, Python arguments and files: larger values are refused."""

MOST_GPUS = 2**20
MOST_PLANNED_GPUS = 2**18
"""GPUs of a plan that lists each GPU; the largest cluster has 200 000 (``data/limits``)."""

MOST_TABLES = 100_000
MOST_ROWS = 2**53
"""Integers are exact up to this in double precision."""

WIDEST = 2**20
LEAST_POOLING, MOST_POOLING = 1e-6, 1e9
"""Below the lower limit, less than one of a million bags would have a row."""

MOST_BATCH = 2**30
"""Samples per GPU; the ids of so many alone fill 8 GiB."""

MOST_SKEW = 50
"""Exponent of Zipf's law; the second row is then asked for 2^50 times less often than the first."""
