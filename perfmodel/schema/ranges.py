"""How much can be asked for, and what a file may ask for: options, Python and files refuse what is beyond."""

MOST_GPUS = 2**20
MOST_PLANNED_GPUS = 2**18
"""Of one plan, which says of each GPU what it holds: the largest cluster has 200 000 (``data/limits``)."""

MOST_TABLES = 100_000
MOST_ROWS = 2**53
"""Whole numbers are exact up to there in double precision."""

WIDEST = 2**20
LEAST_POOLING, MOST_POOLING = 1e-6, 1e9
"""Below, less than one of a million bags would have a row."""

LEAST_CACHED = 1e-9
"""Share of the rows that a cache holds: a row of a billion."""

MOST_BATCH = 2**30
"""Samples of a GPU whose ids alone fill 8 GiB."""

MOST_SKEW = 50
"""Of Zipf's law: the second row is asked for 2^50 times less often than the first, as good as never."""
