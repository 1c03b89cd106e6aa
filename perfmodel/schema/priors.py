"""What is believed about collectives before a machine is measured: ``data/priors/collectives.toml``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from perfmodel import resources
from perfmodel.schema.files import invalid_fields, read_toml

_STRICT = ConfigDict(frozen=True, extra="forbid")
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Triple = Annotated[list[Positive], Field(min_length=3, max_length=3)]


class NcclConstants(BaseModel):
    """NCCL's tuning constants, seconds; triples are LL, LL128, Simple."""

    model_config = _STRICT

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
    pat_base_s: Positive
    pat_rank_s: Positive
    pat_overlap: Positive
    pat_fraction: Positive


class Belief(BaseModel):
    """One unknown of a law: centre, standard deviation of its logarithm, reason.

    ``relative_to`` names a machine value that the centre multiplies.
    """

    model_config = _STRICT

    value: Positive
    log_sd: Positive
    why: str
    relative_to: str = ""


class Network(BaseModel):
    """What is believed of one kind of network, where it differs from NCCL's steps and from InfiniBand.

    pairwise  beliefs that replace those of the same name
    """

    model_config = _STRICT

    source: str
    why: str
    ring_step_s: Triple | None = None
    tree_step_s: Triple | None = None
    tree_sharpness: Triple | None = None
    growth_log_sd: Triple | None = None
    growth_why: str = ""
    pairwise: Mapping[str, Belief] = {}


class Shape(BaseModel):
    """Shape constants of the laws that are not fitted."""

    model_config = _STRICT

    ring_sharpness: Triple
    tree_sharpness: Triple
    rendezvous_half_bytes: Positive
    p2p_channels: Annotated[int, Field(ge=1)]
    rate_sharpness: Positive
    choice_sharpness: Positive
    smoothing_octaves: Positive
    fading_octaves: Positive
    floor_slope: Annotated[float, Field(gt=0, lt=1)]
    why: str


class Clusters(BaseModel):
    """How far two clusters of one kind are apart: standard deviations of ln t at three sizes."""

    model_config = _STRICT

    at_bytes: Triple
    inside_log_sd: Triple
    across_log_sd: Triple
    why: str


class Growth(BaseModel):
    """What each doubling of GPUs beyond those measured adds: standard deviations of ln t at three sizes."""

    model_config = _STRICT

    at_bytes: Triple
    log_sd: Triple
    why: str


class Uncertainty(BaseModel):
    """Errors of the laws themselves, as standard deviations of ln t."""

    model_config = _STRICT

    sample_log_sd: Positive
    effective_points: Positive
    unseen_log_sd: Positive
    no_group_inside_log_sd: Positive
    no_group_across_log_sd: Positive
    sibling_log_sd: Positive
    card_log_sd: Positive
    least_log_sd: Positive
    outside_octave_log_sd: Positive
    unknown_left_out_log_sd: Positive
    carry_fraction: Annotated[float, Field(ge=0, le=1)]
    why: str


class Priors(BaseModel):
    """The whole file."""

    model_config = _STRICT

    nccl: NcclConstants
    network: Mapping[str, Network]
    ring_tree: Mapping[str, Belief]
    pairwise: Mapping[str, Belief]
    shape: Shape
    clusters: Clusters
    growth: Growth
    uncertainty: Uncertainty


@lru_cache(maxsize=1)
def load_priors() -> Priors:
    """The shipped priors."""
    path = resources.data_path("priors", "collectives.toml")
    try:
        return Priors.model_validate(read_toml(path, "priors"))
    except ValidationError as error:
        raise invalid_fields(error, "priors", str(path)) from None
