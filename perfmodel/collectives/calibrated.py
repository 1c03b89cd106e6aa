"""A calibration with the machine that it was measured on: what follows from both alone is computed once.

What-ifs of a machine ("what if its network cards were faster?") need it again and again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from perfmodel.collectives.grid import GRID_BYTES
from perfmodel.collectives.stored import curve_time, step_constants
from perfmodel.model.laws import LINK_LAWS
from perfmodel.model.unknowns import Group
from perfmodel.schema.calibration import Calibration, Curve, Law
from perfmodel.schema.machine import Machine, load_machine
from perfmodel.schema.priors import load_priors

Floats = npt.NDArray[np.float64]

_MOST = 64
_known: dict[tuple[object, ...], Calibrated] = {}


@dataclass(frozen=True, eq=False)
class Calibrated:
    """A calibration, and the machine that it was measured on, without the user's what-ifs.

    tables  time tables of groups on that machine, by (collective, GPUs, GPUs per node): ``CollectiveModel``
    """

    machine: Machine
    calibration: Calibration
    tables: dict[tuple[str, int, int], Any] = field(default_factory=dict, repr=False)
    _laws: dict[tuple[str, Group], Floats] = field(default_factory=dict, repr=False)
    _cells: dict[int, Floats] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(machine: Machine, calibration: Calibration) -> Calibrated:
        """The calibration for ``machine``: the measured machine, with or without what-ifs, or another.

        Limits: the same calibration, and the same values before what-ifs -> the same object
        """
        borrowed = calibration.machine != machine.name
        own = load_machine(calibration.machine) if borrowed else machine.unchanged()
        key = (own.name, *map(id, (calibration, own.links, own.defaults, *own.values.values())))
        _known[key] = found = _known.pop(key, None) or Calibrated(own, calibration)  # which keeps these ids
        for oldest in [*_known][:-_MOST]:
            _known.pop(oldest, None)
        return found

    def law_time(self, law: Law, collective: str, group: Group, payload_bytes: Floats = GRID_BYTES) -> Floats:
        """Time of the law with its fitted unknowns at each size [s]; it is kept for the grid of sizes."""
        key = collective, group
        if payload_bytes is GRID_BYTES and key in self._laws:
            return self._laws[key]
        steps = step_constants(self.machine, load_priors())
        asked = np.log(np.array(law.values)), steps, collective, group, payload_bytes
        found = LINK_LAWS[law.law].time_at(*asked)
        return self._laws.setdefault(key, found) if payload_bytes is GRID_BYTES else found

    def cell_time(self, cell: Curve) -> Floats:
        """Time of a measured cell of the calibration at each size of the grid [s]."""
        if id(cell) not in self._cells:
            self._cells[id(cell)] = curve_time(cell, GRID_BYTES)
        return self._cells[id(cell)]
