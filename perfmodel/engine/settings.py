"""What a pass runs on: a machine, its libraries, and a scenario (a named set of assumptions about the
fabric)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.collectives.library import CollectiveTimes, Faster, Library, Links
from perfmodel.collectives.link_laws import card_rate
from perfmodel.engine.adjustments import Handover
from perfmodel.errors import BadInputError, NoCalibrationError, NoKernelsError
from perfmodel.schema.calibration import IMPLEMENTATIONS, Calibration, KernelConstants, load_calibration
from perfmodel.schema.evidence import Backend, Clock, Evidence
from perfmodel.schema.fields import Quantity
from perfmodel.schema.files import unknown_name
from perfmodel.schema.machine import FOLLOW_MEMORY, KEYS, Machine
from perfmodel.schema.priors import (
    Constants,
    load_kernel_constants,
)
from perfmodel.units import format_number

BEST = "best"
TORCH = "torch"
BACKENDS = (*(str(b) for b in Backend), BEST)


@dataclass(frozen=True)
class Setting:
    """A machine with the libraries and constants for which times are computed.

    links  gives the times of collectives;  kernels  constants fitted to kernels of the calibration, if any
    asked_kernels  kernel library that the user asked for
    clock, calibration  that the user asked for; None: the preferred clock, a shipped calibration
    handover  extra time of collectives in a whole pass;  notes  remarks for the user
    """

    machine: Machine
    links: Links
    constants: Constants
    backend: str
    clock: str | None = None  # as the user set it; ``links`` has the clocks in use
    calibration: str | Path | None = None
    notes: tuple[str, ...] = ()
    kernels: KernelConstants | None = None  # of the calibration: already contained in ``machine``
    asked_kernels: str | None = None  # one of ``IMPLEMENTATIONS``, as the user set it
    handover: Handover = field(default_factory=Handover)

    @property
    def kernel_library(self) -> str:
        """Library whose kernel constants are used: timed or requested, else FBGEMM, as in TorchRec."""
        return self.kernels.implementation if self.kernels else self.asked_kernels or IMPLEMENTATIONS[0]

    @property
    def kernel_clock(self) -> Clock:
        """Clock on which the kernels were timed; machine files have times of back-to-back launches."""
        return self.kernels.clock if self.kernels else Clock.STREAM


def find_clock(links: Links, library: str) -> Clock:
    """Clock on which the curves were timed that a step used; ``library`` is the step's."""
    if isinstance(links, Faster):
        return (links.first if library == links.first.name else links.second).times.clock
    return links.times.clock


def load_setting(
    machine: Machine,
    backend: str,
    clock: str | None = None,
    calibration: str | Path | None = None,
    kernels: str | None = None,
) -> Setting:
    """The setting of a machine, with the libraries that the user chose.

    machine  with the user's what-ifs
    kernels  one of ``IMPLEMENTATIONS``; None: the calibration's first, else the machine file's
    Limits: unknown backend -> BadInputError; no curves for the library -> NoCalibrationError
    """
    if backend not in BACKENDS:
        raise unknown_name("backend", backend, BACKENDS)
    if kernels is not None and kernels not in IMPLEMENTATIONS:
        raise unknown_name("kernels", kernels, IMPLEMENTATIONS)
    notes = note_changed_values(machine)
    rate = card_rate(machine)  # a what-if of ``nics_per_node`` changes each GPU's share of the cards
    if rate != machine.value("nic_bytes_per_s"):
        machine = machine.with_overrides({"nic_bytes_per_s": rate})
    constants, handover, source = load_kernel_constants(), Handover(), None
    links: Links
    if backend == BEST:
        links, compared = _compare_libraries(machine, clock, calibration)
        notes = (*notes, *compared)
    else:
        links = library = _load_library(machine, str(backend), clock, calibration)
        source = _find_calibration(library.times)
    fitted = None if source is None else _choose_kernels(source, kernels)
    if source is not None:
        handover = Handover.from_calibration(source)
    if source is not None and fitted is not None:
        machine = _apply_kernels(machine, source.calibration_id, fitted)
    else:
        machine = _apply_published(machine, kernels, constants)
    machine, following = _scale_memory_rates(machine)
    return Setting(
        machine,
        links,
        constants,
        backend,
        clock,
        calibration,
        (*notes, *following),
        fitted,
        kernels,
        handover,
    )


def note_changed_values(machine: Machine) -> tuple[str, ...]:
    """Note on a machine file that keeps the name of a shipped machine but has other values."""
    keys = sorted(machine.overrides - set(machine.what_ifs))
    if not keys:
        return ()
    before = machine.unchanged()
    words = ", ".join(
        f"{key} {machine.quantity(key)} and not {before.quantity(key) if before.knows(key) else 'stated'}"
        for key in keys
    )
    return (
        f"the machine file has the name of the shipped {machine.name} and other values ({words}): what was "
        "measured there is rescaled to them; give the file a name of its own if it is another machine",
    )


def _find_calibration(times: CollectiveTimes) -> Calibration | None:
    """The calibration behind the times, if it was measured on this very machine; else None."""
    return times.calibration if isinstance(times, CollectiveModel) and not times.borrowed else None


