"""Libraries on GPUs without a GPU: sizes, buffers, checks, and what the libraries are told."""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from calibrate import patterns
from calibrate.operations import Place
from calibrate.providers import device_collectives, nccl, nvshmem, torch_world
from perfmodel.errors import BadInputError, NoHardwareError
from perfmodel.schema.evidence import COLLECTIVES, Clock
from perfmodel.schema.runs import Point, PointKind

torch: Any = None


@pytest.fixture(scope="module", autouse=True)
def _torch() -> None:
    """Of several processes of tests, the one that runs these imports it, which takes longer than they do."""
    global torch
    torch = pytest.importorskip("torch")


def point(operation: str, payload_bytes: int, ranks: int = 2, **more: Any) -> Point:
    return Point(
        kind=PointKind.COLLECTIVE,
        operation=operation,
        payload_bytes=payload_bytes,
        gpus=ranks,
        gpus_per_node=ranks,
        **{"clock": Clock.EAGER, **more},
    )


def test_gpu_libraries_refuse_less_than_16_bytes_a_peer() -> None:
    provider = nccl.Nccl()
    with pytest.raises(BadInputError, match="the smallest size is 128 B") as caught:
        provider.operation(point("all_to_all", 127, 8), range(8))
    assert "16 B for every peer" in str(caught.value)
    with pytest.raises(BadInputError, match="after_kernel"):
        provider.operation(point("all_to_all", 128, 8, variant="after_kernel"), range(8))


def test_two_ranks_on_one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(nccl.SHARE_VARIABLE, "0")
    with pytest.raises(NoHardwareError, match=r"2 ranks share 1 GPU, and NCCL 2\.29\.7 cannot"):
        nccl.share_gpu((2, 29, 7), 2, 1)
    assert os.environ[nccl.SHARE_VARIABLE] == "0"
    nccl.share_gpu((2, 30, 1), 2, 1)
    assert os.environ[nccl.SHARE_VARIABLE] == "1"


def test_a_sum_in_place_is_checked_from_fresh_inputs() -> None:
    one = patterns.layout("all_reduce", 64, 2, 0)
    other = torch.empty(16)
    calls = []

    def add(send: Any, recv: Any) -> None:
        patterns.fill(other, patterns.send_pieces(patterns.layout("all_reduce", 64, 2, 1), 3))
        recv += other
        calls.append(1)

    made = device_collectives.DeviceOperation(one, add, torch.empty(99), torch.empty(99), in_place=True)
    made.prepare(3)
    made.run()
    assert made.check() == (0, 32)
    assert len(calls) == 1
    made.run()  # back to back: a sum of sums
    assert patterns.count_wrong(made._recv, patterns.expected_pieces(one, 3)) > 10
    assert made.check() == (0, 32)
    assert len(calls) == 3
    made._recv[4] += 1
    assert made.check() == (1, 32)


def test_only_what_calls_bring_since_the_last_batch_passes() -> None:
    """A graph that replays nothing must not live on what the calls before it left."""
    one = patterns.layout("all_gather", 64, 2, 0)

    def gather(send: Any, recv: Any) -> None:
        patterns.fill(recv, patterns.expected_pieces(one, 3))

    made = device_collectives.DeviceOperation(one, gather, torch.empty(99), torch.empty(99))
    made.prepare(3)
    made.run()
    assert made.check() == (0, 24)  # 16 received, 8 sent
    made.before()
    assert made.check() == (16, 24)


def test_the_coordinator_counts_gpus_else_a_rank_those_that_it_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight ranks that see one GPU each do not share it."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    place = Place(3, 8, local_rank=3, local_ranks=8, device="cuda")
    assert device_collectives.gpus_of_node(place, {"gpus": "8"}) == 8
    assert device_collectives.gpus_of_node(place, {}) == 1


