"""A rank that finds nobody to tell it what to do."""

from __future__ import annotations

import os
import subprocess
import time

import pytest

from calibrate.ranks import start


def test_a_rank_without_a_coordinator_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {
        **os.environ,
        "PERFMODEL_TEAM_ADDRESS": "127.0.0.1:1",
        "PERFMODEL_TEAM_KEY": "00",
        "PERFMODEL_TEAM_RANK": "0",
    }
    began = time.monotonic()
    done = subprocess.run(start.RANK_PROGRAM, env=environment, capture_output=True, text=True, timeout=30)
    assert done.returncode != 0
    assert "no coordinator on 127.0.0.1:1" in done.stderr
    assert time.monotonic() - began < 15
