"""What a law adds up is the law: summands make its latencies, and stages end in its answer."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.collectives.stored import step_constants
from perfmodel.errors import BadInputError
from perfmodel.model.collectives import bus_factor, pairwise_latency
from perfmodel.model.law_parts import choices_of, pairwise_parts
from perfmodel.model.laws import PAIRWISE, RING_TREE, Group, ring_tree_candidates, ring_tree_time
from perfmodel.passes.one_collective import explain_collective
from perfmodel.schema.evidence import COLLECTIVES
from perfmodel.schema.machine import list_machines, load_machine
from perfmodel.schema.priors import load_priors

GROUPS = [
    Group.of(2, 8),
    Group.of(8, 8),
    Group.of(72, 72),
    Group.of(16, 8),
    Group.of(20, 8),
    Group.of(512, 8),
    Group.of(16, 1),
]


@pytest.mark.parametrize("group", GROUPS, ids=str)
@pytest.mark.parametrize("machine", ["h100-sxm-ib", "l40s-pcie"])
@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter", "all_reduce", "broadcast"])
def test_summands_make_the_latency_of_each_candidate(collective: str, machine: str, group: Group) -> None:
    steps = step_constants(load_machine(machine), load_priors())
    unknowns = np.random.default_rng(3).normal(0, 0.5, len(RING_TREE))
    unknowns[[RING_TREE.index(name) for name in RING_TREE if name.endswith("per_s")]] += np.log(1e11)
    found = choices_of(unknowns, steps, collective, group)
    for each in found:
        total = sum(part.count * part.each_s for part in each.parts)
        assert total == pytest.approx(each.latency_s, rel=1e-12), each.name
        assert each.parts[0].each_s == pytest.approx(each.base_s, rel=1e-12), each.name
        assert set(each.rates) <= set(RING_TREE) and each.name
    size = np.array([2.0**44])  # far above the knee the cheapest is the one with the most bandwidth
    time = ring_tree_time(unknowns, steps, collective, group, size)[0]
    wire = size[0] * float(bus_factor(collective, group.gpus))
    times = [each.time_s(wire) for each in found]
    assert min(times) * (1 - 1e-9) <= time <= max(times) * (1 + 1e-9)


@pytest.mark.parametrize("group", GROUPS, ids=str)
def test_summands_make_the_latency_of_an_exchange(group: Group) -> None:
    steps = step_constants(load_machine("h100-sxm-ib"), load_priors())
    unknowns = np.random.default_rng(4).normal(-12, 1, len(PAIRWISE))
    value = np.exp(unknowns)[:5]
    found = pairwise_parts(unknowns, steps, group, 1e6)
    latency = pairwise_latency(*value, group.gpus, group.domain_gpus, group.domains, 16)
    assert sum(part.count * part.each_s for part in found.parts) == pytest.approx(latency, rel=1e-12)
    assert found.rho == pytest.approx(1e6 / group.gpus / (1e6 / group.gpus + steps.rendezvous_half_bytes))


@pytest.mark.parametrize("machine", list_machines())
def test_stages_end_in_the_answer_and_doubts_make_its_band(machine: str) -> None:
    box = load_machine(machine)
    random = np.random.default_rng(5)
    for what_if in ({}, {"nic_bytes_per_s": box.value("nic_bytes_per_s") * 2}):
        try:
            model = CollectiveModel.load(box.with_overrides(what_if))
        except BadInputError:
            continue
        for collective in COLLECTIVES:
            for gpus in (2, 5, 8, 24, 100):
                size = float(2 ** random.uniform(10, 33))
                found = explain_collective(model, collective, size, gpus, box.gpus_per_node)
                answer = model.estimate(collective, size, gpus)
                assert found.stages[-1].time_s == found.time_s == float(answer.time_s)
                sd = np.sqrt(sum(log_sd**2 for _, log_sd in found.doubts))
                if found.on_grid or found.high_s == 0:
                    continue
                assert np.log(found.high_s / found.time_s) >= 1.96 * sd * (1 - 1e-3) - 1e-2
                assert found.speed_of_light_s <= found.time_s * (1 + 1e-9)


@pytest.mark.parametrize(("machine", "backend"), [("h100-sxm-ib", "nccl"), ("h200-sxm-ib", "nvshmem")])
def test_every_time_says_where_its_equation_is_from(machine: str, backend: str) -> None:
    """Of a cell, between cells, and of the law."""
    model = CollectiveModel.load(load_machine(machine), backend)
    for gpus in (2, 6, 8, 16, 100):
        for collective in ("all_gather", "all_to_all"):
            assert explain_collective(model, collective, 1e6, gpus, 8).reference, (collective, gpus)


def test_one_gpu_has_nothing_to_explain() -> None:
    model = CollectiveModel.load(load_machine("h100-sxm-ib"))
    with pytest.raises(BadInputError, match="sends nothing"):
        explain_collective(model, "all_to_all", 1e6, 1, 8)


def test_each_protocol_is_chosen_by_its_own_ratio() -> None:
    """NCCL takes the least expected: LL as it is, LL128 and Simple by their ratios, each e^its unknown."""
    steps = step_constants(load_machine("h100-sxm-ib"), load_priors())
    unknowns = np.zeros(len(RING_TREE))
    for name, log in (("ll128_choice_ratio", 0.2), ("simple_choice_ratio", 0.7), ("tree_choice_ratio", 1.1)):
        unknowns[RING_TREE.index(name)] = log
    ring = [1.0, np.exp(0.2), np.exp(0.7)]
    for collective, more in (("all_gather", []), ("all_reduce", [each * np.exp(1.1) for each in ring])):
        found = ring_tree_candidates(unknowns, steps, collective, Group.of(16, 8)).choice
        assert found[: 3 + len(more)] == pytest.approx([*ring, *more])


@pytest.mark.parametrize("group", [Group.of(8, 8), Group.of(16, 8), Group.of(24, 8)], ids=str)
def test_the_rates_of_an_algorithm_are_those_that_move_its_bandwidth(group: Group) -> None:
    """Each unknown up by one tenth in turn: those that are named change the bandwidth, no others do."""
    steps = step_constants(load_machine("h100-sxm-ib"), load_priors())
    law = CollectiveModel.load(load_machine("h100-sxm-ib")).calibration.law("all_reduce")
    assert law is not None
    unknowns = np.log(law.values)

    def wide(of: np.ndarray) -> np.ndarray:
        return ring_tree_candidates(of, steps, "all_reduce", group).bus_bytes_per_s

    moved = {}
    for at, name in enumerate(RING_TREE):
        up, down = (wide(unknowns + sign * 2.0 * np.eye(len(RING_TREE))[at]) for sign in (1, -1))
        moved[name] = np.abs(np.log(up / down)) > 1e-6
    for k, each in enumerate(choices_of(unknowns, steps, "all_reduce", group)):
        assert set(each.rates) == {name for name, by in moved.items() if by[k]}, each.name


@pytest.mark.parametrize(("at", "named"), [(0, 2), (-1, 2), (3, 2)])
def test_a_measured_cell_names_the_sizes_on_either_side(at: int, named: int) -> None:
    model = CollectiveModel.load(load_machine("h100-sxm-ib"))
    curve = model.calibration.curve("all_gather", 8, 8)
    assert curve is not None
    found = explain_collective(model, "all_gather", curve.anchor_bytes[at], 8, 8)
    times = [term.value for term in found.time.terms if term.symbol in ("t_i", "t_i+1")]
    assert len(times) == named and curve.anchor_times_s[at] in times
    assert found.reference.startswith("docs/model.md#curves")
