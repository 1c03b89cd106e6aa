"""The whole command on two real ranks: measure, Ctrl-C, go on, show, project."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli_calls import Outcome, called
from waiting import PATIENCE_S, until

from calibrate.machine.identity import count_usable_cores
from calibrate.providers import describe
from perfmodel.schema.run_files import read_run

COMMAND = (sys.executable, "-c", "from perfmodel.cli import main; main()")
LINE = (
    *("calibrate", "--only", "gloo:all_to_all,gloo:reduce_scatter", "--sizes", "1KiB..4KiB", "--ranks", "2"),
    *("--clock", "eager", "--quick"),
)
pytestmark = [
    pytest.mark.skipif(not describe("gloo").usable, reason="no gloo here"),
    pytest.mark.skipif(count_usable_cores() < 2, reason="two ranks need two cores"),
]


def perfmodel(home: Path, *words: str) -> Outcome:
    """A command in this process, which has imported what every command imports; its ranks are real."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(home).items():
            patch.setenv(name, value)
        return called(*words)


def environment(home: Path) -> dict[str, str]:
    """Without git on the path: a checkout that changes between two starts would be two stacks."""
    return {**os.environ, "PERFMODEL_HOME": str(home), "PATH": str(Path(sys.executable).parent)}


def samples(home: Path) -> Path:
    (found,) = home.glob("runs/*/samples.jsonl")
    return found


def wait_for_visits(home: Path, count: int, process: subprocess.Popen[str]) -> None:
    """Until the file holds so many visits."""

    def there() -> bool:
        assert process.poll() is None, process.communicate()
        files = list(home.glob("runs/*/samples.jsonl"))
        return bool(files) and files[0].read_text(encoding="utf-8").count('"type":"visit"') >= count

    until(there, f"{count} visits")


@pytest.mark.usefixtures("signals")
def test_measure_stop_go_on_show_project(tmp_path: Path) -> None:
    """Noise is no matter here: a target of all of the time, so that a busy machine ends the run as well."""
    with subprocess.Popen(
        [*COMMAND, *LINE, "--noise", "0.01%"],  # it would go on for a while
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_for_visits(tmp_path, 3, process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, err
    assert "Plan " in out and "Fitted" not in out
    assert "to resume:\n  perfmodel calibrate --only gloo:all_to_all,gloo:reduce_scatter" in err
    before = samples(tmp_path).read_bytes()

    resumed = perfmodel(tmp_path, *LINE, "--noise", "99%", "--json")
    assert resumed.code == 0, resumed.err
    assert samples(tmp_path).read_bytes().startswith(before)
    document = json.loads(resumed.out)
    assert document["done"] == document["total"] == len(document["points"]) and document["wrong"] == 0
    assert document["points"][0]["median_s"] > 0
    assert document["stack"]["gloo"].startswith("torch ")
    run = read_run(samples(tmp_path))
    assert run.complete and run.header.ranks == 2
    assert all(visit.bytes_sent and visit.checked for visits in run.visits.values() for visit in visits)

    shown = perfmodel(tmp_path, "show", "latest")
    assert shown.code == 0, shown.err
    assert "all_to_all" in shown.out and "reduce_scatter" in shown.out
    asked = ("--table-size", "64MB", "--gpus", "2", "--batch", "16", "--calibration", "latest", "--json")
    projected = perfmodel(tmp_path, "project", *asked, "--sharding", "row-wise")
    assert projected.code == 0, projected.err
    steps = {step["name"]: step for step in json.loads(projected.out)["steps"]}
    assert steps["all_to_all_ids"]["evidence"] in ("measured", "interpolated"), steps
    assert steps["all_to_all_ids"]["clock"] == "eager"
