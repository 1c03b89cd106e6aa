"""The arguments of the laws of collectives: unknowns, the library's constants, the group of ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from perfmodel.model.collectives import PROTOCOLS, domains_of
from perfmodel.model.recording import Number, named

Unknowns = Mapping[str, Number]
"""Values of unknowns by name."""
ByProtocol = Mapping[str, Number]
"""One value for LL, LL128 and Simple."""


@dataclass(frozen=True)
class Unknown:
    """An unknown of a law; the end of its name is its unit.

    network  whether only samples across several domains determine it
    rate     kind of link rate that it scales with: of links ``inside`` a domain or of cards ``across``
             domains; ``protocol``: the rate of a slow protocol, whatever the link;  "": a latency or a
             fraction
    symbol   its letter in the equations, if it differs from its name
    """

    name: str
    meaning: str
    network: bool = False
    rate: str = ""
    symbol: str = ""


RING_TREE = (
    *(Unknown(f"{p.lower()}_base_ratio", "launch and first step, over NCCL's constant") for p in PROTOCOLS),
    *(
        Unknown(f"{p.lower()}_inside_ratio", "a step inside a domain, over NCCL's constant")
        for p in PROTOCOLS
    ),
    *(
        Unknown(f"{p.lower()}_network_ratio", "a step across a network card, over NCCL's constant", True)
        for p in PROTOCOLS
    ),
    Unknown("nvls_ratio", "launch of NVLS, over NCCL's constant"),
    Unknown("nvls_tree_ratio", "a step of NVLS's trees across, over NCCL's constant", True),
    Unknown("link_bytes_per_s", "rate of the links inside a domain", rate="inside"),
    Unknown("nic_bytes_per_s", "realised rate of one network card", True, "across"),
    Unknown("nvls_bytes_per_s", "rate of NVLS inside a domain", rate="inside"),
    Unknown("ll_fraction", "part of the link's rate that LL reaches"),
    Unknown("ll_network_bytes_per_s", "rate of LL across cards, whatever they are", True, "protocol"),
    Unknown("ll128_fraction", "part of the link's rate that LL128 reaches"),
    Unknown("tree_fraction", "part of the rate that trees reach"),
    *(
        Unknown(
            f"{p.lower()}_overhead_ratio", "the proxies' part of a step inside, over NCCL's constant", True
        )
        for p in PROTOCOLS
    ),
    Unknown("nvls_bus_bytes_per_s", "bus bandwidth that copies in and out of the switch's buffers allow"),
    Unknown("nvls_tree_fraction", "part of their rate that trees between switches reach", True),
    Unknown("ll128_choice_ratio", "time that NCCL's table expects over the real one, against LL", True),
    Unknown("simple_choice_ratio", "time that NCCL's table expects over the real one, against LL", True),
    Unknown("tree_choice_ratio", "the same of trees, against rings", True),
    Unknown("nvls_choice_ratio", "the same of NVLS, against rings", True),
)
"""Unknowns of the ring and tree law, in the order of a calibration."""

PAIRWISE = (
    Unknown("launch_s", "launch", symbol="a0"),
    Unknown("peer_s", "for each peer inside the domain", symbol="a1"),
    Unknown("network_s", "once a round for leaving the domain", True, symbol="c"),
    Unknown("node_peer_s", "for each peer of one batch", True, symbol="b"),
    Unknown("remote_peer_s", "for each post to a remote peer", True, symbol="a2"),
    Unknown("rendezvous_s", "handshake of large messages across domains", True, symbol="r"),
    Unknown("link_rendezvous_s", "handshake of large messages inside the domain", symbol="r"),
    Unknown("link_bytes_per_s", "rate inside the domain", rate="inside", symbol="B_link"),
    Unknown("nic_bytes_per_s", "realised rate of one network card", True, "across", symbol="B_nic"),
    Unknown("remote_peer_bytes_per_s", "rate towards a single remote peer", True, "across", symbol="B_peer"),
)
"""Unknowns of the pairwise law, in the order of a calibration."""


_NCCL, _PRIORS = "NCCL's own constant (src/graph/tuning.cc)", "data/priors"


def _said(symbol: str, meaning: str, source: str = _NCCL) -> dict[str, tuple[str, str, str]]:
    """(symbol, meaning, source) of a constant, for explanations; ``{}`` in a symbol is the protocol."""
    return {"said": (symbol, meaning, source)}


@dataclass(frozen=True, kw_only=True)
class StepConstants:
    """NCCL's constants for one class of links; ``ByProtocol``: one value each for LL, LL128 and Simple."""

    ring_base_s: ByProtocol = field(metadata=_said("ring_base({})", "launch and first step of a ring"))
    tree_base_s: ByProtocol = field(metadata=_said("tree_base({})", "launch and first step of a tree"))
    ring_inside_s: ByProtocol = field(metadata=_said("ring_inside({})", "a ring's step inside a domain"))
    tree_inside_s: ByProtocol = field(metadata=_said("tree_inside({})", "a tree's step inside a domain"))
    ring_network_s: ByProtocol = field(
        metadata=_said("ring_network({})", "a ring's step across a network card")
    )
    tree_network_s: ByProtocol = field(
        metadata=_said("tree_network({})", "a tree's step across a network card")
    )
    network_overhead_s: ByProtocol = field(
        metadata=_said("overhead({})", "the proxies' part of a ring's step inside")
    )
    ring_sharpness: ByProtocol = field(metadata=_said("q", "overlap of hops and bytes in a ring", _PRIORS))
    tree_sharpness: ByProtocol = field(metadata=_said("q", "overlap of hops and bytes in a tree", _PRIORS))
    nvls_s: Number = field(metadata=_said("nvls_base", "launch and first step of NVLS"))
    nvls_tree_step_s: Number = field(
        metadata=_said("nvls_network", "a step of NVLS's trees across a network card")
    )
    nvls_channels: Number = field(metadata=_said("C_nvls", "channels of NVLS"))
    nvls_channel_bytes: Number = field(metadata=_said("c", "least bytes of a channel of NVLS"))
    nvls_tree_chunk_bytes: Number = field(metadata=_said("c_tree", "chunk of NVLS's trees"))
    nvls_channel_s: Number = field(
        metadata=_said("kappa", "what a channel of NVLS costs for each GPU", _PRIORS)
    )
    pat_base_s: Number = field(metadata=_said("pat_base", "launch and first step of PAT"))
    pat_rank_s: Number = field(metadata=_said("rank", "what each rank adds to PAT"))
    pat_overlap: Number = field(metadata=_said("o", "how many chunks' steps overlap in PAT"))
    pat_fraction: Number = field(
        metadata=_said("pat_fraction", "part of the ring's rate that PAT reaches", _PRIORS)
    )
    rate_sharpness: Number = field(
        metadata=_said("n_rate", "sharpness of the corner between two rates", _PRIORS)
    )
    choice_sharpness: Number = field(
        metadata=_said("n_choice", "sharpness of the corner between two choices", _PRIORS)
    )
    rendezvous_half_bytes: Number = field(metadata=_said("u_half", "u at which half of r shows", _PRIORS))
    p2p_channels: Number = field(metadata=_said("C", "channels: batches served side by side", _PRIORS))
    p2p_batch: Number = field(metadata=_said("P", "peers of one remote domain that share a channel", _PRIORS))
    has_nvls: bool = field(metadata=_said("", "whether the switch reduces"))


@dataclass(frozen=True)
class Group:
    """The ranks of one communicator: number of ranks, ranks per domain, number of domains."""

    gpus: int
    domain_gpus: int
    domains: int

    @staticmethod
    def of(gpus: int, domain_gpus: int) -> Group:
        """Ranks packed into domains of at most ``domain_gpus``. Limits: G <= g -> one domain of G."""
        return Group(gpus, min(gpus, domain_gpus), domains_of(gpus, domain_gpus))

    @property
    def smallest_domain_gpus(self) -> int:
        """Ranks of the domain that is filled last: its few network cards carry all of its traffic."""
        ranks = self.gpus - self.domain_gpus * (self.domains - 1)
        return (
            named("g_last", ranks, "ranks of the domain that is filled last") if self.domains > 1 else ranks
        )
