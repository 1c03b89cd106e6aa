"""Floating-point operations of the dense parts of a recommendation model with cross layers (DLRM-DCNv2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

BACKWARD = 2.0
"""Operations of the backward pass relative to the forward pass: gradients of inputs, and of weights."""


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


def mlp_macs(widths: Sequence[float]) -> float:
    """Multiply-adds of a chain of fully connected layers for one sample; also their number of weights.

        sum over layers of in out                                             [-]

    widths  width of the input, then of every layer [-];  in, out  widths before and after a layer
    Source: definition; biases left out
    Limits: one width -> 0;  13, 512 -> 6656
    """
    return float(sum(a * b for a, b in pairwise(widths)))


def cross_macs(width: float, rank: float, layers: int) -> float:
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


def product(m: float, k: float, n: float) -> DenseKernel:
    """Work of the product of an m x k by a k x n matrix.

        2 m k n [FLOP];   2 (m k + k n + m n) [bytes]

    Source: definition; each operand is read once, and the result written once
    Limits: 1, 1, 1 -> 2 FLOP, 6 bytes
    """
    return DenseKernel(2 * m * k * n, HALF_BYTES * (m * k + k * n + m * n))


def kernels_time(
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


@dataclass(frozen=True)
class Passes:
    """Kernels of the dense layers for one batch, by part of a training step."""

    bottom: tuple[DenseKernel, ...]
    bottom_backward: tuple[DenseKernel, ...]
    top: tuple[DenseKernel, ...]
    top_backward: tuple[DenseKernel, ...]


def chain(
    rows: float, shapes: Iterable[tuple[float, float]]
) -> tuple[tuple[DenseKernel, ...], tuple[DenseKernel, ...]]:
    """(forward, backward) matrix products of a chain of layers for ``rows`` samples.

    shapes  (inputs, outputs) of each layer
    Each layer has two backward products: gradients of its inputs, and of its weights.
    Limits: no layers -> none
    """
    shapes = tuple(shapes)
    forward = tuple(product(rows, k, n) for k, n in shapes)
    backward = tuple(each for k, n in shapes for each in (product(rows, n, k), product(k, rows, n)))
    return forward, backward


class Layers(Protocol):
    """Protocol of dense layers: bottom layers run before the embeddings are needed, top layers after."""

    def bottom_flops(self) -> float:
        """Operations of the bottom layers, forward [FLOP]."""

    def top_flops(self, embedding_elements: float) -> float:
        """Operations of the top layers, forward, on all embeddings of a sample [FLOP]."""

    def weights(self, embedding_elements: float) -> float:
        """Number of weights, whose gradients are reduced [-]."""


@dataclass(frozen=True)
class GivenFlops:
    """Dense layers of which only the operations are known: all run after the embeddings.

        weights = flops / 2                                                   [-]

    flops  forward, one sample [FLOP]
    Source: definition of fully connected layers; a convolution or attention has fewer weights
    """

    flops: float

    def bottom_flops(self) -> float:
        """0: nothing runs before the embeddings are there."""
        return 0.0

    def top_flops(self, embedding_elements: float) -> float:
        """All operations."""
        return self.flops

    def weights(self, embedding_elements: float) -> float:
        """One weight per multiply-add."""
        return self.flops / 2


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
        """Elements of the concatenated embeddings and bottom output, for one sample."""
        return embedding_elements + self.bottom[-1]

    def bottom_flops(self) -> float:
        """Operations of the bottom MLP, forward, for one sample: two per multiply-add [FLOP]."""
        return 2 * mlp_macs(self.bottom)

    def top_flops(self, embedding_elements: float) -> float:
        """Operations of cross layers and top MLP, forward, for one sample [FLOP]."""
        width = self.width(embedding_elements)
        return 2 * (cross_macs(width, self.rank, self.layers) + mlp_macs((width, *self.top)))

    def weights(self, embedding_elements: float) -> float:
        """Number of weights, whose gradients are reduced [-]."""
        return (self.bottom_flops() + self.top_flops(embedding_elements)) / 2

    def passes(self, embedding_elements: float, rows: float) -> Passes:
        """The products of every layer for ``rows`` samples.

        Element-wise work of the cross layers is counted as part of their products.
        Limits: no cross layers -> products of the MLPs
        """
        width = self.width(embedding_elements)
        crossed = [(width, self.rank), (self.rank, width)] * self.layers
        return Passes(
            *chain(rows, pairwise(self.bottom)), *chain(rows, [*crossed, *pairwise((width, *self.top))])
        )
