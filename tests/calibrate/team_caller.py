"""A coordinator for test_team_launchers.py: prints the ranks' process ids, then measures.

python team_caller.py BACKEND RANKS CALLS...     under a launcher, RANKS is what the launcher says
In the environment, TEAM_DEADLINE_S: seconds that a visit may take.
"""

from __future__ import annotations

import json
import os
import sys

from calibrate.ranks.team import TeamRequest, open_team
from perfmodel.schema.evidence import Clock
from perfmodel.schema.runs import Point, PointKind


def main() -> None:
    backend, ranks = sys.argv[1], int(sys.argv[2])
    deadline_s = float(os.environ.get("TEAM_DEADLINE_S", "100"))
    request = TeamRequest(ranks=ranks, device="cpu", backends=(backend,))
    team = open_team(request, os.environ)
    if team is None:
        return
    with team:
        print(json.dumps({"pids": [hello["pid"] for hello in team.hellos]}), flush=True)
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
            times = team.visit(point, list(range(ranks)), calls, 0, 1, deadline_s)
            seen = [[len(rank.starts_s), rank.wrong, rank.checked, rank.bytes_sent] for rank in times]
            print(json.dumps({"seen": seen, "hosts": len(team.world().hosts)}), flush=True)


if __name__ == "__main__":
    main()
