"""A rank that finds nobody to tell it what to do."""

from __future__ import annotations

import os
import subprocess
import sys

from waiting import PATIENCE_S

PROGRAM = "from calibrate.ranks import rank; rank.LOCAL_JOIN_S = 0.5; rank.main()"


def test_a_rank_without_a_coordinator_gives_up() -> None:
    environment = {
        **os.environ,
        "PERFMODEL_TEAM_ADDRESS": "127.0.0.1:1",
        "PERFMODEL_TEAM_KEY": "00",
        "PERFMODEL_TEAM_RANK": "0",
    }
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode != 0
    assert "no coordinator on 127.0.0.1:1 within 0 s" in done.stderr
