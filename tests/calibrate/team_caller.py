"""A coordinator of two ranks that a launcher started: prints their process ids, then measures.

python team_caller.py CALLS...
In the environment, TEAM_DEADLINE_S: seconds that a visit may take.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import closing

from oracles.points import make_collective

from calibrate.ranks.team import TeamRequest, open_team


def main() -> None:
    deadline_s = float(os.environ.get("TEAM_DEADLINE_S", "100"))
    team = open_team(TeamRequest(2, "cpu", ("gloo",)), os.environ)
    if team is None:
        return
    with closing(team):
        print(json.dumps({"pids": [hello["pid"] for hello in team.hellos]}), flush=True)
        point = make_collective("all_to_all", backend="gloo", payload_bytes=65536)
        for calls in map(int, sys.argv[1:]):
            times = team.visit(point, [0, 1], calls, 1, deadline_s)
            seen = [[len(rank.starts_s), rank.wrong, rank.checked, rank.bytes_sent] for rank in times]
            print(json.dumps({"seen": seen, "hosts": len(team.world().hosts)}), flush=True)


if __name__ == "__main__":
    main()
