"""One-sided look-ups on 2 to 4 real processes over shared memory; NVSHMEM's start without MPI."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import forked_ranks
import pytest

pytest.importorskip("torch")

import torch
import torch.distributed as dist

from calibrate.cuda import kernel_launch, nvshmem_build, nvshmem_world
from calibrate.cuda.exchange_memory import METHODS
from calibrate.cuda.row_wise_exchange import choose_access, kernels
from perfmodel.errors import NoHardwareError

PROGRAM = Path(__file__).with_name("one_sided_ranks.py")


@pytest.fixture(scope="module", autouse=True)
def built(kernel_home: Path) -> Iterator[None]:
    """The kernels are compiled once, before the processes that load them start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERFMODEL_HOME", str(kernel_home))
        for method in METHODS:
            for dtype, width in (("fp32", 16), ("fp16", 8)):  # 12 columns
                variant = kernels(dtype, choose_access(12, dtype, width), method=method)
                kernel_launch.prebuild(list(variant.values()), torch.device("cpu"))
        yield


def run_ranks(task: str, ranks: int, last: int = 0) -> list[Any]:
    """What each rank saw, where all of them end well, and the last one with this code."""
    run = f"onesided{os.getpid()}{task}{ranks}"
    codes, texts, complaints = forked_ranks.started(PROGRAM, ranks, task, run)
    assert codes == [*[0] * (ranks - 1), last], complaints
    return [json.loads(text.splitlines()[-1]) for text in texts if text]


@pytest.mark.parametrize("ranks", [2, 4])
def test_bags_are_those_of_the_whole_tables_and_a_late_rank_is_waited_for(ranks: int) -> None:
    """The last rank begins a call later: no other ends its own before."""
    for answer in run_ranks("bags", ranks):
        assert len(answer["errors"]) == 8 and max(answer["errors"].values()) < 1, answer
        assert answer["waited"] == [1, 1]


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
    for answer in run_ranks(task, ranks, last=7):
        assert answer["said"].startswith(said)
        assert answer["again"].startswith(f"the exchange has lost rank {ranks - 1}")


def test_ranks_agree_or_say_who_does_not() -> None:
    for rank, answer in enumerate(run_ranks("agree", 3, last=7)):
        others = [peer for peer in range(3) if peer != rank]
        assert answer["BadInputError"].startswith(f"ranks {others} make another exchange than rank {rank}")
        assert answer["RankLostError"].startswith("rank 2 died or left")


def test_nvshmem_starts_through_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU it gets as far as knowing all ranks: status 1."""
    try:
        nvshmem_build.load_host_library()
    except NoHardwareError as error:
        pytest.skip(f"NOT TESTED, NVSHMEM's start: {error}")
    if torch.cuda.is_available():
        pytest.skip("tests/gpu starts NVSHMEM where there is a GPU")
    monkeypatch.setenv("NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME", "lo")
    assert run_ranks("nvshmem", 2) == [1, 1]


@pytest.mark.parametrize(("other", "mapped"), [("yes", True), ("no", False)])
def test_memory_is_mapped_only_where_every_rank_says_so(
    other: str, mapped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVSHMEM itself is a stand-in that maps the memory of every rank here; it is started here, on a GPU."""
    library, start = Mock(malloc=lambda count: 4096, ptr=lambda at, peer: at), Mock(return_value=2)
    library.init_status.return_value = 1
    monkeypatch.setattr(nvshmem_build, "load_host_library", lambda: library)
    monkeypatch.setattr(nvshmem_world, "start", start)
    monkeypatch.setattr(torch, "cuda", Mock())
    store = dist.HashStore()
    store.set("mapped/1", other)
    world = nvshmem_world.NvshmemWorld(store, 0, 2, torch.device("cuda"))
    assert world.all_mapped is mapped and world._started_here
    start.return_value = 1
    with pytest.raises(NoHardwareError, match="found no GPU"):
        nvshmem_world.NvshmemWorld(store, 0, 2, torch.device("cuda"))
