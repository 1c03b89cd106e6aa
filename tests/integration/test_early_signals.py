"""A signal in the first moments of ``calibrate`` ends it with the word and exit code that it has later."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from oracles import environment

PROGRAM = """
import sys
print("up", flush=True)
from perfmodel.cli import main
main(["calibrate", "--device", "cpu", "--ranks", "2", "--only", "gloo:all_reduce", "--out", sys.argv[1]])
"""


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("after_s", [0.1, 0.5, 1.0, 2.0])
def test_ended_early(tmp_path: Path, number: signal.Signals, after_s: float) -> None:
    pytest.importorskip("torch")
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], stdout=pipe, stderr=pipe, text=True, env=environment()
    )
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    time.sleep(after_s)
    process.send_signal(number)
    _, problems = process.communicate(timeout=60)
    assert process.returncode == 130, problems
    assert "stopped." in problems and "Traceback" not in problems and "bug" not in problems
