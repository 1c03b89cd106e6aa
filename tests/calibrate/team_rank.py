"""A rank whose providers misbehave on purpose; started by test_team.py instead of ``calibrate.ranks.rank``.

The implementation of a point says what its operation does: ``sleep`` a millisecond, ``hold`` the
interpreter's lock in a C call for ever, ``fail`` on rank 1, ``refuse`` on rank 1 while it is built, ``die``
on rank 1.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Mapping, Sequence

from calibrate.operations import Availability, Place
from calibrate.ranks import rank
from perfmodel.errors import BadInputError
from perfmodel.schema.runs import Point


class Operation:
    bytes_sent = 0

    def __init__(self, what: str, number: int) -> None:
        self._what = what if number == 1 or what in ("sleep", "hold") else "sleep"

    def prepare(self, salt: int) -> None:
        self._salt = salt

    def before(self) -> None:
        pass

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
        return 0, self._salt

    def steps_s(self) -> Mapping[str, float]:
        return {}


class Provider:
    def __init__(self, name: str) -> None:
        self.name = name

    def open(self, place: Place, address: Mapping[str, str]) -> None:
        self._place = place

    def open_group(self, ranks: Sequence[int]) -> None:
        pass

    def operation(self, point: Point, ranks: Sequence[int]) -> Operation:
        if point.implementation == "refuse" and self._place.rank == 1:
            raise BadInputError("rank 1 has no room.")
        return Operation(point.implementation, self._place.rank)

    def barrier(self, ranks: Sequence[int]) -> None:
        pass

    def close(self) -> None:
        pass


if __name__ == "__main__":
    rank.list_versions = lambda device: {"library": f"1.{int(os.environ['PERFMODEL_RANK']) // 2}"}
    rank.main(
        Provider,
        lambda name: Availability(name != "absent", why_not="it is absent" if name == "absent" else ""),
    )
