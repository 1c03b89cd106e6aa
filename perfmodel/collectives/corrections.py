"""The law's error where this very cluster was measured, at each size, for other numbers of its ranks.

A *cell* is the measured curve of one collective on one group of ranks (``schema.calibration.Curve``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfmodel.collectives.calibrated import Calibrated
from perfmodel.collectives.grid import GRID_BYTES, GRID_LOG2, PER_OCTAVE
from perfmodel.model.unknowns import Group
from perfmodel.schema.calibration import Calibration, Curve
from perfmodel.schema.priors import load_priors

Floats = npt.NDArray[np.float64]

_SLACK = 1 / PER_OCTAVE


@dataclass(frozen=True)
class Correction:
    """Correction of the law for one group of ranks by cells measured on other groups, on the grid of sizes.

    log_residual  ln(measured time / law's time), averaged over an octave, faded to 0 off the measured sizes
    weight        1 at a measured size, falling to 0 away from it
    cells, taken  the measured cells; index of the cell that is used at each size
    nearest       index of the nearest measured size, on the grid
    sizes_log2, log_measured, log_law  on the grid: log2 of the cell's size, ln of its time and of the law's
                                       [s]
    """

    log_residual: Floats
    weight: Floats
    cells: tuple[Curve, ...]
    taken: npt.NDArray[np.int64]
    nearest: npt.NDArray[np.int64]
    sizes_log2: Floats
    log_measured: Floats
    log_law: Floats

    def at(self, payload_bytes: float) -> tuple[Curve, float, dict[str, float]]:
        """(cell, its size [bytes], letters of ``correction``) for a payload, at the nearest grid point."""
        point = int(np.clip(round(np.log2(payload_bytes) * PER_OCTAVE), 0, GRID_LOG2.size - 1))
        near = int(self.nearest[point])
        letters = {"res": self.log_residual[point]}
        letters |= {"t_near": np.exp(self.log_measured[near]), "law_near": np.exp(self.log_law[near])}
        letters["fade"] = self.weight[point]
        return self.cells[int(self.taken[near])], float(np.exp2(self.sizes_log2[near])), letters


def nearest_cells(calibration: Calibration, collective: str, group: Group) -> list[Curve]:
    """Measured cells that can correct a group's time, nearest number of GPUs first.

    They have as many GPUs per domain as the group, and several domains if the group has several.
    """
    several = group.domains > 1
    cells = [
        c for c in calibration.curves if c.collective == collective and (c.gpus > c.domain_gpus) == several
    ]

    def apart(c: Curve) -> tuple[float, float]:
        in_domain = abs(np.log2(min(c.domain_gpus, c.gpus) / group.domain_gpus)) if several else 0.0
        return in_domain, abs(np.log2(c.gpus / group.gpus))

    return sorted(cells, key=apart)


def correction(
    own: Calibrated, cells: Sequence[Curve], group: Group, law: Callable[[Group], Floats]
) -> Correction:
    """Residual of the law against measured cells, carried over to another group of ranks.

        corr = e^res,   res = mean of fade ln(t_near / law_near)            [-]

    corr      factor on the law's time [-]
    res       residual of the measured cells, averaged over about an octave of sizes [-]
    t_near    measured time of the nearest cell at this size, or at the nearest size that it has [s]
    law_near  the law's time of that cell at that size [s]
    fade      e^(-octaves to the measured sizes / fading_octaves) [-]
    Each size uses the nearest of the ``cells`` that was measured there.
    The residual is averaged because single points scatter. Beyond the measured sizes it fades to 0.
    Source: docs/model.md#how-a-time-is-found
    """
    empty = np.full(GRID_BYTES.size, np.nan)
    sizes_log2, log_measured, log_law = empty.copy(), empty.copy(), empty.copy()
    taken = np.full(GRID_BYTES.size, -1)
    for index, cell in enumerate(cells):
        at = GRID_LOG2 - same_step_shift(cell.collective, cell.gpus, group.gpus)
        ends = np.log2([cell.anchor_bytes[0], cell.anchor_bytes[-1]])
        free = (taken < 0) & (at >= ends[0] - _SLACK) & (at <= ends[1] + _SLACK)
        if not free.any():
            continue
        taken[free], sizes_log2[free] = index, np.clip(at[free], *ends)
        measured, by_law = np.log(own.cell_time(cell)), law(Group.of(cell.gpus, cell.domain_gpus))
        log_measured[free] = np.interp(sizes_log2[free], GRID_LOG2, measured)
        log_law[free] = np.interp(sizes_log2[free], GRID_LOG2, by_law)
    there = np.flatnonzero(taken >= 0)
    near = there[np.argmin(np.abs(np.arange(taken.size)[:, None] - there[None, :]), axis=1)]
    octaves = np.abs(GRID_LOG2 - GRID_LOG2[near])
    weight = np.exp(-octaves / load_priors().shape.fading_octaves)
    residual = smoothed((log_measured - log_law)[near] * weight)
    return Correction(residual, weight, tuple(cells), taken, near, sizes_log2, log_measured, log_law)


def same_step_shift(collective: str, reference_gpus: int, gpus: int) -> float:
    """Octaves between the payloads with which a ring on ``reference_gpus`` and on ``gpus`` has equal bytes
    per step.

    NCCL changes protocol where latency and bytes of one step balance, so at the same S/G whatever G is.
    Trees, broadcasts and all-to-alls showed no such shift. Source: docs/model.md#how-a-time-is-found
    """
    ring = collective in ("all_gather", "reduce_scatter")
    return float(np.log2(gpus / reference_gpus)) if ring else 0.0


def smoothed(residual: Floats) -> Floats:
    """The residual averaged over about an octave of sizes. Limits: a constant -> that constant"""
    width = load_priors().shape.smoothing_octaves * PER_OCTAVE
    reach = int(3 * width)
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / width) ** 2)
    padded = np.pad(residual, reach, mode="edge")
    return np.convolve(padded, kernel / kernel.sum(), mode="valid")
