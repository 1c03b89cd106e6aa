"""The arguments of the laws of collectives: unknowns, the library's constants, the group of ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from perfmodel.model.collectives import PROTOCOLS, count_domains
from perfmodel.model.recording import Number

Unknowns = Mapping[str, Number]
"""Values of unknowns by name."""
ByProtocol = Mapping[str, Number]
"""One value for LL, LL128 and Simple."""


@dataclass(frozen=True)
class Unknown:
    """An unknown of a law; the end of its name is its unit.

    network  whether only samples across several domains determine it
    rate     kind of link rate that it scales with: of links ``inside`` a domain or of cards ``across``
             domains;  "": a latency or a fraction
    """

    name: str
    meaning: str
    network: bool = False
    rate: str = ""


RING_TREE = (
    Unknown("ll_base_ratio", "launch and first step of LL, over NCCL's constant"),
    Unknown("ll128_base_ratio", "the same of LL128"),
    *(
        Unknown(f"{p.lower()}_inside_ratio", "a step inside a domain, over NCCL's constant")
        for p in PROTOCOLS
    ),
    Unknown("ll128_network_ratio", "a step of LL128 across a network card, over NCCL's constant", True),
    Unknown("simple_network_ratio", "the same of Simple", True),
    Unknown("nvls_ratio", "launch of NVLS, over NCCL's constant"),
    Unknown("nvls_tree_ratio", "a step of NVLS's trees across, over NCCL's constant", True),
    Unknown("link_bytes_per_s", "rate of the links inside a domain", rate="inside"),
    Unknown("nic_bytes_per_s", "realised rate of one network card", rate="across"),
    Unknown("nvls_bytes_per_s", "rate of NVLS inside a domain", rate="inside"),
    Unknown("ll_fraction", "part of the link's rate that LL reaches"),
    Unknown("ll_overhead_ratio", "the proxies' part of a step of LL inside, over NCCL's constant", True),
    Unknown("ll128_overhead_ratio", "the same of LL128", True),
    Unknown("nvls_bus_bytes_per_s", "bus bandwidth that copies in and out of the switch's buffers allow"),
    Unknown("ll128_choice_ratio", "time that NCCL's table expects over the real one, against LL", True),
    Unknown("simple_choice_ratio", "time that NCCL's table expects over the real one, against LL", True),
    Unknown("tree_choice_ratio", "the same of trees, against rings", True),
    Unknown("nvls_choice_ratio", "the same of NVLS, against rings", True),
)
"""Unknowns of the ring and tree law, in the order of a calibration."""

PAIRWISE = (
    Unknown("launch_s", "launch"),
    Unknown("peer_s", "for each peer inside the domain"),
    Unknown("node_peer_s", "for each peer of one batch", True),
    Unknown("remote_peer_s", "for each post to a remote peer", True),
    Unknown("rendezvous_s", "handshake of large messages across domains", True),
    Unknown("link_rendezvous_s", "handshake of large messages inside the domain"),
    Unknown("link_bytes_per_s", "rate inside the domain to many peers", rate="inside"),
    Unknown("link_half_peers", "peers inside the domain at which half of that rate is reached"),
    Unknown("nic_bytes_per_s", "realised rate of one network card", True, "across"),
    Unknown("remote_peer_bytes_per_s", "rate towards a single remote peer", True, "across"),
)
"""Unknowns of the pairwise law, in the order of a calibration."""


@dataclass(frozen=True, kw_only=True)
class StepConstants:
    """NCCL's constants for one class of links; ``ByProtocol``: one value each for LL, LL128 and Simple.

    ring_base_s, tree_base_s, nvls_s, pat_base_s  launch and first step [s]
    ring_inside_s, tree_inside_s  a step inside a domain;  ring_network_s, tree_network_s, nvls_tree_step_s  a
        step across a network card [s];  network_overhead_s  the proxies' part of a ring's step inside [s]
    pat_rank_s  time that each rank adds to PAT [s];  pat_overlap  how many chunks' steps overlap in PAT [-]
    nvls_channels  of NVLS;  nvls_channel_bytes  least bytes of one;  nvls_tree_chunk_bytes  of its trees
    ll128_fraction, tree_fraction, nvls_tree_fraction  part of their rate that LL128 and trees reach [-]
    has_nvls  whether the switch reduces
    Source: NVIDIA/nccl src/graph/tuning.cc. These are from data/priors instead:
    ring_sharpness, tree_sharpness  q, overlap of hops and bytes [-]
    nvls_channel_s  time that a channel of NVLS adds for each GPU [s]
    pat_fraction  part of the ring's rate that PAT reaches [-]
    ll_bytes_per_s  rate of LL across cards, whatever they are [bytes/s]
    p2p_round_s  once a round of batches for leaving the domain [s]
    rate_sharpness, choice_sharpness  of the corner between two rates, and between two choices [-]
    rendezvous_half_bytes  bytes for one peer at which half of the rendezvous shows
    p2p_channels  batches served side by side;  p2p_batch  peers of one remote domain that share a channel
    """

    ring_base_s: ByProtocol
    tree_base_s: ByProtocol
    ring_inside_s: ByProtocol
    tree_inside_s: ByProtocol
    ring_network_s: ByProtocol
    tree_network_s: ByProtocol
    network_overhead_s: ByProtocol
    ring_sharpness: ByProtocol
    tree_sharpness: ByProtocol
    nvls_s: Number
    nvls_tree_step_s: Number
    nvls_channels: Number
    nvls_channel_bytes: Number
    nvls_tree_chunk_bytes: Number
    nvls_channel_s: Number
    ll128_fraction: Number
    tree_fraction: Number
    nvls_tree_fraction: Number
    ll_bytes_per_s: Number
    pat_base_s: Number
    pat_rank_s: Number
    pat_overlap: Number
    pat_fraction: Number
    rate_sharpness: Number
    choice_sharpness: Number
    rendezvous_half_bytes: Number
    p2p_round_s: Number
    p2p_channels: Number
    p2p_batch: Number
    has_nvls: bool


@dataclass(frozen=True)
class Group:
    """The ranks of one collective: G ranks, g ranks of a full domain, N domains."""

    gpus: int
    domain_gpus: int
    domains: int

    @staticmethod
    def of(gpus: int, domain_gpus: int) -> Group:
        """Ranks packed into domains of at most ``domain_gpus``. Limits: G <= g -> one domain of G."""
        return Group(gpus, min(gpus, domain_gpus), count_domains(gpus, domain_gpus))

    @property
    def smallest_domain_gpus(self) -> int:
        """Ranks of the domain that is filled last: its few network cards carry all of its traffic."""
        return self.gpus - self.domain_gpus * (self.domains - 1)
