"""``perfmodel calibrate`` on simulated ranks: what it prints and writes, and how it ends."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from simulated_ranks import ONLY, QUICK, SIZES, Ranks, folder, ranks

from calibrate.machine.node import LocalGpu
from perfmodel.cli import calibrate

__all__ = ["ranks"]  # fixtures

pytestmark = pytest.mark.usefixtures("signals")


def test_a_whole_run(ranks: Ranks, cli: Any, tmp_path: Path) -> None:
    """4 µs and 2 GB/s at 2 ranks: the bus carries half of it."""
    found = cli(*QUICK)
    assert found.code == 0 and found.err == ""
    for word in ("Machine", "Stack", "Plan", "Fitted", "Checked", "Wrote"):
        assert f"\n{word} " in f"\n{found.out}", found.out
    row = next(line for line in found.out.splitlines() if line.startswith(" all_to_all"))
    assert re.search(r" (3\.9\d|4(\.0\d)?) µs .* (99\d MB|1(\.0\d)? GB)/s", row), row
    assert "0 wrong" in found.out and "complete" in found.out
    assert max(map(len, found.out.splitlines())) <= 100 or str(tmp_path) in found.out
    names = sorted(path.name for path in folder(tmp_path).iterdir())
    assert "samples.jsonl" in names and "machine.toml" in names
    assert ranks.last is not None and ranks.last.closed


def test_a_machine_file_of_ones_own_lies_beside_the_calibration(
    ranks: Ranks, cli: Any, tmp_path: Path
) -> None:
    assert cli("calibrate", "--only", "gloo", *SIZES, "--quick").code == 0
    (own,) = (tmp_path / "home" / "runs").glob("*/machine.toml")
    mine = tmp_path / "mine.toml"
    mine.write_text(
        re.sub("(?m)^name = .*$", 'name = "my-box"', own.read_text(encoding="utf-8")), encoding="utf-8"
    )
    found = cli("calibrate", "--only", "gloo", *SIZES, "--quick", "--machine", str(mine))
    assert found.code == 0 and "my-box" in found.out, found.err
    (beside,) = (tmp_path / "home" / "runs").glob("my-box-*/machine.toml")
    assert beside.read_bytes() == mine.read_bytes() and str(beside) in found.out
    assert cli("project", "--gpus", "2", "--calibration", "latest").code == 0


def test_one_gpu_measures_kernels_and_borrows_collectives(
    ranks: Ranks, cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = (LocalGpu(0, "NVIDIA H200", driver="580.1"),)
    monkeypatch.setattr("calibrate.machine.identity.find_gpus", lambda: gpus)
    ranks.fields = {"ranks": 1, "device": "cuda", "kernels": True, "backends": ()}
    found = cli("calibrate", "--quick")
    assert found.code == 0, found.err
    assert "Machine   h200-sxm-ib: 1× NVIDIA H200" in found.out and "1 node, 1 rank\n" in found.out
    assert "one rank exchanges nothing" in found.out
    assert "Fitted" not in found.out and "gather_bytes_per_s" in found.out
    assert "not measured here: collectives of h200-sxm-ib/nccl" in found.out
    assert not (folder(tmp_path) / "machine.toml").exists()
    projected = json.loads(cli("project", "--table-size", "10TB", "--calibration", "latest", "--json").out)
    assert {step["name"]: step["evidence"] for step in projected["steps"]}["gather_pool"] in (
        "measured",
        "interpolated",
    )


def test_one_document(ranks: Ranks, cli: Any) -> None:
    found = cli(*QUICK, "--json")
    document = json.loads(found.out)
    assert (document["schema_version"], document["command"], document["stopped"]) == (4, "calibrate", "")
    assert document["done"] == document["total"] == len(document["points"])
    assert document["wrong"] == 0 < document["checked"]
    assert document["calibrations"][0]["backend"] == "gloo"
    assert {point["status"] for point in document["points"]} == {"ok"}


def test_a_plan_measures_and_writes_nothing(ranks: Ranks, cli: Any, tmp_path: Path) -> None:
    found = cli(*ONLY, "--sizes", "1KiB,1MiB", "--plan-only")
    assert found.code == 0 and "2 sizes 1 KiB – 1 MiB" in found.out
    assert not (tmp_path / "home").exists()
    assert ranks.last is not None and ranks.last.closed and not ranks.last.visits
    document = json.loads(cli(*ONLY, "--sizes", "1KiB,1MiB", "--plan-only", "--json").out)
    assert {p["payload_bytes"] for p in document["points"]} == {1024, 2**20}


def test_an_unknown_floor_or_rate_is_told_by_more_sizes(ranks: Ranks, cli: Any) -> None:
    """1 size tells neither."""
    assert cli(*ONLY, "--sizes", "64KiB", "--quick").code == 0
    words = " ".join(cli("show", "latest").out.split())
    assert "floor unknown" in words and "rate unknown" in words
    assert "Measure smaller sizes for a floor, larger ones for a rate" in words
    assert cli(*ONLY, "--quick").code == 0
    assert "unknown" not in cli("show", "latest").out.lower()


def test_a_plan_says_what_is_done_and_what_the_rest_takes(ranks: Ranks, cli: Any) -> None:
    """Of 4 sizes 2 are there: the other 2 take what a plan of those alone says."""
    line = (*ONLY, "--quick", "--noise", "50%")
    assert cli(*line, "--sizes", "1KiB,4KiB").code == 0
    alone = json.loads(cli(*line, "--sizes", "2KiB,8KiB", "--plan-only", "--json").out)
    assert (alone["done"], alone["remaining"]) == (0, len(alone["points"]))
    part = json.loads(cli(*line, "--sizes", "1KiB..8KiB", "--plan-only", "--json").out)
    done, total = part["done"], len(part["points"])
    assert 0 < done < total and part["remaining"] == total - done
    assert (
        0
        < part["estimate_s"]
        < json.loads(cli(*line, "--sizes", "1KiB..8KiB", "--plan-only", "--json", "--fresh").out)[
            "estimate_s"
        ]
    )
    page = " ".join(cli(*line, "--sizes", "1KiB..8KiB", "--plan-only").out.split())
    assert f"{total} points, {done} of them done already, {total - done} to go" in page
    ended = cli(*line, "--sizes", "1KiB,4KiB", "--plan-only")
    assert "all of them done already" in ended.out and "about" not in ended.out
    assert ranks.last is not None and not ranks.last.visits


def test_more_ranks_than_cores_are_no_calibration(ranks: Ranks, cli: Any, tmp_path: Path) -> None:
    assert cli(*QUICK).code == 0
    measured = folder(tmp_path)
    ranks.fields = {"ranks": 4, "cores_per_node": 2}
    assert cli(*QUICK).code == 2
    planned = cli(*QUICK, "--oversubscribe", "--plan-only")
    check = "functional check only, not a calibration: 4 ranks on 2 cores"
    assert check in " ".join(planned.out.split())
    found = cli(*QUICK, "--oversubscribe")
    assert found.code == 0 and check in found.err and "Fitted" not in found.out
    assert found.out.count(check) == 2  # as it begins, and among the warnings
    (own,) = set(measured.parent.iterdir()) - {measured}
    assert sorted(path.name for path in own.iterdir()) == ["lock", "samples.jsonl"]
    assert json.loads(cli(*QUICK, "--oversubscribe", "--json").out)["functional_only"]
    assert json.loads(cli("show", "latest", "--json").out)["calibration"]["curves"][0]["gpus"] == 2


def test_interrupted_and_resumed(ranks: Ranks, cli: Any, tmp_path: Path) -> None:
    ranks.fields = {"faults": {20: "SIGINT"}}
    found = cli(*QUICK)
    assert found.code == 130
    assert "Fitted" not in found.out
    assert "to resume:\n  perfmodel calibrate --only gloo:all_to_all --quick --sizes 1KiB..1MiB" in found.err
    said = " ".join(found.err.split())
    assert "Every time that was measured is kept in" in said
    assert re.search(r"0 of 11 points done, \d+ more measured in part", said)
    assert not list(folder(tmp_path).glob("*.json"))
    kept = (folder(tmp_path) / "samples.jsonl").read_text(encoding="utf-8")
    assert kept.count('"type":"visit"') > 3
    ranks.fields = {}
    again = json.loads(cli(*QUICK, "--json").out)
    assert again["complete"] and ranks.last is not None
    assert (folder(tmp_path) / "samples.jsonl").read_text(encoding="utf-8").startswith(kept)
    nothing = cli(*QUICK)
    assert nothing.code == 0 and ranks.last.visits == []


def test_fresh_measures_again(ranks: Ranks, cli: Any) -> None:
    assert cli(*QUICK).code == 0
    assert cli(*QUICK, "--fresh").code == 0
    assert ranks.last is not None and ranks.last.visits
    ranks.fields = {"faults": {4: "SIGINT"}}
    stopped = cli(*QUICK, "--fresh")
    assert stopped.code == 130 and "to resume" in stopped.err and "--fresh" not in stopped.err


def test_noise_that_stays_is_a_warning_or_with_strict_an_error(ranks: Ranks, cli: Any) -> None:
    ranks.fields = {"visit_noise": 0.8, "overhead_s": 0.5}
    found = cli(*QUICK)
    assert found.code == 0
    page = " ".join(found.out.split())
    assert "stayed noisy" in page and "Try --only gloo:all_to_all --noise 1%" in page
    strict = cli(*QUICK, "--strict")
    assert strict.code == 5 and "Fitted" in strict.out
    assert re.search(r"--strict: noisy \d+, of \d+ points", strict.err), strict.err


def test_a_lost_rank_is_named_and_what_is_kept_is_said(ranks: Ranks, cli: Any) -> None:
    ranks.fields = {"faults": {5: "dead"}}
    found = cli(*QUICK)
    assert found.code == 4
    assert "rank 1 (node 0)" in found.err and "to resume:\n         perfmodel calibrate" in found.err
    assert ranks.last is not None and ranks.last.closed


def test_wrong_results_only(ranks: Ranks, cli: Any) -> None:
    ranks.fields = {"faults": dict.fromkeys(range(1, 200), "wrong")}
    found = cli(*ONLY, "--sizes", "1KiB", "--quick")
    assert found.code == 4 and "elements are wrong" in found.err
    assert "Fitted" not in found.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--clock", "sundial"), "sundial"),
        (("--device", "tpu"), "tpu"),
        (("--time-limit", "0"), "zero"),
        (("--machine", "a b"), "lower-case letters, digits, dots and dashes"),
        (("--noise", "200%"), "at most 99%"),
        (("--noise", "1e-12"), "at least 0.01%"),
        (("--noise", ""), "--noise is empty"),
        (("--time-limit", "5"), "a time needs a unit"),
        (("--time-limit", "1us"), "at least 1s"),
        (("--time-limit", ""), "--time-limit is empty"),
        (("--out", ""), "--out"),
        (("--out", " "), "--out"),
        (("--only", "kernels:"), "nothing after the colon"),
        (("--ranks", "2..1000000000"), "--ranks"),
        (("--only", "gloo:all_to_none"), "all_to_none"),
        (("--ranks", "3"), "has 2 ranks"),
        (("--sizes", "4"), "smallest"),
        (("--time-limit", "soon"), "--time-limit"),
        (("--machine", "h100-sxm-id"), "h100-sxm-id"),
    ],
)
def test_bad_input(ranks: Ranks, cli: Any, words: tuple[str, ...], said: str) -> None:
    found = cli("calibrate", *words)
    assert found.code == 2 and said in found.err and found.out == "", found
    assert ranks.last is None or ranks.last.closed


def test_only_rank_zero_speaks(ranks: Ranks, cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    launched = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    for name, value in launched.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(calibrate, "SPEAKS_FIRST_S", 0.0)
    assert cli("calibrate", "--clock", "sundial") == (2, "", "")
    monkeypatch.setattr(calibrate, "open_team", lambda *_: None)
    assert cli(*QUICK) == (0, "", "")
