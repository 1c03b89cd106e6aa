"""Dense layers of a training step: their kernels, and the communication that kernels of a step hide."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

BACKWARD_RATIO = 2.0
"""Operations of the backward pass over those of the forward pass: gradients of inputs, and of weights [-]."""


MASTER_BYTES = 4.0
"""Bytes of a weight that an optimizer updates: fp32, even where gradients are halves."""


def update_bytes(weights: float, gradient_bytes: float, state_bytes: float) -> float:
    """Bytes that the optimizer of dense layers reads and writes.

        weights (g + copy + 2 (4 + s)),   copy = g where g < 4, else 0        [bytes]

    g  gradient_bytes, read;  s  state_bytes of a weight, read and written like the fp32 weight
    copy  weights in the precision of the gradients, written for the next forward pass
    Source: definition of mixed-precision training (arXiv 1710.03740): fp32 master weights
    Limits: fp32, no state -> 12 of a weight;  halves, Adagrad -> 20;  no weights -> 0
    """
    copy = gradient_bytes if gradient_bytes < MASTER_BYTES else 0.0
    return weights * (gradient_bytes + copy + 2 * (MASTER_BYTES + state_bytes))


def count_mlp_macs(widths: Sequence[float]) -> float:
    """Multiply-adds of a chain of fully connected layers for one sample; also their number of weights.

        sum over layers of in out                                             [-]

    widths  width of the input, then of every layer [-];  in, out  widths before and after a layer
    Source: definition; biases left out
    Limits: one width -> 0;  13, 512 -> 6656
    """
    return float(sum(a * b for a, b in pairwise(widths)))


def count_cross_macs(width: float, rank: float, layers: int) -> float:
    """Multiply-adds of low-rank cross layers for one sample, which is also their number of weights.

        layers 2 width rank                                                   [-]

    width  elements of the concatenated embeddings and the bottom MLP's output [-];  rank  of each layer [-]
    Source: DCN v2 (arXiv 2008.13535): x0 (U V^T x) + x
    Limits: no layers -> 0;  width 2, rank 3, 1 layer -> 12
    """
    return layers * 2.0 * width * rank


HALF_BYTES = 2.0
"""Bytes of an activation, a weight and a gradient in the products: half precision."""


@dataclass(frozen=True)
class DenseKernel:
    """Work of one kernel of the dense layers: operations [FLOP] and bytes read and written [bytes]."""

    flops: float
    moved_bytes: float


def build_product(m: float, k: float, n: float) -> DenseKernel:
    """Work of the product of an m x k by a k x n matrix, in half precision.

        2 m k n [FLOP];   2 (m k + k n + m n) [bytes]

    Source: definition; each operand is read once, and the result written once
    Limits: 1, 1, 1 -> 2 FLOP, 6 bytes
    """
    return DenseKernel(2 * m * k * n, HALF_BYTES * (m * k + k * n + m * n))


def compute_kernels_time(
    kernels: Iterable[DenseKernel], rate: float, share: float, bytes_per_s: float, floor_s: float
) -> float:
    """Time of kernels that run one after the other, each bound by arithmetic or by memory.

        t = sum over kernels of  floor + max(flops / (rate share), bytes / bytes_per_s)   [s]

    rate  of the GPU in half precision, from its datasheet [FLOP/s];  share  of it that products reach [-]
    bytes_per_s  rate of the memory;  floor_s  least time per kernel, however small it is
    Source: roofline (Williams et al., CACM 2009) with the floor of the other kernels (docs/model.md#kernels)
    Limits: no kernels -> 0;  rows -> 0: floors and weights alone;  no floor, no bytes -> flops / (rate share)
    """
    return sum(floor_s + max(k.flops / (rate * share), k.moved_bytes / bytes_per_s) for k in kernels)


def build_chain(
    rows: float, shapes: Iterable[tuple[float, float]]
) -> tuple[tuple[DenseKernel, ...], tuple[DenseKernel, ...]]:
    """(forward, backward): work of the matrix products of a chain of layers for ``rows`` samples.

    shapes  (inputs, outputs) of each layer [-]
    Each layer has two backward products: gradients of its inputs, and of its weights.
    Limits: no layers -> none
    """
    shapes = tuple(shapes)
    forward = tuple(build_product(rows, k, n) for k, n in shapes)
    backward = tuple(
        kernel for k, n in shapes for kernel in (build_product(rows, n, k), build_product(k, rows, n))
    )
    return forward, backward


@dataclass(frozen=True)
class DenseModel:
    """Bottom MLP, cross layers over all embeddings, top MLP.

    bottom  widths from the dense features on;  top  widths after the cross layers
    rank, layers  low rank and number of the cross layers
    """

    bottom: tuple[int, ...]
    top: tuple[int, ...]
    rank: int
    layers: int

    def width(self, embedding_elements: float) -> float:
        """Elements that cross layers get for a sample: all embeddings, and the bottom MLP's output [-]."""
        return embedding_elements + self.bottom[-1]

    def weights(self, embedding_elements: float) -> float:
        """Number of weights, whose gradients are reduced; each is one multiply-add of a sample [-]."""
        width = self.width(embedding_elements)
        crossed = count_cross_macs(width, self.rank, self.layers)
        return count_mlp_macs(self.bottom) + crossed + count_mlp_macs((width, *self.top))

    def kernels(self, embedding_elements: float, rows: float) -> dict[str, tuple[DenseKernel, ...]]:
        """The products of every layer for ``rows`` samples, by part of a step (``StepParts``).

        Element-wise work of the cross layers is counted as part of their products.
        Limits: no cross layers -> products of the MLPs
        """
        width = self.width(embedding_elements)
        crossed = [(width, self.rank), (self.rank, width)] * self.layers
        bottom, bottom_backward = build_chain(rows, pairwise(self.bottom))
        top, top_backward = build_chain(rows, [*crossed, *pairwise((width, *self.top))])
        return {
            "bottom": bottom,
            "bottom_backward": bottom_backward,
            "top": top,
            "top_backward": top_backward,
        }


@dataclass(frozen=True)
class StepParts:
    """Times of the parts of a step [s]; "dp" are replicated (data-parallel) tables.

    keys, forward, backward  exchange of ids, of bags, and of the gradients of bags
    dp_reduce, dense_reduce  all-reduce of the gradients of replicated tables, and of the dense layers
    bucketize     ids sorted by holder;  lookup, dp_lookup  gathers
    pool, unpool  kernels around the exchanges: sums of partial bags, conversions, gradients summed by row
    bottom, top   layers before the embeddings are needed, and after;  ``*_backward``  their gradients
    update, dp_update, dense_update  of rows and of dense weights, with their optimizer state
    """

    keys: float = 0.0
    forward: float = 0.0
    backward: float = 0.0
    dp_reduce: float = 0.0
    dense_reduce: float = 0.0
    bucketize: float = 0.0
    lookup: float = 0.0
    dp_lookup: float = 0.0
    pool: float = 0.0
    unpool: float = 0.0
    bottom: float = 0.0
    bottom_backward: float = 0.0
    top: float = 0.0
    top_backward: float = 0.0
    update: float = 0.0
    dp_update: float = 0.0
    dense_update: float = 0.0

    @property
    def serial_time(self) -> float:
        """Time of all parts one after the other [s]."""
        return float(sum(vars(self).values()))

    @property
    def embedding_communication_time(self) -> float:
        """Time of all communication for the embeddings, hidden or not [s]."""
        return self.keys + self.forward + self.backward + self.dp_reduce


def compute_exposed_time(parts: StepParts, *, training: bool) -> float:
    """Communication of a step that no kernel hides: time that it adds to the kernels.

        t = max(0, F - f) + max(0, X - b) + max(0, K - k, P - u, A - a - u, K + A - k - u)   [s]
        t = K + max(0, F - f)   one forward pass alone, whose ids are sent first             [s]

    F  exchange of bags;  f  kernels that need no bag of it: bottom layers, look-up of replicated tables, and
       in training the next batch's ids sorted
    X  exchange of the gradients of bags;  b  bottom layers, backward
    K  ids of the next batch, sent after F;  k  kernels between F and X: sums of bags, top layers forward and
       backward, gradients summed
    A  all-reduces;  P  that of replicated tables alone, after all of k;  a  top layers, backward, a part of k
    u  row update, and the next look-up, neither of which needs a reduced gradient
    What F and X bring is needed at once. K and A are needed by the next batch and share k and u: each set of
    them hides beside no more than the kernels that may run beside one of the set.
    Source: derived; TorchRec 1.8 ``TrainPipelineSparseDist`` (F, X and K on one stream of the network), and
    PyTorch's ``DistributedDataParallel`` (A in buckets, during backward). The next look-up beside A: HugeCTR
    (EMBark, RecSys 2024); in TorchRec it waits for the dense optimizer
    Limits: no communication -> 0;  kernels without end -> 0;  no kernels -> all communication;
            kernels + t is never less than all communication
    """
    p = parts
    hides_forward = p.bottom + p.dp_lookup
    if not training:
        return p.keys + max(0.0, p.forward - hides_forward)
    hides_forward += p.bucketize
    between = p.pool + p.top + p.top_backward + p.unpool
    after = p.update + p.lookup
    reduces = p.dp_reduce + p.dense_reduce
    return (
        max(0.0, p.forward - hides_forward)
        + max(0.0, p.backward - p.bottom_backward)
        + max(
            0.0,
            p.keys - between,
            p.dp_reduce - after,
            reduces - p.top_backward - after,
            p.keys + reduces - between - after,
        )
    )


def compute_step_time(parts: StepParts, *, training: bool) -> float:
    """Time of a step: its kernels, and the communication that they do not hide.

        t = serial - communication + ``compute_exposed_time``                         [s]

    Source: definition
    Limits: one GPU -> the kernels;  no kernels -> the communication;  never more than all parts in sequence
    """
    communication = parts.embedding_communication_time + parts.dense_reduce
    return parts.serial_time - communication + compute_exposed_time(parts, training=training)
