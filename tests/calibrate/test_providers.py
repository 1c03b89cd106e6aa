"""Libraries of collectives: results on real ranks, buffers, checks, and what GPU libraries are told."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, call

import forked_ranks
import numpy as np
import pytest
from oracles import free_port
from oracles.points import make_collective, make_kernel

from calibrate import patterns, providers
from calibrate.cuda.cache import Kernel
from calibrate.cuda.kernel_launch import compute_carveout
from calibrate.providers import buffers, collective_calls, nvshmem, torch_world
from perfmodel.errors import BadInputError, NoHardwareError
from perfmodel.schema.evidence import COLLECTIVES, Clock
from perfmodel.schema.runs import Point

torch: Any = None
WORKER = Path(__file__).with_name("provider_ranks.py")


@pytest.fixture(scope="module", autouse=True)
def _torch() -> None:
    """Of several processes of tests, the one that runs these imports it, which takes longer than they do."""
    global torch
    torch = pytest.importorskip("torch")


@pytest.mark.usefixtures("require_gloo")
def test_three_ranks_in_three_groups() -> None:
    words = ("gloo", str(free_port()), f"test{os.getpid()}", "cpu")
    codes, texts, complaints = forked_ranks.started(WORKER, 3, *words)
    assert codes == [0] * 3, complaints
    answers = [json.loads(line) for text in texts for line in text.splitlines() if line.startswith("{")]
    for rank, answer in enumerate(sorted(answers, key=lambda answer: answer["rank"])):
        assert "rising order" in answer["refused"] and answer["interface"] == "lo"
        assert len(answer["seen"]) == (2, 2, 3)[rank]
        for seen in answer["seen"].values():
            assert len(seen) == 5 * 7  # collectives x (sizes, and one back to back)
            assert [visit for visit in seen if visit["wrong"] or visit["missed"]] == []
            assert all(visit["checked"] > 0 for visit in seen)
        if rank == 1:
            continue
        by_cell = {tuple(visit["cell"]): visit for visit in answer["seen"]["[0, 2]"]}
        for operation in ("all_to_all", "reduce_scatter", "all_gather"):
            assert by_cell[operation, "eager", 65_536]["bytes_sent"] == 32_768
        assert by_cell["broadcast", "eager", 65_536]["bytes_sent"] == (0 if rank else 65_536)
        assert by_cell["all_to_all", "eager", 300_001]["used_bytes"] == 300_000


def test_every_provider_says_whether_it_runs_here() -> None:
    for name in providers.PROVIDERS:
        offered = providers.describe(name)
        assert offered.usable or offered.why_not, name
        if name in providers.COLLECTIVE_PROVIDERS:
            assert providers.load(name).name == name
        if offered.usable:
            assert offered.clocks and offered.operations and offered.version
    with pytest.raises(BadInputError, match="unknown provider 'oneccl'"):
        providers.describe("oneccl")


def test_send_buffers_rotate_and_old_results_do_not_pass() -> None:
    """Rank 0 of an all-to-all: the part of rank 1 is made here, as the send buffer in use says."""
    mine, other = (patterns.layout("all_to_all", 4096, 2, rank) for rank in range(2))
    rows, received, sent = np.zeros((2, 1024), np.float32), np.zeros(1024, np.float32), list[int]()

    def call(send: Any, recv: Any) -> None:
        sent.append(operation._row)
        theirs = np.empty(1024, np.float32)
        patterns.fill(theirs, patterns.send_pieces(other, 7), sent[-1])
        recv[:512], recv[512:] = send[:512], torch.from_numpy(theirs[:512])

    operation = collective_calls.CollectiveOperation(mine, call, lambda: (rows, received))
    operation.prepare(7)
    assert (received == patterns.POISON).all()
    for _ in range(3):
        operation.before()
        operation.run()
    assert sent == [1, 0, 1] and operation.check() == (0, 2048)
    for buffer, place in ((received, 3), (rows[1], 5)):  # a result, and a send buffer that was written to
        buffer[place] += 1
        assert operation.check() == (1, 2048)
        buffer[place] -= 1
    operation.before()  # a call that brings nothing leaves the old result
    assert operation.check()[0] > 1000 and (received != patterns.POISON).all()
    operation = collective_calls.CollectiveOperation(mine, call, lambda: (rows[:1], received))
    operation.prepare(7)
    operation.run()
    operation.before()  # of one buffer the old result would pass
    assert (received == patterns.POISON).all()


@pytest.mark.parametrize(
    ("name", "point", "words"),
    [
        ("gloo", make_collective("all_to_all", payload_bytes=4), "smallest size is 8 B"),
        ("nccl", make_collective("all_to_all", payload_bytes=31), "16 B for every peer"),
        ("nccl", make_collective("all_to_all", payload_bytes=128), "no group of ranks"),
        ("gloo", make_kernel("copy"), "no copy"),
    ],
)
def test_what_a_library_cannot_do_is_refused(name: str, point: Point, words: str) -> None:
    provider: Any = providers.load(name)
    provider._rank = 0
    with pytest.raises(BadInputError, match=words):
        provider.operation(point, [0, 1])


def test_a_sum_in_place_is_checked_from_fresh_inputs() -> None:
    """64 B on two ranks, on buffers of a GPU that are this CPU's."""
    layouts = [patterns.layout("all_reduce", 64, 2, rank) for rank in range(2)]
    send, recv, calls = torch.empty(16), torch.empty(16), []

    def add(send: Any, recv: Any) -> None:
        other = torch.empty(16)
        patterns.fill(other, patterns.send_pieces(layouts[1], 3))
        recv += other
        calls.append(1)

    operation = collective_calls.CollectiveOperation(layouts[0], add, lambda: ([send], recv), in_place=True)
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
    provider._arena, provider._dist, provider._rank = None, torch.distributed, 0
    provider._groups[0, 1] = "group"
    sizes = (("all_reduce", 4096), ("all_to_all", 8192), ("all_gather", 8224))
    points = [make_collective(name, payload_bytes=size) for name, size in sizes]
    small, other, large = [provider.operation(point, [0, 1])._take() for point in points]
    assert small[0][0].data_ptr() == other[0][0].data_ptr() != large[0][0].data_ptr()
    assert small[1].data_ptr() == other[1].data_ptr() != small[0][0].data_ptr()
    assert [recv.numel() for _, recv in (small, other, large)] == [1024, 2048, 2056]


