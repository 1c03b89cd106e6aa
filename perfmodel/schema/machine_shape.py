"""Whether the domains of a machine, and the switches above its cards, fit together."""

from __future__ import annotations

from collections.abc import Mapping

from perfmodel.schema.machine_keys import FABRIC_KEYS


def check_domain(values: Mapping[str, float], link: str) -> None:
    """Refuse a scale-up domain of a shape that no law of collectives covers.

    values  values of the machine, by key;  link  name of the scale-up link
    Limits: such a domain -> ValueError
    """
    domain, node = int(values["nvlink_domain_gpus"]), int(values["gpus_per_node"])
    if domain > 1 and values["nvlink_bytes_per_s"] == 0:
        raise ValueError(f"an {link} domain of {domain} GPUs needs nvlink_bytes_per_s above 0")
    if 1 < domain < node:
        raise ValueError(
            f"an {link} domain of {domain} GPUs inside nodes of {node} is not modelled: give gpus_per_node "
            f"{domain} as well, or nvlink_domain_gpus 1 for no {link}"
        )
    if domain % node and node % domain:
        raise ValueError(f"nvlink_domain_gpus {domain} does not fit nodes of {node} GPUs")


def check_pcie_switch(values: Mapping[str, float], before: Mapping[str, float]) -> None:
    """Refuse a number of GPUs per PCIe switch that does not divide the node, or a switch that no row crosses.

    values  of the machine, by key;  before  its values without overrides
    Limits: no ``gpus_per_pcie_switch`` -> accepted
    """
    if "gpus_per_pcie_switch" not in values:
        return
    each, node = int(values["gpus_per_pcie_switch"]), int(values["gpus_per_node"])
    if node % each:
        raise ValueError(f"gpus_per_pcie_switch {each} does not divide the {node} GPUs of a node")
    if before.get("host_link_bytes_per_s", 0.0) > before["pcie_bytes_per_s"]:
        raise ValueError(
            "gpus_per_pcie_switch: rows of this machine come over a link faster than PCIe (C2C), "
            "which no switch shares: leave it out"
        )


def check_fabric(values: Mapping[str, float]) -> None:
    """Refuse values of the switches above the network cards that contradict each other.

    values  values of the machine, by key
    Limits: they do not fit -> ValueError
    """
    given = [key for key in FABRIC_KEYS if key in values and key != "background"]
    if given and "pod_nodes" not in given:
        raise ValueError(f"{given[0]} needs pod_nodes: {FABRIC_KEYS['pod_nodes'].meaning}")
    if "spine_oversubscription" in given and "spine_nodes" not in given:
        raise ValueError(f"spine_oversubscription needs spine_nodes: {FABRIC_KEYS['spine_nodes'].meaning}")
    counts = {key: int(values[key]) for key in ("pod_nodes", "spine_nodes", "rails") if key in values}
    if "spine_nodes" in counts and counts["spine_nodes"] % counts["pod_nodes"]:
        raise ValueError(
            f"spine_nodes {counts['spine_nodes']} is no multiple of pod_nodes "
            f"{counts['pod_nodes']}: a spine joins whole pods"
        )
    node = int(values["gpus_per_node"])
    if "rails" in counts and node % counts["rails"]:
        raise ValueError(
            f"rails {counts['rails']} does not divide the {node} GPUs of a node: "
            "a rail has as many cards of each node as the others"
        )
