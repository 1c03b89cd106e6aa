"""Libraries of collectives with real ranks: every operation, variant and size brings exactly what it must."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import forked_ranks
import pytest

from calibrate import providers

WORKER = Path(__file__).with_name("provider_ranks.py")


def free_port() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def needs(name: str) -> None:
    found = providers.describe(name)
    if not found.usable:
        pytest.skip(f"{name}: {found.why_not}")


def answers(name: str, ranks: int, task: str) -> dict[int, dict[str, Any]]:
    """What each rank printed, by its number."""
    words = (name, free_port(), f"test{os.getpid()}{task}", task)
    codes, texts, complaints = forked_ranks.started(WORKER, ranks, *words)
    assert codes == [0] * ranks, complaints
    lines = [json.loads(line) for text in texts for line in text.splitlines() if line.startswith("{")]
    assert sorted(line["rank"] for line in lines) == list(range(ranks))
    return {line["rank"]: line for line in lines}


def test_two_ranks() -> None:
    needs("gloo")
    for rank, answer in answers("gloo", 2, "all").items():
        timed = [one for one in answer["seen"] if "bytes_sent" in one]
        assert len(timed) == 5 * 6  # collectives x sizes
        assert [one for one in answer["seen"] if one["wrong"]] == []
        assert [one for one in timed if one["spoilt"] != (1 if one["received"] else 0)] == []
        assert all(one["checked"] > 0 for one in timed)
        by_cell = {(one["operation"], one["payload_bytes"]): one for one in timed}
        assert by_cell["all_to_all", 65_536]["bytes_sent"] == 32_768
        assert by_cell["reduce_scatter", 65_536]["bytes_sent"] == 32_768
        assert by_cell["all_gather", 65_536]["bytes_sent"] == 32_768
        assert by_cell["broadcast", 65_536]["bytes_sent"] == (0 if rank else 65_536)
        assert by_cell["all_to_all", 300_001]["used_bytes"] == 300_000


def test_groups_of_three_ranks() -> None:
    needs("gloo")
    for rank, answer in answers("gloo", 3, "groups").items():
        groups = answer["groups"]
        assert len(groups) == (2, 2, 3)[rank]
        assert "rising order" in answer["refused"]
        for group, seen in groups.items():
            assert [one for one in seen if one["wrong"]] == [], group
            assert sum(one["spoilt"] for one in seen) == sum(bool(one["received"]) for one in seen)
