"""A rank whose provider misbehaves on purpose; started by test_team.py instead of ``calibrate.ranks.rank``.

The implementation of a point says what its operation does: ``sleep`` a millisecond, ``hold`` the
interpreter's lock in a C call for ever, ``fail`` on rank 1, ``refuse`` on rank 1 while it is built, ``die``
on rank 1.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Sequence
from typing import Any

from calibrate.operations import Availability, Operation
from calibrate.ranks import rank
from perfmodel.errors import BadInputError
from perfmodel.schema.runs import Point

NUMBER = int(os.environ.get("PERFMODEL_RANK", "0"))


class Misbehaving(Operation):
    bytes_sent = 0

    def __init__(self, what: str) -> None:
        self._what = what if NUMBER == 1 or what == "hold" else "sleep"

    def run(self) -> None:
        if self._what == "hold":
            ctypes.PyDLL(None).sleep(1000)
        if self._what == "fail":
            raise RuntimeError("a library gave up")
        if self._what == "die":
            print("out of luck", flush=True)
            os._exit(3)
        time.sleep(0.001)

    def check(self) -> tuple[int, int]:
        return 0, 8


class Provider:
    """Joins nothing, and waits for nobody."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.open = self.open_group = self.barrier = self.close = lambda *_: None

    def operation(self, point: Point, ranks: Sequence[int]) -> Any:
        if point.implementation == "refuse" and NUMBER == 1:
            raise BadInputError("rank 1 has no room.")
        return Misbehaving(point.implementation)


if __name__ == "__main__":
    rank.list_versions = lambda device: {"library": f"1.{NUMBER // 2}"}
    rank.main(
        Provider,
        lambda name: Availability(name != "absent", why_not="it is absent" if name == "absent" else ""),
    )