def _choose_kernels(calibration: Calibration, implementation: str | None) -> KernelConstants | None:
    """Kernel constants of a calibration, for the requested implementation or its default.

    Limits: the calibration timed other implementations only -> NoKernelsError
    """
    constants = calibration.kernels_of(implementation)
    if constants is None and calibration.kernels is not None:
        timed = [x.implementation for x in (calibration.kernels, *calibration.more_kernels)]
        raise NoKernelsError(
            f"calibration {calibration.calibration_id} has no kernels of {implementation}; "
            f"it has {', '.join(timed)}.",
            f"--set kernels={timed[0]}, or time them: perfmodel calibrate --only kernels",
        )
    return constants


def is_published(machine: Machine) -> bool:
    """Whether the machine's gather rate comes from publications about kernels on GPUs."""
    gather = machine.quantity("gather_bytes_per_s")
    return gather.evidence is Evidence.TRANSFERRED and "gather_bytes_per_s" not in machine.overrides


def _apply_published(machine: Machine, implementation: str | None, constants: Constants) -> Machine:
    """The machine with published rates of the requested kernels in place of the machine file's FBGEMM rates.

    Limits: no rates of these kernels are published -> NoKernelsError
    """
    if implementation in (None, IMPLEMENTATIONS[0]):
        return machine
    if implementation != TORCH or not is_published(machine):
        raise NoKernelsError(
            f"there are no times of {implementation} kernels on {machine.name}.",
            "time them there: perfmodel calibrate --only kernels; or --set kernels=fbgemm.",
        )
    fraction, rate = constants.quantity("torch_gather_fraction"), machine.quantity("gather_bytes_per_s")
    value, why = (
        fraction.value * machine.original("hbm_bytes_per_s"),
        f"{fraction.why}; log_sd is that of all sources",
    )
    rate = rate.model_copy(update={"value": value, "source": fraction.source, "why": why})
    return _replace_values(machine, {"gather_bytes_per_s": rate})


def _replace_values(machine: Machine, values: Mapping[str, Quantity]) -> Machine:
    """The machine with other values, which do not count as the user's what-ifs."""
    update = {"values": {**machine.values, **values}, "overrides": machine.overrides}
    return machine.model_copy(update=update)


def _apply_kernels(machine: Machine, calibration_id: str, fitted: KernelConstants) -> Machine:
    """The machine with the kernel constants that a calibration measured, except the user's own what-ifs."""
    source = f"calibration {calibration_id}"
    why = f"fitted to {fitted.sample_count} kernels of {fitted.implementation} on the {fitted.clock} clock"
    values = {
        key: Quantity(
            value=interval.value,
            unit=KEYS[key].unit,
            source=source,
            why=why if interval.known else f"{why}, which do not tell it",
            evidence=Evidence.MEASURED if interval.known else Evidence.ASSUMED,
        )
        for key, interval in fitted.values.items()
        if key not in machine.overrides
    }
    return _replace_values(machine, values)


def _scale_memory_rates(machine: Machine) -> tuple[Machine, tuple[str, ...]]:
    """(machine, notes): a what-if of ``hbm_bytes_per_s`` scales the kernel rates that the user did not set,
    too.

    Limits: applied twice -> the same machine
    """
    keys = [key for key in FOLLOW_MEMORY if key not in machine.overrides]
    if "hbm_bytes_per_s" not in machine.overrides or not keys:
        return machine, ()
    ratio = machine.value("hbm_bytes_per_s") / machine.original("hbm_bytes_per_s")
    rates = {key: machine.original(key) * ratio for key in keys}
    changed = machine.with_overrides(rates, source="follows hbm_bytes_per_s")
    spreads = {key: machine.quantity(key).log_sd for key in keys}
    wide = {key: changed.quantity(key).model_copy(update={"log_sd": sd}) for key, sd in spreads.items()}
    words = ", ".join(f"{key} = {changed.quantity(key)}" for key in keys)
    note = f"these follow hbm_bytes_per_s, × {format_number(ratio)}: {words}"
    return _replace_values(machine, {**changed.values, **wide}), (note,)


def _load_library(
    machine: Machine, backend: str, clock: str | None, calibration: str | Path | None
) -> Library:
    return Library(backend, CollectiveModel.load(machine, backend, clock, calibration))


def _compare_libraries(
    machine: Machine,
    clock: str | None,
    calibration: str | Path | None,
) -> tuple[Links, tuple[str, ...]]:
    """(links, notes) of ``best``, the faster of NCCL and NVSHMEM: on one clock if both were timed on it.

    Otherwise each library keeps its own clock, and a note says so.
    """
    if calibration is not None:
        raise BadInputError(
            f"--calibration {calibration} is one library; --backend best compares two.",
            f"use --backend {load_calibration(calibration).backend} with it, or leave --calibration out.",
        )
    nccl = _load_library(machine, machine.ring_backend, clock, None)
    for shared in (str(nccl.times.clock), *([None] if clock is None else [])):
        try:
            nvshmem = _load_library(machine, Backend.NVSHMEM, shared, None)
        except NoCalibrationError as error:
            alone = (f"best is {nccl.name.upper()} alone: {error.message}",)
            continue
        clocks = f"NCCL on the {nccl.times.clock} clock, NVSHMEM on the {nvshmem.times.clock} clock"
        note = () if shared else (f"the two libraries are compared across clocks: {clocks}",)
        return Faster(nccl, nvshmem), note
    return nccl, alone
