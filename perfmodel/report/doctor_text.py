"""Text of ``perfmodel doctor``: parts of a pass that can be timed here, and evidence of all others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfmodel.report.terminal import facts, paragraph, table
from perfmodel.schema.calibration import list_calibrations
from perfmodel.schema.evidence import COLLECTIVES, Evidence
from perfmodel.schema.machine import Machine, list_machines, load_machine
from perfmodel.units import format_bytes

if TYPE_CHECKING:
    from calibrate.machine.doctor import MachineDoubt
    from calibrate.machine.identity import Host
    from calibrate.operations import Availability

GPU_LIBRARIES = ("nccl", "rccl", "nvshmem", "symmetric_memory")
CPU_LIBRARIES = ("mpi", "gloo", "shmem")
_KERNELS = "torch"


@dataclass(frozen=True)
class Prospect:
    """How well a projection will know one part of the pass on this machine.

    part      kernels, collectives of so many GPUs, whole passes …
    evidence  of its times after ``perfmodel calibrate``: measured, extrapolated, transferred, assumed …
    why       the library that would measure it, or what is missing
    """

    part: str
    evidence: str
    why: str


def prospects(host: Host, libraries: Mapping[str, Availability]) -> list[Prospect]:
    """For each part of a projection, the evidence that it would have after ``perfmodel calibrate`` here.

    libraries  by name, whether a library can be used here
    """
    usable = {name for name, found in libraries.items() if found.usable and not found.functional_only}
    kernels = _KERNELS in usable
    rows = [
        Prospect(
            "kernels",
            Evidence.MEASURED if kernels else _without_kernels(host),
            "by torch's own kernels" if kernels else "torch is missing here",
        )
    ]
    rows += _cpu(host, usable) if host.device == "cpu" else _gpu(host, usable)
    passes = sorted({"exchange", "torchrec"} & usable)
    whole = f"by {' and '.join(passes)}, to compare with" if passes else "nothing installed here runs one"
    rows.append(Prospect("whole passes", Evidence.MEASURED if passes else "not checked", whole))
    return rows


def _without_kernels(host: Host) -> str:
    return Evidence.TRANSFERRED if host.shipped else Evidence.ASSUMED


def _cpu(host: Host, usable: set[str]) -> list[Prospect]:
    libraries = [name for name in CPU_LIBRARIES if name in usable]
    if libraries and host.cores > 1:
        inside = Prospect(
            f"collectives of {_counts(2, host.cores)} ranks", Evidence.MEASURED, f"by {', '.join(libraries)}"
        )
    else:
        why = "a single core" if libraries else "no library for them here"
        inside = Prospect("collectives", "nothing known", why)
    return [
        inside,
        Prospect("collectives of more nodes", "nothing known", "unless the job spans them (srun, mpirun)"),
        Prospect(
            "any GPU", Evidence.TRANSFERRED, "shipped calibrations, without any measurement of this machine"
        ),
    ]


def _gpu(host: Host, usable: set[str]) -> list[Prospect]:
    machine = load_machine(host.machine) if host.machine in list_machines() else None
    libraries = [name for name in GPU_LIBRARIES if name in usable]
    here, node = len(host.gpus), machine.gpus_per_node if machine else len(host.gpus)
    rows = []
    if here > 1:
        evidence, why = _inside(libraries, machine)
        rows.append(Prospect(f"collectives of {_counts(2, here)} GPUs", evidence, why))
    if node > max(here, 1):
        if here > 1 and libraries:
            rows.append(
                Prospect(
                    f"collectives of {_counts(here + 1, node)} GPUs",
                    Evidence.EXTRAPOLATED,
                    "no such GPUs here",
                )
            )
        else:
            rows.append(Prospect(f"collectives of {_counts(2, node)} GPUs", *_shipped(machine)))
    rows.append(_across(here, libraries, machine))
    return rows


def _counts(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} – {high}"


def _inside(libraries: Sequence[str], machine: Machine | None) -> tuple[str, str]:
    return (Evidence.MEASURED, f"by {', '.join(libraries)}") if libraries else _shipped(machine)


def _shipped(machine: Machine | None) -> tuple[str, str]:
    """The evidence of collectives that are not measured here, from shipped calibrations, and the reason."""
    if machine is None:
        return "nothing known", "no shipped calibration for these GPUs: --machine, or perfmodel import"
    for name in (machine.name, machine.links.like):
        count = len(list_calibrations(name)) if name else 0
        if count:
            several = f"{count} shipped calibrations" if count > 1 else "the shipped calibration"
            return Evidence.TRANSFERRED, f"{several} of {name}: another machine of this kind"
    return Evidence.ASSUMED, "no shipped calibration"


def _across(here: int, libraries: Sequence[str], machine: Machine | None) -> Prospect:
    part = "collectives of more nodes"
    if here > 1 and libraries:
        return Prospect(
            part, Evidence.EXTRAPOLATED, "measured if the job spans 2 nodes or more (torchrun, srun)"
        )
    evidence, why = _shipped(machine)
    return Prospect(part, Evidence.EXTRAPOLATED if machine else evidence, why)


def host_words(host: Host) -> str:
    """The machine on one line: GPUs or processor, cores, caches."""
    if host.gpus:
        names = f"{len(host.gpus)}× {host.gpus[0].name}"
        driver = f"driver {host.gpus[0].driver}" if host.gpus[0].driver else ""
        parts = [names, driver, f"{host.cores} cores"]
    else:
        caches = ", ".join(f"{level} {format_bytes(size)}" for level, size in sorted(host.caches.items()))
        parts = [host.cpu, f"{host.cores} cores", caches]
    if host.cores < host.cores_online:
        parts[-1 if host.gpus else 1] += f" (of {host.cores_online})"
    return " · ".join(part for part in parts if part)


def doctor_text(
    host: Host,
    libraries: Mapping[str, Availability],
    rows: Sequence[Prospect],
    findings: Sequence[MachineDoubt],
) -> str:
    """The answer: machine, libraries, what is missing, evidence of a projection, warnings, next command."""
    known = "" if host.shipped else "not a shipped machine: its values come from the run"
    parts = [
        facts([("Machine", f"{host.machine}: {host_words(host)}"), ("", host.note or known)]),
        _measures(libraries),
        _missing(host, libraries),
        paragraph("A projection of this machine would rest on")
        + "\n"
        + table(["", "evidence", ""], [[row.part, row.evidence, row.why] for row in rows], left=(0, 1, 2)),
        warnings_text(findings),
        _next(libraries),
    ]
    return "\n\n".join(part for part in parts if part)


def _measures(libraries: Mapping[str, Availability]) -> str:
    rows = [
        [
            name,
            found.version,
            ", ".join(found.clocks),
            found.functional_only or operation_words(found.operations),
        ]
        for name, found in libraries.items()
        if found.usable
    ]
    if not rows:
        return "Nothing can be timed here."
    headers = ["library", "version", "clocks", "times (functional check only where it says why)"]
    if not any(found.functional_only for found in libraries.values() if found.usable):
        headers[3] = "times"
    return "Can be timed here\n" + table(headers, rows, left=(0, 1, 2, 3))


def operation_words(operations: Sequence[str]) -> str:
    """The operations in words; the five collectives are summed up as ``all collectives``."""
    if set(COLLECTIVES) <= set(operations):
        return ", ".join(["all collectives", *(name for name in operations if name not in COLLECTIVES)])
    return ", ".join(operations)


def _missing(host: Host, libraries: Mapping[str, Availability]) -> str:
    """Why each library cannot run, and unwrapped commands that install it.

    Without a GPU, no command is given for libraries of GPUs.
    """
    absent = {name: found for name, found in libraries.items() if not found.usable}
    without = [name for name in absent if name in GPU_LIBRARIES and not host.gpus]
    rows = [[name, "no GPU here" if name in without else found.why_not] for name, found in absent.items()]
    if not rows:
        return ""
    lines: dict[str, list[str]] = {}
    for name, found in absent.items():
        if found.install and name not in without:
            lines.setdefault(found.install, []).append(name)
    text = "Cannot be timed here\n" + table(["", "because"], rows, left=(0, 1))
    for line, names in lines.items():
        text += f"\n\nTo install {', '.join(names)}\n{command(line)}"
    return text


def command(line: str) -> str:
    """A command to paste: not wrapped, but with a new line at each ``&&``."""
    return " " + " && \\\n   ".join(line.split(" && "))


def warnings_text(findings: Sequence[MachineDoubt]) -> str:
    """Numbered warnings, each with advice; "" if there are none."""
    texts = [
        f"{finding.name}: {finding.text}." + (f" Try: {finding.advice}" if finding.advice else "")
        for finding in findings
    ]
    return numbered(texts)


def numbered(texts: Sequence[str]) -> str:
    """The texts as a numbered list below the word Warnings; "" if there are none."""
    if not texts:
        return ""
    return "Warnings\n" + facts([(str(number), text) for number, text in enumerate(texts, start=1)], indent=1)


def _next(libraries: Mapping[str, Availability]) -> str:
    if not any(found.usable for found in libraries.values()):
        return ""
    return facts([("Next", "perfmodel calibrate --quick")])


def doctor_record(
    host: Host,
    libraries: Mapping[str, Availability],
    rows: Sequence[Prospect],
    findings: Sequence[MachineDoubt],
) -> dict[str, Any]:
    """The answer of ``perfmodel doctor`` for JSON: machine, libraries, evidence of projections, warnings."""
    return {
        "machine": host.machine,
        "shipped": host.shipped,
        "device": host.device,
        "cpu": host.cpu,
        "cores": host.cores,
        "caches": dict(host.caches),
        "gpus": [{"index": g.index, "name": g.name, "driver": g.driver} for g in host.gpus],
        "network": host.network,
        "note": host.note,
        "libraries": [
            {
                "name": name,
                "usable": found.usable,
                "version": found.version,
                "clocks": list(found.clocks),
                "operations": list(found.operations),
                "functional_only": found.functional_only,
                "why_not": found.why_not,
                "install": "" if found.usable else found.install,
            }
            for name, found in libraries.items()
        ],
        "prospects": [{"part": row.part, "evidence": row.evidence, "why": row.why} for row in rows],
        "warnings": [{"name": f.name, "text": f.text, "advice": f.advice} for f in findings],
    }