def test_nccl_operations_share_two_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    real = torch.empty
    monkeypatch.setattr(torch, "empty", lambda n, dtype, device: real(n, dtype=dtype))
    monkeypatch.setattr(nccl, "arena_bytes", lambda: 8192)
    monkeypatch.setattr(torch.distributed, "get_process_group_ranks", {"group": [0, 1]}.get)
    provider = nccl.Nccl()
    provider._arena, provider._dist = None, torch.distributed
    provider._groups[0, 1] = "group"
    small, other, large = (
        provider.operation(point(name, size), [0, 1])
        for name, size in (("all_reduce", 4096), ("all_to_all", 8192), ("all_gather", 8224))
    )
    assert small._send.data_ptr() == other._send.data_ptr() != large._send.data_ptr()
    assert small._recv.data_ptr() == other._recv.data_ptr() != small._send.data_ptr()
    assert [one._recv.numel() for one in (small, other, large)] == [1024, 2048, 2056]


def test_an_arena_that_is_too_small_is_refused() -> None:
    arena = device_collectives.Arena(lambda size: torch.zeros(size, dtype=torch.uint8), 4096)
    send, recv = arena.views(patterns.layout("all_to_all", 4096, 2, 0))
    assert send.numel() == recv.numel() == 1024
    with pytest.raises(BadInputError, match="4096 B are there"):
        arena.views(patterns.layout("all_to_all", 8192, 2, 0))


class World:
    """GPU ranks in one process: CPU memory for each, and NVSHMEM's calls on it, as documented."""

    def __init__(self, ranks: int, size: int) -> None:
        self.arenas = [
            device_collectives.Arena(lambda n: torch.zeros(n, dtype=torch.uint8), size) for _ in range(ranks)
        ]
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.calls.append((name, *arguments))


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvshmem, "_stream", lambda: 77)


def pe(world: World, rank: int, group: Sequence[int]) -> nvshmem.Nvshmem:
    provider = nvshmem.Nvshmem()
    provider._bindings, provider._arena, provider._rank = world, world.arenas[rank], rank
    provider._groups[tuple(group)] = 5
    return provider


@pytest.mark.usefixtures("stream")
def test_nvshmem_collectives_are_told_what_they_count() -> None:
    world = World(4, 65_536)
    told = {}
    for operation in COLLECTIVES:
        made = pe(world, 1, range(4)).operation(point(operation, 4096, 4), range(4))
        made.prepare(1)
        made.run()
        told[operation] = world.calls.pop()
    recv, send = world.arenas[1].recv.data_ptr(), world.arenas[1].send.data_ptr()
    # 4096 B are 1024 elements, 256 a peer
    assert told == {
        "all_to_all": ("float_alltoall_on_stream", 5, recv, send, 256, 77),
        "reduce_scatter": ("float_sum_reducescatter_on_stream", 5, recv, send, 256, 77),
        "all_gather": ("float_fcollect_on_stream", 5, recv, send, 256, 77),
        "all_reduce": ("float_sum_reduce_on_stream", 5, recv, send, 1024, 77),
        "broadcast": ("float_broadcast_on_stream", 5, recv, send, 1024, 0, 77),
    }


@pytest.mark.parametrize(
    ("ranks", "distance"), [([0, 1, 2], 1), ([1, 9, 17], 8), ([0, 1, 8, 9], 0), ([2, 1], 0), ([4], 1)]
)
def test_teams_are_equally_spaced(ranks: list[int], distance: int) -> None:
    assert nvshmem.strided(ranks) == distance
    if not distance:
        with pytest.raises(BadInputError, match="equally far apart"):
            nvshmem.Nvshmem().barrier(ranks)


def test_torch_calls_name_the_global_root() -> None:
    seen: list[Any] = []
    dist = SimpleNamespace(
        broadcast=lambda tensor, source, group: seen.append((tensor, source, group)),
        get_process_group_ranks={"group": [4, 6, 8]}.get,
    )
    last = patterns.layout("broadcast", 64, 3, 2)
    torch_world.calls(dist, last, "group")("send", "recv")
    assert seen == [("recv", 4, "group")]


def test_operations_of_the_libraries() -> None:
    assert nvshmem.Nvshmem.operations == COLLECTIVES
