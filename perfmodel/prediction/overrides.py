"""What-if rates of links: the law's rates scale with them, its latencies do not."""

from __future__ import annotations

from collections.abc import Callable

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


def scaled_unknowns(
    log_unknowns: Floats, law: Law, machine: Machine, lender: Machine | None = None
) -> Floats:
    """Unknowns with rates multiplied by this machine's link rates over those that were measured.

    lender   the machine whose calibration is borrowed; None for the machine's own, whose rates are those
             before any override
    Floor and bandwidth scale apart: no latency changes. Limits: same rates -> unchanged
    """
    scaled = log_unknowns.copy()
    for i, name in enumerate(law.names):
        if name in _INSIDE:
            scaled[i] += np.log(_inside_rate(machine, machine.value) / _measured_inside(machine, lender))
        elif name in _ACROSS:
            measured = lender.value if lender else machine.original
            scaled[i] += np.log(machine.value("nic_bytes_per_s") / measured("nic_bytes_per_s"))
    return scaled


def _measured_inside(machine: Machine, lender: Machine | None) -> float:
    return _inside_rate(lender, lender.value) if lender else _inside_rate(machine, machine.original)


def _inside_rate(machine: Machine, value: Callable[[str], float]) -> float:
    nvlink = machine.original("nvlink_bytes_per_s") > 0
    return value("nvlink_bytes_per_s" if nvlink else "pcie_bytes_per_s")
