"""Prior knowledge of collectives, before a machine is measured: ``data/priors/collectives.toml``."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from perfmodel import resources
from perfmodel.schema.files import invalid_fields
from perfmodel.schema.gate import read_text, read_toml
from perfmodel.schema.strict import Strict
from perfmodel.schema.whole_files import write_whole_text

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Triple = Annotated[list[Positive], Field(min_length=3, max_length=3)]


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
    growth_log_sd, law_log_sd, carried  as in ``Growth``, ``Clusters``;  *why  reasons for these values
    """

    source: str
    why: str
    ring_step_s: Triple | None = None
    tree_step_s: Triple | None = None
    tree_sharpness: Triple | None = None
    growth_log_sd: Triple | None = None
    law_log_sd: Triple | None = None
    carried: Triple | None = None
    spread_why: str = ""
    growth_why: str = ""
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
    smoothing_octaves: Positive
    fading_octaves: Positive
    floor_slope: Annotated[float, Field(gt=0, lt=1)]
    why: str


class Clusters(Strict):
    """How much the times on two clusters of one kind differ: standard deviations of ln t at three sizes.

    at_bytes  the sizes;  inside, across  groups within a domain, and larger ones
    law_log_sd  the law's own error;  carried  share of a residual that holds for other numbers of GPUs [-]"""

    at_bytes: Triple
    inside_log_sd: Triple
    across_log_sd: Triple
    law_log_sd: Triple
    carried: Triple
    why: str


class Growth(Strict):
    """Uncertainty per doubling of GPUs beyond those measured: standard deviations of ln t at three sizes."""

    at_bytes: Triple
    log_sd: Triple
    why: str


class Uncertainty(Strict):
    """Errors of the laws themselves, as standard deviations of ln t; ``why`` explains every one.

    effective_points  number of independent points that a measured curve counts as, however many sizes it has
    carry_fraction    share of a measured curve's residual that is carried over to larger groups [-]"""

    sample_log_sd: Positive
    effective_points: Positive
    unseen_log_sd: Positive
    other_library_log_sd: Positive
    no_group_inside_log_sd: Positive
    no_group_across_log_sd: Positive
    card_log_sd: Positive
    least_log_sd: Positive
    outside_octave_log_sd: Positive
    unknown_left_out_log_sd: Positive
    carry_fraction: Annotated[float, Field(ge=0, le=1)]
    why: str


class LearnedUnknown(Strict):
    """Prior of an unknown on a further cluster: centre (relative as in ``Belief``), sd of its logarithm."""

    value: Positive
    log_sd: Positive


class Learned(Strict):
    """Priors of a law's unknowns across domains, learned from measured clusters on one kind of network.

    clusters  their names
    gpus  ranks of the largest measured group, at the three sizes of ``Growth.at_bytes``; 1: none was measured
    """

    clusters: list[str]
    gpus: Triple
    unknowns: Mapping[str, LearnedUnknown]


LEARNED = "networks.json"
BEST_KNOWN = "infiniband"
"""The kind of network with most measured clusters: its priors serve networks without a measured cluster."""
_NETWORKS = TypeAdapter(Mapping[str, Mapping[str, Learned]])


class Priors(Strict):
    """The whole file of priors; ``learned``: from clusters, by network and law (``networks.json``).

    nccl, network, shape, clusters, growth, uncertainty  sections of the file
    ring_tree, pairwise  priors of the unknowns of these two laws, by name"""

    nccl: NcclConstants
    network: Mapping[str, Network]
    ring_tree: Mapping[str, Belief]
    pairwise: Mapping[str, Belief]
    shape: Shape
    clusters: Clusters
    growth: Growth
    uncertainty: Uncertainty
    learned: Mapping[str, Mapping[str, Learned]] = {}

    def beliefs(self, law: str, network: str) -> dict[str, Belief]:
        """Priors of a law's unknowns on a kind of network, by name, before any cluster was measured."""
        own: Mapping[str, Belief] = getattr(self.network.get(network), law, {})
        return {**getattr(self, law), **own}

    def learned_of(self, law: str, network: str) -> Learned | None:
        """What was learned from clusters on that network; if there are none, on ``BEST_KNOWN``."""
        return self.learned.get(network, {}).get(law) or self.learned.get(BEST_KNOWN, {}).get(law)

    def known_of(self, law: str, network: str) -> dict[str, Belief]:
        """Priors of a law's unknowns, by name, updated by what was learned from clusters (``learned_of``)."""
        found, own = self.beliefs(law, network), self.learned.get(network, {}).get(law)
        like = self.learned_of(law, network)
        for name, one in like.unknowns.items() if like else ():
            belief = found[name]
            if own is not None or belief is getattr(self, law)[name]:
                log_sd = one.log_sd if own else math.hypot(one.log_sd, belief.log_sd)
                found[name] = belief.model_copy(update={"value": one.value, "log_sd": log_sd})
        return found


@lru_cache(maxsize=1)
def load_priors() -> Priors:
    """The shipped priors."""
    path, learned = (resources.data_path("priors", name) for name in ("collectives.toml", LEARNED))
    try:
        found = Priors.model_validate(read_toml(path, "priors"))
        return found.model_copy(update={"learned": _NETWORKS.validate_json(read_text(learned, "priors"))})
    except ValidationError as error:
        raise invalid_fields(error, "priors", str(path)) from None


def save_learned(learned: Mapping[str, Mapping[str, Learned]], path: Path) -> None:
    """Write what was learned from clusters, by network and law, to a JSON file."""
    document = _NETWORKS.dump_python(learned, mode="json")
    write_whole_text(path, json.dumps(document, indent=1, sort_keys=True) + "\n", "priors")
