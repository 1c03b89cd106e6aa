"""What a pass runs on: a machine, its libraries, and a scenario (a named set of assumptions about the
fabric)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.collectives.library import CollectiveTimes, Faster, Library, Links
from perfmodel.collectives.rates import card_rate
from perfmodel.engine.adjustments import Handover, OneDomain
from perfmodel.errors import BadInputError, NoCalibrationError, NoKernelsError
from perfmodel.schema.calibration import Calibration, load_calibration
from perfmodel.schema.constants import (
    Constants,
    ScenarioFile,
    list_scenario_files,
    load_kernel_constants,
    load_scenario_file,
)
from perfmodel.schema.evidence import Backend, Clock, Evidence
from perfmodel.schema.files import unknown_name
from perfmodel.schema.kernel_fits import IMPLEMENTATIONS, KernelConstants
from perfmodel.schema.machine import Machine, Quantity, copied_rates
from perfmodel.schema.machine_keys import KEYS
from perfmodel.schema.memory_rates import FOLLOW_MEMORY
from perfmodel.units import format_number

CLUSTER = "cluster"
BEST = "best"
TORCH = "torch"
BACKENDS = (*(str(b) for b in Backend), BEST)


def list_scenarios() -> list[str]:
    """Names of all scenarios: first the cluster as it is, then every shipped scenario file."""
    return [CLUSTER, *list_scenario_files()]


@dataclass(frozen=True)
class Setting:
    """A machine under a scenario, with the libraries and constants for which times are computed.

    links  gives the times of collectives;  kernels  constants fitted to kernels of the calibration, if any
    asked_kernels  kernel library that the user asked for
    clock, calibration  that the user asked for; None: the preferred clock, a shipped calibration
    handover  extra time of collectives in a whole pass;  notes  remarks for the user
    """

    machine: Machine
    links: Links
    constants: Constants
    scenario: str
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

    @property
    def one_domain(self) -> bool:
        """Whether the scenario puts all GPUs into one scale-up domain."""
        return self.scenario != CLUSTER


def clock_of(setting: Setting, library: str) -> Clock:
    """Clock on which the curves were timed that a step used; ``library`` is the step's."""
    links = setting.links
    if isinstance(links, Faster):
        return (links.first if library == links.first.name else links.second).times.clock
    return links.times.clock


def load_setting(
    machine: Machine,
    backend: str,
    clock: str | None = None,
    scenario: str = CLUSTER,
    calibration: str | Path | None = None,
    kernels: str | None = None,
) -> Setting:
    """The setting of a machine under a scenario, with the libraries that the user chose.

    machine  with the user's what-ifs
    kernels  one of ``IMPLEMENTATIONS``; None: the calibration's first, else the machine file's
    Limits: unknown backend or scenario -> BadInputError; no curves for the library -> NoCalibrationError
    """
    if backend not in BACKENDS:
        raise unknown_name("backend", backend, BACKENDS)
    if scenario not in list_scenarios():
        raise unknown_name("scenario", scenario, list_scenarios())
    if kernels is not None and kernels not in IMPLEMENTATIONS:
        raise unknown_name("kernels", kernels, IMPLEMENTATIONS)
    assumed = None if scenario == CLUSTER else load_scenario_file(scenario)
    notes = of_its_file(machine)
    machine = _with_fewer_cards(machine)
    fitted: KernelConstants | None = None
    handover, constants = Handover(), load_kernel_constants()
    if backend == BEST:
        links, compared = _best(machine, clock, calibration, assumed)
        notes = (*notes, *compared)
    else:
        library = _library(machine, str(backend), clock, calibration, assumed)
        links, own = library, _own_calibration(library.times)
        if own is not None:
            fitted, handover = _chosen(own, kernels), Handover.of(own)
            machine = _with_kernels(machine, own.calibration_id, fitted)
    if fitted is None:
        machine = _with_published(machine, kernels, constants)
    notes = (*notes, *of_another_memory(machine))
    if assumed is not None:
        machine, constants = _under(assumed, machine), constants.replaced(assumed.constants)
    machine, following = _with_memory_rates(machine, assumed)
    notes = (*notes, *following)
    known = (
        machine,
        links,
        constants,
        scenario,
        backend,
        clock,
        calibration,
        notes,
        fitted,
        kernels,
        handover,
    )
    return Setting(*known)


