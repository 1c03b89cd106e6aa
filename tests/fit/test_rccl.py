"""RCCL: its logs, its calibration with parts left out, and measuring where torch is built for ROCm."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cli_calls import called

from calibrate import providers
from calibrate.importers.merge import import_logs
from calibrate.machine import libraries
from calibrate.planning.measurement_plan import Request, make_plan
from calibrate.planning.world import World
from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.errors import BadInputError
from perfmodel.fit.shipped import fit_entry, load_plan
from perfmodel.schema.machine import load_machine
from perfmodel.schema.samples import load_samples

MACHINE = "mi355x-roce"
ACCURACY = (Path(__file__).parents[2] / "docs" / "accuracy.md").read_text(encoding="utf-8")
LOG = """\
# Collective test starting: alltoall_perf
# nThread 1 nGpus 1 minBytes 1048576 maxBytes 1073741824 step: 2(factor) warmup iters: 5 iters: 20 graph: 0
#
rccl-tests: Version develop:33cc4df
# Using devices
#  Rank  0 Group  0 Pid   4791 on     node-a device  0 [0000:05:00] AMD Instinct MI355X
#  Rank  1 Group  0 Pid   4792 on     node-a device  1 [0000:15:00] AMD Instinct MI355X
#  Rank  2 Group  0 Pid   5418 on     node-b device  0 [0000:05:00] AMD Instinct MI355X
#  Rank  3 Group  0 Pid   5419 on     node-b device  1 [0000:15:00] AMD Instinct MI355X
RCCL version : 2.27.7-HEAD:0d2c4fd
HIP version  : 7.2.26015-fc0010cf6a
ROCm version : 7.2.0.0-43-fc0010cf6a
#
#       size     count   type  redop  root    time   algbw   busbw #wrong    time   algbw   busbw #wrong
     1048576     65536  float   none    -1   50.00   20.97   15.73      0   51.00   20.56   15.42    N/A
  1073741824  67108864  float   none    -1 11500.0   93.37   70.03      0 11501.0   93.36   70.02    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 42.9
