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
from recorded import assert_recorded

from perfmodel.cli import run
from perfmodel.collectives.choose import choose_calibration
from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.collectives.link_laws import GRID_BYTES, compute_least_times
from perfmodel.fit.shipped import load_plan
from perfmodel.model.collectives import compute_bus_factor
from perfmodel.model.unknowns import Group
from perfmodel.report.check_text import check_text
from perfmodel.schema.evidence import Backend, Clock
from perfmodel.schema.machine import list_machines, load_machine
from perfmodel.validate.checked import Series, build_series
from perfmodel.validate.medians import load_shipped_samples
from perfmodel.validate.reasons import LikelyReason, find_facts, find_reasons, load_reasons, predict_times

Floats = npt.NDArray[np.float64]
ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "examples"
PAGE = (ROOT / "docs" / "check.md").read_text(encoding="utf-8")
TWO_NODES, HALF = (str(EXAMPLES / name) for name in ("two_nodes.log", "half_the_cards.log"))
SIZES = 2.0 ** np.arange(10, 33)
US = 1e-6


@cache
def model_of(machine: str = "h100-sxm-ib") -> CollectiveModel:
    return CollectiveModel.load(load_machine(machine))


@cache
def normal(collective: str, gpus: int) -> Floats:
    """What is expected, each size with an error of 3 % of its own, and none faster than light."""
    machine, times = model_of().machine, model_of().estimate(collective, SIZES, gpus, 8).time_s
    light_s = np.interp(SIZES, GRID_BYTES, compute_least_times(machine, collective, Group.of(gpus, 8)))
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


def judge(*frames: pd.DataFrame, said: str = "") -> tuple[Series, list[LikelyReason]]:
    """The first of the curves, and its reasons."""
    curves = build_series(pd.concat(frames), model_of(), said, same_clock=True)
    return curves[0], find_reasons(curves[0], curves)


def name_reasons(*frames: pd.DataFrame, said: str = "") -> list[str]:
    return [reason.name for reason in judge(*frames, said=said)[1]]


Change = Callable[[Floats, Floats], Floats]


def slower(rate: float, times: Floats, wire: Floats, more: float = 0.0) -> Floats:
    """The bytes take as much longer as they do at this rate, and each call by ``more``."""
    return times + more + wire / rate


def at_least(floor: float, rate: float, times: Floats, wire: Floats) -> Floats:
    return np.maximum(times, floor + wire / rate)


CASES: list[tuple[str, str, int, Change]] = [
    ("P2P disabled", "all_to_all", 8, partial(slower, 5.2e9)),
    ("links at part of their rate", "all_to_all", 8, partial(slower, 350e9)),
    ("one network card of two", "all_gather", 16, partial(slower, 340e9)),
    ("one network card of all", "all_gather", 16, partial(slower, 340e9 / 7)),
    ("sockets", "all_gather", 16, partial(slower, 5e9, more=50 * US)),
    ("GPUDirect RDMA off", "all_gather", 16, partial(slower, 220e9, more=60 * US)),
    ("LL at all sizes", "all_gather", 8, partial(at_least, 0, 141e9)),  # NCCL's own rate of LL on Hopper
    ("host-bound", "all_to_all", 8, partial(slower, np.inf, more=50 * US)),
    ("latency of the network", "all_gather", 16, partial(slower, np.inf, more=60 * US)),
]  # fmt: skip
"""Reasons that must lead, and what makes a log so: by numbers of others, not by the law that tests them."""
PLANTED: list[tuple[str, str, int, Change]] = [
    ("NVLS off", "all_reduce", 8, partial(at_least, 20 * US, 370e9)),  # nccl-tests issue 212: 480 with it
    ("one network card of two", "all_gather", 16, partial(at_least, 0, 175e9)),
    ("one network card of all", "all_to_all", 16, partial(slower, 50e9 / 8 * 16 / 15)),
    ("GPUDirect RDMA off", "all_gather", 16, partial(slower, 300e9, more=15 * US)),  # wrong NUMA node
    ("GPUDirect RDMA off", "all_reduce", 16, partial(slower, 150e9, more=60 * US)),
    ("sockets", "all_reduce", 16, partial(slower, 12e9, more=100 * US)),
    ("links at part of their rate", "all_gather", 8, partial(slower, 674e9)),  # NVLink at two thirds
    ("slow network", "all_gather", 16, partial(slower, 340e9 / 4)),  # a quarter: as of host memory
    ("host-bound", "all_to_all", 8, partial(at_least, 80 * US, np.inf)),
]
"""Reasons that must be among those that are named."""


