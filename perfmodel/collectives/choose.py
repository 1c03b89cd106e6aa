"""Which calibration a machine uses, and which calibration it borrows if it has none of its own."""

from __future__ import annotations

import fnmatch

from perfmodel.errors import NoCalibrationError
from perfmodel.schema.calibration import Calibration, list_calibrations, shipped_calibration
from perfmodel.schema.evidence import LAW_BACKENDS, Backend, Clock
from perfmodel.schema.machine import Machine, list_machines, load_machine


def rank_version(version: str) -> tuple[int, ...]:
    """Sort key of a dotted version; parts that are words do not count. Limits: "2.29.2" > "2.9" > "2"."""
    return tuple(int(piece) if piece.isdigit() else 0 for piece in version.replace("-", ".").split("."))


def choose_calibration(
    machine: Machine, backend: Backend, clock: Clock | None, near_version: str | None = None
) -> Calibration:
    """The calibration of the machine itself, else of the machine that its file is ``like``.

    The preferred calibration comes first, then the newest version. NCCL and RCCL borrow each other's.
    near_version  of a log, "" where it names none: the machine's own calibration of the nearest version
                  comes first, and one of another clock will do
    Raises NoCalibrationError, which lists the calibrations that exist.
    """
    matching = list_matching(machine.name, backend, clock)
    if near_version is not None and not matching:
        clock = None
        matching = list_matching(machine.name, backend)
    lender, seen = machine, {machine.name}  # ``like`` may lead over several machines, or in a circle
    while not matching and (like := lender.links.like) not in seen and like in list_machines():
        seen.add(like)
        lender = load_machine(like)
        library = lender.ring_backend if backend is machine.ring_backend else backend
        matching = list_matching(lender.name, library, clock)
    if matching and near_version and matching[0].machine == machine.name:
        place = _number_version(near_version)
        return min(matching, key=lambda item: abs(place - _number_version(item.library_version)))
    if matching:
        return matching[0]
    advice = "measure it (perfmodel calibrate) and use --calibration latest."
    if near_version is not None:
        advice = "give another --machine, or a --calibration."
    elif backend in LAW_BACKENDS:
        advice = "use one of these, another --machine, or fit one from logs: perfmodel import LOG…"
    request = f"{backend}{f' at clock {clock}' if clock else ''}"
    raise NoCalibrationError(
        f"no calibration has times of {request} on {machine.name}; "
        f"calibrations: {', '.join(list_calibrations(machine.name)) or 'none'}.",
        advice,
    )


def _number_version(version: str) -> int:
    """A version as a number to which near versions are near: 2.29.2 is 2 29 02, 2.9 is 2 09 00."""
    return sum(int(part * 100 ** (2 - place)) for place, part in enumerate(rank_version(version)[:3]))


def list_matching(machine: str, backend: Backend, clock: Clock | None = None) -> list[Calibration]:
    """The shipped calibrations of a machine and library: the preferred one first, then the newest version."""
    names = fnmatch.filter(list_calibrations(machine), f"*/{backend}-*-{clock or '*'}")
    matching = [shipped_calibration(name) for name in names]
    return sorted(matching, key=lambda c: (c.preferred, rank_version(c.library_version)), reverse=True)
