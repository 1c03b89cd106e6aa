"""Providers without their libraries: names, sizes, buffers, and what GPU libraries are told."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from calibrate import patterns, providers
from calibrate.providers import device, heap, host, nccl, nvshmem, symmetric_memory, torch_world
from perfmodel.errors import BadInputError, NoHardwareError
from perfmodel.schema.evidence import COLLECTIVES, SAMPLE_OPERATIONS, Clock
from perfmodel.schema.runs import Kind, Point

torch = pytest.importorskip("torch")


def point(operation: str, payload_bytes: int, ranks: int = 2, **more: Any) -> Point:
    return Point(
        kind=Kind.COLLECTIVE,
        operation=operation,
        payload_bytes=payload_bytes,
        gpus=ranks,
        gpus_per_node=ranks,
        **{"clock": Clock.EAGER, **more},
    )


def test_every_provider_says_whether_it_runs_here() -> None:
    for name in providers.PROVIDERS:
        found = providers.availability(name)
        assert found.usable or found.why_not, name
        if name in providers.COLLECTIVE_PROVIDERS:
            assert providers.load(name).name == name
        if found.usable:
            assert found.clocks and found.operations and found.version
    with pytest.raises(BadInputError, match="unknown provider 'rccl'"):
        providers.availability("rccl")


def test_a_module_that_does_not_import_is_not_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(providers.PROVIDERS, "broken", "calibrate.providers.no_such_module:Broken")
    found = providers.availability("broken")
    assert not found.usable
    assert "no_such_module" in found.why_not


@pytest.mark.parametrize(
    ("send_bytes", "l2_bytes", "count"),
    [
        (128, 2**20, 32768),  # 4 MiB of L2 shares
        (2**20, 2**20, 8),  # at least 8
        (2**18, 2**20, 16),
        (2**25, 2**20, 2),  # 64 MiB in all
        (2**30, 2**20, 2),  # at least 2
    ],
)
def test_rotating_send_buffers(send_bytes: int, l2_bytes: int, count: int) -> None:
    assert host.rotating_count(send_bytes, l2_bytes) == count


def test_l2_of_the_file_or_a_mebibyte(tmp_path: Path) -> None:
    file = tmp_path / "size"
    file.write_text("2048K\n")
    assert host.l2_bytes(str(file)) == 2 * 2**20
    file.write_text("odd\n")
    assert host.l2_bytes(str(file)) == host.l2_bytes(str(tmp_path / "none")) == 2**20


def test_rows_start_at_cache_lines_and_the_pool_grows() -> None:
    pool = host.Pool()
    rows = pool.rows("send", 3, 5, np.dtype(np.float32))
    assert rows.shape == (3, 5)
    assert [row.ctypes.data % 64 for row in rows] == [0, 0, 0]
    assert pool.rows("send", 2, 7, np.dtype(np.float16)).base is not None
    assert pool.rows("send", 3, 5000, np.dtype(np.float32)).shape == (3, 5000)
    assert pool.rows("none", 4, 0, np.dtype(np.float32)).shape == (4, 0)


def test_a_gather_reads_ten_rows_a_row_sent_and_at_most_twice_the_l2() -> None:
    clear = host.CacheClearer(2**20)
    assert clear._table.nbytes == 8 * 2**20
    assert len(set(clear._ids.tolist())) == len(clear._ids)
    clear.gather(2560)()
    assert int(clear._out[:, 0].sum()) == 100  # 25 600 B in rows of 256 B
    clear.gather(2**20)()
    assert int(clear._out[:, 0].sum()) == 2 * 2**20 // 256


class Alone(host.HostCollectives):
    """Ranks 0 and 1 of an all-to-all in one process: the peer's part is made here."""

    name = "alone"
    faulty = False

    def _call(self, one: patterns.Layout, variant: str, group: Any) -> host.Call:
        self.sent: list[int] = []

        def call(send: Any, recv: Any) -> None:
            row = self.made._row
            peer = patterns.layout("all_to_all", one.payload_bytes, 2, 1, variant=variant)
            other = np.empty(peer.send_elements, np.float32)
            patterns.fill(other, patterns.send_pieces(peer, self.made._salt), row)
            recv[: one.recv_counts[0]] = send[: one.send_counts[0]]
            recv[one.recv_counts[0] :] = other[: one.recv_counts[1]]
            self.sent.append(row)
            if self.faulty:
                recv[3] += 1

        return call