def test_single_calls_on_a_cpu_rotate_buffers_until_none_is_in_the_cache() -> None:
    """Four times 1 MiB, eight buffers, what fits 64 MiB, two; each on lines of the cache."""
    provider: Any = torch_world.Gloo()
    provider._dist, provider._l2, provider._rank, provider._groups[0, 1] = (
        torch.distributed,
        2**20,
        0,
        "group",
    )
    point, taken = make_collective("all_to_all", backend="gloo", payload_bytes=1000), []
    for size in (1000, 1000, 3 * 2**20, 2**24, 2**26):
        taken.append(provider.operation(point.model_copy(update={"payload_bytes": size}), [0, 1])._take()[0])
    taken.append(provider.operation(point.model_copy(update={"clock": Clock.STREAM}), [0, 1])._take()[0])
    assert [len(rows) for rows in taken] == [4195, 4195, 8, 4, 2, 1]
    assert taken[0].ctypes.data == taken[1].ctypes.data and taken[0].strides == (1024, 4)


def test_buffers_of_an_arena_are_a_part_of_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = SimpleNamespace(total_memory=0, shared_memory_per_multiprocessor=100 * 1024)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda place: gpu)
    for gpu.total_memory, each in ((80 * 2**30, 5 * 2**30), (141 * 10**9, 2**33), (16 * 4096 + 16, 4096)):
        assert buffers.compute_arena_bytes() == each
        assert nvshmem.compute_heap_bytes() == 2 * each + 2**30
    kernels = [Kernel("x.cu", "x", shared_bytes) for shared_bytes in (1024, 1025, 2**20)]
    assert [compute_carveout(kernel, torch.device("cuda", 0)) for kernel in kernels] == [1, 2, 100]


def test_ranks_share_a_gpu_from_nccl_2_30_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(torch_world.SHARE_VARIABLE, "0")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    addresses = {"gpus": "2"}, {}
    assert [collective_calls.count_shared_gpus(5, address) for address in addresses] == [2, 4]
    assert [collective_calls.count_shared_gpus(2, address) for address in addresses] == [0, 0]
    with pytest.raises(NoHardwareError, match=r"2 ranks share 1 GPU, and NCCL 2.29.7 cannot"):
        torch_world.share_gpu((2, 29, 7), 2, 1)
    assert os.environ[torch_world.SHARE_VARIABLE] == "0"
    torch_world.share_gpu((2, 30, 1), 2, 1)
    assert os.environ[torch_world.SHARE_VARIABLE] == "1"


def test_nvshmem_is_told_what_it_counts_and_which_ranks_are_a_team(monkeypatch: pytest.MonkeyPatch) -> None:
    """4096 B are 1024 elements, 256 a peer. Ranks of a team are equally far apart."""
    monkeypatch.setattr(nvshmem, "_get_stream", lambda: 77)
    arena = buffers.Arena(lambda n: torch.zeros(n, dtype=torch.uint8), 65_536)
    provider, calls = nvshmem.Nvshmem(), {}
    provider._bindings, provider._core, provider._arena, provider._rank = Mock(), Mock(), arena, 1
    provider._groups[tuple(range(4))] = 5
    for name in COLLECTIVES:
        operation = provider.operation(make_collective(name, 4, payload_bytes=4096), range(4))
        operation.prepare(1)
        operation.run()
        calls[name] = provider._bindings.method_calls[-1]
    recv, send = arena.recv.data_ptr(), arena.send.data_ptr()
    assert calls == {
        "all_to_all": call.float_alltoall_on_stream(5, recv, send, 256, 77),
        "reduce_scatter": call.float_sum_reducescatter_on_stream(5, recv, send, 256, 77),
        "all_gather": call.float_fcollect_on_stream(5, recv, send, 256, 77),
        "all_reduce": call.float_sum_reduce_on_stream(5, recv, send, 1024, 77),
        "broadcast": call.float_broadcast_on_stream(5, recv, send, 1024, 0, 77),
    }
    with pytest.raises(BadInputError, match="equally far apart"):
        provider.operation(make_collective("all_gather", 3, payload_bytes=4096), [0, 1, 3])
    for ranks in ([1, 3, 5], [1, 3, 5], [0, 1, 3], [0, 2]):
        provider.open_group(ranks)
    splits = provider._core.team_split_strided.call_args_list
    assert [split.args[1:4] for split in splits] == [(1, 2, 3), (0, 2, 2)]
    assert list(provider._groups) == [(0, 1, 2, 3), (1, 3, 5)]
