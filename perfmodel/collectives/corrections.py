"""What measured cells say of the law on another number of ranks: a residual at each size, and whose it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfmodel.collectives.grid import GRID_BYTES, GRID_LOG2, PER_OCTAVE
from perfmodel.collectives.stored import curve_time
from perfmodel.model.unknowns import Group
from perfmodel.schema.calibration import Calibration, Curve
from perfmodel.schema.priors import load_priors

Floats = npt.NDArray[np.float64]

_SLACK = 1 / PER_OCTAVE
_AT_A_SIZE = 2e-3


@dataclass(frozen=True)
class NearestSize:
    """What corrects the law at one size: a measured cell, at the nearest of its sizes.

    wanted_bytes   the size of that cell that would say it: the same S, in a ring the same S/G
    size_bytes     the nearest size inside its measured range; measured: whether it is one of the sizes
    time_s, law_s  of the cell and of the law there
    octaves        between the two sizes [-];  weight  e^(-octaves / fading octaves) [-]
    """

    cell: Curve
    wanted_bytes: float
    size_bytes: float
    measured: bool
    time_s: float
    law_s: float
    octaves: float
    weight: float


@dataclass(frozen=True)
class Correction:
    """ln of measured over law's time on the grid, carried from the cells that were measured.

    log_residual  averaged over about an octave, and faded away from the measured sizes
    carried       how much of it is carried (``spreads.carried_share``) [-]
    gpus          those of the cell at each size, fading to the least that leave a domain
    weight        1 at a measured size, falling to 0 away from it
    """

    log_residual: Floats
    carried: Floats
    gpus: Floats
    weight: Floats
    cells: tuple[Curve, ...]
    group: Group
    taken: npt.NDArray[np.int64]
    nearest: npt.NDArray[np.int64]
    sizes_log2: Floats
    log_measured: Floats
    log_law: Floats

    def at(self, payload_bytes: float) -> NearestSize:
        """Which cell corrects this size, by the nearest size of the grid."""
        point = int(np.clip(round(np.log2(payload_bytes) * PER_OCTAVE), 0, GRID_LOG2.size - 1))
        near = int(self.nearest[point])
        cell, size = self.cells[int(self.taken[near])], float(np.exp2(self.sizes_log2[near]))
        apart = np.abs(np.array(cell.anchor_bytes) / size - 1)
        return NearestSize(
            cell=cell,
            wanted_bytes=payload_bytes / 2 ** same_step_shift(cell.collective, cell.gpus, self.group.gpus),
            size_bytes=size,
            measured=bool(apart.min() < _AT_A_SIZE),
            time_s=float(np.exp(self.log_measured[near])),
            law_s=float(np.exp(self.log_law[near])),
            octaves=float(abs(point - near)) / PER_OCTAVE,
            weight=float(self.weight[point]),
        )


def nearest_cells(calibration: Calibration, collective: str, group: Group) -> list[Curve]:
    """Measured cells, the nearest first: of as many GPUs per domain, of several domains for several."""
    several = group.domains > 1
    cells = [
        c for c in calibration.curves if c.collective == collective and (c.gpus > c.domain_gpus) == several
    ]

    def apart(c: Curve) -> tuple[float, float]:
        in_domain = abs(np.log2(min(c.domain_gpus, c.gpus) / group.domain_gpus)) if several else 0.0
        return in_domain, abs(np.log2(c.gpus / group.gpus))

    return sorted(cells, key=apart)


def correction(
    cells: Sequence[Curve], group: Group, law: Callable[[Group], Floats], carried: Floats
) -> Correction:
    """How far measured cells are from the law, carried to another group.

        ln corr = carry res,   res = mean( fade ln(t_near / law_near) )     [-]

    corr      factor of the law's time;  carry  ``spreads.carried_share`` [-]
    t_near    time of the nearest cell that was measured at this size, else at its nearest size [s]
    law_near  the law's time of that cell there [s]
    fade      e^(-octaves to the measured sizes / fading_octaves) [-];  mean: over about an octave of sizes
    cells     from the nearest on: at each size the nearest one that was measured there
    The residual is averaged since single points scatter. Outside the sizes of all cells it fades, and what
    was measured with it: the GPUs from those measured to the least that leave a domain, two domains full.
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
        measured, by_law = np.log(curve_time(cell, GRID_BYTES)), law(Group.of(cell.gpus, cell.domain_gpus))
        log_measured[free] = np.interp(sizes_log2[free], GRID_LOG2, measured)
        log_law[free] = np.interp(sizes_log2[free], GRID_LOG2, by_law)
    gpus = np.array([cell.gpus for cell in cells], float)[taken]
    there = np.flatnonzero(taken >= 0)
    near = there[np.argmin(np.abs(np.arange(taken.size)[:, None] - there[None, :]), axis=1)]
    octaves = np.abs(GRID_LOG2 - GRID_LOG2[near])
    weight = np.exp(-octaves / load_priors().shape.fading_octaves)
    least = np.minimum(gpus[near], 2 * group.domain_gpus if group.domains > 1 else np.inf)
    residual = smoothed((log_measured - log_law)[near] * weight)
    carried_gpus = least * (gpus[near] / least) ** weight
    found = (tuple(cells), group, taken, near, sizes_log2, log_measured, log_law)
    return Correction(residual, carried, carried_gpus, weight, *found)


def same_step_shift(collective: str, reference_gpus: int, gpus: int) -> float:
    """Octaves between sizes that make the same step of a ring: one step sends S/G.

    A library changes its protocol where latency and bytes of a step balance, so at the same S/G whatever G.
    Trees, broadcasts and all-to-alls showed no such shift. Source: docs/model.md#how-a-time-is-found
    """
    ring = collective in ("all_gather", "reduce_scatter")
    return float(np.log2(gpus / reference_gpus)) if ring else 0.0


def smoothed(residual: Floats) -> Floats:
    """Averaged over about an octave. Limits: a constant -> that constant"""
    width = load_priors().shape.smoothing_octaves * PER_OCTAVE
    reach = int(3 * width)
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / width) ** 2)
    padded = np.pad(residual, reach, mode="edge")
    return np.convolve(padded, kernel / kernel.sum(), mode="valid")
