"""Which calibration a machine uses, and which calibration it borrows if it has none of its own."""

from __future__ import annotations

from perfmodel.errors import NoCalibrationError
from perfmodel.schema.calibration import Calibration, list_calibrations, shipped_calibration
from perfmodel.schema.evidence import LAW_BACKENDS, Backend, Clock
from perfmodel.schema.machine import Machine, list_machines, load_machine


def rank_version(version: str) -> tuple[int, ...]:
    """Sort key of a dotted version; parts that are words do not count. Limits: "2.29.2" > "2.9" > "2"."""
    return tuple(int(piece) if piece.isdigit() else 0 for piece in version.replace("-", ".").split("."))


def choose_calibration(machine: Machine, backend: Backend, clock: Clock | None) -> Calibration:
    """The calibration of the machine itself, else of the machine that its file is ``like``.

    The preferred calibration comes first, then the newest version. NCCL and RCCL borrow each other's.
    Raises NoCalibrationError, which lists the calibrations that exist.
    """
    matching, seen, like = list_matching(machine.name, backend, clock), {machine.name}, machine.links.like
    while not matching and like not in seen and like in list_machines():
        seen.add(like)
        lender = load_machine(like)
        library = lender.ring_backend if backend is machine.ring_backend else backend
        matching, like = list_matching(lender.name, library, clock), lender.links.like
    if matching:
        return matching[0]
    request = f"{backend}{f' at clock {clock}' if clock else ''}"
    raise NoCalibrationError(
        f"nothing of any evidence class for {request} on {machine.name}; "
        f"calibrations: {', '.join(list_calibrations(machine.name)) or 'none'}.",
        f"use --backend {machine.ring_backend}, another --machine, or fit one from logs: "
        "perfmodel import LOG…"
        if backend in LAW_BACKENDS
        else "measure it (perfmodel calibrate) and use --calibration latest.",
    )


def choose_nearest(machine: Machine, backend: Backend, clock: Clock, version: str) -> Calibration:
    """The calibration of this clock, if there is one, and of the version nearest to ``version``.

    Limits: version "" or a machine without its own -> ``choose_calibration``
    """
    matching = list_matching(machine.name, backend, clock) or list_matching(machine.name, backend)
    if not matching or not version:
        usable = clock if matching and matching[0].clock is clock else None
        return choose_calibration(machine, backend, usable)

    def place(version: str) -> int:  # near versions are near numbers: 2.29.2 is 229 02, 2.9 is 209 00
        major, minor, patch = (*rank_version(version), 0, 0)[:3]
        return (major * 100 + minor) * 100 + patch

    return min(matching, key=lambda item: abs(place(item.library_version) - place(version)))


def list_matching(machine: str, backend: Backend, clock: Clock | None = None) -> list[Calibration]:
    """The shipped calibrations of a machine and library: the preferred one first, then the newest version."""
    stems = {name: name.split("/", 1)[1] for name in list_calibrations(machine)}
    matching = [
        shipped_calibration(name)
        for name, stem in stems.items()
        if stem.startswith(f"{backend}-") and (clock is None or stem.endswith(f"-{clock}"))
    ]
    return sorted(matching, key=lambda c: (c.preferred, rank_version(c.library_version)), reverse=True)
