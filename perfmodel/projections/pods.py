"""Which exchanges of a pass wait for the links above the pods, and the pass on a changed machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from perfmodel.collectives.other_fabrics import RATIOS, full_rate
from perfmodel.collectives.stored import fabric_of
from perfmodel.passes.settings import load_setting
from perfmodel.passes.steps import STEPS
from perfmodel.projections.costs import Forward
from perfmodel.projections.projection import Projection

_FELT = 5e-4  # part of a time below which its three digits are the same


def forward_with(p: Projection, values: Mapping[str, float | str]) -> Forward:
    """The pass of a projection on a machine with other values."""
    s = p.setting
    said = s.kernels is None and "gather_bytes_per_s" in values  # known whose kernels have that rate
    kernels, machine = None if said else s.asked_kernels, s.machine.with_overrides(values)
    setting = load_setting(machine, s.backend, s.clock, s.scenario, s.calibration, kernels=kernels)
    return replace(p.forward, setting=setting)


def longer_by_pods(p: Projection) -> frozenset[str] | None:
    """Names of the exchanges that take longer than with links of full rate above the pods, without neighbours
    and without the time of the switches there.

    Limits: no pods, one GPU, one domain for all -> None;  all nodes in one pod, or full rate -> none
    """
    machine = p.setting.machine
    if not machine.knows("pod_nodes") or p.gpus == 1 or p.setting.one_domain or p.forward.memory is not None:
        return None
    hops = {"switch_hop_s": 0.0} if machine.knows("switch_hop_s") else {}
    return _longer_than_with(p, {**full_rate(machine), **hops})


def _longer_than_with(p: Projection, values: Mapping[str, float]) -> frozenset[str]:
    """Names of the exchanges that take longer than with these values of the machine, for equal bytes."""
    now, then = (_times(p, forward) for forward in (p.forward, forward_with(p, values)))
    return frozenset(name for name, time_s in now.items() if time_s > then[name] * (1 + _FELT))


def _times(p: Projection, forward: Forward) -> dict[str, float]:
    times = forward.times(p.work)
    return {
        step.name: float(times.collective(STEPS[step.name], np.array([step.payload_bytes])).time_s[0])
        for step in p.steps
        if step.collective
    }


def nodes_beyond_pods(p: Projection, steps: frozenset[str]) -> int:
    """Fewest nodes on which these exchanges wait for the links above the pods as they do here.

    Limits: none of them waits for these links -> 0
    """
    if not (longer_by_pods(p) or frozenset()) & steps:
        return 0
    machine = p.setting.machine
    levels = fabric_of(machine, machine.ring_backend).crossed_by_pairs(
        -(-p.gpus // int(p.forward.domain(p.work.gpus)[0]))
    )
    felt = [
        level for level in levels if machine.knows(RATIOS[level.name])
        and _longer_than_with(p, {RATIOS[level.name]: 1.0}) & steps
    ]  # fmt: skip
    return int((felt or levels[:1])[-1].domains) * machine.nodes_per_domain + 1 if levels else 0