def alone(**more: Any) -> Alone:
    provider = Alone()
    provider._groups[0, 1] = object()
    provider.made = provider.operation(point("all_to_all", 4096, **more), [0, 1])
    return provider


def test_send_buffers_rotate_and_old_results_do_not_pass() -> None:
    provider = alone()
    provider.made.prepare(7)
    assert (provider.made._recv == patterns.POISON).all()
    for _ in range(3):
        provider.made.before()
        provider.made.run()
    assert provider.sent == [1, 2, 3]
    assert provider.made.check() == (0, 2048)
    provider.made.before()  # a call that brings nothing leaves the old result
    assert provider.made.check()[0] > 1000


def test_back_to_back_calls_use_one_buffer() -> None:
    provider = alone(clock=Clock.STREAM)
    provider.made.prepare(7)
    for _ in range(3):
        provider.made.run()
    assert provider.sent == [0, 0, 0]
    assert provider.made.check() == (0, 2048)


def test_one_wrong_element_is_counted() -> None:
    provider = alone()
    provider.made.prepare(1)
    provider.faulty = True
    provider.made.run()
    assert provider.made.check() == (1, 2048)


def test_a_send_buffer_that_was_written_to_is_wrong() -> None:
    provider = alone()
    provider.made.prepare(1)
    provider.made.run()
    provider.made._rows[0, 5] = -3
    assert provider.made.check()[0] == 1


def test_after_a_kernel_the_caches_are_cleared_before_each_call() -> None:
    provider = alone(variant="after_kernel")
    provider.made.prepare(1)
    provider._clear._out[...] = 0
    provider.made.before()
    assert int(provider._clear._out[:, 0].sum()) == 160  # ten times 4096 B in rows of 256 B


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (point("all_to_all", 4), "smallest size is 8 B"),
        (point("all_to_all", 64, clock=Clock.GRAPH), "no clock graph"),
        (Point(kind=Kind.KERNEL, operation="copy", clock=Clock.EAGER, gpus=2, gpus_per_node=2), "times coll"),
    ],
)
def test_what_a_cpu_library_cannot_do_is_refused(asked: Point, words: str) -> None:
    provider = Alone()
    provider._groups[0, 1] = object()
    with pytest.raises(BadInputError, match=words):
        provider.operation(asked, [0, 1])


def test_a_group_that_nobody_opened_is_refused() -> None:
    with pytest.raises(BadInputError, match="no group of ranks"):
        Alone().operation(point("all_to_all", 64), [0, 1])


def test_gpu_libraries_refuse_less_than_16_bytes_a_peer() -> None:
    provider = nccl.Nccl()
    with pytest.raises(BadInputError, match="the smallest size is 128 B") as caught:
        provider.operation(point("all_to_all", 127, 8), range(8))
    assert "16 bytes" in str(caught.value)
    with pytest.raises(BadInputError, match="after_kernel"):
        provider.operation(point("all_to_all", 128, 8, variant="after_kernel"), range(8))
    with pytest.raises(BadInputError, match="has no reduce_scatter"):
        symmetric_memory.SymmetricMemory().operation(point("reduce_scatter", 128), [0, 1])


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

    made = device.DeviceOperation(one, add, torch.empty(99), torch.empty(99), in_place=True)
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


