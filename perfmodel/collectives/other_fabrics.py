"""Other switches above the cards, for what-ifs: no other jobs, larger pods, more uplinks, rails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from perfmodel.collectives.stored import fabric_of
from perfmodel.schema.evidence import Backend
from perfmodel.schema.machine import Machine
from perfmodel.units import format_count, format_fraction

RATIOS = {"pod": "oversubscription", "spine": "spine_oversubscription"}
"""The machine value that narrows the links above a level."""


@dataclass(frozen=True)
class OtherFabric:
    """A change of the switches above the cards.

    words  what changes;  values  the machine's values after the change, by key
    """

    name: str
    words: str
    values: dict[str, float]

    @property
    def typed(self) -> str:
        """The command-line options that make the change, without the first ``--set``."""
        return " --set ".join(f"{key}={value:.12g}" for key, value in self.values.items())


def other_fabrics(machine: Machine, backend: Backend, nodes: int) -> Iterator[OtherFabric]:
    """Changes that could speed up a job on ``nodes`` nodes.

    With a leaf switch per card of a node and as many switches as now, a pod has more nodes by that factor;
    with one leaf for all cards, pods have fewer nodes, and inside a pod no message changes rails.
    Limits: no pods in the machine, or all nodes in one pod and no rail to change -> only a fabric without
    other jobs
    """
    taken = machine.value("background") if machine.knows("background") else 0.0
    if taken:
        words = f"other jobs on the network {format_fraction(taken)} → 0 %"
        yield OtherFabric("background", words, {"background": 0.0})
    fabric = fabric_of(machine, backend)
    if not machine.knows("pod_nodes") or not (nodes > machine.count("pod_nodes") or fabric.rails > 1):
        return
    pod, gpus = machine.count("pod_nodes"), machine.gpus_per_node
    if nodes > pod and _whole_spines(machine, 2 * pod):
        yield _pods("pods", "", machine, {"pod_nodes": 2 * pod})
    for name, key in RATIOS.items():
        ratio = machine.value(key) if machine.knows(key) else 1.0
        if ratio > 1:
            words = f"links above a {name} {ratio:g}:1 → 1:1"
            yield OtherFabric(key.replace("_", "-"), words, {key: 1.0})
    rails = machine.count("rails") if machine.knows("rails") else 1
    if rails == 1 < gpus and nodes > pod and _whole_spines(machine, gpus * pod):
        yield _pods("rails", f"{gpus} rails: ", machine, {"rails": gpus, "pod_nodes": gpus * pod})
    if fabric.rails > 1 and pod % rails == 0:
        yield _pods("rails", "no rails: ", machine, {"rails": 1, "pod_nodes": pod // rails})


def full_rate(machine: Machine) -> dict[str, float]:
    """The values with which the links above the pods carry all that the cards send, and no neighbour's."""
    ratios = {**dict.fromkeys(RATIOS.values(), 1.0), "background": 0.0}
    return {key: ratio for key, ratio in ratios.items() if machine.knows(key)}


def _pods(name: str, begins: str, machine: Machine, values: dict[str, float]) -> OtherFabric:
    now, then = machine.count("pod_nodes"), int(values["pod_nodes"])
    return OtherFabric(name, f"{begins}pods of {format_count(now)} → {format_count(then)} nodes", values)


def _whole_spines(machine: Machine, pod_nodes: int) -> bool:
    """Whether each spine would still hold a whole number of pods if a pod had ``pod_nodes`` nodes."""
    return not machine.knows("spine_nodes") or machine.count("spine_nodes") % pod_nodes == 0
