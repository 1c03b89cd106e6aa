"""What a pass runs on: a machine, its libraries and constants, and what a pass adds to its collectives."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perfmodel.collectives.estimate import CollectiveModel, Libraries
from perfmodel.collectives.link_laws import card_rate
from perfmodel.collectives.timings import Array, Codes
from perfmodel.engine.steps import Step
from perfmodel.errors import BadInputError, NoCalibrationError
from perfmodel.schema.calibration import IMPLEMENTATIONS, Calibration, KernelConstants, load_calibration
from perfmodel.schema.evidence import Backend, Clock, Evidence
from perfmodel.schema.fields import Interval, Quantity
from perfmodel.schema.files import unknown_name
from perfmodel.schema.machine import FOLLOW_MEMORY, KEYS, Machine
from perfmodel.schema.priors import Constants, load_kernel_constants
from perfmodel.units import format_number

BEST = "best"
TORCH = "torch"
BACKENDS = (*(str(b) for b in Backend), BEST)
BETWEEN = "between_steps"
KERNEL_LIBRARY = "kernel"
_LIKE = dict.fromkeys(
    ("all_to_all_bags", "all_to_all_sparse_bags", "reduce_scatter_inside"), "reduce_scatter_bags"
)
"""Collectives after the gather of which no hand-over is measured, each with the one that has as much."""


@dataclass(frozen=True)
class Handover:
    """Extra time of the collectives in a whole pass, beyond their times when they are timed alone.

        t = steps + between                                                                          [s]

    steps    sum over the collectives of a pass of their constants [s]
    between  the constant of the time between steps [s]
    constants  by step of the pass that was timed: medians over the run's whole passes, except those held out
    Limits: nothing is sent -> 0
    """

    constants: Mapping[str, Interval] = field(default_factory=dict)

    def find_constant(self, step: Step) -> Interval | None:
        """The extra time of a collective step [s]; None: not measured."""
        name = step.like or step.name
        return self.constants.get(_LIKE.get(name, name))

    def sum_times(self, sent: Sequence[tuple[Step, NDArray[np.bool_]]]) -> tuple[list[Array], Codes]:
        """([low, time, high [s]], rank of the evidence) of all collective steps of a pass together.

        sent  each step, and in which of the passes it sends something
        """
        taken = np.any([where for _, where in sent], axis=0)
        ends = [np.zeros(taken.shape)] * 3
        for step, where in sent:
            ends = _add(ends, self.find_constant(step), where)
        rank = np.where(taken, Evidence.INTERPOLATED.rank, 0).astype(np.int8)
        return _add(ends, self.constants.get(BETWEEN), taken), rank


def _add(ends: list[Array], constant: Interval | None, where: NDArray[np.bool_]) -> list[Array]:
    """(low, time, high) of passes with those of a constant added to the passes ``where``."""
    if constant is None:
        return ends
    values = constant.low, constant.value, constant.high
    return [end + np.where(where, value, 0) for end, value in zip(ends, values, strict=True)]


@dataclass(frozen=True)
class Setting:
    """A machine with the libraries and constants for which times are computed.

    links  gives the times of collectives;  kernels  constants fitted to kernels of the calibration, if any
    asked_kernels  kernel library that the user asked for
    clock, calibration  that the user asked for; None: the preferred clock, a shipped calibration
    handover  extra time of collectives in a whole pass, if it was measured;  notes  remarks for the user
    """

    machine: Machine
    links: Libraries
    constants: Constants
    backend: str
    clock: str | None = None  # as the user set it; ``links`` has the clocks in use
    calibration: str | Path | None = None
    notes: tuple[str, ...] = ()
    kernels: KernelConstants | None = None  # of the calibration: already contained in ``machine``
    asked_kernels: str | None = None  # one of ``IMPLEMENTATIONS``, as the user set it
    handover: Handover = Handover()

    def is_untold(self, key: str) -> bool:
        """Whether the samples of kernels do not determine a constant: it hardly affects their times."""
        if self.kernels is None or key in self.machine.overrides:
            return False
        values = self.kernels.values
        return key in self.kernels.untold or (key in values and not values[key].known)

    @property
    def kernel_library(self) -> str:
        """Library whose kernel constants are used: timed or requested, else FBGEMM, as in TorchRec."""
        return self.kernels.implementation if self.kernels else self.asked_kernels or IMPLEMENTATIONS[0]

    def find_clock(self, library: str = KERNEL_LIBRARY) -> Clock:
        """Clock on which a library was timed; kernels of a machine file in a stream, back to back."""
        if library == KERNEL_LIBRARY:
            return self.kernels.clock if self.kernels else Clock.STREAM
        return self.links.find_clock(library)


def load_setting(
    machine: Machine,
    backend: str,
    clock: str | None = None,
    calibration: str | Path | None = None,
    kernels: str | None = None,
) -> Setting:
    """The setting of a machine, with the libraries that the user chose.

    machine  with what-ifs;  kernels  of ``IMPLEMENTATIONS``; None: the calibration's first, else the file's
    Limits: unknown backend -> BadInputError; no curves for the library -> NoCalibrationError
    """
    if backend not in BACKENDS:
        raise unknown_name("backend", backend, BACKENDS)
    if kernels is not None and kernels not in IMPLEMENTATIONS:
        raise unknown_name("kernels", kernels, IMPLEMENTATIONS)
    notes: tuple[str, ...] = ()
    if (rate := card_rate(machine)) != machine.value("nic_bytes_per_s"):  # by ``nics_per_node``
        machine = machine.with_overrides({"nic_bytes_per_s": rate})
    source: Calibration | None = None
    if backend == BEST:
        links, notes = _compare_libraries(machine, clock, calibration)
    else:
        times = CollectiveModel.load(machine, backend, clock, calibration)
        links = Libraries({backend: times})
        source = None if times.borrowed else times.calibration  # that of this very machine
    machine, fitted = _apply_kernels(machine, source, kernels)
    machine, following = _scale_memory_rates(machine)
    return Setting(
        machine=machine,
        links=links,
        constants=load_kernel_constants(),
        backend=backend,
        clock=clock,
        calibration=calibration,
        notes=(*notes, *following),
        kernels=fitted,
        asked_kernels=kernels,
        handover=Handover(source.handover_s if source else {}),
    )


def is_published(machine: Machine) -> bool:
    """Whether the machine's gather rate comes from publications about kernels on GPUs."""
    gather = machine.quantity("gather_bytes_per_s")
    return gather.evidence is Evidence.TRANSFERRED and "gather_bytes_per_s" not in machine.overrides


