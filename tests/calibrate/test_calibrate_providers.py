"""Providers without their libraries: names, sizes, buffers, and what GPU libraries are told."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrate import patterns, providers
from calibrate.operations import RawCollectives
from calibrate.providers import device_collectives, gloo, host_collectives
from perfmodel.errors import BadInputError
from perfmodel.schema.evidence import Clock
from perfmodel.schema.runs import Point, PointKind


@pytest.fixture(scope="module", autouse=True)
def _torch() -> None:
    """Of several processes of tests, the one that runs these imports it, which takes longer than they do."""
    pytest.importorskip("torch")


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
        found = providers.availability(name)
        assert found.usable or found.why_not, name
        if name in providers.COLLECTIVE_PROVIDERS:
            assert providers.load(name).name == name
        if found.usable:
            assert found.clocks and found.operations and found.version
    with pytest.raises(BadInputError, match="unknown provider 'oneccl'"):
        providers.availability("oneccl")


def test_a_library_without_its_call_is_no_provider() -> None:
    with pytest.raises(TypeError, match="abstract"):
        device_collectives.DeviceCollectives()


@pytest.mark.parametrize("name", ["gloo", "nccl"])
@pytest.mark.parametrize("call", ["raw_all_to_all", "raw_reduce_scatter"])
def test_passes_call_every_library_alike(name: str, call: str) -> None:
    made = type(providers.load(name))
    assert getattr(made, call) is not getattr(RawCollectives, call)  # more than the description
    assert inspect.signature(getattr(made, call)) == inspect.signature(getattr(RawCollectives, call))


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
    assert host_collectives.rotating_count(send_bytes, l2_bytes) == count


def test_l2_of_the_file_or_a_mebibyte(tmp_path: Path) -> None:
    file = tmp_path / "size"
    file.write_text("2048K\n")
    assert host_collectives.l2_bytes(str(file)) == 2 * 2**20
    file.write_text("odd\n")
    assert host_collectives.l2_bytes(str(file)) == host_collectives.l2_bytes(str(tmp_path / "none")) == 2**20


def test_rows_start_at_cache_lines_and_the_pool_grows() -> None:
    pool = host_collectives.Pool()
    rows = pool.rows("send", 3, 5)
    assert rows.shape == (3, 5)
    assert [row.ctypes.data % 64 for row in rows] == [0, 0, 0]
    assert pool.rows("send", 2, 7).base is not None
    assert pool.rows("send", 3, 5000).shape == (3, 5000)
    assert pool.rows("none", 4, 0).shape == (4, 0)


def test_a_gather_reads_ten_rows_a_row_sent_and_at_most_twice_the_l2() -> None:
    clear = host_collectives.CacheClearer(2**20)
    assert clear._table.nbytes == 8 * 2**20
    assert len(set(clear._ids.tolist())) == len(clear._ids)
    clear.gather(2560)()
    assert int(clear._out[:, 0].sum()) == 100  # 25 600 B in rows of 256 B
    clear.gather(2**20)()
    assert int(clear._out[:, 0].sum()) == 2 * 2**20 // 256


class Alone(gloo.Gloo):
    """Ranks 0 and 1 of an all-to-all in one process: the peer's part is made here."""

    faulty = False
    _dist = None

    def calls(self, layout: patterns.BufferLayout) -> host_collectives.Call:
        self.sent: list[int] = []

        def call(send: Any, recv: Any) -> None:
            row = self.made._row
            peer = patterns.layout("all_to_all", layout.payload_bytes, 2, 1)
            other = np.empty(peer.send_elements, np.float32)
            patterns.fill(other, patterns.send_pieces(peer, self.made._salt), row)
            recv[: layout.block], recv[layout.block :] = send[: layout.block], other[: layout.block]
            self.sent.append(row)
            if self.faulty:
                recv[3] += 1

        return call


def alone(monkeypatch: pytest.MonkeyPatch, **more: Any) -> Alone:
    provider = Alone()
    calls = lambda dist, layout, group: provider.calls(layout)  # noqa: E731
    monkeypatch.setattr(gloo.torch_world, "calls", calls)
    monkeypatch.setattr(gloo.torch_world, "tensor_of", lambda array: array)
    provider._groups[0, 1] = object()
    provider.made = provider.operation(point("all_to_all", 4096, **more), [0, 1])
    return provider


def test_send_buffers_rotate_and_old_results_do_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = alone(monkeypatch)
    provider.made.prepare(7)
    assert (provider.made._recv == patterns.POISON).all()
    for _ in range(3):
        provider.made.before()
        provider.made.run()
    assert provider.sent == [1, 2, 3]
    assert provider.made.check() == (0, 2048)
    provider.made.before()  # a call that brings nothing leaves the old result
    assert provider.made.check()[0] > 1000


def test_back_to_back_calls_use_one_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = alone(monkeypatch, clock=Clock.STREAM)
    provider.made.prepare(7)
    for _ in range(3):
        provider.made.run()
    assert provider.sent == [0, 0, 0]
    assert provider.made.check() == (0, 2048)


def test_one_wrong_element_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = alone(monkeypatch)
    provider.made.prepare(1)
    provider.faulty = True
    provider.made.run()
    assert provider.made.check() == (1, 2048)


def test_a_send_buffer_that_was_written_to_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = alone(monkeypatch)
    provider.made.prepare(1)
    provider.made.run()
    provider.made._rows[0, 5] = -3
    assert provider.made.check()[0] == 1


def test_after_a_kernel_the_caches_are_cleared_before_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = alone(monkeypatch, variant="after_kernel")
    provider.made.prepare(1)
    provider._clear._out[...] = 0
    provider.made.before()
    assert int(provider._clear._out[:, 0].sum()) == 160  # ten times 4096 B in rows of 256 B


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (point("all_to_all", 4), "smallest size is 8 B"),
        (point("all_to_all", 64, clock=Clock.GRAPH), "no clock graph"),
        (
            Point(kind=PointKind.KERNEL, operation="copy", clock=Clock.EAGER, gpus=2, gpus_per_node=2),
            "times coll",
        ),
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
