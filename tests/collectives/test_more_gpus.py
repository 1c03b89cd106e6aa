"""More GPUs are faster only for reasons of a closed list; each has a question that shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.collectives.link_laws import inside_rate, step_constants
from perfmodel.model.collectives import rendezvous_share
from perfmodel.model.laws import LINK_LAWS, choose_candidates, compute_ring_tree_time
from perfmodel.model.unknowns import Group
from perfmodel.schema.evidence import COLLECTIVES
from perfmodel.schema.machine import list_machines, load_machine
from perfmodel.schema.priors import load_priors

QUESTIONS = 2000
_SLACK = 1e-3


@cache
def model_of(machine: str) -> CollectiveModel:
    return CollectiveModel.load(load_machine(machine))


@dataclass(frozen=True)
class Pair:
    """One question on fewer and on more GPUs."""

    machine: str
    collective: str
    payload_bytes: float
    fewer: int
    more: int

    @property
    def groups(self) -> tuple[Group, Group]:
        machine = load_machine(self.machine)
        fewer, more = (Group.of(gpus, machine.domain_gpus_of(machine.gpus_per_node)) for gpus in self.counts)
        return fewer, more

    @property
    def counts(self) -> tuple[int, int]:
        return self.fewer, self.more

    @property
    def times_s(self) -> tuple[float, float]:
        model = model_of(self.machine)
        few, many = (model.estimate(self.collective, self.payload_bytes, gpus) for gpus in self.counts)
        return float(few.time_s), float(many.time_s)

    def unknowns(self) -> dict[str, float]:
        law = model_of(self.machine).calibration.law(self.collective)
        return dict(zip(law.names, law.values, strict=True)) if law else {}


def more_cards(pair: Pair) -> bool:
    """The last domain has more GPUs, and so more network cards, through which all that it has goes."""
    fewer, more = pair.groups
    return fewer.domains > 1 and more.smallest_domain_gpus > fewer.smallest_domain_gpus


def measured_so(pair: Pair) -> bool:
    """A time is that of a measured group, or lies between two: other runs, other settings."""
    model = model_of(pair.machine)
    tables = [model.table(pair.collective, gpus, model.machine.gpus_per_node) for gpus in pair.counts]
    return any(what.startswith("measured on") for table in tables for what, _ in table.stages)


def another_algorithm(pair: Pair) -> bool:
    """NCCL takes another algorithm or protocol, or mixes them otherwise near a tie."""
    model, unknowns = model_of(pair.machine), pair.unknowns()
    law = model.calibration.law(pair.collective)
    if law is None or LINK_LAWS[law.law].time is not compute_ring_tree_time:
        return False
    steps, shares = step_constants(model.machine, load_priors()), []
    for group in pair.groups:
        choice = choose_candidates(unknowns, steps, pair.collective, group, pair.payload_bytes)
        names = [candidate.name for candidate in choice.candidates]
        shares.append(dict(zip(names, map(float, choice.shares), strict=True)))
    names = set(shares[0]) | set(shares[1])
    return max(abs(shares[0].get(name, 0) - shares[1].get(name, 0)) for name in names) > _SLACK


def smaller_messages(pair: Pair) -> bool:
    """An all-to-all of as many bytes sends less to each peer, and less of it needs a rendezvous."""
    if pair.collective != "all_to_all":
        return False
    half = load_priors().shape.rendezvous_half_bytes
    few, many = (float(rendezvous_share(pair.payload_bytes, gpus, half)) for gpus in pair.counts)
    values, (before, after) = pair.unknowns(), pair.times_s
    cost = values["link_rendezvous_s" if pair.groups[1].domains == 1 else "rendezvous_s"]
    return (few - many) * cost >= 0.5 * (before - after)


def fewer_bytes_inside(pair: Pair) -> bool:
    """An all-to-all of as many bytes on more nodes keeps fewer of them inside one, whose links are slower."""
    machine = load_machine(pair.machine)
    slow = inside_rate(machine) < 4 * machine.value("nic_bytes_per_s") or machine.nvlink_domain_gpus <= 1
    return pair.collective == "all_to_all" and slow and pair.groups[1].domains > 1


REASONS: tuple[Callable[[Pair], bool], ...] = (
    more_cards, measured_so, another_algorithm, smaller_messages, fewer_bytes_inside,
)  # fmt: skip
EXAMPLES = {
    more_cards: Pair("h100-sxm-ib", "all_gather", 2.0**30, 9, 10),
    measured_so: Pair("h200-sxm-ib", "all_to_all", 21736.0, 2, 4),
    another_algorithm: Pair("b200-sxm-ib", "broadcast", 3658622.5, 3, 6),
    smaller_messages: Pair("h100-sxm-efa", "all_to_all", 60144.0, 2, 4),
    fewer_bytes_inside: Pair("l40s-pcie", "all_to_all", 7.3e5, 24, 56),
}


def draw(count: int) -> list[Pair]:
    rng, machines = (
        np.random.default_rng(58),
        [name for name in list_machines() if not load_machine(name).hypothetical],
    )
    pairs = []
    while len(pairs) < count:
        machine = machines[rng.integers(len(machines))]
        collective = COLLECTIVES[rng.integers(len(COLLECTIVES))]
        fewer = int(2 ** rng.uniform(1, 9))
        more = min(fewer + 1 + int(fewer * (2 ** rng.uniform(0, 1.5) - 1)), 1024)
        if model_of(machine).calibration.law(collective) is not None:
            pairs.append(Pair(machine, collective, float(2 ** rng.uniform(10, 33)), fewer, more))
    return pairs


def test_nothing_else_makes_more_gpus_faster() -> None:
    others = [
        (pair, pair.times_s)
        for pair in draw(QUESTIONS)
        if pair.times_s[1] < pair.times_s[0] * (1 - _SLACK) and not any(reason(pair) for reason in REASONS)
    ]
    assert not others


@pytest.mark.parametrize("reason", REASONS, ids=lambda reason: reason.__name__)
def test_each_reason_has_its_case(reason: Callable[[Pair], bool]) -> None:
    pair = EXAMPLES[reason]
    assert pair.times_s[1] < pair.times_s[0]
    assert reason(pair)