def _apply_published(machine: Machine, implementation: str | None) -> Machine:
    """The machine with published rates of the requested kernels in place of the machine file's FBGEMM rates.

    Limits: no rates of these kernels are published -> NoCalibrationError
    """
    if implementation in (None, IMPLEMENTATIONS[0]):
        return machine
    if implementation != TORCH or not is_published(machine):
        raise NoCalibrationError(
            f"there are no times of {implementation} kernels on {machine.name}.",
            "time them there: perfmodel calibrate --only kernels; or --set kernels=fbgemm.",
        )
    fraction = load_kernel_constants()["torch_gather_fraction"]
    rate = machine.quantity("gather_bytes_per_s")
    value = fraction.value * machine.original("hbm_bytes_per_s")
    why = f"{fraction.why}; log_sd is that of all sources"
    rate = rate.model_copy(update={"value": value, "source": fraction.source, "why": why})
    return _replace_values(machine, {"gather_bytes_per_s": rate})


def _replace_values(machine: Machine, values: Mapping[str, Quantity]) -> Machine:
    """The machine with other values by key, which do not count as the user's what-ifs."""
    update = {"values": {**machine.values, **values}, "overrides": machine.overrides}  # as they were
    return machine.model_copy(update=update)


def find_memory_limit(machine: Machine) -> float:
    """The rate that no kernel exceeds: that of the memory [bytes/s].

    Limits: it was timed, by copies -> infinite, for caches may make other kernels faster than copies
    """
    timed = machine.unchanged().quantity("hbm_bytes_per_s").evidence is Evidence.MEASURED
    return math.inf if timed else machine.value("hbm_bytes_per_s")