@pytest.mark.parametrize(("leads", "case"), [(at < len(CASES), c) for at, c in enumerate(CASES + PLANTED)])
def test_what_was_done_to_a_log_is_named(leads: bool, case: tuple[str, str, int, Change]) -> None:
    name, collective, gpus, change = case
    wire = SIZES * compute_bus_factor(collective, gpus)
    series, reasons = judge(frame(collective, gpus, change(normal(collective, gpus), wire)))
    names = [reason.name for reason in reasons]
    assert series.verdict == "slow" and name in (names[:1] if leads else names), names
    assert {reason.of for reason in reasons} == {int(series.find_outside(1).sum())}


def test_every_reason_is_tested_and_has_its_source() -> None:
    elsewhere = {"PXN off", "rings at all sizes", "Simple at all sizes"}
    assert {name for name, *_ in CASES + PLANTED} | elsewhere == {rule.name for rule in load_reasons().reason}
    assert all(rule.source and rule.look for rule in load_reasons().reason)


def judge_random(seed: int) -> list[str]:
    """Verdict and reasons of a log that is slower from some size on, by a rate and a wait."""
    random = np.random.default_rng(seed)
    collective, gpus = (
        str(random.choice(["all_gather", "all_to_all", "all_reduce"])),
        2 ** random.integers(3, 7),
    )
    usual, wire = normal(collective, int(gpus)), SIZES * compute_bus_factor(collective, int(gpus))
    slow = slower(10 ** random.uniform(10, 13), usual, wire, more=10 ** random.uniform(-7, -4))
    usual = np.where((SIZES < 2**13) & (seed % 5 == 0), 0.4 * usual, usual)
    later = 2.0 ** random.integers(8, 30) <= SIZES
    series, reasons = judge(frame(collective, int(gpus), np.where(later == (seed % 4 < 3), slow, usual)))
    texts = [f"{r.name} {r.words} {r.explains}/{r.of} {sum(r.ratios):.6g} {r.cannot_tell}" for r in reasons]
    return [f"{series.verdict} {[run.tolist() for run in series.stretches]} {series.evidence}", *texts]


def test_reasons_are_those_that_were_found_before() -> None:
    assert_recorded("reasons", [judge_random(seed) for seed in range(40)])


@pytest.mark.parametrize("gpus", [8, 16, 64])
@pytest.mark.parametrize("collective", ["all_to_all", "all_gather", "reduce_scatter", "all_reduce"])
def test_a_normal_log_has_no_reason(collective: str, gpus: int) -> None:
    series, reasons = judge(frame(collective, gpus, normal(collective, gpus)))
    assert series.verdict == "normal" and not reasons


@pytest.mark.parametrize(("gpus", "per_node"), [(7, 7), (14, 7)])
@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "all_to_all"])
def test_seven_gpus_of_a_node_are_normal(collective: str, gpus: int, per_node: int) -> None:
    times = model_of().estimate(collective, SIZES, gpus, per_node).time_s
    assert judge(frame(collective, gpus, times * 1.08).assign(gpus_per_node=per_node))[0].verdict == "normal"


def measured(source: str, variant: str = "default", gpus: int = 0, datatype: str = "") -> list[Series]:
    """Curves of a shipped source, with the flags of odd rows taken off."""
    rows = load_shipped_samples()
    rows = rows[(rows["datatype"] == datatype) | (not datatype)]
    rows = rows[(rows["source_id"] == source) & (rows["variant"] == variant)]
    rows = rows[(rows["gpus"] == gpus) | (not gpus)].assign(flag="ok")
    machine = "a100-sxm-ib" if source.startswith("a100") else "h100-sxm-ib"
    return build_series(rows, model_of(machine), "", same_clock=True)


def test_sums_of_int8_other_operators_and_first_calls_are_normal() -> None:
    """aiconfigurator's int8 on 8 H100, which NVLS does not add; 4 and 8 of xxrjun; and nccl-tests issue 309:
    68 µs for 8 B where its neighbours take 25."""
    whole = measured("aic_h100_nccl2.29.2", gpus=8, datatype="int8")
    assert {series.collective for series in whole} >= {"all_reduce", "reduce_scatter"}
    others = measured("xxrjun_c01_single") + measured("nccltests_issue309")
    assert {series.verdict for series in whole + others} == {"normal"}


