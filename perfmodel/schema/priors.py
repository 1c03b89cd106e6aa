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

from pydantic import Field, TypeAdapter, ValidationError

from perfmodel import resources
from perfmodel.errors import BadInputError
from perfmodel.schema.fields import Positive, Quantity, Strict, read_as, validated
from perfmodel.schema.files import invalid_fields, looks_like_path, unknown_name, write_whole_text
from perfmodel.schema.gate import WIDEST, read_text, read_toml

Triple = Annotated[list[Positive], Field(min_length=3, max_length=3)]
Quadruple = Annotated[
    list[Annotated[float, Field(ge=0, allow_inf_nan=False)]], Field(min_length=4, max_length=4)
]


class NcclConstants(Strict):
    """Constants of NCCL's tuning model [s]; a ``Triple`` has values for LL, LL128 and Simple.

    ring_base_s, tree_base_s  launch and first step;  *_step_s  a further step over this kind of link
    network_overhead_s  work of a network proxy per step;  nvls_*  reductions in the NVLink switch
    pat_*  NCCL's PAT algorithm: launch, cost per rank, overlapping chunks, share of the ring's rate"""

    source: str
    why: str
    ring_base_s: Triple
    tree_base_s: Triple
    nvlink_ring_step_s: Triple
    nvlink_tree_step_s: Triple
    pcie_ring_step_s: Triple
    pcie_tree_step_s: Triple
    network_ring_step_s: Triple
    network_tree_step_s: Triple
    network_overhead_s: Triple
    nvls_s: Positive
    nvls_tree_step_s: Positive
    nvls_channels: Annotated[int, Field(ge=1)]
    nvls_channel_bytes: Positive
    nvls_tree_chunk_bytes: Positive
    pat_base_s: Positive
    pat_rank_s: Positive
    pat_overlap: Positive
    pat_fraction: Positive


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

    ring_tree, pairwise  priors of unknowns, by name, that replace the general priors of these two laws
    ring_step_s, tree_step_s, tree_sharpness  in place of the constants across nodes
    prior_weight  clusters that a prior counts as, beside those of this network
    """

    source: str
    why: str
    ring_step_s: Triple | None = None
    tree_step_s: Triple | None = None
    tree_sharpness: Triple | None = None
    prior_weight: Positive = 1.0
    ring_tree: Mapping[str, Belief] = {}
    pairwise: Mapping[str, Belief] = {}


class Shape(Strict):
    """Constants in the laws that are not fitted: how sharp corners are, and how fast corrections fade."""

    ring_sharpness: Triple
    tree_sharpness: Triple
    rendezvous_half_bytes: Positive
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
    """A row of the table of bands: ends over some links.

    this_cluster  whether other ranks of the very cluster were measured;  law  whether these ranks were not
    operators     whose points it comes from;  points  their number
    """

    links: str
    this_cluster: bool
    law: bool
    operators: list[str]
    points: Annotated[int, Field(ge=1)]


class BandTable(Strict):
    """The table of 95 % bands, from whole operators left out (``benchmarks/bands.py``).

    edges_bytes  between the classes of sizes;  growth  for each doubling beyond the measured number
    """

    why: str
    edges_bytes: Triple
    row: list[BandRow]
    growth: Ends

    @property
    def classes(self) -> list[tuple[float, float]]:
        """Classes of sizes, as (first, first of the next) [bytes]."""
        return list(itertools.pairwise([0.0, *self.edges_bytes, math.inf]))

    def find(self, links: str, *, this_cluster: bool, law: bool) -> BandRow:
        """The row of some links."""
        key = links, this_cluster, law
        return next(row for row in self.row if (row.links, row.this_cluster, row.law) == key)


class Uncertainty(Strict):
    """Errors of the laws themselves, as standard deviations of ln t; ``why`` explains every one.

    effective_points  number of independent points that a measured curve counts as, however many sizes it has
    """

    sample_log_sd: Positive
    effective_points: Positive
    unseen_log_sd: Positive
    other_library_log_sd: Positive
    card_log_sd: Positive
    least_log_sd: Positive
    unknown_left_out_log_sd: Positive
    why: str


class Learned(Strict):
    """A law's unknowns across domains, learned from measured clusters on one kind of network.

    clusters  their names;  unknowns  values for a further cluster (relative as in ``Belief``)
    domains   most domains that were measured, by the classes of sizes of ``BandTable``; 1: none were
    """

    clusters: list[str]
    domains: Quadruple
    unknowns: Mapping[str, Positive]


LEARNED = "networks.json"
BEST_KNOWN = "infiniband"
"""The kind of network with most measured clusters: its priors serve networks without a measured cluster."""
_NETWORKS = TypeAdapter(Mapping[str, Mapping[str, Learned]])


class Priors(Strict):
    """The whole file of priors; ``learned``: from clusters, by network and law (``networks.json``).

    nccl, network, shape, uncertainty  sections of the file;  bands  the table of ``bands.toml``
    ring_tree, pairwise  priors of the unknowns of these two laws, by name"""

    nccl: NcclConstants
    network: Mapping[str, Network]
    ring_tree: Mapping[str, Belief]
    pairwise: Mapping[str, Belief]
    shape: Shape
    uncertainty: Uncertainty
    bands: BandTable
    learned: Mapping[str, Mapping[str, Learned]] = {}

    def beliefs(self, law: str, network: str) -> dict[str, Belief]:
        """Priors of a law's unknowns on a kind of network, by name, before any cluster was measured."""
        own: Mapping[str, Belief] = getattr(self.network.get(network), law, {})
        return {**getattr(self, law), **own}

    def learned_of(self, law: str, network: str) -> Learned | None:
        """What was learned from clusters on that network; if there are none, on ``BEST_KNOWN``."""
        return self.learned.get(network, {}).get(law) or self.learned.get(BEST_KNOWN, {}).get(law)

    def known_of(self, law: str, network: str) -> dict[str, Belief]:
        """Priors of a law's unknowns, by name, with the values that clusters have in common (``learned_of``).

        Limits: no cluster on that network -> InfiniBand's, but for unknowns with a prior of the network's own
        """
        beliefs, learned = self.beliefs(law, network), self.learned_of(law, network)
        learned_here = law in self.learned.get(network, {})
        for name, value in learned.unknowns.items() if learned else ():
            if learned_here or beliefs[name] is getattr(self, law)[name]:
                beliefs[name] = beliefs[name].model_copy(update={"value": value})
        return beliefs


