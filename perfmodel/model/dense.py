"""Floating-point operations of the dense parts of a recommendation model with cross layers (DLRM-DCNv2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

BACKWARD = 2.0
"""Operations of the backward pass over those of the forward: gradients of inputs, and of weights."""


MASTER_BYTES = 4.0
"""Bytes of a weight that an optimizer updates: fp32, also where gradients are halves."""


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
    """Multiply-adds of a chain of fully connected layers for one sample; also its weights.

        sum over layers of in out                                             [-]

    widths  of the input and of every layer [-]
    Source: definition; biases left out
    Limits: one width -> 0;  13, 512 -> 6656
    """
    return float(sum(a * b for a, b in pairwise(widths)))


def cross_macs(width: float, rank: float, layers: int) -> float:
    """Multiply-adds of low-rank cross layers for one sample; also their weights.

        layers 2 width rank                                                   [-]

    width  elements of the concatenated embeddings and the bottom MLP's output [-];  rank  of each layer [-]
    Source: DCN v2 (arXiv 2008.13535): x0 (U V^T x) + x
    Limits: no layers -> 0;  width 2, rank 3, 1 layer -> 12
    """
    return layers * 2.0 * width * rank


class Layers(Protocol):
    """Dense layers before the embeddings are needed (bottom) and after (top), for one sample."""

    def bottom_flops(self) -> float:
        """Forward [FLOP]."""

    def top_flops(self, embedding_elements: float) -> float:
        """Forward, on all embeddings of a sample [FLOP]."""

    def weights(self, embedding_elements: float) -> float:
        """Weights whose gradients are reduced [-]."""


@dataclass(frozen=True)
class GivenFlops:
    """Dense layers of which only the operations are known, all of them after the embeddings.

        weights = flops / 2                                                   [-]

    flops  forward, one sample [FLOP]
    Source: definition of fully connected layers; a convolution or attention has fewer weights
    """

    flops: float

    def bottom_flops(self) -> float:
        """None: nothing runs before the embeddings are there."""
        return 0.0

    def top_flops(self, embedding_elements: float) -> float:
        """All of them."""
        return self.flops

    def weights(self, embedding_elements: float) -> float:
        """One for each multiply-add."""
        return self.flops / 2


@dataclass(frozen=True)
class DenseModel:
    """Bottom MLP, cross layers over all embeddings, top MLP.

    bottom  widths from the dense features on;  top  widths after the cross layers;  rank, layers  of those
    """

    bottom: tuple[int, ...]
    top: tuple[int, ...]
    rank: int
    layers: int

    def width(self, embedding_elements: float) -> float:
        """Elements of the concatenation for one sample."""
        return embedding_elements + self.bottom[-1]

    def bottom_flops(self) -> float:
        """Forward, one sample: two for each multiply-add [FLOP]."""
        return 2 * mlp_macs(self.bottom)

    def top_flops(self, embedding_elements: float) -> float:
        """Cross layers and top MLP, forward, one sample [FLOP]."""
        width = self.width(embedding_elements)
        return 2 * (cross_macs(width, self.rank, self.layers) + mlp_macs((width, *self.top)))

    def weights(self, embedding_elements: float) -> float:
        """Weights whose gradients are reduced [-]."""
        return (self.bottom_flops() + self.top_flops(embedding_elements)) / 2