def test_four_a100_without_p2p() -> None:
    """5.2 GB/s and not 235 (nccl 2.16.2, NCCL_P2P_DISABLE=1)."""
    (on,), (off,) = measured("a100_p2p_disable"), measured("a100_p2p_disable", "p2p-disabled")
    assert (on.verdict, off.verdict) == ("normal", "slow")
    assert [reason.name for reason in find_reasons(off, [off])] == ["P2P disabled"]


@pytest.mark.parametrize("source", ["auto_a", "tree", "ring"])
def test_a_cluster_with_other_cards_is_normal_and_a_forced_algorithm_is_a_fact(source: str) -> None:
    """MareNostrum 5, 25 GB/s a GPU, NCCL_ALGO=Ring, Tree and NCCL's own choice: rings are in the band."""
    cards = load_machine("h100-sxm-ib").with_overrides({"nic_bytes_per_s": 25e9})
    rows = load_shipped_samples().query(f"source_id == 'pico_mn5_h100_{source}'").assign(flag="ok")
    said = f"NCCL INFO NCCL_ALGO set by environment to {source.title()}"
    curves = build_series(rows, CollectiveModel.load(cards), said, same_clock=True)
    assert [series.verdict for series in curves] == ["normal"] * 2
    facts = {name for _, name, _ in find_facts(curves)} - {f"NCCL_ALGO={source.title()}"}
    assert facts == ({"rings at all sizes"} if source == "ring" else set())


def test_pxn_slows_an_all_to_all_alone() -> None:
    """By itself it cannot be told from the network; beside a normal collective of the same nodes it can."""
    times = normal("all_to_all", 16) + 60 * US
    reasons = judge(frame("all_to_all", 16, times))[1]
    assert "PXN off" in [r.name for r in reasons] and all(reason.cannot_tell for reason in reasons)
    beside = frame("all_gather", 16, normal("all_gather", 16))
    assert name_reasons(frame("all_to_all", 16, times), beside)[0] == "PXN off"
    slow = frame("all_gather", 16, normal("all_gather", 16) + 100 * US)
    assert "PXN off" not in name_reasons(frame("all_to_all", 16, times), slow)


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
    assert gone in name_reasons(rows) and gone not in name_reasons(rows, said=line)
    if leads:
        reason = judge(rows, said=line)[1][0]
        assert reason.name == leads and reason.stated and not reason.cannot_tell


def test_a_fact_that_stands_in_a_log_is_said_where_its_curve_is_normal() -> None:
    said = "NCCL INFO 16 coll channels, 16 collnet channels, 0 nvls channels, 16 p2p channels"
    series = judge(frame("all_reduce", 8, normal("all_reduce", 8)), said=said)[0]
    facts = find_facts([series])
    assert [fact[:2] for fact in facts] == [("all_reduce", "NVLS off")]
    assert "all_reduce says NVLS off: look at NCCL_NVLS_ENABLE" in check_text([(series, [])], stated=facts)
    assert find_facts([judge(frame("all_gather", 8, normal("all_gather", 8)), said=said)[0]]) == []


@pytest.mark.parametrize(
    ("name", "machine", "changed", "gpus", "tried"),
    [
        ("one network card of all", "h100-sxm-ib", {"nics_per_node": 2}, 16, False),  # it is one of two
        ("one network card of all", "h100-sxm-ib", {"nics_per_node": 4}, 16, True),
        ("links at part of their rate", "h100-sxm-ib", {"gpus_per_node": 2}, 2, True),
        ("links at part of their rate", "l40s-pcie", {}, 8, False),
    ],
)
def test_what_a_machine_does_not_have_is_no_reason(
    name: str, machine: str, changed: dict[str, float | str], gpus: int, tried: bool
) -> None:
    model = CollectiveModel.load(load_machine(machine).with_overrides(changed))
    rows = frame("all_gather", gpus, normal("all_gather", gpus))
    (series,) = build_series(rows, model, "", same_clock=True)
    (rule,) = (rule for rule in load_reasons().reason if rule.name == name)
    assert any(predict_times(rule, series)) == tried