@lru_cache(maxsize=1)
def load_priors() -> Priors:
    """The shipped priors."""
    folder = resources.data_path("priors")
    try:
        learned = _NETWORKS.validate_json(read_text(folder / LEARNED, "priors"))
    except ValidationError as error:
        raise invalid_fields(error, "priors", str(folder)) from None
    document = read_toml(folder / "collectives.toml", "priors")
    bands = read_toml(folder / "bands.toml", "priors")
    return validated(Priors, {**document, "bands": bands, "learned": learned}, "priors", str(folder))


def save_learned(learned: Mapping[str, Mapping[str, Learned]], path: Path) -> None:
    """Write what was learned from clusters, by network and law, to a JSON file."""
    document = _NETWORKS.dump_python(learned, mode="json")
    write_whole_text(path, json.dumps(document, indent=1, sort_keys=True) + "\n", "priors")


class Constants(Strict):
    """Values with unit, source, why and evidence."""

    values: Mapping[str, Quantity]

    def value(self, key: str) -> float:
        """The SI value of ``key``."""
        return self.quantity(key).value

    def quantity(self, key: str) -> Quantity:
        """The value ``key`` with its source and evidence."""
        if key not in self.values:
            raise unknown_name("constant", key, self.values)
        return self.values[key]


@lru_cache(maxsize=1)
def load_kernel_constants() -> Constants:
    """The shipped constants of the embedding-bag steps."""
    return read_as(Constants, resources.data_path("kernels", "kernel_model.toml"), "kernel constants")


_FOLDER, _SUFFIX = "dense", ".toml"
_WHAT = "file of dense layers"

Width = Annotated[int, Field(ge=1, le=WIDEST)]


class DenseFile(Strict):
    """Dense layers: bottom MLP, cross layers over all embeddings, top MLP.

    bottom  widths from the dense features on;  top  widths after the cross layers, in elements
    rank, layers  low rank and number of the cross layers;  gradient_bytes  of one gradient in the all-reduce
    """

    name: str = Field(min_length=1, max_length=64)
    bottom: tuple[Width, ...] = Field(min_length=1, max_length=100)
    top: tuple[Width, ...] = Field(min_length=1, max_length=100)
    rank: int = Field(ge=0, le=WIDEST)
    layers: int = Field(ge=0, le=1000)
    gradient_bytes: float = Field(gt=0, le=8)
    source: str


class Share(Strict):
    """Share of the datasheet rate that GPUs of one generation reach [-].

    products  reached by matrix products, used if the layers are known
    together  reached by all dense layers together, used if only their operations are known
    error     relative error of a dense time from this share, two standard deviations [-]
    Evidence: transferred, from MLPerf's training steps.
    """

    generation: str
    products: float = Field(gt=0, le=1)
    together: float = Field(gt=0, le=1)
    error: float = Field(ge=0, lt=1)
    source: str


class GpuRate(Strict):
    """Datasheet rate of a machine's GPU in half precision [FLOP/s]."""

    machine: str
    generation: str
    flops_per_s: float = Field(gt=0)
    source: str


class DenseRates(Strict):
    """Contents of ``data/dlrm/rates.toml``."""

    share: list[Share]
    gpu: list[GpuRate]

    def of(self, machine: str) -> GpuRate:
        """The rate of a machine's GPU. Limits: a machine that is not shipped -> BadInputError"""
        rates = {rate.machine: rate for rate in self.gpu}
        if machine not in rates:
            raise BadInputError(
                f"no rate of dense layers is known for a GPU of {machine}.",
                "give their time for a batch, forward and backward, e.g. --dense 3ms; "
                f"known: {', '.join(rates)}.",
            )
        return rates[machine]

    def share_of(self, generation: str) -> Share:
        """Share of a generation; for a generation without measured steps, the share of all others."""
        named = {share.generation: share for share in self.share}
        return named.get(generation, named[ANY])


ANY = "any"
"""Key of the share for generations without measured steps."""


def list_dense() -> list[str]:
    """Names of the shipped dense layers."""
    return resources.data_names(_FOLDER, _SUFFIX)


def load_dense(name_or_path: str) -> DenseFile:
    """Shipped dense layers by name, or a TOML file by path.

    Limits: an unknown name, or a file with other fields -> BadInputError
    """
    path = Path(name_or_path)
    if not looks_like_path(name_or_path, (_SUFFIX,)):
        if name_or_path not in list_dense():
            raise unknown_name("--dense", name_or_path, list_dense())
        path = resources.data_path(_FOLDER, name_or_path + _SUFFIX)
    return read_as(DenseFile, path, _WHAT)


@lru_cache(maxsize=1)
def load_rates() -> DenseRates:
    """The shipped rates."""
    return read_as(DenseRates, resources.data_path("dlrm", "rates.toml"), "file of rates")
