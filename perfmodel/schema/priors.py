"""What is known before a machine is measured: priors of collectives, constants of the steps.

All are TOML, each value with its source: ``data/priors``, ``data/kernels``.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from pydantic import Field

from perfmodel import resources
from perfmodel.errors import BadInputError
from perfmodel.schema.fields import Positive, Quantity, Strict, read_as, validated
from perfmodel.schema.files import find_file, write_whole
from perfmodel.schema.gate import WIDEST, read_json, read_toml

Triple = Annotated[list[Positive], Field(min_length=3, max_length=3)]
Quadruple = Annotated[
    list[Annotated[float, Field(ge=0, allow_inf_nan=False)]], Field(min_length=4, max_length=4)
]


class NcclConstants(Strict):
    """Constants of NCCL's tuning model [s]; a ``Triple`` has values for LL, LL128 and Simple."""

    source: str
    why: str
    ring_base_s: Triple  # launch and first step
    tree_base_s: Triple
    nvlink_ring_step_s: Triple  # a further step over this kind of link
    nvlink_tree_step_s: Triple
    pcie_ring_step_s: Triple
    pcie_tree_step_s: Triple
    ring_network_s: Triple  # across nodes
    tree_network_s: Triple
    network_overhead_s: Triple  # work of a network proxy per step
    nvls_s: Positive  # reductions in the NVLink switch
    nvls_tree_step_s: Positive
    nvls_channels: Annotated[int, Field(ge=1)]
    nvls_channel_bytes: Positive
    nvls_tree_chunk_bytes: Positive
    pat_base_s: Positive  # NCCL's PAT algorithm: launch
    pat_rank_s: Positive
    pat_overlap: Positive  # of chunks
    pat_fraction: Positive  # of the ring's rate


class Belief(Strict):
    """Prior of one unknown of a law: a log-normal distribution, and the reason for it.

    value  its centre;  log_sd  standard deviation of the logarithm
    relative_to  machine value by which the centre is multiplied; "" if the centre is absolute
    """

    value: Positive
    log_sd: Positive
    why: str
    relative_to: str = ""


class Network(Strict):
    """Priors of one kind of network, where they differ from NCCL's constants and from InfiniBand.

    Constants stand in place of NCCL's (``NcclConstants``), for LL, LL128 and Simple.
    """

    source: str
    why: str
    ring_base_s: Triple | None = None
    tree_base_s: Triple | None = None
    ring_inside_s: Triple | None = None
    tree_inside_s: Triple | None = None
    ring_network_s: Triple | None = None
    tree_network_s: Triple | None = None
    tree_sharpness: Triple | None = None
    prior_weight: Positive = 1.0  # clusters that a prior counts as
    ll_bytes_per_s: Positive | None = None
    pairwise: Mapping[str, Belief] = {}


class Shape(Strict):
    """Constants in the laws that are not fitted: how sharp corners are, and how fast corrections fade."""

    ring_sharpness: Triple
    tree_sharpness: Triple
    ll_bytes_per_s: Positive  # LL's rate across nodes
    ll128_fraction: Positive  # of their rate that LL128 and trees reach
    tree_fraction: Positive
    nvls_tree_fraction: Positive
    rendezvous_half_bytes: Positive
    p2p_round_s: Positive  # of leaving the domain
    p2p_channels: Annotated[int, Field(ge=1)]
    p2p_batch: Annotated[int, Field(ge=1)]
    nvls_channel_s: Positive
    rate_sharpness: Positive
    choice_sharpness: Positive
    fading_octaves: Positive
    floor_slope: Annotated[float, Field(gt=0, lt=1)]
    why: str


class Ends(Strict):
    """How far ln t may be below and above a prediction, for each class of sizes."""

    below: Quadruple
    above: Quadruple


class BandRow(Ends):
    """Ends over some links, from ``points`` of these operators."""

    links: str
    this_cluster: bool  # other ranks of the very cluster were measured
    law: bool  # these ranks were not
    operators: list[str]
    points: Annotated[int, Field(ge=1)]


class BandTable(Strict):
    """95 % bands by links and size, from fits without the samples of an operator (benchmarks/bands.py)."""

    why: str
    edges_bytes: Triple  # between the classes of sizes
    row: list[BandRow]
    growth: Ends  # for each doubling beyond the measured number

    @property
    def classes(self) -> list[tuple[float, float]]:
        """Classes of payloads, as (least, least of the next) [bytes]."""
        return list(itertools.pairwise([0.0, *self.edges_bytes, math.inf]))

    def find(self, links: str, *, this_cluster: bool, law: bool) -> BandRow:
        """The row of some links (``name_links``); this_cluster, law  as in ``BandRow``."""
        key = links, this_cluster, law
        return next(row for row in self.row if (row.links, row.this_cluster, row.law) == key)


class Uncertainty(Strict):
    """Errors of the laws themselves, as standard deviations of ln t; ``why`` explains every one."""

    sample_log_sd: Positive
    effective_points: Positive  # that a measured curve counts as, however many sizes it has
    unseen_log_sd: Positive
    other_library_log_sd: Positive
    card_log_sd: Positive
    least_log_sd: Positive
    unknown_left_out_log_sd: Positive
    why: str


