"""Pods, rails and spines: limits that one can count, the law's limits, and a simulation of flows."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import fabric_simulation as simulation
import numpy as np
import pytest
from cli_calls import Outcome
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.collectives.estimate import CollectiveEstimate, CollectiveModel
from perfmodel.collectives.other_fabrics import other_fabrics
from perfmodel.collectives.stored import fabric_of, step_constants
from perfmodel.errors import BadInputError
from perfmodel.fit.links import Cell, fit_law
from perfmodel.model import fabric as f
from perfmodel.model import laws
from perfmodel.model.collectives import tree_network_share
from perfmodel.model.laws import LINK_LAWS
from perfmodel.model.unknowns import Group
from perfmodel.passes.explained_law import ExplainedLaw
from perfmodel.passes.recorded_words import working_lines
from perfmodel.projections import project_one
from perfmodel.projections.sensitivity import next_experiment
from perfmodel.schema.evidence import Backend, Evidence
from perfmodel.schema.machine import Machine, beside_shipped, load_machine, machine_file, read_machine
from perfmodel.schema.machine_keys import FABRIC_KEYS
from perfmodel.schema.priors import load_priors

H100, EFA = load_machine("h100-sxm-ib"), load_machine("h100-sxm-efa")
SIZES = 2.0 ** np.arange(7, 35)
KINDS = ("all_to_all", "all_gather", "all_reduce")


def answer(machine: Machine, collective: str, gpus: int, **values: float) -> CollectiveEstimate:
    model = CollectiveModel.load(machine.with_overrides(values))
    return model.estimate(collective, SIZES, gpus)


def same(one: CollectiveEstimate, other: CollectiveEstimate) -> bool:
    columns = ("time_s", "low_s", "high_s", "floor_s", "evidence", "limit")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in columns)


def test_what_leaves_a_leaf() -> None:
    assert f.leaving_share(16, 8, 16, 1) == 0  # two nodes of one pod
    assert f.leaving_share(32, 8, 16, 1) == 1 / 2  # four nodes in two pods
    assert f.leaving_share(16, 8, 16, 8) == pytest.approx(7 / 16)  # 7 of 8 cards of the other node
    assert f.leaving_share(32, 8, 16, 8) == pytest.approx((16 + 7) / 32)
    assert f.leaving_share(32, 8, 16, 1e12) == pytest.approx(24 / 32)


def test_time_above_a_pod() -> None:
    # 16 bytes of 4 ranks in pods of 2 at 1 B/s: half of them at half of the rate
    assert f.crossing_time(16, 1, 1, 4, 1, 2, 2, 1) == 16
    assert f.crossing_time(16, 2.0, 1, 4, 1, 2, 2, 1) == 32
    assert f.crossing_time(16, 1, 1, 4, 1, 4, 2, 1) == 0
    # two nodes of two cards in a pod of four nodes, a leaf for each card: a quarter leaves by twice the links
    assert f.crossing_time(16, 1, 1, 4, 2, 8, 1, 2) == 16 / 4 / 2


def test_links_above_a_pod() -> None:
    assert f.uplink_rate(50, 8, 16, 2) == 8 * 50 * 8
    assert f.uplink_rate(50, 8, 16, 16) == 8 * 50  # where a ring feels it


@pytest.mark.parametrize(
    ("nodes", "pod", "copies"), [(4, 4, 0), (2, 1, 1), (3, 1, 1.5), (16, 4, 3), (8, 4, 2)]
)
def test_copies_that_trees_send_up(nodes: int, pod: int, copies: float) -> None:
    assert f.tree_crossings(nodes, pod) == copies


@given(st.integers(2, 600), st.integers(1, 40))
def test_trees_send_no_more_than_the_cards_of_a_pod_can(nodes: int, pod: int) -> None:
    """So a ratio of 1 costs nothing, whatever the pods."""
    assert f.tree_crossings(nodes, pod) <= pod * tree_network_share(nodes)
    assert f.tree_crossings(nodes, 1) == tree_network_share(nodes)


def test_copies_that_pat_sends_up() -> None:
    assert f.pat_crossings(8, 1) == 1 - 1 / 8
    assert f.pat_crossings(16, 4) == 2 / 2 + 1 - 4 / 16
    assert f.pat_crossings(8, 8) == 3 / 2


@pytest.mark.parametrize("collective", KINDS)
@pytest.mark.parametrize("machine", [H100, EFA, load_machine("gh200-slingshot")], ids=str)
def test_one_pod_or_a_ratio_of_one_change_nothing(machine: Machine, collective: str) -> None:
    for gpus in (8, 32, 100, 256):
        now = answer(machine, collective, gpus)
        assert same(
            now, answer(machine, collective, gpus, pod_nodes=64, oversubscription=8, switch_hop_s=1e-6)
        )
        even = dict.fromkeys(("oversubscription", "spine_oversubscription"), 1.0)
        assert same(now, answer(machine, collective, gpus, pod_nodes=4, spine_nodes=8, **even))


def test_a_very_large_ratio_leaves_the_time_of_the_bytes_that_cross() -> None:
    """128 GPUs in pods of 4 nodes: 3/4 of an all-to-all; of a ring all bytes, over the links of a pod."""
    size, ratio = SIZES[-1], 5000.0
    card = CollectiveModel.load(EFA).calibration.law("all_to_all")
    assert card is not None
    found = answer(EFA, "all_to_all", 128, pod_nodes=4, oversubscription=ratio)
    rate = card.values[card.names.index("nic_bytes_per_s")]
    carried = answer(EFA, "all_to_all", 128).time_s[-1] / (size * 120 / 128 / rate)
    assert found.time_s[-1] == pytest.approx(carried * size * 96 / 128 * ratio / rate, rel=0.02)
    for collective in KINDS:
        one, two = (
            answer(H100, collective, 128, pod_nodes=4, oversubscription=r).time_s[-1]
            for r in (ratio, ratio / 2)
        )
        assert one == pytest.approx(2 * two, rel=1e-3)
        assert found.limit_names[found.limit[-1]] == "rate of shared links"


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(KINDS),
    st.sampled_from([16, 40, 128, 512]),
    st.sampled_from([1, 2, 3, 8]),
    st.lists(st.floats(1, 100), min_size=2, max_size=2),
)
def test_more_oversubscription_is_never_faster(
    collective: str, gpus: int, pod: int, ratios: list[float]
) -> None:
    low, high = (
        answer(EFA, collective, gpus, pod_nodes=pod, oversubscription=ratio, rails=8)
        for ratio in sorted(ratios)
    )
    assert (low.time_s <= high.time_s * (1 + 1e-12)).all()


def test_a_switch_more_is_paid_by_small_messages() -> None:
    """An all-to-all of 32 nodes goes in two rounds, each over two switches more."""
    before, after = (
        answer(H100, "all_to_all", 256, pod_nodes=4, switch_hop_s=h).time_s[0] for h in (0, 1e-6)
    )
    assert after - before == pytest.approx(4e-6, rel=0.25)  # 0.3 to 1 of it, by the residual of cells


@pytest.mark.parametrize(
    ("made", "collective", "group", "switches"),
    [
        (laws.ring, "all_gather", Group.of(64, 8), 3 * 2),  # four pods: three crossings, two switches each
        (laws.ring, "all_reduce", Group.of(64, 8), 2 * 3 * 2),
        (laws.tree, "all_reduce", Group.of(64, 8), 2 * 2 * 2),  # two levels between four pods, up and down
        (laws.nvls, "all_reduce", Group.of(64, 8), 2 * 2 * 2),
        (laws.pat, "all_gather", Group.of(8, 1), 2 * 2),
        (laws.ring, "all_gather", Group.of(16, 8), 0),
    ],
)
def test_switches_that_a_chunk_passes_more(
    made: Callable[..., laws.Candidate], collective: str, group: Group, switches: int
) -> None:
    """Pods of two nodes, a second for each switch."""
    law = CollectiveModel.load(H100).calibration.law(collective)
    assert law is not None
    known, plain = dict(zip(law.names, law.values, strict=True)), step_constants(H100, load_priors())
    slow = replace(plain, fabric=f.Fabric((f.Level("pod", 2, 1.0),), 1.0))
    before, after = (made(known, nccl, collective, group).hops_s for nccl in (plain, slow))
    assert after - before == pytest.approx(switches, rel=1e-9)


def test_a_measured_size_is_not_measured_below_narrow_links() -> None:
    asked = EFA.with_overrides({"pod_nodes": 4, "oversubscription": 4})
    curve = CollectiveModel.load(EFA).calibration.curve("all_to_all", 128, 8)
    assert curve is not None
    for machine, evidence in ((EFA, Evidence.MEASURED), (asked, Evidence.ASSUMED)):
        found = CollectiveModel.load(machine).estimate("all_to_all", curve.anchor_bytes[-1], 128)
        assert Evidence.from_rank(int(found.evidence)) is evidence


def test_who_changes_rails() -> None:
    """NCCL hands a message to its rail over NVLink; not over libfabric, nor does RCCL, nor do puts."""
    railed = {"pod_nodes": 4, "rails": 8}
    for machine, backend, rails in (
        (H100, Backend.NCCL, 1),
        (H100, Backend.NVSHMEM, 8),
        (EFA, Backend.NCCL, 8),
        (load_machine("mi355x-roce"), Backend.RCCL, 8),
    ):
        assert fabric_of(machine.with_overrides(railed), backend).rails == rails
    assert (
        fabric_of(load_machine("gb200-nvl72").with_overrides({"pod_nodes": 36}), Backend.NCCL)
        .levels[0]
        .domains
        == 2
    )  # domains of 18 nodes


def test_rails_cost_what_changes_them() -> None:
    """Inside a pod: 7/8 of what leaves a node goes over the spine, at a quarter of the rate."""
    plain, railed = (
        answer(EFA, "all_to_all", 128, pod_nodes=16, oversubscription=4, **more).time_s[-1]
        for more in ({}, {"rails": 8})
    )
    assert railed / plain == pytest.approx(4 * 7 / 8, rel=0.01)


def test_the_band_has_how_flows_share_the_links() -> None:
    even = answer(H100, "all_to_all", 128)
    narrow = answer(H100, "all_to_all", 128, pod_nodes=4, oversubscription=4)
    width = [np.log(found.high_s[-1] / found.time_s[-1]) / 1.96 for found in (even, narrow)]
    assert width[1] ** 2 - width[0] ** 2 == pytest.approx(0.2**2, rel=0.05)
    assert Evidence.from_rank(int(narrow.evidence[-1])) is Evidence.ASSUMED
    assert narrow.evidence[0] == even.evidence[0]  # small messages do not feel it


@pytest.mark.parametrize("collective", KINDS)
def test_neighbours_take_their_part(collective: str) -> None:
    """Of the cards without pods: large ones take 1/(1 - background) as long; with pods of the links up."""
    for machine in (H100, EFA):
        alone, beside, halved = (
            answer(machine, collective, 256, **values).time_s[-1]
            for values in ({}, {"background": 0.4}, {"nic_bytes_per_s": 30e9})
        )
        assert same(answer(machine, collective, 256), answer(machine, collective, 256, background=0))
        assert beside == pytest.approx(halved, rel=0.05) and beside > alone * 1.3
        links = {"pod_nodes": 2, "oversubscription": 6}
        one, other = (answer(machine, collective, 256, **links, background=b).time_s[-1] for b in (0, 0.5))
        assert other == pytest.approx(2 * one, rel=0.02)


def test_a_value_that_was_added_is_changed_back() -> None:
    """An override of an override: what was measured had neither."""
    changed = H100.with_overrides({"background": 0.6}).with_overrides({"background": 0.3})
    assert not changed.unchanged().knows("background")
    back = CollectiveModel.load(changed.with_overrides({"background": 0})).estimate("all_to_all", SIZES, 64)
    assert same(back, answer(H100, "all_to_all", 64))


def test_neighbours_do_not_reach_into_a_node() -> None:
    assert same(answer(H100, "all_to_all", 8), answer(H100, "all_to_all", 8, background=0.5))


def own_file(folder: Path, name: str, values: Mapping[str, float]) -> Machine:
    """A copy of a shipped machine with switches above its cards."""
    path, text = folder / "mine.toml", machine_file("h100-sxm-ib").replace('"h100-sxm-ib"', f'"{name}"', 1)
    for key, value in values.items():
        said = f'unit = "{FABRIC_KEYS[key].unit}"\nsource = "x"\nwhy = "y"\nevidence = "datasheet"\n'
        text += f"\n[values.{key}]\nvalue = {value}\n{said}"
    path.write_text(text)
    return read_machine(path)


@pytest.mark.parametrize("name", ["mine", "h100-sxm-ib"])
def test_a_file_says_what_an_option_says(tmp_path: Path, name: str) -> None:
    """Also one that keeps the name of the shipped machine, whose cells are then rescaled."""
    values = {"pod_nodes": 4, "oversubscription": 4.0}
    machine = own_file(tmp_path, name, values)
    model = CollectiveModel.load(beside_shipped(machine))
    found = model.estimate("all_to_all", SIZES, 128)
    assert found.time_s[-1] == pytest.approx(answer(H100, "all_to_all", 128, **values).time_s[-1], rel=0.02)


def test_cells_measured_over_the_spine_are_not_slowed_again(tmp_path: Path) -> None:
    """A calibration of a cluster whose file says its pods: its own cells have the spine in them."""
    machine = own_file(tmp_path, "mine", {"pod_nodes": 4, "oversubscription": 4.0})
    shipped = CollectiveModel.load(EFA).calibration
    own = shipped.model_copy(update={"machine": "mine", "this_cluster": True})
    curve = next(c for c in own.curves if c.collective == "all_to_all" and c.gpus == 128)
    found = CollectiveModel(machine, own).estimate("all_to_all", curve.anchor_bytes, 128)
    assert found.time_s == pytest.approx(curve.anchor_times_s, rel=2e-3)
    assert {Evidence.from_rank(rank) for rank in found.evidence} == {Evidence.MEASURED}


@pytest.mark.parametrize(
    ("machine", "nodes", "values", "changes"),
    [
        (H100, 32, {}, []),
        (H100, 16, {"pod_nodes": 16, "oversubscription": 2}, []),
        (H100, 32, {"pod_nodes": 16}, [{"pod_nodes": 32}, {"rails": 8, "pod_nodes": 128}]),
        (
            H100,
            32,
            {"pod_nodes": 2, "oversubscription": 2, "spine_nodes": 16, "spine_oversubscription": 3},
            [
                {"pod_nodes": 4},
                {"oversubscription": 1},
                {"spine_oversubscription": 1},
                {"rails": 8, "pod_nodes": 16},
            ],
        ),
        (H100, 32, {"pod_nodes": 16, "rails": 8}, [{"pod_nodes": 32}]),  # PXN: rails cost nothing
        (EFA, 8, {"pod_nodes": 16, "rails": 8}, [{"rails": 1, "pod_nodes": 2}]),
        (H100, 2, {"background": 0.3}, [{"background": 0}]),
    ],
)
def test_changes_of_the_switches(
    machine: Machine, nodes: int, values: dict[str, float], changes: list[dict[str, float]]
) -> None:
    changed = machine.with_overrides(values)
    assert [each.values for each in other_fabrics(changed, Backend.NCCL, nodes)] == changes
    for each in other_fabrics(changed, Backend.NCCL, nodes):
        changed.with_overrides(each.values)


def test_a_projection_offers_what_helps(cli: Callable[..., Outcome]) -> None:
    """Pods of four nodes with 4:1 above them, on 19 nodes; without pods nothing is offered."""
    typed = ("project", "--table-size", "10TB")
    assert "pods" not in cli(*typed).out
    text = cli(*typed, "--set", "pod_nodes=4", "--set", "oversubscription=4").out
    assert "links above a pod 4:1 → 1:1" in text and "--set oversubscription=1" in text
    assert "8 rails: pods of 4 → 32 nodes" in text and "--set rails=8 --set pod_nodes=32" in text


@pytest.mark.parametrize("more", [(), ("--sharding", "row-wise"), ("--objective", "training")])
@pytest.mark.parametrize(
    "values", ["16", "16 oversubscription=2", "32 oversubscription=8", "4 oversubscription=8",
               "16 switch_hop_s=1us", "4 background=30%", "4"],
)  # fmt: skip
def test_pods_that_change_nothing_are_said_to(
    cli: Callable[..., Outcome], values: str, more: tuple[str, ...]
) -> None:
    """The opponent: the same question without pods and neighbours."""
    asked = ("project", "--table-size", "10TB", *more)
    typed = [word for value in f"pod_nodes={values}".split() for word in ("--set", value)]
    plain, record = (json.loads(cli(*asked, *some, "--json").out) for some in ((), typed))
    pods = values.split()[0]
    why = "all GPUs are in one" if pods == "32" else "no exchange waits for the links above them"
    said = f"pods of {pods} nodes change no time here: {why}" in " ".join(cli(*asked, *typed).out.split())
    assert (
        said == (record["longer_by_pods"] == []) == (record["time_s"] == pytest.approx(plain["time_s"], 1e-4))
    )
    assert plain["longer_by_pods"] is None
    longer = [each["name"] for each in record["steps"] for before in plain["steps"]
              if each["name"] == before["name"] and each["time_s"] > before["time_s"] * 1.001]  # fmt: skip
    assert sorted(longer) == record["longer_by_pods"] or record["sharding"] != plain["sharding"]


@pytest.mark.parametrize(("backend", "rails"), [(Backend.NCCL, 1), (Backend.NVSHMEM, 8)])
def test_a_fit_finds_the_rate_of_cards_below_narrow_links(backend: Backend, rails: int) -> None:
    """An all-to-all of eight nodes in pods of four at 4:1, of cards that reach 40 GB/s."""
    machine, priors = H100.with_overrides({"pod_nodes": 4, "oversubscription": 4, "rails": 8}), load_priors()
    steps, law = step_constants(machine, priors, backend), LINK_LAWS["pairwise"]
    assert steps.fabric.rails == rails
    truth = np.log(np.array(fit_law("pairwise", [], machine, priors).values))
    at = law.names.index("nic_bytes_per_s")
    truth[at] = np.log(40e9)
    groups = (Group.of(8, 8), Group.of(64, 8))
    cells = [
        Cell("all_to_all", g, SIZES, law.time_at(truth, steps, "all_to_all", g, SIZES), ("x",))
        for g in groups
    ]
    found = fit_law("pairwise", cells, machine, priors, backend=backend)
    assert found.values[at] == pytest.approx(40e9, rel=0.02)


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"pod_nodes": 0}, "more than 0"),
        ({"pod_nodes": 4, "oversubscription": 0.5}, "from 1.00 to"),
        ({"oversubscription": 2}, "needs pod_nodes"),
        ({"rails": 8}, "needs pod_nodes"),
        ({"pod_nodes": 4, "spine_oversubscription": 2}, "needs spine_nodes"),
        ({"pod_nodes": 4, "spine_nodes": 6}, "no multiple of pod_nodes 4"),
        ({"pod_nodes": 4, "rails": 3}, "does not divide the 8 GPUs"),
        ({"pod_nodes": 2.5}, "whole number"),
        ({"background": 1}, "--set background=1: it must be 0, or from 0.1 % to 95.0 %, not 100 %"),
        ({"pod_nodes": 4, "switch_hop_s": -1e-6}, "switch_hop_s"),
    ],
)
def test_impossible_values_are_refused(values: dict[str, float], error: str) -> None:
    with pytest.raises(BadInputError, match=error):
        H100.with_overrides(values)


def test_what_neighbours_take_is_said_as_it_was_typed(cli: Callable[..., Outcome]) -> None:
    """In percent, in the working of the law, and among the changes that were tried."""
    typed = ("--set", "background=30%")
    text = cli("project", "--table-size", "10TB", *typed).out
    assert "assumed: background = 30.0 %" in text and "--set background=30%" in text
    tried = json.loads(cli("project", "--table-size", "10TB", *typed, "--json").out)["changes"]
    assert "other jobs on the network 30.0 % → 0 %" in {each["label"] for each in tried}
    size = ("--op", "all_to_all", "--size", "1GiB", "--gpus", "64")
    text = " ".join(cli("explain", "collective", *size, *typed).out.split())
    assert "background 0.300 assumed 30.0 %: part of the links" in text
    assert "o_card = w_card / (1 - background) = 1 / (1 - 0.300) = 1.43" in text
    assert "background" not in " ".join(cli("explain", "collective", *size).out.split())
    refused = cli("collective", *size, "--set", "background=120%")
    words = " ".join(refused.err.split())
    assert refused.code == 2
    assert "--set background=120%: it must be 0, or from 0.1 % to 95.0 %, not 120 %" in words


def test_a_ratio_may_be_typed_as_the_field_writes_it() -> None:
    assert H100.with_overrides({"pod_nodes": 4, "oversubscription": "2:1"}).value("oversubscription") == 2


def test_an_explanation_has_the_links_above_the_pods(cli: Callable[..., Outcome]) -> None:
    typed = "explain collective --op all_to_all --size 1GiB --gpus 256 --set pod_nodes=4"
    text = cli(*f"{typed} --set oversubscription=2:1 --set switch_hop_s=1us".split()).out
    for letter in ("o_pod", "P_pod", "bytes_pod", "how flows share links", "fabric.crossing_time"):
        assert letter in text
    text = cli(*f"{typed.replace('all_to_all', 'all_reduce')} --set oversubscription=2:1".split()).out
    assert "B_pod" in text and "fabric.uplink_rate" in text


@pytest.mark.parametrize("machine", [H100, EFA], ids=["ib", "efa"])
@pytest.mark.parametrize("collective", KINDS)
def test_what_is_recorded_is_the_law(machine: Machine, collective: str) -> None:
    """With two levels, rails and switches, also of one rank a node (PAT); every letter is said once."""
    values = {"pod_nodes": 2, "oversubscription": 6, "rails": 8, "switch_hop_s": 1e-6, "background": 0.2}
    model = CollectiveModel.load(
        machine.with_overrides({**values, "spine_nodes": 8, "spine_oversubscription": 9})
    )
    law = model.calibration.law(collective)
    assert law is not None
    for group in (Group.of(8, 8), Group.of(16, 8), Group.of(20, 8), Group.of(128, 8), Group.of(16, 1)):
        for size in (2.0**12, 2.0**22, 2.0**32):
            found = ExplainedLaw(model, law, collective, group, size, 1.0, "assumed")
            known = {name: float(each) for name, each in found.asked[0].items()}
            plain = LINK_LAWS[law.law].time(known, found.constants, collective, group, np.array([size]))
            assert float(found.recorded) == pytest.approx(float(plain[0]), rel=1e-12)
            lines = list(working_lines(found.shown))
            assert len(lines) == len({line.split(" = ")[0] for line in lines})


def test_the_law_agrees_with_a_simulation_of_flows() -> None:
    errors = [case.law_s() / case.simulated_s() - 1 for case in simulation.cases(quick=True)]
    assert np.median(np.abs(errors)) <= 0.05 and np.abs(errors).max() <= 0.15


def test_rates_of_the_simulation_are_fair() -> None:
    """Two flows share a link of 1, one of them alone has a link of 1/4: it has 1/4, the other 3/4."""
    cluster = simulation.Cluster(2, 1, 1, 4.0)
    flows = [simulation.Flow((0, 0), (1, 0), 1.0), simulation.Flow((0, 0), (0, 1), 1.0)]
    rates = simulation.Network(cluster, flows).fair_rates(np.arange(2))
    assert rates == pytest.approx([1 / 4, 3 / 4])


def test_hashed_flows_are_slower(capsys: pytest.CaptureFixture[str]) -> None:
    case = simulation.Case("all-to-all", simulation.Cluster(16, 1, 8, 2))
    hashed = replace(case, cluster=replace(case.cluster, paths=4))
    assert hashed.simulated_s() > case.simulated_s()
    assert list(simulation.compared([case]))[-1].startswith("all")


@pytest.mark.parametrize(
    ("values", "where"),
    [
        ({"pod_nodes": 4, "oversubscription": 4}, "≥ 5 nodes"),
        ({"pod_nodes": 4}, "≥ 2 nodes"),
        ({"pod_nodes": 4, "switch_hop_s": 1e-6}, "≥ 5 nodes"),
        ({"pod_nodes": 18, "oversubscription": 2}, "≥ 2 nodes"),  # few bytes leave a pod: they do not wait
        (
            {"pod_nodes": 4, "oversubscription": 4, "spine_nodes": 16, "spine_oversubscription": 1},
            "≥ 5 nodes",
        ),
        ({"pod_nodes": 4, "spine_nodes": 8, "spine_oversubscription": 8}, "≥ 9 nodes"),
        ({}, "≥ 2 nodes"),
    ],
)
def test_the_advised_measurement_uses_the_narrow_links(values: dict[str, float], where: str) -> None:
    found = next_experiment(
        project_one(table_bytes=10e12, machine=load_machine("h100-sxm-ib").with_overrides(values))
    )
    assert found is not None and found.where.startswith(where)
    assert found.nodes == int(where.split()[1])
