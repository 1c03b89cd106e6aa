"""Libraries of collectives with real ranks: every operation, variant and size brings exactly what it must."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import forked_ranks
import pytest
from oracles import environment
from waiting import PATIENCE_S, until

from calibrate import providers
from calibrate.cuda import symmetric_heap

WORKER = Path(__file__).with_name("provider_ranks.py")


def free_port() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def needs(name: str) -> None:
    found = providers.availability(name)
    if not found.usable:
        pytest.skip(f"{name}: {found.why_not}")


def start(ranks: Sequence[int], task: str, run: str) -> list[subprocess.Popen[str]]:
    """So many of two ranks that map each other's memory, each a process of its own."""
    command = [sys.executable, str(WORKER), "2", "heap", free_port(), run, task]
    lines = [[*command, str(rank)] for rank in ranks]
    return [subprocess.Popen(one, env=environment(), stdout=subprocess.PIPE, text=True) for one in lines]


def answers(name: str, ranks: int, task: str) -> dict[int, dict[str, Any]]:
    """What each rank printed, by its number."""
    words = (name, free_port(), f"test{os.getpid()}{task}", task)
    codes, texts, complaints = forked_ranks.started(WORKER, ranks, *words)
    assert codes == [0] * ranks, complaints
    lines = [json.loads(line) for text in texts for line in text.splitlines() if line.startswith("{")]
    assert sorted(line["rank"] for line in lines) == list(range(ranks))
    return {line["rank"]: line for line in lines}


def segments() -> set[str]:
    folder = Path("/dev/shm")
    return {path.name for path in folder.glob("perfmodel-test*")} if folder.exists() else set()


def test_two_ranks() -> None:
    needs("gloo")
    for rank, answer in answers("gloo", 2, "all").items():
        timed = [one for one in answer["seen"] if "bytes_sent" in one]
        assert len(timed) == 5 * 6 * 2  # collectives x sizes x variants
        assert [one for one in answer["seen"] if one["wrong"]] == []
        assert [one for one in timed if one["spoilt"] != (1 if one["received"] else 0)] == []
        assert all(one["checked"] > 0 for one in timed)
        by_cell = {(one["operation"], one["variant"], one["payload_bytes"]): one for one in timed}
        assert by_cell["all_to_all", "default", 65_536]["bytes_sent"] == 32_768
        assert by_cell["reduce_scatter", "default", 65_536]["bytes_sent"] == 32_768
        assert by_cell["all_gather", "default", 65_536]["bytes_sent"] == 32_768
        assert by_cell["broadcast", "default", 65_536]["bytes_sent"] == (0 if rank else 65_536)
        assert by_cell["all_to_all", "default", 300_001]["used_bytes"] == 300_000
        assert set(answer["raw"].values()) == {0}


def test_groups_of_three_ranks() -> None:
    needs("gloo")
    for rank, answer in answers("gloo", 3, "groups").items():
        groups = answer["groups"]
        assert len(groups) == (2, 2, 3)[rank]
        assert "rising order" in answer["refused"]
        for group, seen in groups.items():
            assert [one for one in seen if one["wrong"]] == [], group
            assert sum(one["spoilt"] for one in seen) == sum(bool(one["received"]) for one in seen)


def test_nothing_is_left_of_killed_ranks() -> None:
    started = start([0, 1], "hang", f"test{os.getpid()}killed")
    try:
        for one in started:
            assert one.stdout is not None
            assert json.loads(one.stdout.readline())
        assert segments() == set()
    finally:
        for one in started:
            one.send_signal(signal.SIGKILL)
            one.wait(PATIENCE_S)
    assert segments() == set()


def test_what_a_rank_killed_alone_leaves_is_removed_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symmetric_heap, "_STALE_S", 0.0)
    (lonely,) = start([0], "hang", f"test{os.getpid()}lonely")
    try:
        until(lambda: any(Path("/dev/shm", name).stat().st_size for name in segments()))  # and locked
        symmetric_heap.remove_stale()
        assert len(segments()) == 1  # its owner lives and waits for the other rank
    finally:
        lonely.kill()
        lonely.wait(PATIENCE_S)
    symmetric_heap.remove_stale()
    assert segments() == set()
