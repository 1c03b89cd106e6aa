"""A coordinator for test_team_launchers.py: prints the ranks' process ids, then measures.

python team_caller.py BACKEND RANKS CALLS...     under a launcher, RANKS is what the launcher says
In the environment, TEAM_LATE_S: how long nobody is late;
TEAM_SAID: a file that is there as soon as somebody was said to be late.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from calibrate.ranks import control, external
from calibrate.ranks.start import open_team
from calibrate.ranks.team import TeamRequest
from perfmodel.schema.evidence import Clock
from perfmodel.schema.runs import Point, PointKind


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
    if said := os.environ.get("TEAM_SAID"):
        Path(said).touch()


def main() -> None:
    backend, ranks = sys.argv[1], int(sys.argv[2])
    request = TeamRequest(ranks=ranks, device="cpu", backends=(backend,))
    if late_s := os.environ.get("TEAM_LATE_S"):
        control.LATE_S = external.LATE_S = float(late_s)
    team = open_team(request, say=say)
    if team is None:
        return
    with team:
        ids = [peer.hello["pid"] for peer in team._coordinator.peers.values()]
        print(json.dumps({"pids": ids}), flush=True)
        point = Point(
            kind=PointKind.COLLECTIVE,
            operation="all_to_all",
            backend=backend,
            clock=Clock.EAGER,
            payload_bytes=65536,
            gpus=ranks,
            gpus_per_node=ranks,
        )
        for calls in map(int, sys.argv[3:]):
            times = team.visit(point, list(range(ranks)), calls, 0, 1, 100.0)
            seen = [[len(rank.starts_s), rank.wrong, rank.checked, rank.bytes_sent] for rank in times]
            print(json.dumps({"seen": seen, "hosts": len(team.world().hosts)}), flush=True)


if __name__ == "__main__":
    main()
