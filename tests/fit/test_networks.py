"""What clusters on one kind of network have in common, against clusters with a known centre."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perfmodel.collectives.link_laws import step_constants
from perfmodel.fit.law_fits import (
    Cell,
    ClusterCells,
    correct_card,
    find_weighted_median,
    learn_networks,
    prior_of,
)
from perfmodel.fit.shipped import find_cluster_cells
from perfmodel.model.laws import LINK_LAWS
from perfmodel.model.unknowns import Group
from perfmodel.schema.calibration import Law
from perfmodel.schema.machine import load_machine
from perfmodel.schema.priors import Priors, load_priors
from perfmodel.validate import medians
from perfmodel.validate.accuracy import learn_priors_without

LAW = LINK_LAWS["pairwise"]
PEER = LAW.names.index("remote_peer_s")
SIZES = 2.0 ** np.arange(8, 32, 2)
H100 = load_machine("h100-sxm-ib")


def nothing_learned() -> Priors:
    return load_priors().model_copy(update={"learned": {}})


def cluster(name: str, remote_peer_s: float, network: str = "infiniband") -> ClusterCells:
    """One that has a cost of a remote peer of its own, and all else as it is believed."""
    links = H100.links.model_copy(update={"network": network})
    machine = H100.model_copy(update={"links": links})
    logs = prior_of("pairwise", machine, nothing_learned()).centre.copy()
    logs[PEER] = np.log(remote_peer_s)
    steps = step_constants(machine, load_priors())
    cells = [
        Cell("all_to_all", g, SIZES, LAW.time_at(logs, steps, "all_to_all", g, SIZES), (name,))
        for g in (Group.of(8, 8), Group.of(16, 8), Group.of(128, 8))
    ]
    return ClusterCells(name, machine, {"pairwise": cells})


def test_the_value_is_the_mean_of_the_clusters_and_of_what_is_believed() -> None:
    """Clusters at 0.8 and 1 µs, the belief of 0.5 µs: the cube root of their product."""
    assert np.exp(prior_of("pairwise", H100, nothing_learned()).centre[PEER]) == pytest.approx(0.5e-6)
    learned = learn_networks([cluster("a", 0.8e-6), cluster("b", 1e-6)], nothing_learned())
    found = learned["infiniband"]["pairwise"]
    assert found.unknowns["remote_peer_s"] == pytest.approx((0.8 * 1.0 * 0.5) ** (1 / 3) * 1e-6, rel=0.03)
    assert found.clusters == ["a", "b"] and found.domains == [16, 16, 16, 16]
    assert set(found.unknowns) == {unknown.name for unknown in LAW.unknowns if unknown.network}


def test_a_cluster_that_does_not_determine_an_unknown_has_no_weight() -> None:
    """One pair of nodes says nothing of what a remote peer costs at the one size of 4 GiB."""
    sized = cluster("a", 2e-6)
    cells = [
        replace(c, payload_bytes=c.payload_bytes[-1:], time_s=c.time_s[-1:]) for c in sized.cells["pairwise"]
    ]
    blind = replace(sized, name="b", cells={"pairwise": cells[:2]})
    values = [
        learn_networks(clusters, nothing_learned())["infiniband"]["pairwise"].unknowns["remote_peer_s"]
        for clusters in ([sized], [sized, blind])
    ]
    assert values[1] == pytest.approx(values[0], rel=0.02)


def test_three_clusters_and_more_have_a_median_which_one_odd_cluster_does_not_move() -> None:
    """Two at 2 µs, one at 2 and at 20, the belief of 0.5 µs as one more."""
    values = [
        learn_networks([cluster("a", 2e-6), cluster("b", 2e-6), cluster("c", odd)], nothing_learned())
        for odd in (2e-6, 2e-5)
    ]
    even, odd = (found["infiniband"]["pairwise"].unknowns["remote_peer_s"] for found in values)
    assert even == pytest.approx(2e-6, rel=0.05) and odd == pytest.approx(even, rel=0.05)


@pytest.mark.parametrize(
    ("values", "weights", "median"),
    [([3, 1, 2], [1, 1, 1], 2), ([4, 1], [1, 1], 2.5), ([0, 5], [0.25, 1], 4), ([0, 7, 9], [1, 0, 0], 0)],
)
def test_a_weighted_median_is_linear_between_two_values(
    values: list[float], weights: list[float], median: float
) -> None:
    """0 and 5 of weights 1/4 and 1 lie at 1/10 and 6/10 of all weight: half is 4/5 of the way."""
    columns = (np.array(column, float)[:, np.newaxis] for column in (values, weights))
    assert find_weighted_median(*columns).tolist() == pytest.approx([median])


def test_a_network_without_clusters_is_believed_like_infiniband() -> None:
    priors = nothing_learned()
    known = priors.model_copy(update={"learned": learn_networks([cluster("c", 2e-6)], priors)})
    infiniband, roce = (known.known_of("pairwise", name)["remote_peer_s"] for name in ("infiniband", "roce"))
    assert roce == infiniband and roce.value > 0.9e-6
    own = known.known_of("pairwise", "efa")["remote_peer_s"]  # which has a belief of its own
    assert own == priors.network["efa"].pairwise["remote_peer_s"]


@pytest.mark.parametrize(("domains", "factor"), [(2, 2.0), (1, 1.0)])
def test_cards_that_one_law_found_faster_are_faster_by_the_other(domains: int, factor: float) -> None:
    """Twice as fast as believed; ranks of one domain say nothing of them."""
    priors = nothing_learned()
    prior, cards = prior_of("ring_tree", H100, priors), LINK_LAWS["ring_tree"].names.index("nic_bytes_per_s")
    logs = prior_of("pairwise", H100, priors).centre + np.log(2)
    other = Law.model_construct(law="pairwise", values=np.exp(logs).tolist(), fitted_domains=domains)
    ratios = np.exp(correct_card("ring_tree", prior, other, H100, priors).centre - prior.centre)
    assert ratios == pytest.approx(np.where(np.arange(ratios.size) == cards, factor, 1))
    log_sd = correct_card("ring_tree", prior, other, H100, priors).log_sd[cards]
    known = min(prior.log_sd[cards], priors.uncertainty.card_log_sd)
    assert log_sd == (known if domains > 1 else prior.log_sd[cards])


def test_what_is_shipped_of_a_network_is_what_a_fresh_fit_finds() -> None:
    fresh = learn_networks(find_cluster_cells(medians.load_shipped_samples()), nothing_learned())
    shipped = load_priors().learned
    assert fresh.keys() == shipped.keys() >= {"infiniband", "efa", "slingshot", "roce"}
    for network, laws in shipped.items():
        for law, learned in laws.items():
            found = fresh[network][law]
            assert found.unknowns == pytest.approx(learned.unknowns, rel=2e-3), network
            assert (found.clusters, found.domains) == (learned.clusters, learned.domains), network


def test_a_cluster_that_is_left_out_says_nothing_of_its_network() -> None:
    """Slingshot has two clusters: without one, only the other is known."""
    without = learn_priors_without(frozenset({"cscs_alps_gh200"})).learned
    assert without["slingshot"]["ring_tree"].clusters == ["alcf_polaris_a100"]
    assert without["infiniband"] == load_priors().learned["infiniband"]
    assert learn_priors_without(frozenset({"nobody"})) is load_priors()


def test_the_cells_of_a_cluster_are_its_own_and_those_of_its_gpus_inside() -> None:
    found = {one.name: one for one in find_cluster_cells(medians.load_shipped_samples())}
    pico = found["pico_mn5_h100"]
    assert set(pico.cells) == {"ring_tree"} and pico.machine.value("nic_bytes_per_s") == 25e9
    across = [cell for cell in pico.cells["ring_tree"] if cell.group.domains > 1]
    assert {cell.algorithm for cell in across} == {"", "ring", "tree"}
    inside = [cell for cell in pico.cells["ring_tree"] if cell.group.domains == 1]
    assert {source for cell in inside for source in cell.source_ids} <= {
        "aic_h100_nccl2.29.2",
        "xxrjun_c01_single",
    }


def test_a_forced_algorithm_is_never_faster_than_the_choice_of_the_fastest() -> None:
    """All handicaps 1: the library takes the fastest, which forced runs cannot beat."""
    law, steps = LINK_LAWS["ring_tree"], step_constants(H100, load_priors())
    logs = prior_of("ring_tree", H100, nothing_learned()).centre
    free, ring, tree = (
        law.time_at(logs, steps, "all_reduce", Group.of(32, 8), SIZES, only) for only in ("", "ring", "tree")
    )
    assert (free <= np.minimum(ring, tree) * 1.05).all()
    assert ring[-1] < tree[-1] and tree[0] < ring[0]


def test_sets_of_unknowns_are_evaluated_as_they_are_one_by_one() -> None:
    for name, collective in (("ring_tree", "all_reduce"), ("pairwise", "all_to_all")):
        law, steps = LINK_LAWS[name], step_constants(H100, load_priors())
        centre = prior_of(name, H100, load_priors()).centre
        sets = centre + 0.1 * np.random.default_rng(1).standard_normal((5, centre.size))
        for group in (Group.of(8, 8), Group.of(24, 8), Group.of(12, 8)):
            together = law.time_at(sets, steps, collective, group, SIZES)
            apart = np.array([law.time_at(one, steps, collective, group, SIZES) for one in sets])
            np.testing.assert_allclose(together, apart, rtol=1e-12)