"""


LINE = (
    '{"name":"AllReduce", "nodes":1, "ranks":16, "ranksPerNode":16, "gpusPerRank":1, "size":%d, '
    '"type":"float", "redop":"sum", "inPlace":%d, "time":%f, "algBw":%f, "busBw":%f, "wrong":"%s"}'
)
"""As rccl-tests write it with MPI: what they call ranks per node are all of the communicator."""
LINES = [
    LINE % (size, in_place, time, size / time / 1e3, size / time / 533, wrong)
    for size, time in ((1048576, 61.5), (1073741824, 6000.25))
    for in_place, wrong in ((0, "0"), (1, "N/A"))
]
FILES = {"lines.json": "\n".join(LINES) + "\n", "list.json": "[\n" + ",\n".join(LINES) + "\n]\n"}
"""Files of ``-x FILE -Z json`` (src/common.cu, Reporter)."""


@pytest.mark.parametrize("name", FILES)
def test_files_of_rccl_tests_are_read(tmp_path: Any, name: str) -> None:
    (tmp_path / name).write_text(FILES[name])
    found = import_logs([tmp_path / name], gpus_per_node=8, library_version="2.27.7")
    assert found.stack == ("rccl", "2.27.7", "", "stream") and not found.unread
    rows = found.samples
    assert rows["collective"].tolist() == ["all_reduce"] * 4 and set(rows["nodes"]) == {2}
    assert rows["time_s"].tolist() == pytest.approx([61.5e-6, 61.5e-6, 6000.25e-6, 6000.25e-6])
    assert rows["in_place"].tolist() == [False, True] * 2 and set(rows["datatype"]) == {"float"}
    with pytest.raises(BadInputError, match="how many nodes: give --set gpus_per_node"):
        import_logs([tmp_path / name])
    (tmp_path / name).write_text(FILES[name].rstrip("]\n")[:-9])
    cut = import_logs([tmp_path / name], gpus_per_node=8)
    assert len(cut.samples) == 3 and cut.unread[0].reason.endswith("cut short?") and cut.cut == [name]


SIGNS = ("rccl-tests: Version develop:33cc4df\n", "RCCL version : 2.27.7-HEAD:0d2c4fd\n", "AMD Instinct ")


@pytest.mark.parametrize("kept", [*SIGNS, "all"])
def test_a_log_of_rccl_tests_is_of_rccl(tmp_path: Any, kept: str) -> None:
    """By the line of the tests, of the library, or by the GPU: any two of them may be cut off."""
    text = LOG
    for sign in SIGNS:
        text = text if kept in (sign, "all") else text.replace(sign, "")
    (tmp_path / "a.log").write_text(text)
    found = import_logs([tmp_path / "a.log"])
    version = "2.27.7" if "RCCL version" in text else ""
    assert found.stack == ("rccl", version, "MI355X", "stream") and not found.unread
    assert found.samples["gpus_per_node"].tolist() == [2] * 4
    assert found.samples["time_s"].tolist() == pytest.approx([50e-6, 51e-6, 11.5e-3, 11.501e-3])


def test_the_same_log_of_nccl_tests_stays_nccl(tmp_path: Any) -> None:
    text = LOG.replace("rccl-tests: Version develop:33cc4df\n", "").replace("RCCL version :", "NCCL version")
    (tmp_path / "a.log").write_text(text.replace("AMD Instinct MI355X", "NVIDIA H200"))
    assert import_logs([tmp_path / "a.log"]).stack == ("nccl", "2.27.7", "H200", "stream")


@pytest.fixture(scope="module")
def samples() -> pd.DataFrame:
    return load_samples().query("backend == 'rccl'")


def judged(calibration: Any, points: pd.DataFrame) -> tuple[float, float]:
    """Median error, and the share of the points inside the band."""
    model = CollectiveModel(load_machine(MACHINE), calibration)
    errors, inside = [], []
    for (collective, gpus), rows in points.groupby(["collective", "gpus"]):
        seen = rows["time_s"].to_numpy(float)
        found = model.estimate(collective, rows["payload_bytes"].to_numpy(float), gpus, 8)
        errors.append(np.abs(found.time_s / seen - 1))
        inside.append((found.low_s <= seen) & (seen <= found.high_s))
    return float(np.median(np.concatenate(errors))), float(np.concatenate(inside).mean())


def usable(samples: pd.DataFrame) -> pd.DataFrame:
    return samples[~samples["in_place"].astype(bool) & (samples["flag"] == "ok")]


def test_one_node_and_the_rate_of_a_card_predict_two(samples: pd.DataFrame) -> None:
    """The 57 points of 16 GPUs, by a fit that saw 8 GPUs only."""
    (entry,) = (e for e in load_plan().calibration if e.machine == MACHINE)
    points = usable(samples)
    two = points[points["nodes"] == 2]
    median, inside = judged(fit_entry(entry, samples[samples["nodes"] < 2]), two)
    assert len(two) == 57 and median < 0.15 and inside >= 0.94
    assert f"| 57 | {100 * median:.1f} % | {100 * inside:.0f} % |" in ACCURACY


def test_every_other_size_predicts_those_between(samples: pd.DataFrame) -> None:
    (entry,) = (e for e in load_plan().calibration if e.machine == MACHINE)
    even = np.log2(samples["payload_bytes"].astype(float)).round() % 2 == 0
    points = usable(samples[~even])
    median, inside = judged(fit_entry(entry, samples[even]), points)
    assert median < 0.05 and inside >= 0.95
    assert f"| {len(points)} | {100 * median:.1f} % | {100 * inside:.0f} % |" in ACCURACY


def test_more_nodes_than_were_measured_follow_the_cards() -> None:
    """An all-to-all leaves its node with (G - 8)/G of its bytes, through one card of each GPU; a ring crosses
    with all 8 cards of a node. The band of four nodes is wider than that of the two measured ones."""
    model = CollectiveModel.load(load_machine(MACHINE), "rccl")
    size = np.array([2.0**34])
    two, four = (model.estimate("all_to_all", size, gpus, 8) for gpus in (16, 32))
    assert four.time_s[0] / two.time_s[0] == pytest.approx((24 / 32) / (8 / 16), rel=0.02)
    ring = model.estimate("all_reduce", size, 32, 8)
    assert 0.85 < size[0] * 2 * 31 / 32 / ring.time_s[0] / (8 * 50e9) < 1.0
    assert four.high_s[0] / four.time_s[0] > two.high_s[0] / two.time_s[0] > 1.1


def test_calibrating_rccl_without_rocm_is_exit_4(cli: Any) -> None:
    found = cli("calibrate", "--backend", "rccl", "--plan-only")
    assert found.code == 4 and "rccl cannot be calibrated here: torch" in found.err
    assert "not built for ROCm" in found.err and "download.pytorch.org/whl/rocm" in found.err


def test_a_torch_for_rocm_calls_rccl_and_not_nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "find_version", lambda names: "2.8.0+rocm6.4")
    monkeypatch.setattr(providers, "find_gpus", lambda: ("an MI355X",))
    amd, nvidia = providers.describe("rccl"), providers.describe("nccl")
    assert amd.usable and amd.version == "torch 2.8.0+rocm6.4" and "all_to_all" in amd.operations
    assert not nvidia.usable and nvidia.why_not == "torch 2.8.0+rocm6.4 is built for ROCm: use rccl"
    world = World(device="cuda", ranks=8, memory_bytes=2**38,
                  providers={"rccl": amd, "nccl": nvidia})  # fmt: skip
    plan = make_plan(Request(preset="quick"), world)
    assert {point.backend for point in plan.points} == {"rccl"}
    monkeypatch.setattr(providers, "find_gpus", tuple)
    assert providers.describe("rccl").why_not == "there is no GPU of AMD here"


def test_the_version_of_a_rocm_build_is_rccls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "find_version", lambda names: "2.8.0+rocm6.4" if "torch" in names else "")
    monkeypatch.setattr(libraries, "read_nccl_version", lambda: "2.27.7")
    assert libraries.list_versions("cuda") == {"rccl": "2.27.7", "torch": "2.8.0+rocm6.4"}


@pytest.mark.parametrize(
    "words",
    [
        ["collective", "--op", "all_reduce", "--size", "1MiB", "--gpus", "32", "--explain"],
        ["project", "--table-size", "10TB"],
        ["plan", "--model", "criteo-kaggle", "--gpus", "16", "--effort", "quick"],
        ["show", "mi355x-roce/rccl-2.27.7-stream"],
    ],
    ids=lambda words: words[0],
)
def test_answers_on_amd_name_its_library_and_its_links(words: list[str]) -> None:
    text = " ".join(called(*words, *(["--machine", MACHINE] if words[0] != "show" else [])).out.split())
    assert text and "NVLink" not in text
    assert not re.search(r"\b(?:what|where) NCCL|\bNCCL (?:takes|changes)", text)
    said = {"collective": "RCCL takes ", "plan": "16, xGMI domains of 8", "show": "8 GPUs in a domain"}
    assert said.get(words[0], "") in text
