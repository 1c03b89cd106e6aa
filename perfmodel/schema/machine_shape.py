"""Whether the scale-up domains of a machine fit its nodes."""

from __future__ import annotations

from collections.abc import Mapping


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
