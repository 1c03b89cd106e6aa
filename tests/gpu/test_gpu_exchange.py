"""The one-sided row-wise exchange on a real GPU: threads that play PEs, and NVSHMEM with one PE and with two.

Two PEs on one GPU show that it works; their times say nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from calibrate.cuda.nvshmem_build import find_wheels
from calibrate.machine.node import find_gpus
from perfmodel.errors import NoHardwareError

if not find_gpus():
    pytest.skip("NOT TESTED on a GPU: there is none here", allow_module_level=True)
torch = pytest.importorskip("torch")

from exchange_ranks import LOOKUPS  # noqa: E402
from oracles import environment, free_port  # noqa: E402
from oracles.kernels.exchange import measure_errors  # noqa: E402
from oracles.thread_world import run_threads  # noqa: E402
from sizes import REHEARSAL  # noqa: E402

WORKER = Path(__file__).with_name("exchange_ranks.py")
SETTINGS = {  # several PEs on one GPU without MPS: puts, signals and waits are all that is used
    "NVSHMEM_DISABLE_NCCL": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
    "NVSHMEM_REMOTE_TRANSPORT": "none",
    "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME": "lo",
    "NVSHMEM_SYMMETRIC_SIZE": "256M",
}


def test_threads_that_play_pes() -> None:
    """Eight blocks each, so that all run at the same time; the first run, with one PE, loads all kernels."""

    def work(world: Any) -> dict[str, float]:
        return measure_errors(world, LOOKUPS, blocks=8, patience_s=20)

    for ranks in (1, 2, 4):
        for errors in run_threads(ranks, work, torch.device("cuda", 0)):
            assert isinstance(errors, dict) and max(errors.values()) < 1, errors


def run_ranks(task: str, ranks: int, last: int = 0) -> list[Any]:
    """What each rank printed, where all of them end well, and the last one with this code."""
    if REHEARSAL:
        pytest.skip("NOT TESTED in a rehearsal: NVSHMEM starts on a GPU alone")
    try:
        find_wheels()
    except NoHardwareError as error:
        pytest.skip(f"NOT TESTED on a GPU, NVSHMEM: {error}")
    lines = [[sys.executable, str(WORKER), task, str(rank), str(ranks)] for rank in range(ranks)]
    port, variables = str(free_port()), environment() | SETTINGS
    pipe = subprocess.PIPE
    processes = [subprocess.Popen([*line, port], stdout=pipe, text=True, env=variables) for line in lines]
    try:
        texts = [process.communicate(timeout=300)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [*[0] * (ranks - 1), last]
    return [json.loads(text.splitlines()[-1]) for text in texts if text]


@pytest.mark.parametrize("ranks", [1, 2])
def test_nvshmem(ranks: int) -> None:
    for errors in run_ranks("bags", ranks):
        assert max(errors.values()) < 1, errors


def test_nvshmem_without_a_pe_that_died() -> None:
    assert "rank 1 does not answer" in run_ranks("dies", 2, last=7)[0]["said"]
