"""What-if rates of links: the law's rates scale with them, its latencies do not."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from perfmodel.schema.calibration import Law
from perfmodel.schema.machine import Machine

Floats = npt.NDArray[np.float64]

_LINK_KEYS = (
    "nvlink_bytes_per_s",
    "pcie_bytes_per_s",
    "nic_bytes_per_s",
    "gpus_per_node",
    "nvlink_domain_gpus",
)
_INSIDE = ("link_bytes_per_s", "nvls_bytes_per_s")
_ACROSS = ("nic_bytes_per_s", "remote_peer_bytes_per_s")


def touches_links(machine: Machine) -> bool:
    """Whether an override changes what collectives run over."""
    return any(key in machine.overrides for key in _LINK_KEYS)


def scaled_unknowns(log_unknowns: Floats, law: Law, machine: Machine) -> Floats:
    """Unknowns with rates multiplied by new over old of the overridden machine values.

    Floor and bandwidth scale apart: no latency changes. Limits: nothing overridden -> unchanged
    """
    nvlink = machine.original("nvlink_bytes_per_s") > 0
    inside = "nvlink_bytes_per_s" if nvlink else "pcie_bytes_per_s"
    scaled = log_unknowns.copy()
    for i, name in enumerate(law.names):
        key = inside if name in _INSIDE else "nic_bytes_per_s" if name in _ACROSS else ""
        if key in machine.overrides:
            scaled[i] += np.log(machine.value(key) / machine.original(key))
    return scaled