def _apply_kernels(
    machine: Machine, calibration: Calibration | None, implementation: str | None
) -> tuple[Machine, KernelConstants | None]:
    """(machine with the kernel constants of a calibration, but for the user's what-ifs; these constants).

    A rate above the memory's, fitted where caches helped, becomes the memory's: it is of bytes of DRAM.
    Limits: nothing measured -> published rates of the requested kernels, None;  kernels of other
    implementations measured -> NoCalibrationError
    """
    fitted = calibration.kernels_of(implementation) if calibration else None
    if calibration and calibration.kernels and fitted is None:
        timed = [x.implementation for x in (calibration.kernels, *calibration.more_kernels)]
        raise NoCalibrationError(
            f"calibration {calibration.calibration_id} has no kernels of {implementation}; "
            f"it has {', '.join(timed)}.",
            f"--set kernels={timed[0]}, or time them: perfmodel calibrate --only kernels",
        )
    if calibration is None or fitted is None:
        return _apply_published(machine, implementation), None
    source = f"calibration {calibration.calibration_id}"
    why = f"fitted to {fitted.sample_count} kernels of {fitted.implementation} on the {fitted.clock} clock"
    limits = dict.fromkeys(FOLLOW_MEMORY, find_memory_limit(machine.unchanged()))
    values = {
        key: Quantity(
            value=min(interval.value, limits.get(key, math.inf)),
            unit=KEYS[key].unit,
            source=source,
            why=why if interval.known else f"{why}, which do not tell it",
            evidence=Evidence.MEASURED if interval.known else Evidence.ASSUMED,
        )
        for key, interval in fitted.values.items()
        if key not in machine.overrides
    }
    return _replace_values(machine, values), fitted


def _scale_memory_rates(machine: Machine) -> tuple[Machine, tuple[str, ...]]:
    """(machine, notes): a what-if of ``hbm_bytes_per_s`` scales kernel rates that the user did not set.

    Limits: applied twice -> the same machine
    """
    keys = [key for key in FOLLOW_MEMORY if key not in machine.overrides]
    if "hbm_bytes_per_s" not in machine.overrides or not keys:
        return machine, ()
    ratio = machine.value("hbm_bytes_per_s") / machine.original("hbm_bytes_per_s")
    rates = {key: machine.original(key) * ratio for key in keys}
    # An override has no spread of sources, and a scaled rate keeps that of the rate.
    changed = machine.with_overrides(rates, source="follows hbm_bytes_per_s")
    spreads = {key: machine.quantity(key).log_sd for key in keys}
    wide = {key: changed.quantity(key).model_copy(update={"log_sd": sd}) for key, sd in spreads.items()}
    words = ", ".join(f"{key} = {changed.quantity(key)}" for key in keys)
    note = f"these follow hbm_bytes_per_s, × {format_number(ratio)}: {words}"
    return _replace_values(machine, {**changed.values, **wide}), (note,)


def _compare_libraries(
    machine: Machine, clock: str | None, calibration: str | Path | None
) -> tuple[Libraries, tuple[str, ...]]:
    """(links, notes) of ``best``, the faster of NCCL and NVSHMEM: on one clock if both were timed on it.

    Otherwise each library keeps its own clock, and a note says so.
    """
    if calibration is not None:
        raise BadInputError(
            f"--calibration {calibration} is one library; --backend best compares two.",
            f"use --backend {load_calibration(calibration).backend} with it, or leave --calibration out.",
        )
    library = machine.ring_backend
    nccl = CollectiveModel.load(machine, library, clock)
    # First on NCCL's clock; then, unless the user chose the clock, on any that NVSHMEM was timed on.
    for shared in (str(nccl.clock), *([None] if clock is None else [])):
        try:
            times = CollectiveModel.load(machine, Backend.NVSHMEM, shared)
        except NoCalibrationError as error:
            alone = (f"best is {library.upper()} alone: {error.message}",)
            continue
        clocks = f"NCCL on the {nccl.clock} clock, NVSHMEM on the {times.clock} clock"
        note = () if shared else (f"the two libraries are compared across clocks: {clocks}",)
        return Libraries({library: nccl, Backend.NVSHMEM: times}), note
    return Libraries({library: nccl}), alone
