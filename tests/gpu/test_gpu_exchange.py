"""The one-sided row-wise exchange on a real GPU: threads that play PEs, and NVSHMEM with one PE and with two.

Two PEs on one GPU show that it works; their times say nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from calibrate.cuda.nvshmem_build import find_wheels
from calibrate.machine.node import find_gpus
from perfmodel.errors import NoHardwareError

if not find_gpus():
    pytest.skip("NOT TESTED on a GPU: there is none here", allow_module_level=True)
torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent))

import exchange_ranks  # noqa: E402
from oracles import free_port  # noqa: E402
from oracles.thread_world import threads_of  # noqa: E402
from sizes import REHEARSAL  # noqa: E402

WORKER = Path(__file__).with_name("exchange_ranks.py")
SETTINGS = {  # several PEs on one GPU without MPS: puts, signals and waits are all that is used
    "NVSHMEM_DISABLE_NCCL": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
    "NVSHMEM_REMOTE_TRANSPORT": "none",
    "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME": "lo",
    "NVSHMEM_SYMMETRIC_SIZE": "256M",
}


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_threads_that_play_pes(ranks: int) -> None:
    """Eight blocks each, so that all run at the same time; a first run with one PE loads all kernels."""
    answers: list[Any] = [None] * ranks
    exchange_ranks.shares(threads_of(1, torch.device("cuda", 0))[0], 8, patience_s=20)

    def work(world: Any) -> None:
        with torch.cuda.stream(torch.cuda.Stream(world.device)):
            answers[world.rank] = exchange_ranks.shares(world, 8, patience_s=20)

    threads = [
        threading.Thread(target=work, args=(world,)) for world in threads_of(ranks, torch.device("cuda", 0))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    for shares in answers:
        assert shares is not None and max(shares.values()) < 1, shares


def started(task: str, ranks: int, monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], list[str]]:
    if REHEARSAL:
        pytest.skip("NOT TESTED in a rehearsal: NVSHMEM starts on a GPU alone")
    try:
        find_wheels()
    except NoHardwareError as error:
        pytest.skip(f"NOT TESTED on a GPU, NVSHMEM: {error}")
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    port = str(free_port())
    processes = [
        subprocess.Popen(
            [sys.executable, str(WORKER), task, str(rank), str(ranks), port],
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        texts = [process.communicate(timeout=300)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [process.returncode for process in processes], texts


@pytest.mark.parametrize("ranks", [1, 2])
def test_nvshmem(ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    codes, texts = started("bags", ranks, monkeypatch)
    assert codes == [0] * ranks
    for text in texts:
        shares = json.loads(text.splitlines()[-1])
        assert max(shares.values()) < 1, shares


def test_nvshmem_without_a_pe_that_died(monkeypatch: pytest.MonkeyPatch) -> None:
    codes, texts = started("dies", 2, monkeypatch)
    assert codes[1] == 7 and codes[0] == 0
    assert "rank 1 does not answer" in json.loads(texts[0].splitlines()[-1])["said"]
