"""``perfmodel calibrate`` on simulated ranks and on two real ones: what it prints and writes, how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_calls import Outcome
from oracles.simulated_team import SimulatedTeam, TrueCurve
from waiting import PATIENCE_S, gone, until

from calibrate.machine import identity
from calibrate.machine.node import LocalGpu
from calibrate.providers import describe
from calibrate.running import stack
from calibrate.running.interfaces import RunOptions, RunOutcome
from calibrate.running.session import calibrate
from perfmodel.cli import calibrate as command
from perfmodel.schema.run_files import read_run

pytestmark = pytest.mark.usefixtures("signals")
ONLY = ("calibrate", "--only", "gloo:all_to_all", "--clock", "eager")
SIZES = ("--sizes", "1KiB..1MiB")
QUICK = (*ONLY, *SIZES, "--quick")


class Ranks:
    """Simulated ranks in the place of real ones; ``last`` is the team of the last command."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fields: dict[str, Any] = {}
        self.last = SimulatedTeam({})
        monkeypatch.setattr(command, "open_team", self.open)
        monkeypatch.setattr(command, "measure", self.measure)
        monkeypatch.setattr(stack, "read_revision", lambda _: "")  # a checkout may change between two starts

    def open(self, *_: object) -> SimulatedTeam:
        self.last = SimulatedTeam({"": TrueCurve(4e-6, 2e9)}, **{"visit_noise": 0.002, **self.fields})
        return self.last

    def measure(self, options: RunOptions, *rest: Any) -> RunOutcome:
        """With the ranks' clock, and points in one order: a time limit leaves out the same each time."""
        return calibrate(replace(options, seed=0), *rest, clock=self.last.clock)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of runs of a home of its own, in a shell that no launcher started."""
    monkeypatch.setenv("PERFMODEL_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("OMPI_", "SLURM_", "PMIX_"))]:
        monkeypatch.delenv(name)
    return tmp_path / "home" / "runs"


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch, runs: Path) -> Ranks:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # nobody cuts the power
    return Ranks(monkeypatch)


def join_lines(text: str) -> str:
    return " ".join(text.split())


def test_a_run_from_end_to_end(ranks: Ranks, cli: Any, runs: Path) -> None:
    """4 µs and 2 GB/s at 2 ranks: the bus carries half of it."""
    result = cli(*QUICK)
    assert result.code == 0 and result.err == ""
    for word in ("Machine", "Stack", "Plan", "Fitted", "Checked", "Wrote"):
        assert f"\n{word} " in f"\n{result.out}", result.out
    row = next(line for line in result.out.splitlines() if line.startswith(" all_to_all"))
    assert re.search(r" (3\.9\d|4(\.0\d)?) µs .* (99\d MB|1(\.0\d)? GB)/s", row), row
    assert "0 wrong" in result.out and "complete" in result.out
    assert {"samples.jsonl", "machine.toml"} <= {path.name for path in runs.glob("*/*")}
    assert ranks.last.closed
    again = cli(*QUICK, "--json")
    document = json.loads(again.out)
    assert ranks.last.visits == [], "all is done already"
    assert (document["schema_version"], document["command"], document["stopped"]) == (4, "calibrate", "")
    assert document["done"] == document["total"] == len(document["points"])
    assert document["wrong"] == 0 < document["checked"]
    assert document["calibrations"][0]["backend"] == "gloo"
    assert {point["status"] for point in document["points"]} == {"ok"}


def test_a_machine_file_of_ones_own_lies_beside_the_calibration(ranks: Ranks, cli: Any, runs: Path) -> None:
    line = ("calibrate", "--only", "gloo:all_to_all", *SIZES, "--quick")
    assert cli(*line).code == 0
    (host,) = runs.glob("*/machine.toml")
    mine = runs.parent / "mine.toml"
    mine.write_text(re.sub("(?m)^name = .*$", 'name = "my-box"', host.read_text("utf-8")), "utf-8")
    result = cli(*line, "--machine", str(mine))
    assert result.code == 0 and "my-box" in result.out, result.err
    (beside,) = runs.glob("my-box-*/machine.toml")
    assert beside.read_bytes() == mine.read_bytes() and str(beside) in result.out


def test_one_gpu_measures_kernels_and_borrows_collectives(
    ranks: Ranks, cli: Any, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "find_gpus", lambda: (LocalGpu(0, "NVIDIA H200", driver="580.1"),))
    ranks.fields = {"ranks": 1, "device": "cuda", "kernels": True, "backends": ()}
    result = cli("calibrate", "--quick")
    assert result.code == 0, result.err
    assert "Machine   h200-sxm-ib: 1× NVIDIA H200" in result.out and "1 node, 1 rank\n" in result.out
    assert "one rank exchanges nothing" in result.out
    assert "Fitted" not in result.out and "gather_bytes_per_s" in result.out
    assert "not measured here: collectives of h200-sxm-ib/nccl" in result.out
    assert not list(runs.glob("*/machine.toml"))
    projected = json.loads(cli("project", "--table-size", "10TB", "--calibration", "latest", "--json").out)
    evidence = {step["name"]: step["evidence"] for step in projected["steps"]}
    assert evidence["gather_pool"] in ("measured", "interpolated")


def test_a_plan_measures_and_writes_nothing(ranks: Ranks, cli: Any, runs: Path) -> None:
    result = cli(*ONLY, "--sizes", "1KiB,1MiB", "--plan-only")
    assert result.code == 0 and "2 sizes 1 KiB – 1 MiB" in result.out
    assert not runs.exists()
    assert ranks.last.closed and not ranks.last.visits
    document = json.loads(cli(*ONLY, "--sizes", "1KiB,1MiB", "--plan-only", "--json").out)
    assert {p["payload_bytes"] for p in document["points"]} == {1024, 2**20}


def test_a_plan_says_what_is_done_and_what_the_rest_takes(ranks: Ranks, cli: Any) -> None:
    """Of 4 sizes 2 are there."""
    line = (*ONLY, "--quick", "--noise", "50%", "--sizes")
    assert cli(*line, "1KiB,4KiB").code == 0
    part = json.loads(cli(*line, "1KiB..8KiB", "--plan-only", "--json").out)
    done, total = part["done"], len(part["points"])
    assert 0 < done < total and part["remaining"] == total - done
    fresh = json.loads(cli(*line, "1KiB..8KiB", "--plan-only", "--json", "--fresh").out)
    assert (fresh["done"], fresh["remaining"]) == (0, total)
    assert 0 < part["estimate_s"] < fresh["estimate_s"]
    page = join_lines(cli(*line, "1KiB..8KiB", "--plan-only").out)
    assert f"{total} points, {done} of them done already, {total - done} to go" in page
    ended = cli(*line, "1KiB,4KiB", "--plan-only")
    assert "all of them done already" in ended.out and "about" not in ended.out
    assert not ranks.last.visits


def test_an_unknown_floor_or_rate_is_told_by_more_sizes(ranks: Ranks, cli: Any) -> None:
    """1 size tells neither."""
    assert cli(*ONLY, "--sizes", "64KiB", "--quick").code == 0
    words = join_lines(cli("show", "latest").out)
    assert "floors and rates are known" in words and "Unknown: the samples" in words
    assert "Measure smaller sizes for a floor, larger ones for a rate" in words
    assert cli(*ONLY, "--quick").code == 0
    assert "unknown" not in cli("show", "latest").out.lower()


def test_more_ranks_than_cores_are_no_calibration(ranks: Ranks, cli: Any, runs: Path) -> None:
    assert cli(*QUICK).code == 0
    (measured,) = runs.iterdir()
    ranks.fields = {"ranks": 4, "cores_per_node": 2}
    assert cli(*QUICK).code == 2
    planned = cli(*QUICK, "--oversubscribe", "--plan-only")
    check = "functional check only, not a calibration: 4 ranks on 2 cores"
    assert check in join_lines(planned.out)
    result = cli(*QUICK, "--oversubscribe")
    assert result.code == 0 and check in result.err and "Fitted" not in result.out
    assert result.out.count(check) == 2  # as it begins, and among the warnings
    (folder,) = set(runs.iterdir()) - {measured}
    assert sorted(path.name for path in folder.iterdir()) == ["lock", "samples.jsonl"]
    assert json.loads(cli(*QUICK, "--oversubscribe", "--json").out)["functional_only"]
    assert json.loads(cli("show", "latest", "--json").out)["calibration"]["curves"][0]["gpus"] == 2


def test_interrupted_and_resumed(ranks: Ranks, cli: Any, runs: Path) -> None:
    ranks.fields = {"faults": {20: "SIGINT"}}
    result = cli(*QUICK)
    assert result.code == 130 and "Fitted" not in result.out
    resume = "to resume:\n  perfmodel calibrate --only gloo:all_to_all --quick --sizes 1KiB..1MiB"
    assert resume in result.err
    words = join_lines(result.err)
    assert "All measured times are in" in words
    assert re.search(r"0 of 11 points done, \d+ more measured in part", words)
    (folder,) = runs.iterdir()
    assert not list(folder.glob("*.json"))
    before = (folder / "samples.jsonl").read_text(encoding="utf-8")
    assert before.count('"type":"visit"') > 3
    ranks.fields = {}
    assert json.loads(cli(*QUICK, "--json").out)["complete"]
    assert (folder / "samples.jsonl").read_text(encoding="utf-8").startswith(before)
    ranks.fields = {"faults": {4: "SIGINT"}}
    stopped = cli(*QUICK, "--fresh")
    assert stopped.code == 130 and ranks.last.visits, "with --fresh all is measured again"
    assert "to resume" in stopped.err and "--fresh" not in stopped.err


def test_noise_that_stays_is_a_warning_or_with_strict_an_error(ranks: Ranks, cli: Any) -> None:
    ranks.fields = {"visit_noise": 0.8, "overhead_s": 0.5}
    result = cli(*QUICK)
    assert result.code == 0
    page = join_lines(result.out)
    assert "stayed noisy" in page and "Try --only gloo:all_to_all --noise 1%" in page
    strict = cli(*QUICK, "--strict")
    assert strict.code == 5 and "Fitted" in strict.out
    assert re.search(r"--strict: noisy \d+, of \d+ points", strict.err), strict.err


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        ({2: "dead"}, ("rank 1 (node 0)", "to resume:\n         perfmodel calibrate")),
        (dict.fromkeys(range(1, 200), "wrong"), ("elements are wrong",)),
    ],
)
def test_ranks_that_die_or_err_are_exit_4(
    ranks: Ranks, cli: Any, faults: dict[int, str], words: tuple[str, ...]
) -> None:
    ranks.fields = {"faults": faults}
    result = cli(*ONLY, "--sizes", "1KiB", "--quick")
    assert result.code == 4 and all(text in result.err for text in words), result.err
    assert "Fitted" not in result.out and ranks.last.closed


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--clock", "sundial", "sundial"),
        ("--device", "tpu", "tpu"),
        ("--machine", "a b", "lower-case letters, digits, dots and dashes"),
        ("--machine", "h100-sxm-id", "h100-sxm-id"),
        ("--noise", "200%", "at most 99%"),
        ("--noise", "1e-12", "at least 0.01%"),
        ("--noise", "", "--noise is empty"),
        ("--time-limit", "0", "zero"),
        ("--time-limit", "1us", "at least 1s"),
        ("--time-limit", "5", "a time needs a unit"),
        ("--time-limit", "", "--time-limit is empty"),
        ("--out", " ", "--out"),
        ("--only", "kernels:", "nothing after the colon"),
        ("--only", "gloo:all_to_none", "all_to_none"),
        ("--ranks", "2..1000000000", "--ranks"),
        ("--ranks", "3", "has 2 ranks"),
        ("--sizes", "4", "smallest"),
    ],
)
def test_bad_input(ranks: Ranks, cli: Any, option: str, value: str, words: str) -> None:
    result = cli("calibrate", option, value)
    assert result.code == 2 and words in result.err and result.out == "", result
    assert not ranks.last.visits


def test_only_rank_zero_speaks(ranks: Ranks, cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    launched = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    for name, value in launched.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(command, "SPEAKS_FIRST_S", 0.0)
    assert cli("calibrate", "--clock", "sundial") == (2, "", "")
    monkeypatch.setattr(command, "open_team", lambda *_: None)
    assert cli(*QUICK) == (0, "", "")


@pytest.mark.skipif(not describe("gloo").usable, reason="no gloo here")
@pytest.mark.skipif(identity.count_usable_cores() < 2, reason="two ranks need two cores")
def test_two_real_ranks_measure_stop_and_go_on(cli: Any, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C leaves no rank; then a target of all of the time ends the run on a busy machine as well."""
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))  # no git: a checkout may change in between
    line = ["calibrate", "--only", "gloo:all_to_all,gloo:reduce_scatter", "--sizes", "1KiB..4KiB"]
    line += ["--ranks", "2", "--clock", "eager", "--quick"]
    words = [sys.executable, "-c", "from perfmodel.cli import main; main()", *line, "--noise", "0.01%"]
    pipe, root = (
        subprocess.PIPE,
        Path(__file__).parents[2],
    )  # whose version is this process's
    with subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, cwd=root) as process:
        until(lambda: process.poll() is not None or count_visits(runs) >= 3, "3 visits")
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, err
    assert len(children) >= 2 and gone([int(child) for child in children])
    assert "Plan " in out and "Fitted" not in out
    assert "to resume:\n  perfmodel calibrate --only gloo:all_to_all,gloo:reduce_scatter" in err
    (path,) = runs.glob("*/samples.jsonl")
    before = path.read_bytes()
    check_resumed(cli(*line, "--noise", "99%", "--json"))
    assert list(runs.glob("*/samples.jsonl")) == [path] and path.read_bytes().startswith(before)
    run = read_run(path)
    assert run.complete and run.header.ranks == 2
    assert all(visit.bytes_sent and visit.checked for visits in run.visits.values() for visit in visits)
    shown = cli("show", "latest")
    assert shown.code == 0 and "all_to_all" in shown.out and "reduce_scatter" in shown.out
    question = ("--table-size", "64MB", "--gpus", "2", "--batch", "16", "--sharding", "row-wise", "--json")
    projected = cli("project", *question, "--calibration", "latest")
    step = next(s for s in json.loads(projected.out)["steps"] if s["name"] == "all_to_all_ids")
    assert step["evidence"] in ("measured", "interpolated") and step["clock"] == "eager"


def count_visits(runs: Path) -> int:
    return sum(path.read_text("utf-8").count('"type":"visit"') for path in runs.glob("*/samples.jsonl"))


def check_resumed(resumed: Outcome) -> None:
    assert resumed.code == 0, resumed.err
    document = json.loads(resumed.out)
    assert document["done"] == document["total"] == len(document["points"]) and document["wrong"] == 0
    assert document["points"][0]["median_s"] > 0
    assert document["stack"]["gloo"].startswith("torch ")
