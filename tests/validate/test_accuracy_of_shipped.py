"""Validation over the shipped data: what fits never saw, bands, and tables in docs/ against a fresh run."""

from __future__ import annotations

import re

import accuracy as benchmark
import left_out
import pandas as pd
import pytest
import rival

from perfmodel.fit.shipped import fit_entry, load_plan
from perfmodel.resources import data_path
from perfmodel.validate import accuracy, medians, validate

FOUR_NODES = (left_out.NodesLeftOut("gh200-slingshot", 3),)
"""The fits of this machine, and of that which it is like, are the quickest."""


def test_two_node_points_are_held_out_of_the_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the other machines one was measured on several nodes alone, and one on a single node alone."""
    names = ("gh200-slingshot", "a100-slingshot", "b300-sxm-ib")
    entries = {name: medians.list_preferred_entries()[name] for name in names}
    alone = accuracy.fit_one_node(entries["gh200-slingshot"])
    assert all(curve.gpus <= curve.domain_gpus for curve in alone.curves)
    assert all(law.fitted_domains == 1 for law in alone.laws)
    monkeypatch.setattr(medians, "list_preferred_entries", lambda: entries)
    monkeypatch.setattr(accuracy, "fit_one_node", lambda *_: alone)
    points = accuracy.predict_two_nodes()
    assert set(points["nodes"]) == {2} and set(points["machine"]) == {"gh200-slingshot"}


def test_an_operator_that_is_left_out_informs_nothing() -> None:
    (entry,) = [e for e in load_plan().calibration if e.machine == "h100-sxm-ib" and e.preferred]
    gone = {"xxrjun_c01_single", "xxrjun_c01_pairs", "xxrjun_c01_multi10"}
    rest = left_out.without_sources(entry, gone)
    fitted = fit_entry(rest, medians.load_shipped_samples())
    assert not gone & {source for item in (*fitted.curves, *fitted.laws) for source in item.sources}
    assert max(curve.gpus for curve in fitted.curves) == 32
    assert not fitted.this_cluster
    assert {left_out.operator_of(source) for source in gone} == {"xxrjun"}
    assert left_out.without_sources(rest, {s for c in rest.cells for s in c.sources}).cells == []


def read_stored(kind: str) -> pd.DataFrame:
    return pd.read_csv(data_path("validation", f"{kind}_left_out.csv"))


def test_the_points_of_the_picture_are_those_of_a_fresh_fit() -> None:
    """Within the file's five digits: OpenBLAS's kernels for Haswell and Prescott say the same to 2e-15."""
    fresh = left_out.large_left_out(FOUR_NODES)
    stored = read_stored("nodes")
    own = stored[(stored["machine"] == "gh200-slingshot") & stored["nodes"].isin(fresh["nodes"])]
    own = own[own["seen_nodes"] == 2].reset_index(drop=True)
    assert set(fresh["seen_nodes"]) == {2} and len(fresh) == len(own) > 20
    for name in ("time_s", "predicted_s", "low_s", "high_s"):
        assert own[name].tolist() == pytest.approx(fresh[name].tolist(), rel=1e-4), (
            "benchmarks/accuracy.py --write"
        )


def test_sizes_left_out_are_those_of_a_fresh_fit() -> None:
    """Solvers of fits stop at 1e-8: OpenBLAS's kernels for Haswell and Prescott say the same to 2e-8."""
    fresh = left_out.stored_sizes()
    stored = read_stored("sizes")
    for name in ("machine", "collective", "gpus", "payload_bytes", "sources"):
        assert stored[name].tolist() == fresh[name].tolist(), "benchmarks/accuracy.py --write"
    for name in ("time_s", "predicted_s", "low_s", "high_s"):
        assert stored[name].tolist() == pytest.approx(fresh[name].tolist(), rel=1e-5), (
            "benchmarks/accuracy.py --write"
        )


def test_clusters_left_out_are_those_of_a_fresh_prediction() -> None:
    fresh, stored = accuracy.predict_other_clusters(), read_stored("clusters")
    for name in ("machine", "collective", "gpus", "payload_bytes"):
        assert stored[name].tolist() == fresh[name].tolist(), "benchmarks/accuracy.py --write"
    for name in ("time_s", "predicted_s", "low_s", "high_s"):
        assert stored[name].tolist() == pytest.approx(fresh[name].tolist(), rel=1e-4)


def test_the_rival_takes_what_others_measured_and_knows_nothing_of_its_own() -> None:
    """Two operators of one cell, at 100 and at 200 µs: each is predicted by the other."""
    cell = {"machine": "h100-sxm-ib", "collective": "all_gather", "family": "ring", "where": "in",
            "links": "nvlink", "gpus": 8, "domain_gpus": 8, "card_bytes_per_s": 5e10}  # fmt: skip
    rows = [
        {**cell, "operator": name, "payload_bytes": size, "time_s": time_s}
        for name, time_s in (("a", 1e-4), ("b", 2e-4)) for size in (1e6, 4e6)
    ] + [{**cell, "operator": "a", "payload_bytes": 2e6, "time_s": 1.5e-4}]  # fmt: skip
    predicted = rival.rival_left_out(pd.DataFrame(rows))
    assert predicted["predicted_s"].tolist() == pytest.approx([2e-4, 2e-4, 1e-4, 1e-4, 2e-4])
    assert predicted["error"].iloc[0] == pytest.approx(1)


def test_own_bands_hold_on_the_shipped_data() -> None:
    broken = [(v.identifier, v.got, v.band) for v in validate() if v.regression]
    assert not broken


# the tables in docs/


_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")


def same_within_rounding(shown: str, fresh: str) -> bool:
    """Same words; numbers within the last digit shown or 2 %."""
    if _NUMBER.sub("#", shown).split() != _NUMBER.sub("#", fresh).split():
        return False
    pairs = zip(_NUMBER.findall(shown), _NUMBER.findall(fresh), strict=True)
    return all(abs(float(a) - float(b)) <= max(0.11, 0.02 * abs(float(b))) for a, b in pairs)


@pytest.mark.parametrize("name", ["in-node", "other-clusters", "networks", "crossovers"])
def test_tables_in_docs_are_fresh(name: str) -> None:
    assert same_within_rounding(benchmark.read_blocks()[name], benchmark.TABLES[name][1]()), (
        "python benchmarks/accuracy.py --write"
    )


def test_every_table_is_in_a_page_and_fits_it() -> None:
    shown = benchmark.read_blocks()
    assert set(shown) == set(benchmark.TABLES)
    assert max(len(line) for body in shown.values() for line in body.splitlines()) <= 100
