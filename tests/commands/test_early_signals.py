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

folder, turned, *signals = sys.argv[1:]

def at_the_place(event, words):
    here = words[:1] if event == "import" else words[1] if event == "subprocess.Popen" else ()
    if signals and signals[0] in here:
        print(signals.pop(0), flush=True)
        try:
            os.kill(os.getpid(), int(signals.pop(0)))
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
        ("perfmodel.cli.app", signal.SIGINT, ""),
        ("calibrate.running.session", signal.SIGTERM, ""),
        ("calibrate.ranks.rank", signal.SIGHUP, ""),  # the ranks are started
        ("pydantic", signal.SIGTERM, "turned"),  # into an error of a library's own
    ],
)
def test_ended_early(tmp_path: Path, place: str, number: signal.Signals, turned: str) -> None:
    assert ended(tmp_path, turned, place, str(int(number))) == [place]


@pytest.mark.usefixtures("signals")
def test_what_is_ignored_from_the_start_stays_ignored(tmp_path: Path) -> None:
    """As ``nohup`` and ``&`` of a script leave Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    first, second = "perfmodel.cli.app", "calibrate.running.session"
    assert ended(tmp_path, "", first, "2", second, "15") == [first, second]


def ended(folder: Path, *words: str) -> list[str]:
    """The places that the command reached, which was ended there."""
    pytest.importorskip("torch")
    command = [sys.executable, "-c", PROGRAM, str(folder), *words]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=PATIENCE_S)
    assert done.returncode == 130, done.stderr
    assert "stopped." in done.stderr and "Traceback" not in done.stderr and "bug" not in done.stderr
    return done.stdout.split()
