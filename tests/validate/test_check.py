"""``perfmodel check``: a log that is made abnormal gets its reason, and a normal one gets none."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from cli_calls import called, is_an_error

from perfmodel.cli import run
from perfmodel.collectives.choose import nearest_calibration
from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.collectives.link_laws import GRID_BYTES
from perfmodel.collectives.time_tables import compute_light_time
from perfmodel.fit.shipped import load_plan
from perfmodel.model.collectives import bus_factor
from perfmodel.model.unknowns import Group
from perfmodel.report.check_text import check_text
from perfmodel.schema.evidence import Backend, Clock
from perfmodel.schema.machine import list_machines, load_machine
from perfmodel.validate.checked import LikelyReason, Series, build_series, load_reasons
from perfmodel.validate.measured import shipped_samples
from perfmodel.validate.reasons import find_facts, find_reasons

Floats = npt.NDArray[np.float64]
ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "examples"
SIZES = 2.0 ** np.arange(10, 33)
SLOW_BYTES_PER_S = 170e9  # of an all-gather over two nodes of 8 H100: half of its plateau
US = 1e-6


@cache
def model_of(machine: str = "h100-sxm-ib") -> CollectiveModel:
    return CollectiveModel.load(load_machine(machine))


@cache
def normal(collective: str, gpus: int) -> Floats:
    """What is expected, each size with an error of 3 % of its own, and none faster than light."""
    machine, times = model_of().machine, model_of().estimate(collective, SIZES, gpus, 8).time_s
    light_s = np.interp(SIZES, GRID_BYTES, compute_light_time(machine, collective, Group.of(gpus, 8)))
    noisy: Floats = np.maximum(times * np.exp(np.random.default_rng(7).normal(0, 0.03, SIZES.size)), light_s)
    noisy.setflags(write=False)  # all tests share it
    return noisy


def frame(collective: str, gpus: int, times: Floats, sizes: Floats = SIZES) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "source_id": collective, "collective": collective, "variant": "default", "gpus": gpus,
            "gpus_per_node": min(gpus, 8), "datatype": "float", "in_place": False, "payload_bytes": sizes,
            "time_s": times, "flag": "ok",
        }
    )  # fmt: skip


def checked(*frames: pd.DataFrame, said: str = "") -> tuple[Series, tuple[LikelyReason, ...]]:
    """The first of the curves, and its reasons."""
    found = build_series(pd.concat(frames), model_of(), said, same_clock=True)
    return found[0], find_reasons(found[0], found)


def told(*frames: pd.DataFrame, said: str = "") -> list[str]:
    return [each.rule.name for each in checked(*frames, said=said)[1]]


def at(place: int, ratio: float, times: Floats, wire: Floats) -> Floats:
    return np.where(np.arange(times.size) == place, ratio * times, times)


def slower(rate: float, times: Floats, wire: Floats) -> Floats:
    """The bytes take as much longer as they do at this rate."""
    return times + wire / rate


def later(more: float, times: Floats, wire: Floats) -> Floats:
    return times + more


def at_least(floor: float, times: Floats, wire: Floats) -> Floats:
    return np.maximum(times, floor)


def both(more: float, rate: float, times: Floats, wire: Floats) -> Floats:
    return times + more + wire / rate


def no_switch(times: Floats, wire: Floats) -> Floats:
    """370 GB/s on 8 H100, where the switch gives 480 (nccl-tests issue 212)."""
    return np.maximum(times, 20 * US + wire / 370e9)


def simple(times: Floats, wire: Floats) -> Floats:
    """An all-gather on 8 GPUs by Simple alone: 8.4 µs, and 7 steps of 3.4 µs (NCCL's tuning.cc)."""
    return np.maximum(times, (8.4 + 7 * 3.4) * US + wire / 400e9)


def flags(times: Floats, wire: Floats) -> Floats:
    """Half of the bytes are flags, at NCCL's own rate of LL on a Hopper node: 141 GB/s (tuning.cc)."""
    return np.maximum(times, wire / 141e9)


def faster(ratio: float, rate: float, times: Floats, wire: Floats) -> Floats:
    return np.maximum(ratio * times, wire / rate)


Change = Callable[[Floats, Floats], Floats]
CASES: list[tuple[str, str, int, Change]] = [
    ("P2P disabled", "all_to_all", 8, partial(slower, 5.2e9)),
    ("links at part of their rate", "all_to_all", 8, partial(slower, 350e9)),
    ("one network card of two", "all_gather", 16, partial(slower, 340e9)),
    ("one network card of all", "all_gather", 16, partial(slower, 340e9 / 7)),
    ("sockets", "all_gather", 16, partial(both, 50 * US, 5e9)),
    ("GPUDirect RDMA off", "all_gather", 16, partial(both, 60 * US, 220e9)),
    ("slow network", "all_gather", 16, partial(slower, 340e9 / 4)),
    ("Simple at all sizes", "all_gather", 8, simple),
    ("LL at all sizes", "all_gather", 8, flags),
    ("host-bound", "all_to_all", 8, partial(at_least, 80 * US)),
    ("waits in every call", "all_to_all", 8, partial(later, 50 * US)),
    ("latency of the network", "all_gather", 16, partial(later, 60 * US)),
    ("not this machine", "all_to_all", 8, partial(faster, 0.3, 1e12)),
    ("faster than clusters like it", "all_to_all", 8, partial(faster, 0.5, 400e9)),
    ("first call", "all_gather", 16, partial(at, 0, 10)),
    ("noise", "all_to_all", 8, partial(at, 9, 6)),
]  # fmt: skip
"""Reasons that must lead, and what makes a log so: by numbers of others, not by the law that tests them."""
ALIKE = ("Simple at all sizes", "slow network")
"""Small messages alone are late, as of a slow launch; a quarter of a rate is also that of host memory."""


@pytest.mark.parametrize(("name", "collective", "gpus", "change"), CASES, ids=[case[0] for case in CASES])
def test_what_was_done_to_a_log_leads(name: str, collective: str, gpus: int, change: Change) -> None:
    wire = SIZES * bus_factor(collective, gpus)
    reasons = checked(frame(collective, gpus, change(normal(collective, gpus), wire)))[1]
    found = [each.rule.name for each in reasons]
    if name in ALIKE:
        assert name in found and reasons[0].cannot_tell, found
    else:
        assert found[:1] == [name], found


@pytest.mark.parametrize("gpus", [8, 16, 64])
@pytest.mark.parametrize("collective", ["all_to_all", "all_gather", "reduce_scatter", "all_reduce"])
def test_a_normal_log_has_no_reason(collective: str, gpus: int) -> None:
    one, reasons = checked(frame(collective, gpus, normal(collective, gpus)))
    assert one.verdict == "normal" and not reasons


PLANTED: list[tuple[str, str, int, Change, str]] = [
    ("NVLS off", "all_reduce", 8, lambda times, wire: no_switch(times, wire), "NVLS off"),
    (
        "half the rails",
        "all_gather",
        16,
        lambda times, wire: np.maximum(times, wire / 175e9),
        "one network card of two",
    ),
    ("one card of eight", "all_to_all", 16, partial(slower, 50e9 / 8 * 16 / 15), "one network card of all"),
    ("wrong NUMA node", "all_gather", 16, partial(both, 15 * US, 300e9), "GPUDirect RDMA off"),
    ("GPUDirect off", "all_reduce", 16, partial(both, 60 * US, 150e9), "GPUDirect RDMA off"),
    ("sockets over one card", "all_reduce", 16, partial(both, 100 * US, 12e9), "sockets"),
    (
        "NVLink at two thirds",
        "all_gather",
        8,
        lambda times, wire: times + wire / 337e9 / 2,
        "links at part of their rate",
    ),
]


@pytest.mark.parametrize(
    ("fault", "collective", "gpus", "change", "reason"), PLANTED, ids=[p[0] for p in PLANTED]
)
def test_a_planted_fault_is_seen(fault: str, collective: str, gpus: int, change: Change, reason: str) -> None:
    wire = SIZES * bus_factor(collective, gpus)
    one, reasons = checked(frame(collective, gpus, change(normal(collective, gpus), wire)))
    assert one.verdict == "slow"
    assert reason in [each.rule.name for each in reasons]


@pytest.mark.parametrize(("gpus", "per_node"), [(7, 7), (14, 7)])
def test_seven_gpus_of_a_node_are_normal(gpus: int, per_node: int) -> None:
    for collective in ("all_reduce", "all_gather", "all_to_all"):
        times = model_of().estimate(collective, SIZES, gpus, per_node).time_s
        rows = frame(collective, gpus, times * 1.08).assign(gpus_per_node=per_node)
        assert checked(rows)[0].verdict == "normal"


def test_sums_of_int8_and_another_operator_are_normal() -> None:
    """aiconfigurator's int8 on 8 H100, which NVLS does not add; 4 and 8 of xxrjun."""
    whole = [one for one in measured("aic_h100_nccl2.29.2", gpus=8) if one.datatype == "int8"]
    assert {one.collective for one in whole} >= {"all_reduce", "reduce_scatter"}
    assert {one.verdict for one in whole} == {"normal"}
    assert {one.verdict for one in measured("xxrjun_c01_single")} == {"normal"}


def test_an_all_reduce_without_the_switch_is_seen() -> None:
    """370 and not 480 GB/s in bulk: clusters like it differ by less."""
    times = no_switch(normal("all_reduce", 8), SIZES * bus_factor("all_reduce", 8))
    one, reasons = checked(frame("all_reduce", 8, times))
    assert one.verdict == "slow" and "NVLS off" in [each.rule.name for each in reasons]


def test_what_slows_a_collective_is_no_reason_why_it_is_fast() -> None:
    """A launch of 18 us, then 280 GB/s: three sizes are fast, which a switch that is off does not explain."""
    sizes = 4.0 ** np.arange(5, 15)
    one, reasons = checked(frame("all_reduce", 8, 17.6 * US + sizes / 270e9, sizes))
    assert one.verdict == "fast" and [each.rule.name for each in reasons] == ["faster than clusters like it"]


def test_a_fact_that_stands_in_a_log_is_said_where_its_curve_is_normal() -> None:
    said = "NCCL INFO 16 coll channels, 16 collnet channels, 0 nvls channels, 16 p2p channels"
    one = checked(frame("all_reduce", 8, normal("all_reduce", 8)), said=said)[0]
    assert one.verdict == "normal"
    assert [(log, rule.name) for log, rule in find_facts([one])] == [("all_reduce", "NVLS off")]
    assert "all_reduce says NVLS off: look at NCCL_NVLS_ENABLE" in check_text([one], stated=find_facts([one]))
    rings = checked(frame("all_gather", 8, normal("all_gather", 8)), said=said)[0]
    assert find_facts([rings]) == []


def test_gates_are_the_slow_ends_of_the_band(tmp_path: Path) -> None:
    log, out = str(EXAMPLES / "two_nodes.log"), tmp_path / "gates.json"
    assert called("check", log, "--gates", str(out)).code == 0
    gates = json.loads(out.read_text())["gates"]
    curve = json.loads(called("check", log, "--json").out)["curves"][0]
    assert [gate["longest_time_s"] for gate in gates][: len(curve["high_s"])] == pytest.approx(
        curve["high_s"]
    )
    assert {gate["evidence"] for gate in gates} <= {"measured", "interpolated", "extrapolated", "transferred"}
    words = ("collective", "--op", "all_reduce", "--size", "1GiB..4GiB", "--gpus", "16", "--gates")
    answer = json.loads(called(*words, "--json").out)
    first = answer["gates"][0]
    assert first["lowest_busbw_bytes_per_s"] * first["longest_time_s"] == pytest.approx(2**30 * 15 / 8)
    assert "NCCL_TESTS_MIN_BW=" in called(*words).out and "transferred" in called(*words).out
    is_an_error(called(*words, "--csv"), 2, "--gates and --csv cannot be combined", "leave one")


def test_rings_that_were_forced_on_a_cluster_whose_own_choice_is_normal() -> None:
    """MareNostrum 5, 25 GB/s a GPU, NCCL_ALGO=Ring, Tree and NCCL's own choice (PICO)."""
    cards = load_machine("h100-sxm-ib").with_overrides({"nic_bytes_per_s": 25e9})
    rows = shipped_samples()
    for source, verdicts in (
        ("auto_a", ["normal"] * 2), ("tree", ["normal"] * 2), ("ring", ["normal", "slow"]),
    ):  # fmt: skip
        mine = rows[rows["source_id"] == f"pico_mn5_h100_{source}"].assign(flag="ok")
        found = build_series(mine, CollectiveModel.load(cards), "", same_clock=True)
        assert [one.verdict for one in found] == verdicts
        names = [[each.rule.name for each in find_reasons(one, [one])] for one in found]
        assert ["rings at all sizes" in each for each in names] == [v == "slow" for v in verdicts], names


def test_trees_that_are_missed_are_seen_where_they_cost_more_than_clusters_differ() -> None:
    """A ring's 31 steps across at NCCL's 2.7 µs, of an all-reduce of 64 KiB on 128 GPUs in nodes of 8."""
    times = np.maximum(normal("all_reduce", 128), 2 * (112 * 1.6 + 15 * 4) * US)
    reasons = checked(frame("all_reduce", 128, times))[1]
    assert "rings at all sizes" in [reason.rule.name for reason in reasons]


def test_pxn_slows_an_all_to_all_alone() -> None:
    """By itself it cannot be told from the network; beside a normal collective of the same nodes it can."""
    times = normal("all_to_all", 16) + 60 * US
    alone = checked(frame("all_to_all", 16, times))[1]
    assert "PXN off" in [each.rule.name for each in alone] and all(each.cannot_tell for each in alone)
    beside = frame("all_gather", 16, normal("all_gather", 16))
    assert told(frame("all_to_all", 16, times), beside)[0] == "PXN off"
    slow = frame("all_gather", 16, normal("all_gather", 16) + 100 * US)
    assert "PXN off" not in told(frame("all_to_all", 16, times), slow)


def test_every_reason_is_tested_and_has_an_opponent() -> None:
    below = {"PXN off", "NVLS off", "rings at all sizes"}
    assert {name for name, *_ in CASES} | below == {rule.name for rule in load_reasons().reason}
    assert all(rule.source and rule.look for rule in load_reasons().reason)


@pytest.mark.parametrize(
    ("line", "leads", "gone"),
    [
        ("NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0", "GPUDirect RDMA off", "slow network"),
        ("NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA", "", "GPUDirect RDMA off"),
        ("NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0", "", "one network card of two"),
    ],
)
def test_what_nccl_prints_decides(line: str, leads: str, gone: str) -> None:
    """Half of the rate has three reasons, of which a log with NCCL_DEBUG=INFO may state or exclude some."""
    rows = frame("all_gather", 16, slower(340e9, normal("all_gather", 16), SIZES * 15 / 16))
    assert gone in told(rows) and gone not in told(rows, said=line)
    if leads:
        reason = checked(rows, said=line)[1][0]
        assert reason.rule.name == leads and reason.stated and not reason.cannot_tell


@pytest.mark.parametrize(
    ("places", "stretches"), [([5], []), ([5, 6], [(5, 6)]), ([5, 7], [(5, 7)]), ([5, 8], [])]
)
def test_one_size_counts_only_far_outside_and_two_neighbours_do(
    places: list[int], stretches: list[tuple[int, int]]
) -> None:
    """Neighbours may have one inside between them."""
    edge = 1.05 * model_of().estimate("all_gather", SIZES, 16, 8).high_s
    times = np.where(np.isin(np.arange(SIZES.size), places), edge, normal("all_gather", 16))
    found = checked(frame("all_gather", 16, times))[0].stretches
    assert [(each.first, each.last) for each in found] == stretches


def measured(source: str, variant: str = "default", gpus: int = 0) -> list[Series]:
    """Curves of a shipped source, with the flags of odd rows taken off."""
    rows = shipped_samples()
    rows = rows[(rows["source_id"] == source) & (rows["variant"] == variant)]
    rows = rows[(rows["gpus"] == gpus) | (not gpus)].assign(flag="ok")
    machine = "a100-sxm-ib" if source.startswith("a100") else "h100-sxm-ib"
    return build_series(rows, model_of(machine), "", same_clock=True)


def test_four_a100_without_p2p() -> None:
    """5.2 GB/s and not 235 (nccl 2.16.2, NCCL_P2P_DISABLE=1)."""
    (on,), (off,) = measured("a100_p2p_disable"), measured("a100_p2p_disable", "p2p-disabled")
    assert on.verdict == "normal"
    reasons = find_reasons(off, [off])
    assert off.verdict == "slow" and [each.rule.name for each in reasons] == ["P2P disabled"]


def test_first_calls_and_noise_of_a_public_thread() -> None:
    """nccl-tests issue 309: 68 µs for 8 B where its neighbours take 25; the rest is normal."""
    names = {
        each.rule.name for one in measured("nccltests_issue309") for each in find_reasons(one, [one])
    }  # fmt: skip
    assert names == {"first call", "noise"}


def test_how_often_normal_clusters_are_outside() -> None:
    """The page says it, apart for sources that the bands were fitted to and for those they were not."""
    rows = shipped_samples()
    known = rows["machine"].isin(list_machines()) & rows["backend"].isin(["nccl", "rccl"])
    rows = rows[known & (rows["clock"] == "stream") & (rows["variant"] == "default")]
    fitted = {name for entry in load_plan().calibration for name in entry.sources}
    counts, racks = {True: [0, 0], False: [0, 0]}, []
    for key, mine in rows.groupby(["source_id", "machine", "backend", "library_version"], observed=True):
        source, machine, backend, version = map(str, key)
        box = load_machine(machine)
        chosen = nearest_calibration(
            box, Backend(backend), Clock.STREAM, version if version[:1] == "2" else ""
        )
        for one in build_series(mine, CollectiveModel(box, chosen), "", same_clock=True):
            counts[source in fitted][0] += 1
            counts[source in fitted][1] += bool(one.stretches)
            racks += [bool(one.stretches)] if source == "aic_gb200_nvl72_nccl2.23" else []
    page = " ".join((ROOT / "docs" / "check.md").read_text(encoding="utf-8").split())
    assert f"NVL72, {sum(racks)} of {len(racks)} curves" in page, racks
    for of_fit, words in ((False, "not fitted to"), (True, "fitted to")):
        curves, outside = counts[of_fit]
        assert f"{outside} of {curves} curves of sources that they were {words}" in page, counts


def test_a_normal_log_ends_with_0_and_a_slow_one_with_6() -> None:
    normal_log, slow_log = (str(EXAMPLES / name) for name in ("two_nodes.log", "half_the_cards.log"))
    done = called("check", normal_log)
    assert done.code == 0 and "all inside the band" in done.out
    slow = called("check", normal_log, slow_log)
    assert slow.code == 6 and "error: 2 of 4 curves outside the band: half_the_cards" in slow.err
    assert "one network card of two" in slow.out and "NCCL_IB_HCA" in slow.out


def test_the_page_shows_what_the_command_prints() -> None:
    page = (ROOT / "docs" / "check.md").read_text(encoding="utf-8")
    assert called("check", str(EXAMPLES / "half_the_cards.log")).out in page


def test_json_has_every_size_and_the_reasons() -> None:
    done = called("check", str(EXAMPLES / "half_the_cards.log"), "--json")
    answer = json.loads(done.out)
    assert done.code == 6 and answer["command"] == "check" and answer["outside"] == 2
    curve: dict[str, Any] = answer["curves"][0]
    assert curve["verdict"] == "slow" and curve["gpus"] == 16 and not curve["in_place"]
    columns = ("payload_bytes", "time_s", "expected_s", "low_s", "high_s", "judged")
    assert {len(curve[name]) for name in columns} == {12}
    assert curve["reasons"][0]["name"] == "one network card of two" and curve["reasons"][0]["cannot_tell"]
    assert curve["stretches"][0]["from_bytes"] == 2**28 and curve["stretches"][0]["slow"]
    assert "curves outside" in json.loads(done.err.splitlines()[-1])["error"]["what"]


def test_the_machine_is_that_of_the_gpu_and_of_the_network(tmp_path: Path) -> None:
    log = (EXAMPLES / "two_nodes.log").read_text(encoding="utf-8")
    efa = tmp_path / "efa.log"
    efa.write_text("node-0:1:1 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa\n" + log)
    assert "machine: h100-sxm-efa" in called("check", str(efa)).err
    assert "also possible: --machine h100-sxm-efa" in called("check", str(EXAMPLES / "two_nodes.log")).err
    other = tmp_path / "other.log"
    other.write_text(log.replace("H100 80GB HBM3", "Tesla V100"))
    is_an_error(called("check", str(other)), 2, "which machine should it be like?", "--machine")
    assert "another machine" in called("check", str(other), "--machine", "h100-sxm-ib").err


def test_a_calibration_of_ones_own_is_this_cluster(tmp_path: Path) -> None:
    log, mine = str(EXAMPLES / "two_nodes.log"), str(tmp_path / "mine.json")
    assert run(["import", log, "--machine", "h100-sxm-ib", "--out", mine]) == 0
    done = called("check", log, "--calibration", mine)
    assert done.code == 0 and "inside the band of this cluster" in done.out


TIMED = ((16777216, 160.0, 104.86), (268435456, 1900.0, 141.28), (8589934592, 60000.0, 143.17))
"""Bytes, µs and GB/s of an all-reduce on 8 H100 with half of the links."""


def nameless_log(redop: str = "sum", factor: float = 1.75) -> str:
    """A log of nccl-tests that does not say its collective."""
    lines = [
        f"#  Rank  {at} Group  0 Pid  1 on host01 device  {at} [0000:{at}b:00] NVIDIA H100 80GB HBM3"
        for at in range(8)
    ]
    for size, time_us, algbw in TIMED:
        half = f"{time_us}  {algbw}  {algbw * factor:.2f}  0"
        lines.append(f" {size}  {size // 4}  float  {redop}  -1  {half}  {half}")
    return "\n".join(lines)


def test_what_is_normal_and_what_a_reason_makes_of_it_are_said(tmp_path: Path) -> None:
    """At most 450 GB/s for 9/8 of the buffer, of which nccl-tests counts 14/8: 700 GB/s."""
    log = tmp_path / "slow.log"
    log.write_text(nameless_log())
    done = called("check", str(log), "--op", "all_reduce")
    text = " ".join(done.out.split())
    assert "links of 450 GB/s allow a busbw of 700 GB/s" in text and "× the expected time" in text
    assert "it alone makes the time" in text and "back inside" in text


def test_no_normal_bus_bandwidth_is_above_what_the_links_allow() -> None:
    one, _ = checked(frame("all_reduce", 8, 2 * normal("all_reduce", 8)))
    assert one.busbw(one.light_s) == pytest.approx(14 / 9 * 450e9)
    assert (one.busbw(one.low_s) <= 14 / 9 * 450e9 * 1.001).all()
    gathers, _ = checked(frame("all_gather", 8, 2 * normal("all_gather", 8)))
    assert (gathers.busbw(gathers.low_s) <= 450e9 * 1.001).all()


@pytest.mark.parametrize(
    ("redop", "factor", "ops"),
    [
        ("sum", 1.75, "all_reduce"),
        ("sum", 0.875, "reduce_scatter"),
        ("none", 0.875, "all_to_all or all_gather"),
        ("none", 1.0, "broadcast or sendrecv"),
    ],
)
def test_a_log_without_its_collective_says_which_it_may_be(
    tmp_path: Path, redop: str, factor: float, ops: str
) -> None:
    log = tmp_path / "x.log"
    log.write_text(nameless_log(redop, factor))
    refused = called("check", str(log))
    text = " ".join(refused.err.split())
    assert refused.code == 2 and f"which collective it is: give --op {ops}" in text
    assert "known formats" not in text
    assert (f"give --op {ops}: no other collective" in text) == (" or " not in ops)


def test_a_library_without_a_band_is_refused() -> None:
    done = called("check", str(EXAMPLES / "two_nodes.log"), "--machine", "mi355x-roce")
    assert done.code == 3 and "nothing of any evidence class for nccl on mi355x-roce" in done.err
    assert "--backend" not in done.err and "another --machine" in done.err


def test_each_reason_counts_all_sizes_outside() -> None:
    """A slow first call, and half of the cards: every reason counts its part of the same sizes."""
    times = normal("all_gather", 16).copy()
    times[0] *= 10
    times[-8:] *= 2
    one, reasons = checked(frame("all_gather", 16, times))
    assert {each.of for each in reasons} == {int(one.outside.sum())}
    assert "first call" in {each.rule.name for each in reasons} and len(reasons) > 1
    assert all(each.explains < each.of for each in reasons)


def test_ranks_that_ran_alone_are_said(tmp_path: Path) -> None:
    """Without MPI=1 each process times itself: nothing is sent, and no band is asked."""
    lines = (EXAMPLES / "two_nodes.log").read_text(encoding="utf-8").splitlines(keepends=True)
    alone = tmp_path / "alone.log"
    alone.write_text("".join(line for line in lines if "Rank" not in line or "Rank  0" in line))
    is_an_error(called("check", str(alone)), 2, "one rank: nothing was sent", "MPI=1")


def test_sizes_of_latency_are_not_judged_by_another_clock(tmp_path: Path) -> None:
    log = (EXAMPLES / "two_nodes.log").read_text(encoding="utf-8")
    eager = tmp_path / "eager.log"
    eager.write_text(
        log.replace("# Using devices", "# Blocking Enabled: wait for completion\n# Using devices")
    )
    done = called("check", str(eager), "--json")
    assert "the clock eager, and the band is of stream" in " ".join(done.err.split())
    judged = json.loads(done.out)["curves"][0]["judged"]
    assert not judged[0] and judged[-1]


def test_wrong_results_are_no_normal_log(cli: Any, tmp_path: Path) -> None:
    """Their times were normal, so the log was; a result that is wrong comes before any time."""
    lines = (EXAMPLES / "two_nodes.log").read_text().splitlines()
    rows = [line for line in lines if re.match(r" +\d+ +\d+ +\w+ ", line)]
    spoilt = {
        line: re.sub(r"( +)0( +[\d.]+ +[\d.]+ +[\d.]+ +)(0|N/A)$", r"\g<1>7\g<2>7", line) for line in rows
    }
    assert rows and all(line != bad for line, bad in spoilt.items())
    for name, bad in (("some", dict(list(spoilt.items())[:2])), ("all", spoilt)):
        (tmp_path / f"{name}.log").write_text("\n".join(bad.get(line, line) for line in lines) + "\n")
        done = cli("check", str(tmp_path / f"{name}.log"))
        assert done.code == 6 and done.out.startswith(f"Wrong results: {name}: ")
        assert "error: wrong results" in done.err and "fit" not in done.err
        record = json.loads(cli("check", str(tmp_path / f"{name}.log"), "--json").out)
        assert len(record["wrong_results"][0]["payload_bytes"]) == len(bad)


def several(tmp_path: Path, *logs: str) -> tuple[str, ...]:
    """Paths of some of: a normal log, a slow log, and files that cannot be read."""
    (tmp_path / "nameless.log").write_text(nameless_log())
    for name, text in (("empty.log", ""), ("letter.txt", "Dear Sir,\n")):
        (tmp_path / name).write_text(text)
    (tmp_path / "folder").mkdir(exist_ok=True)
    return tuple(str((EXAMPLES if (EXAMPLES / name).exists() else tmp_path) / name) for name in logs)


@pytest.mark.parametrize(
    ("logs", "verdicts", "code"),
    [
        (("empty.log", "two_nodes.log", "letter.txt", "folder", "missing.log"), ["normal"] * 2, 2),
        (("half_the_cards.log", "empty.log"), ["slow"] * 2, 6),
        (("empty.log", "half_the_cards.log", "two_nodes.log"), ["slow"] * 2 + ["normal"] * 2, 6),
        (("empty.log", "letter.txt"), [], 2),
    ],
)
def test_a_log_that_cannot_be_read_hides_no_verdict(
    tmp_path: Path, logs: tuple[str, ...], verdicts: list[str], code: int
) -> None:
    """Each log has its verdict, or is named with why and the next step; the worst decides the exit code."""
    words = several(tmp_path, *logs)
    why = {
        "empty.log": "is empty", "letter.txt": "nothing in it is a known format",
        "folder": "is a folder", "missing.log": "No such file",
    }  # fmt: skip
    done, answer = called("check", *words), json.loads(called("check", *words, "--json").out)
    assert done.code == code and [curve["verdict"] for curve in answer["curves"]] == verdicts
    without = [word for word in words if Path(word).name in why]
    assert [each["log"] for each in answer["no_verdict"]] == without
    for each in answer["no_verdict"]:
        assert why[Path(each["log"]).name] in each["what"] and each["next"] and each["exit"] == 2
        block = " ".join(done.out.partition(f"{each['log']}: no verdict\n")[2].split())
        assert block.startswith("Why ") and why[Path(each["log"]).name] in block and "Next " in block
    if code == 2:
        assert f"error: no verdict on {len(without)} logs" in done.err
        assert all(word in " ".join(done.err.split()) for word in without)
    if verdicts:
        assert f"; no verdict on {len(without)} other log" in done.out.splitlines()[0]


def test_a_machine_or_an_option_that_is_wrong_is_no_matter_of_a_log(tmp_path: Path) -> None:
    words = several(tmp_path, "two_nodes.log", "empty.log")
    for more in (("--op", "sums"), ("--machine", "h999"), ("--calibration", str(tmp_path / "no.json"))):
        done = called("check", *words, *more)
        assert done.code == 2 and not done.out and "no verdict" not in done.err, done


def test_op_is_for_logs_that_do_not_name_theirs(tmp_path: Path) -> None:
    """The log that names an all-gather is judged as that, and named as of no all-reduce."""
    words = several(tmp_path, "two_nodes.log", "nameless.log")
    done = called("check", *words, "--op", "all_reduce", "--json")
    kinds = {curve["log"]: curve["collective"] for curve in json.loads(done.out)["curves"]}
    assert kinds == {"two_nodes": "all_gather", "nameless": "all_reduce"}
    said = "--op all_reduce, but two_nodes.log, line 27 is of all_gather_perf: the log's own word holds"
    assert said in " ".join(done.err.split()) and "nameless.log, line" not in done.err
    counted = called("check", words[0], "--gpus", "8")
    assert counted.code == 0 and "--gpus 8, but the log says 16" in counted.err
    assert "--gpus 8" in called("import", words[0], "--machine", "h100-sxm-ib", "--gpus", "8").err