class Learned(Strict):
    """A law's unknowns across domains, learned from measured clusters on one kind of network."""

    clusters: list[str]
    domains: Quadruple  # most that were measured, by class of sizes
    unknowns: Mapping[str, Positive]  # for a further cluster, relative as in Belief


LEARNED = "networks.json"
BEST_KNOWN = "infiniband"  # has most measured clusters: its priors serve networks without one


class Priors(Strict):
    """The priors of both laws, with ``bands.toml`` and, by network and law, ``networks.json`` (learned)."""

    nccl: NcclConstants
    network: Mapping[str, Network]
    ring_tree: Mapping[str, Belief]
    pairwise: Mapping[str, Belief]
    shape: Shape
    uncertainty: Uncertainty
    bands: BandTable
    learned: Mapping[str, Mapping[str, Learned]]

    def learned_of(self, law: str, network: str) -> Learned | None:
        """What was learned from clusters on that network; if there are none, on ``BEST_KNOWN``."""
        return self.learned.get(network, {}).get(law) or self.learned.get(BEST_KNOWN, {}).get(law)

    def known_of(self, law: str, network: str) -> dict[str, Belief]:
        """Priors of a law's unknowns, by name, with the values that clusters have in common (``learned_of``).

        Limits: no cluster on that network -> InfiniBand's, but for unknowns with a prior of the network's own
        """
        of_network: Mapping[str, Belief] = getattr(self.network.get(network), law, {})
        beliefs = {**getattr(self, law), **of_network}
        if learned := self.learned_of(law, network):
            fixed = () if law in self.learned.get(network, {}) else of_network
            for name in learned.unknowns.keys() - set(fixed):
                beliefs[name] = beliefs[name].model_copy(update={"value": learned.unknowns[name]})
        return beliefs


@lru_cache(maxsize=1)
def load_priors() -> Priors:
    """The shipped priors."""
    folder = resources.data_path("priors")
    document = read_toml(folder / "collectives.toml", "priors")
    document |= {"bands": read_toml(folder / "bands.toml", "priors")}
    document |= {"learned": read_json(folder / LEARNED, "priors")}
    return validated(Priors, document, "priors", str(folder))


def save_learned(learned: Mapping[str, Mapping[str, Learned]], path: Path) -> None:
    """Write what was learned from clusters, by network and law, to a JSON file."""
    document = {
        network: {law: item.model_dump() for law, item in laws.items()} for network, laws in learned.items()
    }
    write_whole(path, json.dumps(document, indent=1, sort_keys=True) + "\n", "priors")


Constants = Mapping[str, Quantity]
"""Values by key, each with unit, source, why and evidence."""


class _ConstantsFile(Strict):
    values: Constants


@lru_cache(maxsize=1)
def load_kernel_constants() -> Constants:
    """The shipped constants of the embedding-bag steps."""
    path = resources.data_path("kernels", "kernel_model.toml")
    return read_as(_ConstantsFile, path, "kernel constants").values


Width = Annotated[int, Field(ge=1, le=WIDEST)]


class DenseFile(Strict):
    """Dense layers: bottom MLP, cross layers over all embeddings, top MLP; widths in elements."""

    name: str = Field(min_length=1, max_length=64)
    bottom: tuple[Width, ...] = Field(min_length=1, max_length=100)
    top: tuple[Width, ...] = Field(min_length=1, max_length=100)
    rank: int = Field(ge=0, le=WIDEST)  # of the cross layers
    layers: int = Field(ge=0, le=1000)
    gradient_bytes: float = Field(gt=0, le=8)  # of one gradient in the all-reduce
    source: str


class Share(Strict):
    """Share of the datasheet rate that GPUs of one generation reach [-]; transferred, from MLPerf's steps."""

    products: float = Field(gt=0, le=1)  # of matrix products, where the layers are known
    together: float = Field(gt=0, le=1)  # of all layers, where only their operations are
    error: float = Field(ge=0, lt=1)  # two standard deviations
    source: str


class GpuRate(Strict):
    """Datasheet rate of a machine's GPU in half precision [FLOP/s]."""

    generation: str
    flops_per_s: float = Field(gt=0)
    source: str


class DenseRates(Strict):
    """Contents of ``data/dlrm/rates.toml``: shares by generation, rates by machine."""

    share: Mapping[str, Share]
    gpu: Mapping[str, GpuRate]

    def of(self, machine: str) -> tuple[GpuRate, Share]:
        """The rate of a machine's GPU, and the share of its generation, else that of ``ANY``."""
        if machine not in self.gpu:
            raise BadInputError(
                f"no rate of dense layers is known for a GPU of {machine}.",
                "give their time for a batch, forward and backward, e.g. --dense 3ms; "
                f"known: {', '.join(self.gpu)}.",
            )
        gpu = self.gpu[machine]
        return gpu, self.share.get(gpu.generation, self.share[ANY])


ANY = "any"  # key of the share for generations without measured steps


def load_dense(name_or_path: str) -> DenseFile:
    """Shipped dense layers by name, or a TOML file by path."""
    return read_as(DenseFile, find_file("--dense", name_or_path, "dense", ".toml"), "file of dense layers")


@lru_cache(maxsize=1)
def load_rates() -> DenseRates:
    """The shipped rates."""
    return read_as(DenseRates, resources.data_path("dlrm", "rates.toml"), "file of rates")
