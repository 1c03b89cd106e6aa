"""Four real ranks, started once for all tests that time on them: to import torch takes each seconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from waiting import gone

from calibrate.providers import describe
from calibrate.ranks.team import RankTeam, TeamRequest, open_team


@pytest.fixture(scope="session")
def require_gloo() -> None:
    offered = describe("gloo")
    if not offered.usable:
        pytest.skip(f"gloo: {offered.why_not}")


@pytest.fixture(scope="session")
def team(require_gloo: None, kernel_home: Path) -> Iterator[RankTeam]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERFMODEL_HOME", str(kernel_home))
        ranks = open_team(TeamRequest(4, "cpu", ("gloo",), oversubscribe=True), {})
        assert ranks is not None
        with closing(ranks):
            processes = [hello["pid"] for hello in ranks.hellos]
            yield ranks
    assert gone(processes)
