"""Reads the options that name a machine, calibration or library; suggests others where data is missing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from perfmodel.cli.options import settings_of
from perfmodel.cli.output import warn
from perfmodel.collectives.choose import choose_calibration
from perfmodel.engine.settings import BEST
from perfmodel.errors import BadInputError, NoCalibrationError, NoKernelsError
from perfmodel.question.groups import DEFAULT_MACHINE
from perfmodel.schema.calibration import Calibration, list_calibrations, load_calibration
from perfmodel.schema.evidence import LAW_BACKENDS, Backend, Clock
from perfmodel.schema.files import unknown_name
from perfmodel.schema.machine import KEYS, Machine, doubted_values, list_machines, load_machine

_ACCEPTED = "accepted"
_FAR = 100
"""Ratio to a machine's own rate beyond which another is doubted."""
_SHIPPED_LIBRARIES = tuple(map(str, LAW_BACKENDS))


def apply_settings(machine: Machine, settings: list[str] | None) -> Machine:
    """The machine with the values of ``--set key=value``; each changed value is marked as assumed.

    Limits: a value ten times away from any product -> BadInputError, unless ``accepted=key`` is set too
    """
    values = settings_of(settings)
    accepted = values.pop(_ACCEPTED, "").split(",")
    changed = machine.with_overrides(dict(values))
    doubted = {key: text for key, text in changed.doubts().items() if key in values}
    for key in values:
        before, after = machine.value(key) if machine.knows(key) else 0, changed.value(key)
        if before and after and not 1 / _FAR <= after / before <= _FAR and KEYS[key].unit == "byte/s":
            doubted.setdefault(
                key, f"{after / before:.3g} times the {machine.quantity(key)} of {machine.name}."
            )
    for key in accepted:
        if key and key not in values:
            raise BadInputError(f"--set {_ACCEPTED}={key}: {key} is not set.", f"--set {key}=VALUE as well.")
    if open_ones := {key: text for key, text in doubted.items() if key not in accepted}:
        names = ",".join([*filter(None, accepted), *open_ones])
        raise doubted_values("--set ", open_ones, f"--set {_ACCEPTED}={names}")
    return changed


def calibration_of(text: str | None, backend: str | None = None, clock: str | None = None) -> str | None:
    """The calibration that ``--calibration`` means: a shipped id, or a file, also for ``latest`` and a run.

    text             as typed;  None: None
    backend, clock   as typed; they choose among the calibrations of a run
    Limits: ``best`` with a run -> BadInputError that lists the run's libraries
    """
    if text is None or text in list_calibrations():
        return text
    from perfmodel.schema.run_files import calibration_in, run_folder  # which shipped data does not need

    folder = run_folder(text)
    if folder is None:
        return text
    if backend == "best":
        calibration_in(folder, None, clock)
        raise _no_best_of_a_run(text, folder)
    return str(calibration_in(folder, backend, clock))


def _no_best_of_a_run(text: str, folder: Path) -> BadInputError:
    from perfmodel.schema.run_files import calibrations_of

    held = list(dict.fromkeys(str(one.backend) for one in calibrations_of(folder).values()))
    names = " or ".join(f"--backend {name}" for name in held)
    return BadInputError(
        f"--backend best compares the shipped NCCL and NVSHMEM, not a run; --calibration {text} holds "
        f"{', '.join(held)}.",
        f"use {names} with --calibration {text}.",
    )


def machine_of(
    name: str | None, settings: list[str] | None = None, calibration: str | None = None
) -> Machine:
    """The machine of this name or file, with the values of ``--set``.

    name         None: the calibration's machine; without a calibration, the default machine
    settings     texts of ``--set``, ``key=value``
    """
    if name is None and calibration is not None:
        name = load_calibration_file(calibration).machine
        if name not in list_machines():
            from perfmodel.schema.run_files import machine_file_beside, no_machine_file

            beside = machine_file_beside(calibration)
            if beside is None:
                what, folder = f"calibration {calibration}", Path(calibration).parent
                raise no_machine_file(what, name, folder, "; or name it with --machine PATH")
            name = str(beside)
    return apply_settings(load_machine(name or DEFAULT_MACHINE), settings)


def library_of(machine: Machine, backend: str | None, calibration: str | None) -> str:
    """The library that was typed; else the calibration's; else the machine's default."""
    if backend is None:
        return (
            str(machine.defaults.backend)
            if calibration is None
            else str(load_calibration_file(calibration).backend)
        )

    known = [*(str(item) for item in Backend), BEST]
    if backend not in known:
        raise unknown_name("--backend", backend, known)
    return backend


@lru_cache(maxsize=8)
def load_calibration_file(calibration: str) -> Calibration:
    """Read a calibration by its file or shipped id; a partial calibration causes a warning the first time."""
    found = load_calibration(calibration)
    if not found.complete:
        warn(f"calibration {calibration} is partial: some planned points are missing")
    return found


def calibration_file(calibration: str | None) -> str | None:
    """The file that ``--calibration`` named; None for a shipped calibration, or without the option."""
    return None if calibration is None or calibration in list_calibrations() else calibration


@contextlib.contextmanager
def advice(machine: Machine, library: str, clock: str | None) -> Iterator[None]:
    """Context in which NoCalibrationError also names libraries and clocks that have data."""
    try:
        yield
    except NoKernelsError:
        raise
    except NoCalibrationError as error:
        others = known_clocks(machine, library)
        if library not in (*_SHIPPED_LIBRARIES, "best"):
            raise
        if clock is not None and others and clock not in others:
            step = f"{library} on {machine.name} has --set clock={' or '.join(others)}."
        else:
            names = [b for b in _SHIPPED_LIBRARIES if b != library and known_clocks(machine, b)]
            step = f"use --backend {names[0]}, " if names and library != "best" else "use "
            step += "another --machine, or fit one from logs: perfmodel import LOG…"
        raise NoCalibrationError(error.message, step) from None


def known_clocks(machine: Machine, library: str) -> list[str]:
    """Clocks for which a shipped calibration can predict the library on ``machine``."""
    found = []
    for clock in Clock:
        with contextlib.suppress(NoCalibrationError, ValueError):
            choose_calibration(machine, Backend(library), clock)
            found.append(str(clock))
    return found


def check_per_node(gpus_per_node: int | None, machine: Machine) -> None:
    """Raise BadInputError if a node of the machine does not have that many GPUs."""
    if gpus_per_node is not None and not 1 <= gpus_per_node <= machine.gpus_per_node:
        raise BadInputError(
            f"--set gpus_per_node={gpus_per_node} cannot be used.",
            f"{machine.name} has 1 to {machine.gpus_per_node} in a node.",
        )
