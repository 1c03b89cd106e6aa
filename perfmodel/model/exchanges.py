"""Bytes that a shard of a table costs its rank, and every rank, for each cut and exchange.

A table is cut into r row parts and c column parts: r c shards, each on one rank. The results of a look-up
return in one of six ways (``engine.schemes.Exchange``). There are two kinds of load: what the *holder* of a
shard does for the samples of all ranks, and what *every rank* does for its own samples.

    exchange    to the holders                 back                                    local sum
    dp          nothing: replicated            nothing                                 -
    rb          lengths, ids                   partial bags, all-to-all                of r bags, r > 1
    rs          lengths, ids; r = G, c = 1     partial bags, reduce-scatter over G     -
    sparse      lengths, ids                   non-empty partial bags, all-to-all      of G q bags, r > 1
    two_level   lengths, ids; r = k g          reduce-scatter in each domain of g,     of k bags, 1 < k < N
                                               all-to-all (k < N) or reduce-scatter
                                               (k = N) across the N domains
    ub          unique ids of the rank, each   unique rows, all-to-all; pooled here    -
                with the id of its feature

B samples per rank, L rows summed per bag, E rows, D elements of a row, w bytes of a stored element, v bytes
of a pooled element as it is sent, G ranks, N domains of g ranks, q chance that a bag has a row in a row part,
U distinct rows among one rank's B L look-ups. Ids are assumed uniform over the row parts. All functions take
arrays and broadcast.

Backward, gradients travel the path of the bags in reverse: an all-to-all sends as many bytes as it received
before, and an all-gather (its size is the receive buffer) replaces a reduce-scatter (its size is the send
buffer). The bytes are the same.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from perfmodel.model import access
from perfmodel.model.recording import Array, Number, as_array, equation


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
def lengths_bytes(holders: Number, bags: Number, length_bytes: Number) -> Number:
    """Send buffer of the lengths all-to-all: one length per bag for every shard.

        holders bags length_bytes                                             [bytes]

    holders       ranks that hold part of a table [-];  bags  B T, bags of one rank [-]
    length_bytes  bytes of one length [bytes]: 8 in TorchRec (int64), 4 in the paper's own count
    Source: TorchRec logged on 128 fake ranks: 8 N B F
    Limits: 1 holder -> B T length_bytes;  proportional to holders
    """
    return holders * bags * length_bytes


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


@equation
def shard_lookups(G: Number, B: Number, L: Number, r: Number) -> Number:
    """Rows that the holder of a shard looks up for the samples of all ranks.

        G B L / r                                                             [rows]

    G  ranks [-];  B  bags of one rank [-];  L  rows of a bag [-];  r  row parts [-]
    Source: every id goes to the one row part that holds it (and to each of its column parts)
    Limits: r = 1 -> all G B L;  r = G -> B L, as without sharding
    """
    return G * B * L / r


@equation
def filled_share(r: ArrayLike, L: ArrayLike, tail: ArrayLike = 1) -> Array:
    """Share of bags that have at least one row in a given row part.

        q = 1 - (1 - tail / r)^L                                              [-]

    r  row parts [-];  L  distinct rows of a bag [-]
    tail  share of the look-ups that ask for rows in the parts [-]; the others ask for hot rows, which are
          replicated
    Source: ``access.compute_touched_share`` of row parts in place of rows (28 of 128 for L = 32, 4 for 4).
            Rows are in parts by chance: with skewed ids L is the rows that differ
    Limits: tail = 1: r = 1 -> 1, L = 1 -> 1/r, L -> inf -> 1, r -> inf -> L/r;  tail = 0 -> 0;
            r = 1 -> the bags that are not all hot, 1 - (1 - tail)^L
    """
    return access.compute_touched_share(as_array(tail) / as_array(r), L)


def count_part_elements(D: ArrayLike, c: ArrayLike) -> Array:
    """Elements of a row that the widest of c column parts holds: ceil(D / c).

    D  elements of a row [-];  c  column parts [-]
    Source: TorchRec's column-wise block size
    Limits: c = 1 -> D;  c = D -> 1;  D = 128, c = 3 -> 43;  c divides D -> all parts are as wide, else the
    c parts together count c ceil(D / c) - D < c elements too many
    """
    return np.ceil(as_array(D) / as_array(c))


def count_even_parts(r: ArrayLike, n: ArrayLike) -> Array:
    """Row parts that would each be as full as the fullest of r parts, whose rows are whole buckets.

        n / ceil(n / r)                                                       [-]

    r  row parts [-];  n  buckets of the table [-]; 0: rows are cut anywhere
    Source: TorchRec 1.8, ``sharding_plan``: of n buckets a rank has floor(n / r), the first ranks one more
    Limits: n = 0 -> r;  r divides n -> r;  r = 1 -> 1;  n = 10, r = 4 -> 3 of 10 buckets: 3.33
    """
    parts = as_array(r)
    buckets = as_array(n)
    return np.where(buckets, buckets / np.maximum(np.ceil(buckets / parts), 1), parts)


@equation
def holder_lengths_bytes(G: Number, B: Number, length_bytes: Number) -> Number:
    """Bytes of bag lengths that the holder of a shard receives: one length for each bag of every rank.

        G B length_bytes                                                      [bytes]

    G  ranks [-];  B  bags of one rank [-];  length_bytes  bytes of one length [bytes]: 8
    Source: TorchRec 1.8 (``lengths_bytes`` is what the senders send)
    Limits: over the r c shards of a table: r c G B length_bytes, what all G ranks send
    """
    return G * B * length_bytes


@equation
def bag_bytes(elements: Number, v: Number, index_bytes: Number = 0) -> Number:
    """Bytes of one bag on the wire: its elements and, in a sparse exchange, its index.

        elements v + index_bytes                                              [bytes]

    elements  columns that the holder has [-];  v  bytes of a sent element [bytes]
    index_bytes  bytes of the index of a bag, in a sparse exchange [bytes]
    Limits: index_bytes = 0 -> a dense exchange's;  D = 32, v = 4, index 4 -> 132
    """
    return elements * v + index_bytes


@equation
def bags_sent_bytes(G: Number, B: Number, filled: Number, bag: Number) -> Number:
    """Bags that the holder of a shard sends (with its own share, as in every send buffer).

        G B filled bag                                                        [bytes]

    G  ranks [-];  B  bags of one rank [-];  filled  share of them that is sent [-]: 1, or ``filled_share``
    bag  bytes of one bag that is sent [bytes]: ``bag_bytes`` of the holder's columns
    Source: TorchRec 1.8, its all-to-all of pooled bags, with filled = 1
    Limits: filled = 1, one row part -> whole bags of the table;  G row parts -> one part of each bag of all
    ranks
    """
    return G * B * filled * bag


@equation
def bags_received_bytes(
    B: Number, senders: Number, filled: Number, D: Number, v: Number, c: Number, index_bytes: Number
) -> Number:
    """Bags that every rank receives for its own samples, from all shards of a table.

        B senders filled (D v + c index_bytes)                                [bytes]

    B  bags of one rank [-];  senders  row parts that send a bag, or domains with some [-]
    c  column parts [-];  D  elements of a row [-]
    filled  share of the bags that is sent, as in ``bags_sent_bytes`` [-]
    v  bytes of a sent element [bytes];  index_bytes  bytes of the index of a bag [bytes]
    All c column parts of a bag arrive, each with its index.
    Limits: 1 sender -> B D v;  G senders, filled = 1 -> G B D v, what a holder sends;  filled = 1 / senders
    -> one bag per sample
    """
    return B * senders * filled * (D * v + c * index_bytes)


@equation
def bag_sum_bytes(B: Number, received: Number, D: Number, w: Number) -> Number:
    """Bytes that adding up received partial bags moves: all are read, whole bags are written.

        received + B D w                                                      [bytes]

    B  bags of one rank [-];  received  bytes of the bags that are added up [bytes]
    D  elements of a row [-]
    w  bytes of a pooled element [bytes]
    Source: arXiv 2512.05831: NVSHMEM 2.9 has no reduce-scatter, so an all-to-all and a local sum stand for it
    Limits: received = 0 -> B D w;  r = G dense -> (G + 1) B D w
    """
    return received + B * D * w


@equation
def convert_bytes(bags: Number, elements: Number, v: Number, w: Number) -> Number:
    """Bytes that changing the precision of bags moves: each element is read in one and written in the other.

        bags elements (v + w)                                                 [bytes]

    bags  bags that are sent or received [-];  elements  of each bag [-]
    v  bytes of a sent element [bytes];  w  bytes of a pooled element [bytes]
    Source: derived; the holder converts bags before it sends them, every rank the bags that arrive
    Limits: elements = 0 -> 0;  fp32 as fp16 -> 6 bytes an element
    """
    return bags * elements * (v + w)


@equation
def across_bytes(B: Number, domains: Number, elements: Number, v: Number) -> Number:
    """Bags, already reduced inside a domain, that a rank sends to the same place in all N domains.

        domains B elements v                                                  [bytes]

    B  bags of one rank [-];  domains  N, scale-up domains [-]
    elements  elements of the domain's columns [-];  v  bytes of each [bytes]
    Source: TorchRec 1.8, its all-to-all between nodes: 1/g of the G B elements v that the domain reduced
    Limits: N = 1 -> the rank's own bags, nothing to send
    """
    return domains * B * elements * v


@equation
def row_request_bytes(U: Number, c: Number, request_bytes: Number) -> Number:
    """Requests that every rank sends to the holders of its distinct rows, once for each column part.

        c U request_bytes                                                     [bytes]

    U  distinct rows of one rank's look-ups [rows];  c  column parts [-]
    request_bytes  of one id with the id of its feature [bytes]
    Source: EMBark (RecSys 2024), unique-based clusters; HugeCTR, all2all_keys of
            dense_data_distribution_op_impl.cu: keys, and int32 feature ids
    Limits: U = B L, c = 1, no feature id -> ``ids_bytes``;  one row -> request_bytes
    """
    return c * U * request_bytes


@equation
def requested_rows(G: Number, U: Number, r: Number) -> Number:
    """Rows that the holder of a shard reads and sends: the distinct rows that each rank asks for.

        G U / r                                                               [rows]

    G  ranks [-];  U  distinct rows of one rank's look-ups [rows];  r  row parts [-]
    Source: EMBark; a row that two ranks ask for is sent to both. HugeCTR, filter_after_all2all of
            dense_data_distribution_op_impl.cu: the holder first finds the different ones among these ids
    Limits: r = 1 -> G U;  r = G -> U, as many as every rank receives;  U = B L -> ``shard_lookups``
    """
    return G * U / r


@equation
def rows_bytes(rows: Number, row: Number) -> Number:
    """Bytes of rows, requests for rows, or gradients of rows that are sent.

        rows row                                                              [bytes]

    rows  rows that are sent or received [rows];  row  bytes of one, or of one request for it [bytes]
    Source: EMBark; ``requested_rows`` at the holder, U at the rank that asks
    Limits: no rows -> 0
    """
    return rows * row


@equation
def placed_bytes(rows: Number, row: Number) -> Number:
    """Bytes of putting rows that arrived in the order of the ids.

        2 rows row                                                            [bytes]

    rows  rows that are read and written [rows]: after bucketizing each that arrived, after deduplication one
          for each id;  row  bytes of one [bytes]
    Source: TorchRec 1.8, ``SequenceEmbeddingsAllToAll`` and ``EmbeddingCollection``: an index_select each
    Limits: no rows -> 0
    """
    return 2 * rows * row


@equation
def sort_bytes(lookups: Number, digits: Number, id_bytes: Number, place_bytes: Number) -> Number:
    """Bytes that a radix sort of ids with their positions moves, to deduplicate ids or add up gradients.

        lookups (id_bytes + 2 digits (id_bytes + place_bytes))                [bytes]

    lookups  ids that are sorted [-];  digits  digits of 8 bits of an id [-]
    id_bytes  bytes of an id [bytes];  place_bytes  bytes of the place of an id in the batch [bytes]
    Source: Adinets and Merrill, Onesweep, arXiv 2206.01784: keys are read once to count their digits, and
            for each digit keys and values are read and written
    Limits: no ids -> 0;  one digit, no places -> 3 id_bytes for each;  8 digits of 8 bytes with
            places of 4 -> 200 bytes for each
    """
    return lookups * (id_bytes + 2 * digits * (id_bytes + place_bytes))


def sort_digits(E: Number) -> Number:
    """Digits of 8 bits in which FBGEMM's backward pass sorts ids: enough to number the rows of a rank.

        ceil((floor(log2(E)) + 1) / 8)                                        [-]

    E  rows that one rank holds of the tables of a launch [rows]: TorchRec's ids are local to a shard
    Source: FBGEMM, ``transpose_embedding_input`` sorts ``total_hash_size_bits``, int(log2(rows) + 1);
            TorchRec gives it ``local_rows``, and its ``block_bucketize_sparse_features`` subtracts the first
            row of a shard
    Limits: 255 rows -> 1;  256 -> 2;  2^32 - 1 -> 4;  2^32 -> 5
    """
    return np.ceil((np.floor(np.log2(np.maximum(E, 1.0))) + 1) / 8)


def count_shard_bytes(
    E: ArrayLike, r: ArrayLike, elements: ArrayLike, w: ArrayLike, per_element: ArrayLike, per_row: ArrayLike
) -> Array:
    """Memory of one shard: its rows and the optimizer's state.

        ceil(E / r) [elements (w + per_element) + per_row]                    [bytes]

    E  rows of the table;  r  row parts;  elements  ``count_part_elements`` [-]
    w  bytes of a stored element, with its share of what else the row has (``tables.row_bytes``) [bytes]
    per_element, per_row  optimizer state for each element, and for each row of a shard [bytes]:
        none 0, 0;  row-wise Adagrad 0, 4;  Adagrad 4, 0;  Adam 8, 0
    Source: FBGEMM's fused optimizers keep fp32 state; TorchRec's row-wise block size is ceil(E / r)
    Limits: r = E, one element, no state -> w;  E = 10, r = 4 -> 3 rows
    """
    row = as_array(elements) * (as_array(w) + as_array(per_element)) + as_array(per_row)
    return np.ceil(np.round(as_array(E) / as_array(r), 6)) * row  # rounding errors make no further row


@equation
def update_row_bytes(elements: Number, w: Number, per_element: Number, per_row: Number) -> Number:
    """Bytes that updating one row of a shard moves: it and its optimizer's state, read and written.

        2 (elements (w + per_element) + per_row)                              [bytes]

    elements  elements of a row that this shard holds [-];  w  bytes of a stored element [bytes]
    per_element  optimizer's state of an element [bytes];  per_row  of a row, beside that [bytes]
    Source: FBGEMM's fused backward: every distinct row that a batch touches is read and written once
    Limits: no state -> 2 elements w
    """
    return 2 * (elements * (w + per_element) + per_row)


@equation
def copied_gradient_bytes(E: Number, D: Number, v: Number) -> Number:
    """Send buffer of the all-reduce of a replicated table: the gradient of all its rows.

        E D v                                                                 [bytes]

    E  rows of which every rank has a copy [rows];  D  elements of a row [-]
    v  bytes of an element of the gradient [bytes]
    Source: TorchRec's data-parallel tables are dense parameters of DistributedDataParallel
    Limits: one row -> D v;  independent of the batch
    """
    return E * D * v
