"""Ranks that one process becomes after it has imported torch: a start of each rank would take seconds."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import mkdtemp

from oracles import environment


def started(
    program: Path, ranks: int, *words: str, timeout_s: float
) -> tuple[list[int], list[str], list[str]]:
    """Exit codes, and what the ranks said and complained of: ``python PROGRAM RANKS WORDS``."""
    process = subprocess.Popen(
        [sys.executable, str(program), str(ranks), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=environment(),
    )
    try:
        said, complaint = process.communicate(timeout=timeout_s)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, complaint[-3000:]
    codes, texts, complaints = json.loads(said)
    return codes, texts, complaints


def forked(ranks: int) -> int:
    """In each rank its number. The process that calls it waits for all, prints what they left, and ends."""
    folder = mkdtemp()
    files = [[Path(folder, f"{rank}.{kind}") for kind in ("out", "err")] for rank in range(ranks)]
    processes = []
    for rank, names in enumerate(files):
        process = os.fork()
        if process == 0:
            for stream, name in enumerate(names, 1):
                os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), stream)
            return rank
        processes.append(process)
    codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]
    said, complaints = ([name.read_text() for name in names] for names in zip(*files, strict=True))
    print(json.dumps([codes, said, complaints]))
    shutil.rmtree(folder)
    sys.exit(0)