@pytest.mark.parametrize(
    ("places", "off", "ends"),
    [
        ([5, 6], 1.05, [(5, 6)]), ([5, 7], 1.05, [(5, 7)]), ([5, 8], 1.05, []), ([22], 1.05, []),
        ([5, 22], 2.5, [(22, 22)]),
    ],
)  # fmt: skip
def test_two_neighbours_are_outside_and_a_single_size_only_if_it_is_the_largest(
    places: list[int], off: float, ends: list[tuple[int, int]]
) -> None:
    """Neighbours may have a size inside between them; the largest must be outside by twice the band, whose
    end is inside."""
    edge = model_of().estimate("all_gather", SIZES, 16, 8).high_s
    times = np.where(np.isin(np.arange(SIZES.size), places), edge * off, edge)
    stretches = judge(frame("all_gather", 16, times))[0].stretches
    assert [(run[0], run[-1]) for run in stretches] == ends


def test_how_often_normal_clusters_are_outside() -> None:
    """The page says it, apart for sources that the bands were fitted to and for those they were not."""
    rows = load_shipped_samples()
    known = rows["machine"].isin(list_machines()) & rows["backend"].isin(["nccl", "rccl"])
    rows = rows[known & (rows["clock"] == "stream") & (rows["variant"] == "default")]
    fitted = {name for entry in load_plan().calibration for name in entry.sources}
    counts, racks = {True: [0, 0], False: [0, 0]}, []
    for key, mine in rows.groupby(["source_id", "machine", "backend", "library_version"], observed=True):
        source, machine, backend, version = map(str, key)
        box = load_machine(machine)
        stated = version if version[:1] == "2" else ""
        chosen = choose_calibration(box, Backend(backend), Clock.STREAM, stated)
        for series in build_series(mine, CollectiveModel(box, chosen), "", same_clock=True):
            counts[source in fitted][0] += 1
            counts[source in fitted][1] += series.abnormal
            racks += [series.abnormal] if source == "aic_gb200_nvl72_nccl2.23" else []
    page = " ".join(PAGE.split())
    assert f"NVL72, {sum(racks)} of {len(racks)} curves" in page, (racks, counts)
    for of_fit, words in ((False, "not fitted to"), (True, "fitted to")):
        curves, outside = counts[of_fit]
        assert f"{outside} of {curves} curves of sources that they were {words}" in page, counts


def test_a_normal_log_ends_with_0_and_a_slow_one_with_6() -> None:
    done = called("check", TWO_NODES)
    assert done.code == 0 and "all inside the band" in done.out
    slow = called("check", TWO_NODES, HALF)
    assert slow.code == 6 and "error: 1 of 2 curves outside the band: half_the_cards" in slow.err
    shown = PAGE.partition("$ perfmodel check docs/examples/half_the_cards.log\n")[2].partition("```")[0]
    assert len(shown.splitlines()) > 20 and called("check", HALF).out.startswith(shown)


def timed_log(tmp_path: Path, times_us: dict[int, float], redop: str = "sum", factor: float = 1.75) -> str:
    """A log of nccl-tests on 8 H100 that does not say its collective.

    factor  bus bandwidth over the rate of the buffer
    """
    lines = [
        f"#  Rank  {at} Group  0 Pid  1 on host01 device  {at} [0000:{at}b:00] NVIDIA H100 80GB HBM3"
        for at in range(8)
    ]
    for size, time_us in times_us.items():
        algbw = size / time_us / 1e3
        half = f"{time_us}  {algbw:.2f}  {algbw * factor:.2f}  0"
        lines.append(f" {size}  {size // 4}  float  {redop}  -1  {half}  {half}")
    path = tmp_path / "nameless.log"
    path.write_text("\n".join(lines))
    return str(path)


HALF_OF_THE_LINKS = {2**24: 160.0, 2**28: 1900.0, 2**33: 60000.0}
"""Bytes and µs of an all-reduce on 8 H100 with half of the links."""


