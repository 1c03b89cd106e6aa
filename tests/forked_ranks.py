"""Ranks that one process becomes after it has imported torch: a start of each rank would take seconds.

python forked_ranks.py: a host that imports torch and TorchRec once, for all tests of a worker. Each line on
its input is a program with its words, as JSON; a copy of the host runs it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from threading import Timer

from oracles import environment
from waiting import PATIENCE_S


def require_torchrec() -> None:
    """Skip a file of tests where TorchRec is not installed, and do not import it: that takes seconds."""
    import pytest

    if importlib.util.find_spec("torchrec") is None:
        pytest.skip("TorchRec is not installed", allow_module_level=True)


@functools.cache
def host() -> subprocess.Popen[str]:
    """The host of this worker; it ends when its input does, with the worker."""
    pipe = subprocess.PIPE
    command = [sys.executable, str(Path(__file__))]
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment())


def started(program: Path, ranks: int, *words: str) -> tuple[list[int], list[str], list[str]]:
    """Exit codes, and what the ranks said and complained of: ``python PROGRAM RANKS WORDS``."""
    codes, texts, complaints = json.loads(said_by(program, str(ranks), *words))
    return codes, texts, complaints


def said_by(program: Path, *words: str) -> str:
    """What ``python PROGRAM WORDS`` prints, whose imports of torch and TorchRec take no time."""
    process = host()
    assert process.stdin is not None and process.stdout is not None
    with TemporaryDirectory() as folder:
        said, complaint = Path(folder, "out"), Path(folder, "err")
        job = [[str(program), *words], environment(), str(said), str(complaint)]
        print(json.dumps(job), file=process.stdin, flush=True)
        group = int(process.stdout.readline())
        late = Timer(PATIENCE_S, _end, [group])
        late.start()
        code = process.stdout.readline().strip()
        late.cancel()
        _end(group)
        assert code == "0", complaint.read_text()[-3000:]
        return said.read_text()


def _end(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def serve() -> None:
    """Run each program in a copy of this process: print the copy's number, then how it ended."""
    import torch  # noqa: F401

    with contextlib.suppress(ImportError):
        sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
        import planner_torchrec  # noqa: F401

    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _become(*json.loads(line))
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _become(words: list[str], variables: dict[str, str], said: str, complaint: str) -> None:
    os.setsid()
    for stream, name in enumerate((os.devnull, said, complaint)):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT), stream)
    os.environ.clear()
    os.environ.update(variables)
    sys.argv, code = words, 0
    try:
        runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


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


@contextlib.contextmanager
def meeting(rank: int, ranks: int, port: str, run: str) -> Iterator[dict[str, str]]:
    """Address of a store that rank 0 has, until all ranks have left."""
    from calibrate.ranks.launch import LOCALHOST, join_store, listen, serve_store

    served = serve_store(listen(LOCALHOST, int(port)), run) if rank == 0 else None
    yield {"host": LOCALHOST, "port": port, "run": run}
    if served:
        served.wait([f"left/{peer}" for peer in range(1, ranks)])
    else:
        join_store(LOCALHOST, int(port), run).set(f"left/{rank}", "")


if __name__ == "__main__":
    serve()
