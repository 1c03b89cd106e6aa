"""Times from what a calibration stores: a curve through measured sizes, or a law with its unknowns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from perfmodel.model.collectives import PROTOCOLS
from perfmodel.model.curves import anchored_time
from perfmodel.model.unknowns import StepConstants
from perfmodel.schema.calibration import Curve
from perfmodel.schema.machine import Machine
from perfmodel.schema.priors import Priors

Floats = npt.NDArray[np.float64]


def curve_time(curve: Curve, payload_bytes: Floats) -> Floats:
    """Time of a stored curve [s]; see ``anchored_time``."""
    return anchored_time(
        payload_bytes,
        curve.alpha_s.value,
        curve.beta_bytes_per_s.value,
        curve.p.value,
        np.array(curve.anchor_bytes),
        np.array(curve.anchor_times_s),
    )


def step_constants(machine: Machine, priors: Priors) -> StepConstants:
    """NCCL's constants for this machine's links: scale-up link or PCIe inside, its kind of network across."""
    nccl = priors.nccl
    nvlink = machine.nvlink_domain_gpus > 1
    network = priors.network.get(machine.network_priors)
    ring_step = (network and network.ring_step_s) or nccl.network_ring_step_s
    tree_step = (network and network.tree_step_s) or nccl.network_tree_step_s
    return StepConstants(
        ring_base_s=_by_protocol(nccl.ring_base_s),
        tree_base_s=_by_protocol(nccl.tree_base_s),
        ring_inside_s=_by_protocol(nccl.nvlink_ring_step_s if nvlink else nccl.pcie_ring_step_s),
        tree_inside_s=_by_protocol(nccl.nvlink_tree_step_s if nvlink else nccl.pcie_tree_step_s),
        ring_network_s=_by_protocol(ring_step),
        tree_network_s=_by_protocol(tree_step),
        network_overhead_s=_by_protocol(nccl.network_overhead_s),
        ring_sharpness=_by_protocol(priors.shape.ring_sharpness),
        tree_sharpness=_by_protocol((network and network.tree_sharpness) or priors.shape.tree_sharpness),
        nvls_s=nccl.nvls_s,
        nvls_tree_step_s=nccl.nvls_tree_step_s,
        nvls_channels=nccl.nvls_channels,
        nvls_channel_bytes=nccl.nvls_channel_bytes,
        nvls_tree_chunk_bytes=nccl.nvls_tree_chunk_bytes,
        nvls_channel_s=priors.shape.nvls_channel_s,
        pat_base_s=nccl.pat_base_s,
        pat_rank_s=nccl.pat_rank_s,
        pat_overlap=nccl.pat_overlap,
        pat_fraction=nccl.pat_fraction,
        has_nvls=machine.links.nvls and nvlink,
        rate_sharpness=priors.shape.rate_sharpness,
        choice_sharpness=priors.shape.choice_sharpness,
        rendezvous_half_bytes=priors.shape.rendezvous_half_bytes,
        p2p_channels=priors.shape.p2p_channels,
        p2p_batch=priors.shape.p2p_batch,
    )


def _by_protocol(values: Sequence[float]) -> dict[str, float]:
    return dict(zip(PROTOCOLS, values, strict=True))