def of_its_file(machine: Machine) -> tuple[str, ...]:
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


def of_another_memory(machine: Machine) -> tuple[str, ...]:
    """Note that a copied machine file states another memory rate but still has the shipped kernel rates."""
    like, rates = copied_rates(machine)
    if not rates:
        return ()
    memory = machine.quantity("hbm_bytes_per_s")
    before = memory.model_copy(update={"value": machine.original("hbm_bytes_per_s")})
    is_are = "is that" if len(rates) == 1 else "are those"
    typed = " ".join(f"--set {key}={rate:g}" for key, rate in rates.items())
    return (
        f"{', '.join(rates)} of {machine.name} {is_are} of {like}, whose memory has another rate than "
        f"hbm_bytes_per_s = {before}; the same part of this rate, for the file or to type: {typed}",
    )


def _own_calibration(times: CollectiveTimes) -> Calibration | None:
    """The calibration behind the times, if it was measured on this very machine; else None."""
    model = times.measured if isinstance(times, OneDomain) else times
    return model.calibration if isinstance(model, CollectiveModel) and not model.borrowed else None


def kernel_choices(setting: Setting) -> list[str]:
    """Implementations whose kernels this setting can use, the default first."""
    own = None if isinstance(setting.links, Faster) else _own_calibration(setting.links.times)
    if own is not None and own.kernels is not None:
        return [name for name in IMPLEMENTATIONS if own.kernels_of(name) is not None]
    return [IMPLEMENTATIONS[0], *([TORCH] if is_published(setting.machine) else [])]


def _chosen(calibration: Calibration, asked: str | None) -> KernelConstants | None:
    """Kernel constants of a calibration, for the requested implementation or its default.

    asked   the implementation
    Limits: the calibration timed other implementations only -> NoKernelsError
    """
    found = calibration.kernels_of(asked)
    if found is None and calibration.kernels is not None:
        timed = [one.implementation for one in (calibration.kernels, *calibration.more_kernels)]
        raise NoKernelsError(
            f"calibration {calibration.calibration_id} has no kernels of {asked}; it has {', '.join(timed)}.",
            f"--kernels {timed[0]}, or time them: perfmodel calibrate --only kernels",
        )
    return found


def is_published(machine: Machine) -> bool:
    """Whether the machine's gather rate comes from publications about kernels on GPUs."""
    gather = machine.quantity("gather_bytes_per_s")
    return gather.evidence is Evidence.TRANSFERRED and "gather_bytes_per_s" not in machine.overrides


def _with_published(machine: Machine, asked: str | None, constants: Constants) -> Machine:
    """The machine with published rates of the requested kernels in place of the machine file's FBGEMM rates.

    Limits: no rates of these kernels are published -> NoKernelsError
    """
    if asked in (None, IMPLEMENTATIONS[0]):
        return machine
    if asked != TORCH or not is_published(machine):
        raise NoKernelsError(
            f"there are no times of {asked} kernels on {machine.name}.",
            "time them there: perfmodel calibrate --only kernels; or --kernels fbgemm.",
        )
    part, old = constants.quantity("torch_gather_fraction"), machine.quantity("gather_bytes_per_s")
    value = part.value * machine.original("hbm_bytes_per_s")
    known = {"value": value, "source": part.source, "why": f"{part.why}; log_sd is that of all sources"}
    found = {"gather_bytes_per_s": old.model_copy(update=known)}
    return machine.model_copy(update={"values": {**machine.values, **found}})


