"""What a rank has of: the bytes that each step of a pass waits for."""

from __future__ import annotations

from enum import IntEnum


class Resource(IntEnum):
    """What a rank has of: all in bytes. SENT and RECEIVED are the two sides of one collective."""

    BUCKETIZE = 0  # ids and lengths sorted by owner
    LENGTHS_SENT = 1
    LENGTHS_RECEIVED = 2
    IDS_SENT = 3
    IDS_RECEIVED = 4
    DEDUPLICATE = 5  # ids of ub
    REQUESTS_SENT = 6  # distinct ids of ub
    REQUESTS_RECEIVED = 7
    GATHER_DRAM = 8
    GATHER_L2 = 9
    ROWS_SENT = 10  # unique rows of ub
    ROWS_RECEIVED = 11
    POOL_DRAM = 12  # pooling of the unique rows that came
    POOL_L2 = 13
    CONVERT_OUT = 14  # bags to another precision before an exchange
    REDUCE_SCATTER = 15
    REDUCE_INSIDE = 16  # two_level, inside a domain
    REDUCE_ACROSS = 17  # two_level, row parts in all domains
    ACROSS_SENT = 18  # two_level, row parts in some domains
    ACROSS_RECEIVED = 19
    BAGS_SENT = 20
    BAGS_RECEIVED = 21
    SPARSE_SENT = 22
    SPARSE_RECEIVED = 23
    CONVERT_IN = 24
    LOCAL_SUM = 25
    SORT = 26  # training: look-ups sorted by row
    UPDATE_DRAM = 27  # gradients added up by row, rows and optimizer state updated
    UPDATE_L2 = 28
    ACCUMULATE_DRAM = 29  # gradients of ub added up by row before they are sent
    ACCUMULATE_L2 = 30
    ROW_GRADIENTS_SENT = 31
    ROW_GRADIENTS_RECEIVED = 32
    COPIED_GRADIENTS = 33  # of tables on every rank


RESOURCES: tuple[str, ...] = tuple(resource.name.lower() for resource in Resource)
"""Names of the K resources, in the order of the arrays."""
