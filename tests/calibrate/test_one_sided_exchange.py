"""One-sided look-ups on 2 and 4 real processes over shared memory; NVSHMEM's start without MPI."""

from __future__ import annotations

import functools
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import forked_ranks
import pytest
from waiting import PATIENCE_S

pytest.importorskip("torch")

import torch
import torch.distributed as dist

from calibrate.cuda import launch, nvshmem_build, nvshmem_world
from calibrate.cuda.row_wise_exchange import choose_access, kernels
from perfmodel.errors import NoHardwareError

PROGRAM = Path(__file__).with_name("one_sided_ranks.py")
NVSHMEM_START = """
import sys, os
import torch.distributed as dist
from calibrate.cuda import nvshmem_world
rank, ranks, port = (int(word) for word in sys.argv[1:])
store = dist.TCPStore("127.0.0.1", port, ranks, is_master=rank == 0)
print(nvshmem_world.start(dist.PrefixStore("one", store), rank, ranks), flush=True)
store.set(f"started/{rank}", "")
store.wait([f"started/{peer}" for peer in range(ranks)])
os._exit(0)  # NVSHMEM's own end wants a GPU
"""


@pytest.fixture(scope="module", autouse=True)
def built(kernel_home: Path) -> Iterator[None]:
    """The kernels are compiled once, before the processes that load them start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERFMODEL_HOME", str(kernel_home))
        for method in ("fused", "three"):
            for dtype, width in (("fp32", 16), ("fp16", 8)):  # 12 columns
                variant = kernels(dtype, choose_access(12, dtype, width), method=method)
                launch.prebuild(list(variant.values()), torch.device("cpu"))
        yield
        answers.cache_clear()


def started(task: str, ranks: int) -> tuple[list[int], list[str], list[str]]:
    """Exit codes, and what the processes said and complained of."""
    run = f"onesided{os.getpid()}{task}{ranks}"
    return forked_ranks.started(PROGRAM, ranks, task, run)


@functools.cache
def answers(task: str, ranks: int) -> list[dict[str, Any]]:
    """What each rank saw, where all of them end well."""
    codes, texts, complaints = started(task, ranks)
    assert codes == [0] * ranks, complaints
    return [json.loads(text.splitlines()[-1]) for text in texts]


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("method", ["fused", "three"])
@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_bags_are_those_of_the_whole_tables(dtype: str, method: str, ranks: int) -> None:
    """Errors are shares of what rounding allows: below 1 the bags are equal."""
    for seen in (answer[f"{dtype}-{method}"] for answer in answers("bags", ranks)):
        assert seen["calls"] == 12 and seen["largest"] > 1
        assert seen["reference"] < 1 and seen["torch"] < 1, seen


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_late_rank_is_waited_for(ranks: int) -> None:
    """The last rank begins one call later: no other ends its own before."""
    for of_rank in answers("bags", ranks):
        assert all(seen["waited"] == 1 for seen in of_rank.values()), of_rank


@pytest.mark.parametrize(
    ("task", "ranks", "said"),
    [
        ("before-fused", 3, "rank 2 died or left while ids were awaited"),
        ("within-fused", 3, "rank 2 died or left while partial bags were awaited"),
        ("within-three", 2, "rank 1 died or left while partial bags were awaited"),
        ("hangs-fused", 2, "rank 1 does not answer: no ids of it for 2.5 s"),
    ],
)
def test_a_rank_that_is_lost_is_named_and_not_waited_for_again(task: str, ranks: int, said: str) -> None:
    codes, texts, complaints = started(task, ranks)
    assert codes == [*[0] * (ranks - 1), 7], complaints
    for text in texts[:-1]:
        seen = json.loads(text.splitlines()[-1])
        assert seen["said"].startswith(said)
        assert seen["again"].startswith(f"the exchange has lost rank {ranks - 1}")


def test_ranks_agree_or_say_who_does_not() -> None:
    codes, texts, complaints = started("agreement", 3)
    assert codes == [0, 0, 7], complaints
    for rank, text in enumerate(texts[:-1]):
        seen = json.loads(text.splitlines()[-1])
        others = [peer for peer in range(3) if peer != rank]
        assert seen["BadInputError"].startswith(f"ranks {others} make another exchange than rank {rank}")
        assert seen["RankLostError"].startswith("rank 2 died or left")


def test_nvshmem_starts_through_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU it gets as far as knowing all ranks: status 1."""
    ranks = 2
    try:
        nvshmem_build.load_host_library()
    except NoHardwareError as error:
        pytest.skip(f"NOT TESTED, NVSHMEM's start: {error}")
    if torch.cuda.is_available():
        pytest.skip("tests/gpu starts NVSHMEM where there is a GPU")
    monkeypatch.setenv("NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME", "lo")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", NVSHMEM_START, str(rank), str(ranks), port],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        said = [process.communicate(timeout=PATIENCE_S)[0].strip() for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert said == ["1"] * ranks


@pytest.mark.parametrize(("other", "mapped"), [("yes", True), ("no", False)])
def test_memory_is_mapped_only_where_every_rank_says_so(
    other: str, mapped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVSHMEM itself is a stand-in that maps the memory of every rank here."""
    library = SimpleNamespace(init_status=lambda: 0, malloc=lambda count: 4096, ptr=lambda at, peer: at)
    monkeypatch.setattr(nvshmem_build, "load_host_library", lambda: library)
    monkeypatch.setattr(nvshmem_world, "start", lambda store, rank, ranks: 3)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(
        torch.cuda, "current_stream", lambda device: SimpleNamespace(synchronize=lambda: None)
    )
    store = dist.HashStore()
    store.set("mapped/1", other)
    assert nvshmem_world.NvshmemWorld(store, 0, 2, torch.device("cuda")).all_mapped is mapped
