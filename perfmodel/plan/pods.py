"""Which nodes of a job share a pod, if the links above the pods are narrow (oversubscribed).

    t = max( t(S) with full-rate links above the pods, t(S_pod) )                                       [s]

t      time of an exchange for bytes per rank
S      bytes of the busiest rank. A plan's time assumes that all ranks have S
S_pod  bytes per rank that count for the busiest pod: ``fabric.pod_payload``
Source: docs/model.md#pods-rails-and-spines; tests/unit/test_plan_pods.py beside a simulation
Limits: even loads -> S_pod = S;  one pod, or links at full rate -> the order of nodes does not matter
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.collectives.stored import fabric_of
from perfmodel.model.fabric import pod_payload
from perfmodel.passes.cost import Evaluator
from perfmodel.passes.steps import Step
from perfmodel.passes.timing import AHEAD
from perfmodel.plan.outcome import Planned

Array = NDArray[np.float64]
Pods = Sequence[Sequence[int]]
"""The domains of each pod."""


@dataclass(frozen=True)
class PodOrder:
    """An assignment of scale-up domains to pods, and the time of the pass with it.

    pods  for each pod, the indices of its domains
    """

    pods: Pods
    time_s: float


def narrow_above(e: Evaluator) -> bool:
    """Whether exchanges cross narrow links above the pods: a plan's time is an upper limit then."""
    machine, domains = e.setting.machine, -(-e.gpus // e.domain)
    fabric = fabric_of(machine, machine.ring_backend)
    return machine.knows("pod_nodes") and bool(fabric.crossed(domains) and fabric.narrow(domains))


def pod_orders(answer: Planned, wide: Evaluator) -> tuple[PodOrder, PodOrder] | None:
    """(busiest domains spread over the pods, busiest domains in as few pods as they need), as two orders.

    wide  evaluates the same plan with links of full rate (1:1) above the pods
    Limits: nothing crosses a narrow link, or even loads -> None
    """
    e = answer.evaluator
    if not narrow_above(e):
        return None
    machine, domains = e.setting.machine, -(-e.gpus // e.domain)
    room = int(fabric_of(machine, machine.ring_backend).levels[0].domains)
    exchanges = [e.steps_by_name[row.name] for row in answer.found.cost.rows if row.name in e.steps_by_name]
    exchanges = [step for step in exchanges if step.collective == "all_to_all" and not step.splits]
    loads = e.loads(answer.plan).values
    busy = sum(_of_domains(loads[list(step.resources)], e.domain).sum(axis=0) for step in exchanges)
    if not exchanges or np.ptp(busy) == 0:
        return None
    ranked = np.argsort(-np.asarray(busy), kind="stable").tolist()
    together = [sorted(ranked[at : at + room]) for at in range(0, domains, room)]
    apart = _apart(np.asarray(busy), ranked, [len(pod) for pod in together])
    first, second = (
        PodOrder(pods, _time(answer, wide, exchanges, loads, pods)) for pods in (apart, together)
    )
    return first, second


def _apart(busy: Array, ranked: Sequence[int], room: Sequence[int]) -> list[list[int]]:
    """For each pod its domains: the busiest domains go first, each to the pod with least load.

    busy  load of each domain;  ranked  domains, busiest first;  room  number of domains of each pod
    """
    pods: list[list[int]] = [[] for _ in room]
    for domain in ranked:
        free = [at for at, pod in enumerate(pods) if len(pod) < room[at]]
        pods[min(free, key=lambda at: (busy[pods[at]].sum(), at))].append(domain)
    return [sorted(pod) for pod in pods]


def _of_domains(loads: Array, domain: int) -> Array:
    """Sums the loads [..., G] of G ranks over each scale-up domain of ``domain`` ranks."""
    return np.add.reduceat(loads, np.arange(0, loads.shape[-1], domain), axis=-1)


def _time(answer: Planned, wide: Evaluator, exchanges: Sequence[Step], loads: Array, pods: Pods) -> float:
    """Time of the pass with its domains in these pods [s].

    wide  evaluates with full-rate links above the pods;  exchanges  steps whose time depends on the pods
    loads  by resource and rank
    """
    e, cost = answer.evaluator, answer.found.cost
    time_of, saved = {row.name: row.time_s for row in cost.rows}, 0.0
    for step in exchanges:
        each = loads[list(step.resources)]
        most = each.max()
        least = wide.times.collective(step, np.atleast_1d(most)).time_s[0]
        heaviest = np.atleast_1d(min(_heaviest(_of_domains(each, e.domain), e, pods), most))
        crossing = e.times.collective(step, heaviest).time_s[0] if heaviest[0] > 0 else 0.0
        saved += max(time_of[step.name] - max(float(least), float(crossing)), 0.0)
    if not e.times.prefetch:
        return cost.time_s - saved
    waited = sum(time for name, time in time_of.items() if name in AHEAD)
    return max(cost.ahead_s, cost.time_s - waited - saved)


def _heaviest(each: Array, e: Evaluator, pods: Pods) -> float:
    """S_pod of an exchange: bytes per rank that count for the busiest pod, the larger of sent and received.

    each  bytes that each domain sends and receives
    """
    sizes = [sum(min(e.domain, e.gpus - at * e.domain) for at in pod) for pod in pods]
    sums = (each[:, list(pod)].sum(axis=1).max() for pod in pods)
    return max(
        float(pod_payload(total, size, max(sizes), e.gpus)) for total, size in zip(sums, sizes, strict=True)
    )