def _with_kernels(machine: Machine, calibration_id: str, fitted: KernelConstants | None) -> Machine:
    """The machine with the kernel constants that a calibration measured, except the user's own what-ifs."""
    if fitted is None:
        return machine
    source = f"calibration {calibration_id}"
    why = f"fitted to {fitted.sample_count} kernels of {fitted.implementation} on the {fitted.clock} clock"
    found = {
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
    return machine.model_copy(update={"values": {**machine.values, **found}})


def _with_fewer_cards(machine: Machine) -> Machine:
    """A what-if of ``nics_per_node`` changes each GPU's share of the cards (``rates.card_rate``)."""
    rate = card_rate(machine)
    return (
        machine
        if rate == machine.value("nic_bytes_per_s")
        else machine.with_overrides({"nic_bytes_per_s": rate})
    )


def _with_memory_rates(machine: Machine, assumed: ScenarioFile | None) -> tuple[Machine, tuple[str, ...]]:
    """(machine, notes): a what-if of ``hbm_bytes_per_s`` scales the kernel rates that the user did not set,
    too.

    assumed  the scenario, which may replace the memory rate
    Limits: applied twice -> the same machine
    """
    if "hbm_bytes_per_s" not in machine.overrides:
        return machine, ()
    ratio = machine.value("hbm_bytes_per_s") / machine.original("hbm_bytes_per_s")
    keys = [key for key in FOLLOW_MEMORY if key not in machine.overrides]
    named = assumed.machine if assumed and assumed.machine_values_of == machine.name else {}
    base = {key: named[key].value if key in named else machine.original(key) for key in keys}
    values = {key: value * ratio for key, value in base.items()}
    changed = machine.with_overrides(values, source="follows hbm_bytes_per_s")
    spreads = {key: machine.quantity(key).log_sd for key in keys if key not in named}
    kept = {key: changed.quantity(key).model_copy(update={"log_sd": sd}) for key, sd in spreads.items()}
    changed = changed.model_copy(update={"values": {**changed.values, **kept}})
    words = ", ".join(f"{key} = {changed.quantity(key)}" for key in keys)
    note = (f"these follow hbm_bytes_per_s, × {format_number(ratio)}: {words}",) if keys else ()
    return changed.model_copy(update={"overrides": machine.overrides}), note


def _under(assumed: ScenarioFile, machine: Machine) -> Machine:
    """The machine with the scenario's values, except the user's own what-ifs."""
    if machine.name != assumed.machine_values_of:
        return machine
    values = {key: q.value for key, q in assumed.machine.items() if key not in machine.overrides}
    changed = machine.with_overrides(values, source=f"scenario {assumed.name}")
    return changed.model_copy(update={"overrides": machine.overrides})


def _library(
    machine: Machine,
    backend: str,
    clock: str | None,
    calibration: str | Path | None,
    assumed: ScenarioFile | None,
) -> Library:
    model: CollectiveTimes = CollectiveModel.load(machine, backend, clock, calibration)
    if assumed is not None:
        anchor, key = _anchor(machine, assumed), "nvlink_bytes_per_s"
        own = machine.original(key)
        model = OneDomain(model, assumed, anchor, machine.value(key) / own if own else 1.0)
    return Library(str(backend), model)


def _anchor(machine: Machine, assumed: ScenarioFile) -> int:
    """GPUs of the largest scale-up domain that was measured; 1 for a machine without NVLink."""
    if machine.nvlink_domain_gpus == 1:
        raise BadInputError(
            f"scenario {assumed.name} widens a scale-up domain, and {machine.name} has none.",
            "use --scenario cluster, or a machine with such a domain (perfmodel machines).",
        )
    return min(int(assumed.value("anchor_gpus")), machine.nvlink_domain_gpus)


def _best(
    machine: Machine,
    clock: str | None,
    calibration: str | Path | None,
    assumed: ScenarioFile | None,
) -> tuple[Links, tuple[str, ...]]:
    """(links, notes) of ``best``, the faster of NCCL and NVSHMEM: on one clock if both were timed on it.

    Otherwise each library keeps its own clock, and a note says so.
    """
    if calibration is not None:
        raise BadInputError(
            f"--calibration {calibration} is one library; --backend best compares two.",
            f"use --backend {load_calibration(calibration).backend} with it, or leave --calibration out.",
        )
    nccl = _library(machine, machine.ring_backend, clock, None, assumed)
    try:
        nvshmem = _library(machine, Backend.NVSHMEM, str(nccl.times.clock), None, assumed)
        return Faster(nccl, nvshmem), ()
    except NoCalibrationError as error:
        if clock is not None:
            return nccl, (f"best is {nccl.name.upper()} alone: {error.message}",)
    try:
        nvshmem = _library(machine, Backend.NVSHMEM, None, None, assumed)
    except NoCalibrationError as error:
        return nccl, (f"best is {nccl.name.upper()} alone: {error.message}",)
    clocks = f"NCCL on the {nccl.times.clock} clock, NVSHMEM on the {nvshmem.times.clock} clock"
    return Faster(nccl, nvshmem), (f"the two libraries are compared across clocks: {clocks}",)
