"""Estimated times of a call, a point and a plan, before any was timed.

They determine only the calls of the first visit, and the time that is announced for a plan.
"""

from __future__ import annotations

from collections.abc import Iterable

from calibrate.patterns import ELEMENT_BYTES
from calibrate.planning.measurement_plan import MeasurementPlan
from calibrate.running.stopping import choose_calls
from perfmodel.schema.runs import Point, PointKind

_FLOOR_S = {"cpu": 8e-6, "cuda": 15e-6}  # a call that moves nothing
_PEER_S = {"cpu": 3e-6, "cuda": 1e-6}  # added for each other rank of a collective
_BYTES_PER_S = {"cpu": 1.5e9, "cuda": 5e10}
_COMPOSED_FLOORS = 20  # a whole pass has the floors of so many calls
_OVERHEAD_S = dict.fromkeys(PointKind, 0.035) | {PointKind.COLLECTIVE: 0.008}  # of a visit
_CHECKED_BYTES_PER_S = {"cpu": 3e8, "cuda": 1e10}  # fill a buffer and check the result
PILOT_CALLS = 10
"""Most calls of the first, short visit of a point, which measures how long a call takes."""


def estimate_points_s(points: Iterable[Point], plan: MeasurementPlan) -> float:
    """Estimated time of a plan's points together [s].

    Each point is counted as one pilot visit and 1.5 times the least number of visits, with filling, warm-up,
    checking and writing. The times of calls are guesses (``guess_call_s``), at best within a factor of two. A
    noisy machine takes longer, at most ``plan.target.max_time_s`` per point.
    """
    device = plan.world.device
    visits = 1.5 * plan.target.min_visits
    total_s = 0.0
    for point in points:
        call_s = guess_call_s(point, device)
        overhead_s = _OVERHEAD_S[point.kind] + point.payload_bytes / _CHECKED_BYTES_PER_S[device]
        total_s += visits * call_s * choose_calls(plan.target, call_s) + (visits + 1) * overhead_s
    return total_s


def guess_call_s(point: Point, device: str) -> float:
    """Estimated time of one call [s], by a floor and bytes / rate; may be wrong by a factor of three."""
    peers = point.gpus - 1 if point.kind is PointKind.COLLECTIVE else 0
    floor_s = _FLOOR_S[device] + _PEER_S[device] * peers
    payload_bytes = float(point.payload_bytes)
    if point.kind in (PointKind.COMPOSED, PointKind.LOOKUP):
        floor_s *= _COMPOSED_FLOORS
        if (work := point.work) is not None:
            payload_bytes = work.batch * work.tables * work.dim * ELEMENT_BYTES * (work.pooling + point.gpus)
    return floor_s + payload_bytes / _BYTES_PER_S[device]
