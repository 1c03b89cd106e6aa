"""A fake library whose collectives are a plain alpha and beta, for projections that divide by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from perfmodel.answer import project_one
from perfmodel.collectives.estimate import Libraries
from perfmodel.collectives.timings import Timing
from perfmodel.engine.settings import Setting
from perfmodel.schema.evidence import Clock, Evidence
from perfmodel.schema.machine import Machine, load_machine
from perfmodel.schema.priors import load_kernel_constants


@dataclass(frozen=True)
class AlphaBeta:
    """t = alpha + S (G-1)/G / beta for every collective; nothing on one GPU; 30 % either way."""

    alpha: float = 10e-6
    beta: float = 100e9
    evidence: Evidence = Evidence.EXTRAPOLATED
    clock: Clock = Clock.STREAM
    calibration_id: str = "fake"

    def estimate(self, collective: str, payload: Any, gpus: Any, gpus_per_node: Any = None) -> Timing:
        payload, gpus = np.broadcast_arrays(np.asarray(payload, float), np.asarray(gpus, float))
        floor = np.where(gpus > 1, self.alpha, 0.0)
        time = floor + payload * (gpus - 1) / gpus / self.beta
        rank = np.full(time.shape, self.evidence.rank, dtype=np.int8)
        zero = np.zeros(time.shape, dtype=np.int8)
        return Timing(time, time / 1.3, time * 1.3, floor, rank, zero, ("the fabric",), zero, ("fake",))


def round_machine() -> Machine:
    """h100-sxm-ib with 80 GB of memory, which 10 TB divide."""
    return load_machine("h100-sxm-ib").with_overrides({"hbm_bytes": 80e9})


def setting(times: Any = None, machine: Machine | None = None, backend: str = "nccl") -> Setting:
    links = times if isinstance(times, Libraries) else Libraries({backend: times or AlphaBeta()})
    return Setting(machine or round_machine(), links, load_kernel_constants(), backend)


def one(times: Any = None, machine: Machine | None = None, backend: str = "nccl", **values: Any) -> Any:
    chosen = setting(times, machine, backend)
    return project_one(None, chosen.machine, setting=chosen, **{"reserve": 0, **values})
