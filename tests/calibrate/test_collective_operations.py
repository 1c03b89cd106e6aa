"""Libraries of collectives in one process: sizes, buffers, checks, and what GPU libraries are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from calibrate import patterns, providers
from calibrate.providers import buffers, collectives, nvshmem, torch_world
from perfmodel.errors import BadInputError
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


def test_every_provider_says_whether_it_runs_here() -> None:
    for name in providers.PROVIDERS:
        seen = providers.describe(name)
        assert seen.usable or seen.why_not, name
        if name in providers.COLLECTIVE_PROVIDERS:
            assert providers.load(name).name == name
        if seen.usable:
            assert seen.clocks and seen.operations and seen.version
    with pytest.raises(BadInputError, match="unknown provider 'oneccl'"):
        providers.describe("oneccl")


class Alone:
    """Rank 0 of an all-to-all of gloo: the part of rank 1 is made here, as the send buffer in use says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **more: Any) -> None:
        self.sent: list[int] = []
        monkeypatch.setattr(torch_world, "make_call", lambda dist, layout, group: self.call)
        self.provider: Any = torch_world.Gloo()
        self.provider._dist, self.provider._groups[0, 1] = None, object()
        self.operation = self.provider.operation(point("all_to_all", 4096, **more), [0, 1])

    def call(self, send: Any, recv: Any) -> None:
        row, half = self.operation._row, 512
        peer = patterns.layout("all_to_all", 4096, 2, 1)
        other = np.empty(peer.send_elements, np.float32)
        patterns.fill(other, patterns.send_pieces(peer, self.operation._salt), row)
        recv[:half], recv[half:] = send[:half], torch.from_numpy(other[:half])
        self.sent.append(row)


def test_send_buffers_rotate_and_old_results_do_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Alone(monkeypatch)
    alone.operation.prepare(7)
    assert (alone.operation._recv == patterns.POISON).all()
    for _ in range(3):
        alone.operation.before()
        alone.operation.run()
    assert alone.sent == [1, 2, 3] and alone.operation.check() == (0, 2048)
    alone.operation._recv[3] += 1
    assert alone.operation.check() == (1, 2048)
    alone.operation._recv[3] -= 1
    alone.operation._rows[3, 5] = -3  # a send buffer that was written to
    assert alone.operation.check() == (1, 2048)
    alone.operation.before()  # a call that brings nothing leaves the old result
    assert alone.operation.check()[0] > 1000


@pytest.mark.parametrize(
    ("name", "asked", "words"),
    [
        ("gloo", point("all_to_all", 4), "smallest size is 8 B"),
        ("nccl", point("all_to_all", 31), "16 B for every peer"),
        ("nccl", point("all_to_all", 128), "no group of ranks"),
        (
            "gloo",
            Point(kind=PointKind.KERNEL, operation="copy", clock=Clock.EAGER, gpus=2, gpus_per_node=2),
            "no copy",
        ),
    ],
)
def test_what_a_library_cannot_do_is_refused(name: str, asked: Point, words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        providers.load(name).operation(asked, [0, 1])


def on_gpu(name: str, call: Callable[[Any, Any], None], *, in_place: bool = False) -> Any:
    """An operation of 64 B on two ranks, on buffers of a GPU that are this CPU's."""
    layout = patterns.layout(name, 64, 2, 0)
    send, recv = torch.empty(layout.send_elements), torch.empty(layout.recv_elements)
    return collectives.CollectiveOperation(layout, call, lambda: ([send], recv), in_place=in_place)


def test_a_sum_in_place_is_checked_from_fresh_inputs() -> None:
    calls = []

    def add(send: Any, recv: Any) -> None:
        other = torch.empty(16)
        patterns.fill(other, patterns.send_pieces(patterns.layout("all_reduce", 64, 2, 1), 3))
        recv += other
        calls.append(1)

    operation = on_gpu("all_reduce", add, in_place=True)
    operation.prepare(3)
    operation.run()
    assert operation.check() == (0, 32) and len(calls) == 1
    operation.run()  # back to back: a sum of sums
    assert patterns.count_wrong(operation._recv, patterns.list_expected_pieces(operation.layout, 3)) > 10
    assert operation.check() == (0, 32) and len(calls) == 3
    operation._recv[4] += 1
    assert operation.check() == (1, 32)


def test_nccl_operations_share_two_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    real = torch.empty
    monkeypatch.setattr(torch, "empty", lambda n, dtype, device: real(n, dtype=dtype))
    monkeypatch.setattr(torch_world, "compute_arena_bytes", lambda: 8192)
    monkeypatch.setattr(torch.distributed, "get_process_group_ranks", {"group": [0, 1]}.get)
    provider = torch_world.Nccl()
    provider._arena, provider._dist = None, torch.distributed
    provider._groups[0, 1] = "group"
    sizes = (("all_reduce", 4096), ("all_to_all", 8192), ("all_gather", 8224))
    small, other, large = [provider.operation(point(name, size), [0, 1])._take() for name, size in sizes]
    assert small[0][0].data_ptr() == other[0][0].data_ptr() != large[0][0].data_ptr()
    assert small[1].data_ptr() == other[1].data_ptr() != small[0][0].data_ptr()
    assert [recv.numel() for _, recv in (small, other, large)] == [1024, 2048, 2056]


class Calls:
    """NVSHMEM's bindings, which only write down what they are told."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.seen.append((name, *arguments))


def test_nvshmem_collectives_are_told_what_they_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvshmem, "_get_stream", lambda: 77)
    arena = buffers.Arena(lambda n: torch.zeros(n, dtype=torch.uint8), 65_536)
    provider, told = nvshmem.Nvshmem(), {}
    provider._bindings, provider._arena, provider._rank = Calls(), arena, 1
    provider._groups[tuple(range(4))] = 5
    for operation in COLLECTIVES:
        made = provider.operation(point(operation, 4096, 4), range(4))
        made.prepare(1)
        made.run()
        told[operation] = provider._bindings.seen.pop()
    recv, send = arena.recv.data_ptr(), arena.send.data_ptr()
    # 4096 B are 1024 elements, 256 a peer
    assert told == {
        "all_to_all": ("float_alltoall_on_stream", 5, recv, send, 256, 77),
        "reduce_scatter": ("float_sum_reducescatter_on_stream", 5, recv, send, 256, 77),
        "all_gather": ("float_fcollect_on_stream", 5, recv, send, 256, 77),
        "all_reduce": ("float_sum_reduce_on_stream", 5, recv, send, 1024, 77),
        "broadcast": ("float_broadcast_on_stream", 5, recv, send, 1024, 0, 77),
    }