@pytest.mark.parametrize(
    ("ratio", "code", "verdict", "words"),
    [
        (0.45, 0, "fast", "none slower than the band of clusters like it"),
        (0.2, 6, "impossible", "faster than the links allow: look at --machine"),
        (1.0, 6, "slow", "it alone makes the time"),
    ],
)
def test_faster_than_others_is_not_abnormal_and_faster_than_light_is(
    tmp_path: Path, ratio: float, code: int, verdict: str, words: str
) -> None:
    """Twice the rate of half of the links is what others have; 5 times is more than 450 GB/s a GPU."""
    times = {size: time_us * ratio for size, time_us in HALF_OF_THE_LINKS.items()}
    if verdict == "fast":
        times = {2**22: 25.0, 2**23: 35.0, 2**24: 60.0}  # half of what others take
    log = timed_log(tmp_path, times)
    done = called("check", log, "--op", "all_reduce")
    assert done.code == code and words in " ".join(done.out.split()), done
    answer = json.loads(called("check", log, "--op", "all_reduce", "--json").out)
    assert {curve["verdict"] for curve in answer["curves"]} == {verdict}
    assert answer["outside"] == (1 if code else 0)


def test_json_has_every_size_and_the_reasons() -> None:
    done = called("check", HALF, "--json")
    answer = json.loads(done.out)
    assert done.code == 6 and answer["command"] == "check" and answer["outside"] == 1
    curve: dict[str, Any] = answer["curves"][0]
    assert curve["verdict"] == "slow" and curve["gpus"] == 16 and curve["wrong_bytes"] == []
    columns = ("payload_bytes", "time_s", "expected_s", "low_s", "high_s", "judged")
    assert {len(curve[name]) for name in columns} == {12}
    assert curve["reasons"][0]["name"] == "one network card of two" and curve["reasons"][0]["cannot_tell"]
    assert curve["stretches"][0]["from_bytes"] == 2**28 and curve["stretches"][0]["slow"]
    assert "curve outside" in json.loads(done.err.splitlines()[-1])["error"]["what"]


def test_gates_are_the_slow_ends_of_the_band(tmp_path: Path) -> None:
    out = tmp_path / "gates.json"
    first = called("check", TWO_NODES, "--gates", str(out))
    assert first.code == 0 and f"wrote {out}" in first.err
    gates = json.loads(out.read_text())["gates"]
    again = called("check", TWO_NODES, "--gates", str(out))
    assert again.code == 2 and "exists" in again.err and json.loads(out.read_text())["gates"] == gates
    high_s = json.loads(called("check", TWO_NODES, "--json").out)["curves"][0]["high_s"]
    assert [gate["longest_time_s"] for gate in gates][: len(high_s)] == pytest.approx(high_s)
    assert {gate["evidence"] for gate in gates} <= {"measured", "interpolated", "extrapolated", "transferred"}
    words = ("collective", "--op", "all_reduce", "--size", "1GiB..4GiB", "--gpus", "16", "--gates")
    first = json.loads(called(*words, "--json").out)["gates"][0]
    assert first["lowest_busbw_bytes_per_s"] * first["longest_time_s"] == pytest.approx(2**30 * 15 / 8)
    assert "NCCL_TESTS_MIN_BW=" in called(*words).out and "transferred" in called(*words).out


def test_the_machine_is_that_of_the_gpu_and_of_the_network(tmp_path: Path) -> None:
    log = Path(TWO_NODES).read_text(encoding="utf-8")
    efa, other = tmp_path / "efa.log", tmp_path / "other.log"
    efa.write_text("node-0:1:1 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa\n" + log)
    assert "machine: h100-sxm-efa" in called("check", str(efa)).err
    assert "also possible: --machine h100-sxm-efa" in called("check", TWO_NODES).err
    other.write_text(log.replace("H100 80GB HBM3", "Tesla V100"))
    is_an_error(called("check", str(other)), 2, "which machine is it?", "--machine")
    assert "another machine" in called("check", str(other), "--machine", "h100-sxm-ib").err
    without = called("check", TWO_NODES, "--machine", "mi355x-roce")
    assert without.code == 3 and "no calibration has times of nccl on mi355x-roce" in without.err
    assert "--backend" not in without.err and "another --machine" in without.err


def test_a_calibration_of_ones_own_is_this_cluster(tmp_path: Path) -> None:
    mine = str(tmp_path / "mine.json")
    assert run(["import", TWO_NODES, "--machine", "h100-sxm-ib", "--out", mine]) == 0
    done = called("check", TWO_NODES, "--calibration", mine)
    assert done.code == 0 and "inside the band of this cluster" in done.out


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
    refused = called("check", timed_log(tmp_path, HALF_OF_THE_LINKS, redop, factor))
    text = " ".join(refused.err.split())
    assert refused.code == 2 and f"which collective it is: give --op {ops}" in text


