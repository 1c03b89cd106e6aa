"""Bytes of every message of a pooled look-up, for each sharding, per rank and forward pass.

The sharding of a table decides three things: how many ranks get the length of each bag, how many ranks get
each id, and the data that is sent back.

    sharding         lengths go to   each id goes to   back
    table-wise       1 rank          1 rank            whole bags of the own tables to all G ranks
    column-wise      k ranks         k ranks           bags of the own columns to all G ranks
    row-wise         G ranks         1 rank            partial bags, reduce-scatter over G
    table-row-wise   g ranks         1 rank            partial bags, reduce-scatter in the node of g ranks,
                                                       then bags to the same place in all N nodes

B samples per rank, T tables, L rows summed per bag, D elements per row, G ranks, N nodes of g ranks, k column
shards of a table. Every size is the send buffer of one rank. Splits are ``embedding_bag.splits_bytes``: 3
int64 per peer (bags, ids, samples), 4 with weighted ids. Bags are fp32, whatever the storage precision. All
functions take arrays and broadcast; B T, B T L and B D may be sums over unequal tables.
Source of all: TorchRec 1.8, every collective of a rank logged, of 8 and of 128 ranks
(tests/integration/test_message_sizes.py asserts equality).
"""

from __future__ import annotations

from perfmodel.model.recording import Number


def routed_lengths_bytes(holders: Number, bags: Number, length_bytes: Number) -> Number:
    """Send buffer of the lengths all-to-all: each bag's length goes to every rank with part of its table.

        holders (B T) length_bytes                                            [bytes]

    holders       ranks that hold part of one table [-]: 1 table-wise, k column-wise, G row-wise,
                  g table-row-wise
    bags          B T, bags of one rank [-];  length_bytes  bytes of one length [bytes]: 8
    Limits: holders = 1 -> B T length_bytes;  holders = G -> ``embedding_bag.lengths_bytes``
    """
    return holders * bags * length_bytes


def routed_ids_bytes(copies: Number, lookups: Number, id_bytes: Number) -> Number:
    """Send buffer of the ids all-to-all: each id goes to every rank that holds columns of its row.

        copies (B T L) id_bytes                                               [bytes]

    copies    ranks that hold columns of one row [-]: k column-wise, else 1
    lookups   B T L, ids of one rank [-];  id_bytes  bytes of one id [bytes]: 8; of one weight: 4
    Limits: copies = 1 -> ``embedding_bag.ids_bytes``;  no ids -> 0
    """
    return copies * lookups * id_bytes
