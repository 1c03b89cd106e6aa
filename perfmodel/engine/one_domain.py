"""Collectives as if all GPUs were in one scale-up domain, as ``--scenario nvlink-everywhere`` assumes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from perfmodel.collectives.estimate import CollectiveEstimate
from perfmodel.collectives.library import Array, CollectiveTimes
from perfmodel.model.collectives import bus_factor
from perfmodel.model.recording import Number, equation
from perfmodel.schema.constants import ScenarioFile
from perfmodel.schema.evidence import Clock, Evidence


@equation
def beyond_one_domain(
    alpha: Number, G: Number, G0: Number, a: Number, S: Number, f: Number, k: Number, beta: Number
) -> Number:
    """Time of a collective on more GPUs than one scale-up domain has, as if all were in one domain.

        t = alpha + (G - G0) a + S f / (k beta)                                     [s]

    S       payload [bytes];  G  ranks [-];  G0  anchor_gpus, or the whole domain if that is smaller [-]
    alpha   measured floor at G0 ranks [s]
    a       extra_peer_s [s];  beta  bus_bytes_per_s [bytes/s]
    k       NVLink rate of a what-if over the machine's own [-], else 1
    f       ``collectives.bus_factor`` of G [-]
    Source: data/scenarios/nvlink-everywhere.toml
    Limits: G = G0, S -> 0 -> alpha;  S -> inf -> bus rate k beta
    """
    return alpha + (G - G0) * a + S * f / (k * beta)


@dataclass(frozen=True)
class OneDomain:
    """Times of collectives as if all GPUs were in one scale-up domain, from curves measured on a smaller
    domain.

    anchor  GPUs of the measured domain;  rate_ratio  NVLink rate of a what-if over the machine's own
    Limits: at most ``anchor`` GPUs -> the measured model;  more -> ``beyond_one_domain``
    """

    measured: CollectiveTimes
    assumed: ScenarioFile
    anchor: int
    rate_ratio: float = 1.0

    @property
    def clock(self) -> Clock:
        """Clock of the measured curves."""
        return self.measured.clock

    @property
    def calibration_id(self) -> str:
        """Name of the measured calibration with the scenario."""
        return f"{self.measured.calibration_id} + {self.assumed.name}"

    def empty_s(self, collective: str, gpus: Any) -> Array:
        """Measured launch floor of a collective [s]: its time with one byte per peer.

        gpus  ranks, at most the ranks of one domain
        """
        inside = np.minimum(np.asarray(gpus, dtype=np.float64), self.anchor)
        return np.asarray(self.measured.estimate(collective, inside, inside).time_s)

    def estimate(
        self, collective: str, payload_bytes: Any, gpus: Any, gpus_per_node: Any = None
    ) -> CollectiveEstimate:
        """As ``CollectiveModel.estimate``; ``gpus_per_node`` is ignored."""
        payload, ranks = np.broadcast_arrays(
            np.asarray(payload_bytes, dtype=np.float64), np.asarray(gpus, dtype=np.float64)
        )
        inside = np.minimum(ranks, self.anchor)
        near = self.measured.estimate(collective, payload, inside)
        beyond = ranks > self.anchor
        ends = self.empty_s(collective, inside), ranks, inside, self.assumed.value("extra_peer_s")
        factor, rate = bus_factor(collective, ranks), self.assumed.value("bus_bytes_per_s")
        floor = beyond_one_domain(*ends, 0.0, factor, self.rate_ratio, rate)
        far = beyond_one_domain(*ends, payload, factor, self.rate_ratio, rate)
        spread = 1 + self.assumed.value("relative_error")

        def pick(outside: Array, measured: Array) -> Array:
            return np.where(beyond, outside, measured)

        limit = np.where(beyond, len(near.limit_names), near.limit).astype(np.int8)
        evidence = np.where(beyond, Evidence.ASSUMED.rank, near.evidence).astype(np.int8)
        return CollectiveEstimate(
            time_s=pick(far, near.time_s),
            low_s=pick(far / spread, near.low_s),
            high_s=pick(far * spread, near.high_s),
            floor_s=pick(floor, near.floor_s),
            evidence=evidence,
            limit=limit,
            limit_names=(*near.limit_names, "one scale-up domain"),
            clock=near.clock,
        )