def test_an_arena_that_is_too_small_is_refused() -> None:
    arena = device.Arena(lambda size: torch.zeros(size, dtype=torch.uint8), 4096)
    send, recv = arena.views(patterns.layout("all_to_all", 4096, 2, 0), torch.float32)
    assert send.numel() == recv.numel() == 1024
    with pytest.raises(BadInputError, match="4096 B are there"):
        arena.views(patterns.layout("all_to_all", 8192, 2, 0), torch.float32)


class World:
    """GPU ranks in one process: CPU memory for each, and NVSHMEM's calls on it, as documented."""

    def __init__(self, ranks: int, size: int) -> None:
        self.ranks = ranks
        self.arenas = [device.Arena(lambda n: torch.zeros(n, dtype=torch.uint8), size) for _ in range(ranks)]
        self.calls: list[tuple[Any, ...]] = []
        self.me = 0

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.calls.append((name, *arguments))

    def putmem_on_stream(self, into: int, source: int, count: int, rank: int, stream: int) -> None:
        offset = into - self.arenas[self.me].recv.data_ptr()
        ctypes.memmove(self.arenas[rank].recv.data_ptr() + offset, source, count)

    def barrier_on_stream(self, team: Any, stream: int) -> None:
        self.calls.append(("barrier", team, stream))


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvshmem, "_stream", lambda: 77)


def pe(world: World, rank: int, group: Sequence[int]) -> nvshmem.Nvshmem:
    provider = nvshmem.Nvshmem()
    provider._bindings, provider._arena, provider._rank = world, world.arenas[rank], rank
    provider._groups[tuple(group)] = 5
    return provider


@pytest.mark.usefixtures("stream")
@pytest.mark.parametrize("group", [[0, 1, 2], [0, 2], [1, 2]])
def test_nvshmem_puts_bring_the_uneven_all_to_all(group: list[int]) -> None:
    world = World(3, 65_536)
    made = {
        rank: pe(world, rank, group).operation(point("all_to_all", 6000, len(group), variant="uneven"), group)
        for rank in group
    }
    for one in made.values():
        one.prepare(4)
    for rank, one in made.items():
        world.me = rank
        one.run()
    assert [one.check()[0] for one in made.values()] == [0] * len(group)
    assert world.calls == [("barrier", 5, 77)] * len(group)


@pytest.mark.usefixtures("stream")
def test_nvshmem_collectives_are_told_what_they_count() -> None:
    world = World(4, 65_536)
    told = {}
    for operation in COLLECTIVES:
        made = pe(world, 1, range(4)).operation(point(operation, 4096, 4, dtype="fp16"), range(4))
        made.prepare(1)
        made.run()
        told[operation] = world.calls.pop()
    recv, send = world.arenas[1].recv.data_ptr(), world.arenas[1].send.data_ptr()
    # 4096 B are 2048 elements, 512 a peer
    assert told == {
        "all_to_all": ("half_alltoall_on_stream", 5, recv, send, 512, 77),
        "reduce_scatter": ("half_sum_reducescatter_on_stream", 5, recv, send, 512, 77),
        "all_gather": ("half_fcollect_on_stream", 5, recv, send, 512, 77),
        "all_reduce": ("half_sum_reduce_on_stream", 5, recv, send, 2048, 77),
        "broadcast": ("half_broadcast_on_stream", 5, recv, send, 2048, 0, 77),
    }


@pytest.mark.parametrize(
    ("ranks", "distance"), [([0, 1, 2], 1), ([1, 9, 17], 8), ([0, 1, 8, 9], 0), ([2, 1], 0), ([4], 1)]
)
def test_teams_are_equally_spaced(ranks: list[int], distance: int) -> None:
    assert nvshmem.strided(ranks) == distance
    if not distance:
        with pytest.raises(BadInputError, match="equally far apart"):
            nvshmem.Nvshmem().barrier(ranks)