def test_ranks_that_ran_alone_are_said(tmp_path: Path) -> None:
    """Without MPI=1 each process times itself: nothing is sent, and no band is asked."""
    lines = Path(TWO_NODES).read_text(encoding="utf-8").splitlines(keepends=True)
    alone = tmp_path / "alone.log"
    alone.write_text("".join(line for line in lines if "Rank" not in line or "Rank  0" in line))
    is_an_error(called("check", str(alone)), 2, "one rank: nothing was sent", "MPI=1")


def test_sizes_of_latency_are_not_judged_by_another_clock(tmp_path: Path) -> None:
    eager = tmp_path / "eager.log"
    blocking = "# Blocking Enabled: wait for completion\n# Using devices"
    eager.write_text(Path(TWO_NODES).read_text(encoding="utf-8").replace("# Using devices", blocking))
    done = called("check", str(eager), "--json")
    assert "the clock eager, and the band is of stream" in " ".join(done.err.split())
    judged = json.loads(done.out)["curves"][0]["judged"]
    assert not judged[0] and judged[-1]


def test_wrong_results_are_no_normal_log(tmp_path: Path) -> None:
    """Their times are normal; a result that is wrong comes before any time, also one in place."""
    text, log = Path(TWO_NODES).read_text(), tmp_path / "bad.log"
    rows = [line for line in text.splitlines() if re.match(r" +\d+ +\d+ +\w+ ", line)]
    for line in rows:
        text = text.replace(line, re.sub(r"( +)0( +[\d.]+ +[\d.]+ +[\d.]+ +)(0|N/A)$", r"\g<1>0\g<2>7", line))
    log.write_text(text)
    done = called("check", str(log))
    assert done.code == 6 and "Wrong  #wrong at " in done.out
    assert "error: 1 of 1 curve outside the band: bad all-gather (wrong results)" in done.err
    (curve,) = json.loads(called("check", str(log), "--json").out)["curves"]
    assert len(curve["wrong_bytes"]) == len(rows)


@pytest.mark.parametrize(
    ("logs", "verdicts", "code"),
    [
        (("empty.log", "two_nodes.log", "missing.log"), ["normal"], 2),
        (("empty.log", "half_the_cards.log", "two_nodes.log"), ["slow", "normal"], 6),
        (("empty.log", "missing.log"), [], 2),
    ],
)
def test_a_log_that_cannot_be_read_hides_no_verdict(
    tmp_path: Path, logs: tuple[str, ...], verdicts: list[str], code: int
) -> None:
    """Each log has its verdict, or is named with why; the worst decides the exit code."""
    (tmp_path / "empty.log").write_text("")
    words = [str((EXAMPLES if (EXAMPLES / name).exists() else tmp_path) / name) for name in logs]
    why = {"empty.log": "is empty", "missing.log": "No such file"}
    done, answer = called("check", *words), json.loads(called("check", *words, "--json").out)
    assert done.code == code and [curve["verdict"] for curve in answer["curves"]] == verdicts
    without = [word for word in words if Path(word).name in why]
    assert [row["log"] for row in answer["no_verdict"]] == without
    for row in answer["no_verdict"]:
        assert why[Path(row["log"]).name] in row["what"] and row["next"] and row["exit"] == 2
        assert f"{row['log']}: no verdict" in " ".join(done.err.split())
    assert bool(done.out) == bool(verdicts)
    for more in (("--op", "sums"), ("--machine", "h999")):  # no matter of a log
        refused = called("check", *words, *more)
        assert refused.code == 2 and not refused.out and "no verdict" not in refused.err


def test_op_is_for_logs_that_do_not_name_theirs(tmp_path: Path) -> None:
    """The log that names an all-gather is judged as that, and named as of no all-reduce."""
    nameless = timed_log(tmp_path, HALF_OF_THE_LINKS)
    done = called("check", TWO_NODES, nameless, "--op", "all_reduce", "--json")
    kinds = {curve["log"]: curve["collective"] for curve in json.loads(done.out)["curves"]}
    assert kinds == {"two_nodes": "all_gather", "nameless": "all_reduce"}
    warning = "--op all_reduce, but two_nodes.log, line 27 is of all_gather_perf: the log's own word holds"
    assert warning in " ".join(done.err.split())
    counted = called("check", TWO_NODES, "--gpus", "8")
    assert counted.code == 0 and "--gpus 8, but the log says 16" in counted.err
