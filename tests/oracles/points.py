"""Points as tests time them: on ranks of one node, each call timed alone."""

from __future__ import annotations

from functools import partial
from typing import Any

from perfmodel.schema.evidence import Clock
from perfmodel.schema.runs import Point, PointKind


def make_point(kind: PointKind, operation: str, ranks: int = 2, **more: Any) -> Point:
    fields = {"clock": Clock.EAGER, "gpus": ranks, "gpus_per_node": ranks, **more}
    return Point(kind=kind, operation=operation, **fields)


make_collective = partial(make_point, PointKind.COLLECTIVE)
make_kernel = partial(make_point, PointKind.KERNEL)
make_pass = partial(make_point, PointKind.COMPOSED, "row_wise")
make_lookup = partial(make_point, PointKind.LOOKUP, "row_wise")
