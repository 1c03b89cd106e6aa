"""Rows below the HBM in ``project``: numbers by hand, limits, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from perfmodel.schema.tiers import parse_tier

from perfmodel.errors import BadInputError
from perfmodel.plan.explain_step import explain_step
from perfmodel.projections import Projection, project_one, project_row_wise
from perfmodel.projections.sensitivity import sensitivities

TB = 1e12


def one(tier: str, **more: object) -> Projection:
    asked = {"table_bytes": TB, "tier": tier, **more}
    return project_one(**asked)  # type: ignore[arg-type]


def step(answer: Projection, name: str) -> float:
    return next(s.time_s for s in answer.steps if s.name == name)


def test_rows_in_place_cross_the_link_once_each() -> None:
    """1024 bags of 32 different rows of 128 B, each of which takes 495 B of the wire, 0.908 of 64 GB/s."""
    answer = one("uvm")
    by_hand = 4e-6 + 1.3e-6 + 1024 * 32 * 495 / (0.908 * 64e9)
    assert [s.name for s in answer.steps] == ["gather_host"]
    assert answer.time_s == pytest.approx(by_hand, rel=1e-3)
    assert answer.steps[0].payload_bytes == pytest.approx(1024 * 32 * 128, rel=1e-6)
    assert answer.gpus == 1 and answer.slowdown > 10


def test_a_cache_is_looked_through_and_its_misses_cross() -> None:
    answer = one("uvm-caching:3%")
    assert [s.name for s in answer.steps] == ["cache_lookup", "fetch_rows", "gather_pool"]
    assert step(answer, "cache_lookup") == pytest.approx(9.13e-5 + 4.28e-9 * 32768, rel=1e-3)
    missed = next(s for s in answer.steps if s.name == "fetch_rows").payload_bytes / 128
    assert missed == pytest.approx(0.97 * 32768, rel=0.01)
    assert "(97.0 %) are not in the cache" in answer.notes[-1]


def test_neighbours_share_the_host_memory() -> None:
    alone = one("uvm", gpus=1, overrides={"host_bytes_per_s": "100GB/s"})
    eight = one("uvm", gpus=8, overrides={"host_bytes_per_s": "100GB/s"})
    moved = 1024 * 32 * 128
    assert step(eight, "gather_host") == pytest.approx(5.3e-6 + moved / (100e9 / 8), rel=1e-3)
    assert step(alone, "gather_host") == pytest.approx(5.3e-6 + moved * 495 / 128 / (0.908 * 64e9), rel=1e-3)


def test_more_cache_and_more_skew_miss_less_and_prefetch_hides() -> None:
    times = [one(f"uvm-caching:{share}", distribution="zipf:1.05").time_s for share in ("1%", "2%", "3%")]
    assert times == sorted(times, reverse=True)
    assert one("uvm-caching:3%").time_s > times[2]
    lru, ahead = (one(f"uvm-caching:3%{word}", distribution="zipf:1.05") for word in ("", ",prefetch"))
    brought = sum(step(lru, name) for name in ("cache_lookup", "fetch_rows"))
    rest = step(lru, "gather_pool")
    assert ahead.time_s == pytest.approx(max(brought, rest))
    half = {"table_bytes": TB / 2, "distribution": "zipf:1.05"}  # LFU counts all rows: 12 bytes each
    assert one("uvm-caching:3%,lfu", **half).time_s < one("uvm-caching:3%", **half).time_s


def test_rows_without_a_place_in_an_lfu_cache_are_read_in_place() -> None:
    """A cache of next to nothing: as without one, after the look-up in it; no row is fetched."""
    small = {"table_bytes": TB / 10}
    lfu, alone = one("uvm-caching:0.000001%,lfu", **small), one("uvm", **small)
    assert [s.name for s in lfu.steps] == ["cache_lookup", "gather_host"]
    assert step(lfu, "gather_host") == pytest.approx(step(alone, "gather_host"), rel=0.01)
    moved = [s.payload_bytes for s in one("uvm-caching:5%,lfu", **small).steps if s.name == "gather_host"]
    assert moved[0] < 0.96 * alone.steps[0].payload_bytes


def test_without_a_share_the_cache_fills_what_the_buffers_leave() -> None:
    answer = project_one(table_bytes=10 * TB, tier="uvm-caching")
    count = answer.gpu_count
    assert (answer.gpus, count.needed, count.fits) == (48, 48, True)  # 6 nodes of 2 TB, 15 % of them kept
    assert count.memory_bytes == pytest.approx(68e9)
    assert "10 TB ÷ 1.70 TB of host memory per node (85.0 % of 2 TB) = 5.88  →  48 (whole nodes" in str(count)
    assert answer.totals["memory_bytes"] == pytest.approx(68e9)


def test_the_reserve_is_kept_of_the_host_memory_and_not_of_ssds() -> None:
    """10 TB in nodes of 2 TB: 5 nodes if all of it may be used, 6 of 1.7 TB, 10 of 1 TB."""
    shares = (0.0, 0.15, 0.5)
    assert [project_one(table_bytes=10 * TB, tier="uvm", reserve=r).gpus for r in shares] == [40, 48, 80]
    whole = project_one(table_bytes=10 * TB, tier="uvm", reserve=0.0).gpu_count
    assert "10 TB ÷ 2 TB of host memory per node = 5  →  40" in str(whole)
    ssd = project_one(table_bytes=30 * TB, tier="ssd", reserve=0.5).gpu_count
    assert ssd.gpus == 1 and ssd.tier_usable_bytes == ssd.tier_bytes


def test_a_cache_that_needs_more_gpus_than_the_tier_says_so() -> None:
    """43.8 GB on each of two GPUs, of which one has 68 GB."""
    count = project_one(table_bytes=TB, tier="uvm-caching:5%").gpu_count
    assert count.gpus == 2
    assert "= 0.588; its cache 87.5 GB ÷ 68 GB per GPU = 1.29  →  2" in str(count)


def test_ssds_read_blocks_as_fast_as_they_say() -> None:
    answer = one("ssd:1%", overrides={"ssd_reads_per_s": "1MIOPS"})
    missed = next(s for s in answer.steps if s.name == "read_ssd").payload_bytes / 128
    assert step(answer, "read_ssd") == pytest.approx(90e-6 + missed / 1e6)
    for batch in (1, 1024):  # one look-up, which the cache may have: less than a block
        floors = {s.name: s.floor_s for s in one("ssd:1%", batch=batch, pooling=1).steps}
        assert floors["read_ssd"] == pytest.approx(90e-6)
    assert project_one(table_bytes=30 * TB, tier="ssd").gpus == 1


def test_configurations_together_are_those_alone() -> None:
    frame = project_row_wise(table_bytes=[TB, 4 * TB], tier="uvm-caching:1%")
    alone = [one("uvm-caching:1%", table_bytes=size).time_s for size in (TB, 4 * TB)]
    assert frame["time_s"].to_list() == pytest.approx(alone)
    assert frame["gpus"].to_list() == [1, 24]


def test_every_step_is_explained_with_its_numbers() -> None:
    for tier, names in (
        ("uvm", ["gather-host"]),
        ("uvm-caching:1%,prefetch", ["cache-lookup", "fetch-rows"]),
        ("ssd:1%", ["read-ssd", "ssd-lookup"]),
    ):
        answer = one(tier)
        for name in names:
            found = explain_step(answer, name)
            assert all(term.text for term in found.terms) and found.working
            assert found.equation.startswith("t =")
            ids = [term.value for term in found.terms if term.symbol == "id"]
            assert ids == ([8] if name.endswith("-lookup") else [])


def test_a_cache_of_a_part_of_the_rows_holds_the_one_row_that_is_asked_for() -> None:
    """Its size goes by the rows of the table, not by those that anybody asks for."""
    answer = one("uvm-caching:10%", distribution="one-row")
    assert answer.to_dict()["tier_plan"]["missed_rows"] == pytest.approx(0, abs=1e-3)


def test_what_would_help_keeps_the_tier_but_for_one_memory() -> None:
    options = {s.option: s.after for s in sensitivities(one("uvm-caching:1%"))}
    wide = {s.option for s in sensitivities(one("uvm-caching:1%", dim=256))}
    assert "--tier uvm-caching:1%,prefetch" in wide
    assert "--set host_link_bytes_per_s=128GB/s" in options
    assert options["--local-memory 1TB@3TB/s"] < 2
    lfu = one("uvm-caching:1%,lfu", table_bytes=TB / 2)
    assert not any("--tier" in s.option for s in sensitivities(lfu))
    asked = one("uvm-caching:1%,lfu").question
    assert asked is not None and asked.arguments() == ["--table-size", "1TB", "--tier", "uvm-caching:1%,lfu"]


@pytest.mark.parametrize(
    ("tier", "words"),
    [
        ("uvm-caching:0%", "a cache of 0 % of the rows"),
        ("uvm-caching:120%", "a cache of 120 % of the rows"),
        ("uvm,ssd", "uvm and ssd would both hold all rows"),
        ("uvm:10%", "uvm reads rows in place"),
        ("uvm-caching:10%,lru,lfu", "two policies"),
        ("uvm-caching:10%,lfu,prefetch", "FBGEMM fills no LFU cache ahead"),
        ("uvm-caching:10%,soon", "'?soon'? is not known"),
        ("", "no tier is given"),
        ("lfu", "lfu is no tier, but an option that follows one"),
        ("prefetch,uvm-caching", "prefetch is no tier"),
        ("hbm", "is not known"),
    ],
)
def test_a_tier_that_cannot_be_is_refused(tier: str, words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        parse_tier(tier)


def test_the_document_has_torchrecs_cache_params() -> None:
    plan = one("uvm-caching:5%,prefetch").to_dict()["tier_plan"]
    params = {"algorithm": "LRU", "load_factor": 0.05, "prefetch_pipeline": True}
    assert (plan["compute_kernel"], plan["cache_params"]) == ("fused_uvm_caching", params)
    assert 0.9 * plan["distinct_rows"] < plan["missed_rows"] < plan["distinct_rows"]
    in_place = one("uvm").to_dict()["tier_plan"]
    assert (in_place["compute_kernel"], in_place["cache_params"]) == ("fused_uvm", None)
    assert one("uvm-caching").to_dict()["tier_plan"]["cache_params"]["load_factor"] == pytest.approx(
        (68e9 - 4 * TB / 128) / (TB / 128 * (128 + 16))
    )
    assert project_one(table_bytes=TB).to_dict()["tier_plan"] is None


def test_names_of_torchrec_and_fbgemm_are_read() -> None:
    assert parse_tier("fused_uvm_caching:10%") == parse_tier("MANAGED_CACHING:0.1")
    assert [parse_tier(t).kernel for t in ("managed", "key_value")] == ["fused_uvm", "key_value"]
    assert str(parse_tier("uvm_caching:12.5%,prefetch")) == "uvm-caching:12.5%,prefetch"


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"tier": "uvm-caching:50%"}, r"a cache of 50.0 % of the rows is 594 GB per GPU, above the 68 GB"),
        ({"tier": "uvm-caching:1%,lfu"}, r"93.8 GB of it are for all rows of the tables: use more GPUs"),
        ({"tier": "uvm", "gpus": 8, "table_bytes": 10 * TB}, r"need 6 nodes of 1.70 TB of host memory"),
        ({"tier": "uvm", "table_bytes": None, "gpus": 8}, r"needs the size of the tables"),
        ({"tier": "uvm", "local_memory": (TB, 3e12)}, r"would both hold all rows"),
        ({"tier": "uvm", "machine": "l40s-pcie"}, r"does not say its host_bytes"),
    ],
)
def test_what_has_no_room_is_refused(asked: dict[str, object], words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        project_one(**{"table_bytes": TB, "gpus": 1 if asked["tier"] != "uvm" else None, **asked})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("machine", "gpus", "least"),
    [
        ("h100-sxm-ib", 1, None),  # nobody else reads
        ("h100-sxm-ib", 8, min(0.5 * 0.908 * 64e9 * 512 / 584, 0.5 * 614.4e9 / 8)),  # an uplink for two GPUs
        ("gh200-slingshot", 4, min(0.908 * 450e9 * 512 / 584, 0.5 * 2.048e12 / 4)),  # C2C is its own
    ],
)
def test_gpus_that_read_host_memory_together_may_wait_for_each_other(
    machine: str, gpus: int, least: float | None
) -> None:
    """The upper end is that of shared uplinks and of slow random rows: nothing is known, so it is assumed."""
    answer = project_one(
        machine=machine, table_bytes=4e11, dim=128, pooling=100, batch=8192, gpus=gpus, tier="uvm"
    )
    step = next(each for each in answer.steps if each.name == "gather_host")
    k = np.exp(1.959964 * 0.05)  # of link_packet_fraction
    assert step.low_s == pytest.approx(step.time_s / k, rel=1e-6)
    if least is None:
        assert step.high_s == pytest.approx(step.time_s * k, rel=1e-6) and str(step.evidence) == "datasheet"
        return
    value = answer.setting.machine.value
    fixed = value("launch_floor_s") + value("host_latency_s")
    longer = (fixed + step.payload_bytes / least) / step.time_s
    assert longer > 1.2 and str(step.evidence) == "assumed"
    assert step.high_s == pytest.approx(step.time_s * np.exp(np.hypot(np.log(k), np.log(longer))), rel=1e-6)
