"""A signal in the first moments of ``calibrate`` ends it with the word and exit code that it has later."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from oracles import environment
from waiting import PATIENCE_S

PROGRAM = """
import os, sys
from perfmodel.cli import main

folder, place, number, turned = sys.argv[1:]

def at_the_place(event, words):
    global place
    if place and event in ("import", "subprocess.Popen") and place in str(words):
        place = ""
        try:
            os.kill(os.getpid(), int(number))
        except KeyboardInterrupt:
            if turned:
                raise RuntimeError("a library cannot be imported") from None
            raise

sys.addaudithook(at_the_place)
main(["calibrate", "--device", "cpu", "--ranks", "2", "--only", "gloo:all_reduce", "--out", folder])
"""


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize(
    ("place", "number", "turned"),
    [
        ("perfmodel.cli.calibrate", signal.SIGINT, ""),
        ("calibrate.running.session", signal.SIGTERM, ""),
        ("calibrate.ranks.rank", signal.SIGHUP, ""),  # the ranks are started
        ("pydantic", signal.SIGTERM, "turned"),  # into an error of a library's own
    ],
)
def test_ended_early(tmp_path: Path, place: str, number: signal.Signals, turned: str) -> None:
    pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), place, str(int(number)), turned],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=PATIENCE_S,
    )
    assert done.returncode == 130, done.stderr
    assert "stopped." in done.stderr and "Traceback" not in done.stderr and "bug" not in done.stderr
