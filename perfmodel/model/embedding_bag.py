"""Bytes of each step of a row-wise sharded forward pass, per rank, as TorchRec sends them.

Steps in order: bucketize the ids by owner; exchange splits, lengths and ids (three all-to-alls); gather
the rows that this rank owns, for the samples of all ranks, into one partial bag per sample;
reduce-scatter the partial bags. B samples per GPU, T tables, L rows summed per bag, D elements per row,
w bytes per element, G ranks. Ids are assumed uniform over the shards: a rank looks up B T L rows for any G.
All functions take arrays and broadcast; B T, B T L and B T D may be sums over unequal tables.
"""

from __future__ import annotations

from perfmodel.model.recording import Number, equation


@equation
def splits_bytes(G: Number, fields: Number, value_bytes: Number) -> Number:
    """Send buffer of the splits all-to-all: how much each peer will receive.

        fields value_bytes G                                                  [bytes]

    G            ranks [-];  fields  numbers sent to each peer [-];  value_bytes  bytes of one number [bytes]
    Source: TorchRec 1.x KeyedJaggedTensor all-to-all, logged on 128 fake ranks: 3 int64 a peer
    Limits: G = 1 -> fields value_bytes;  3 fields of 8 bytes at G = 128 -> 3072
    """
    return fields * value_bytes * G


@equation
def lengths_bytes(G: Number, bags: Number, length_bytes: Number) -> Number:
    """Send buffer of the lengths all-to-all: one length per bag for every shard.

        G bags length_bytes                                                   [bytes]

    G             ranks that hold part of a table [-];  bags  B T, bags of one rank [-]
    length_bytes  bytes of one length [bytes]: 8 in TorchRec (int64), 4 in the paper's own count
    Source: TorchRec logged on 128 fake ranks: 8 N B F
    Limits: G = 1 -> B T length_bytes;  proportional to G
    """
    return G * bags * length_bytes


@equation
def ids_bytes(lookups: Number, id_bytes: Number) -> Number:
    """Send buffer of the ids all-to-all: every id goes to exactly one owner.

        lookups id_bytes                                                      [bytes]

    lookups   ids of one rank, B T L, once for each column part [-]
    id_bytes  bytes of one id, with its weight where it has one [bytes]
    Source: TorchRec logged on 128 fake ranks: 8 B L F
    Limits: independent of G;  proportional to L
    """
    return lookups * id_bytes


def partial_bags_bytes(G: Number, elements: Number, pooled_bytes: Number) -> Number:
    """Send buffer of the reduce-scatter (or all-to-all) of partial bags: one for each sample of every rank.

        G (B T D) w                                                           [bytes]

    G             ranks [-];  elements  B T D, pooled elements of one rank's samples [-]
    pooled_bytes  w, bytes of one pooled element [bytes]: 4, bags are summed in fp32
    Source: TorchRec logged on 128 fake ranks: 4 N B D
    Limits: G = 1 -> B T D w;  proportional to G
    """
    return G * elements * pooled_bytes


def bucketize_bytes(
    lookups: Number, id_bytes: Number, G: Number, bags: Number, length_bytes: Number
) -> Number:
    """Bytes that bucketizing produces: ids sorted by owner, and one length per bag for every shard.

        (B T L) id_bytes + G (B T) length_bytes                               [bytes]

    lookups  B T L, ids of one rank;  bags  B T, its bags
    id_bytes, length_bytes  bytes of one id, and of one length
    The measured rate counts produced bytes; each is read twice and written once (count, scan, scatter).
    Source: FBGEMM block_bucketize_sparse_features: its outputs
    Limits: no ids -> the lengths alone;  G = 1 -> ids + lengths
    """
    return ids_bytes(lookups, id_bytes) + lengths_bytes(G, bags, length_bytes)


def local_sum_bytes(G: Number, elements: Number, pooled_bytes: Number) -> Number:
    """Bytes that summing G received partial bags moves: G are read, one is written.

        (G + 1) (B T D) w                                                     [bytes]

    G, elements, pooled_bytes   as in partial_bags_bytes
    Source: arXiv 2512.05831: NVSHMEM 2.9 has no reduce-scatter, so an all-to-all and a local sum stand for it
    Limits: G = 1 -> 2 B T D w;  G -> inf -> the all-to-all's buffer
    """
    return (G + 1) * elements * pooled_bytes