class Handle:
    """The symmetric memory of a group, in CPU tensors."""

    def __init__(self, buffers: Sequence[Any]) -> None:
        self.buffers = buffers
        self.barriers = 0

    def get_buffer(self, rank: int, sizes: Sequence[int], dtype: Any, storage_offset: int) -> Any:
        return self.buffers[rank].view(dtype)[storage_offset : storage_offset + sizes[0]]

    def barrier(self, channel: int = 0) -> None:
        self.barriers += 1


@pytest.mark.parametrize(
    ("operation", "variant"),
    [("all_to_all", "default"), ("all_to_all", "uneven"), ("all_gather", "default")],
)
def test_symmetric_memory_copies_land_where_they_must(operation: str, variant: str) -> None:
    world = World(3, 65_536)
    handle = Handle([arena.recv for arena in world.arenas])
    made = []
    for rank in range(3):
        provider = symmetric_memory.SymmetricMemory()
        provider._arena, provider._rank = world.arenas[rank], rank
        provider._groups[0, 1, 2] = ("group", None, handle)
        made.append(provider.operation(point(operation, 6000, 3, variant=variant), [0, 1, 2]))
    for one in made:
        one.prepare(4)
    for one in made:
        one.run()
    assert [one.check()[0] for one in made] == [0, 0, 0]
    assert handle.barriers == 3


def test_symmetric_memory_reduces_in_one_shot_or_two() -> None:
    provider = symmetric_memory.SymmetricMemory()
    provider._arena = device.Arena(lambda n: torch.zeros(n, dtype=torch.uint8), 2**20)
    provider._groups[0, 1] = ("group", None, None)
    small = provider.operation(point("all_reduce", symmetric_memory.ONE_SHOT_BYTES), [0, 1])
    large = provider.operation(point("all_reduce", symmetric_memory.ONE_SHOT_BYTES + 16), [0, 1])
    assert (small._in_place, large._in_place) == (False, True)
    with pytest.raises(BadInputError, match="fp32 only"):
        provider.operation(point("all_reduce", 4096, dtype="fp16"), [0, 1])


def test_torch_calls_name_the_global_root_and_neighbours() -> None:
    seen: list[Any] = []
    dist = SimpleNamespace(
        broadcast=lambda tensor, source, group: seen.append((tensor, source, group)),
        P2POp=lambda kind, tensor, peer, group: (kind, tensor, peer, group),
        batch_isend_irecv=lambda both: seen.append(both) or [],
        isend="isend",
        irecv="irecv",
        reduce_scatter_tensor=None,
        all_gather_into_tensor=None,
    )
    last = patterns.layout("broadcast", 64, 3, 2)
    torch_world.calls(dist, last, "default", "group", [4, 6, 8])("send", "recv")
    ring = patterns.layout("sendrecv", 64, 3, 2)
    torch_world.calls(dist, ring, "default", "group", [4, 6, 8])("send", "recv")
    assert seen == [
        ("recv", 4, "group"),
        [("isend", "send", 4, "group"), ("irecv", "recv", 6, "group")],
    ]


def test_a_heap_that_is_full_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(heap, "FOLDER", tmp_path)
    alone = heap.SymmetricHeap("run/../x", [3], 0)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(BadInputError, match="do not fit"):
        alone.zone(0, 0, heap.ZONE_BYTES, 1, np.dtype(np.int64))

    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(heap.os, "posix_fallocate", full)
    with pytest.raises(BadInputError, match="no room"):
        alone.zone(0, 0, 0, 1, np.dtype(np.int64))
    alone.close()


def test_a_member_that_does_not_come_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(heap, "FOLDER", tmp_path)
    with pytest.raises(NoHardwareError, match="rank 1 of the group"):
        heap.SymmetricHeap("run", [0, 1], 0, attach_s=0.05)
    assert list(tmp_path.iterdir()) == []


def test_operations_of_the_libraries() -> None:
    assert set(symmetric_memory.OPERATIONS) < set(SAMPLE_OPERATIONS)
    assert nvshmem.Nvshmem.operations == COLLECTIVES
