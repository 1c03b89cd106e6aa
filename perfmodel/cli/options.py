"""Options that several commands share, and the small parsers behind them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Annotated

import typer

from perfmodel.cli.output import warn
from perfmodel.collectives.choose import choose_calibration
from perfmodel.collectives.estimate import LARGEST_GPUS
from perfmodel.errors import BadInputError, NoCalibrationError, NoKernelsError
from perfmodel.passes.schemes import AUTO, BY_DOMAIN
from perfmodel.project.inputs import LARGEST
from perfmodel.schema.calibration import Calibration, list_calibrations, load_calibration
from perfmodel.schema.evidence import COLLECTIVES, SAMPLES_ONLY, Backend, Clock
from perfmodel.schema.files import unknown_name
from perfmodel.schema.machine import Machine, beside_shipped, doubted_values, list_machines, load_machine
from perfmodel.schema.run_folders import (
    calibration_in,
    calibrations_of,
    machine_file_beside,
    no_machine_file,
    run_folder,
)
from perfmodel.units import format_bytes, format_count, parse_bytes, parse_count

DEFAULT_MACHINE = "h100-sxm-ib"

MachineOption = Annotated[
    str | None,
    typer.Option(
        "--machine",
        metavar="NAME",
        help=f"A shipped machine (perfmodel machines) or a TOML file (default: that of --calibration, "
        f"else {DEFAULT_MACHINE}).",
    ),
]
BackendOption = Annotated[
    str | None,
    typer.Option(
        "--backend",
        metavar="NAME",
        help="Communication library: nccl, nvshmem, best (the faster one for each step), or any "
        "library of your own calibration.",
    ),
]
KernelsOption = Annotated[
    str | None,
    typer.Option(
        "--kernels",
        metavar="NAME",
        help="Look-up kernels: fbgemm (TorchRec's; the default where it was timed), torch or perfmodel.",
    ),
]
LibraryOption = Annotated[
    str | None,
    typer.Option(
        "--backend",
        metavar="NAME",
        help="Communication library: nccl, nvshmem, or any library of your own calibration.",
    ),
]
ClockOption = Annotated[
    str | None,
    typer.Option(
        "--clock", metavar="NAME", help="How the times were measured: device, graph, stream, eager or trace."
    ),
]
CalibrationOption = Annotated[
    str | None,
    typer.Option(
        "--calibration",
        metavar="FILE",
        help="A calibration file, the id of a shipped calibration, or latest (your newest run).",
    ),
]
GpusPerNodeOption = Annotated[
    int | None,
    typer.Option("--gpus-per-node", metavar="N", help="GPUs used in each node (default: all of them)."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a machine value, e.g. nic_bytes_per_s=100GB/s. Repeat for more.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
CsvOption = Annotated[bool, typer.Option("--csv", help="Print CSV in SI units.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace an existing file.")]
OutOption = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="File to write.")]

_MOST_VALUES = 4096
_ACCEPTED = "accepted"
_SHIPPED_LIBRARIES = ("nccl", "nvshmem")


def apply_settings(machine: Machine, settings: list[str] | None) -> Machine:
    """``machine`` with ``--set key=value`` applied; each changed value is marked as assumed.

    Limits: a value more than ten times away from everything sold -> BadInputError, unless ``accepted=key``
    """
    values = settings_of(settings)
    accepted = values.pop(_ACCEPTED, "").split(",")
    changed = machine.with_overrides(dict(values))
    doubted = {key: text for key, text in changed.doubts().items() if key in values}
    for key in accepted:
        if key and key not in values:
            raise BadInputError(f"--set {_ACCEPTED}={key}: {key} is not set.", f"--set {key}=VALUE as well.")
    if open_ones := {key: text for key, text in doubted.items() if key not in accepted}:
        names = ",".join([*filter(None, accepted), *open_ones])
        raise doubted_values("--set ", open_ones, f"--set {_ACCEPTED}={names}")
    return changed


def settings_of(settings: list[str] | None, example: str = "nic_bytes_per_s=100GB/s") -> dict[str, str]:
    """Values of ``--set key=value`` by key. Limits: another form, a key twice -> BadInputError"""
    values: dict[str, str] = {}
    for text in settings or []:
        key, equals, value = text.partition("=")
        if not equals or not key.strip() or not value.strip():
            raise BadInputError(f"--set {text} is not key=value.", f"for example --set {example}")
        if key.strip() in values:
            raise BadInputError(f"--set {key.strip()} is given twice.", "keep one of them.")
        values[key.strip()] = value.strip()
    return values


def calibration_of(text: str | None, backend: str | None = None, clock: str | None = None) -> str | None:
    """``--calibration`` with ``latest``, or the folder of a run, as the file that it means.

    backend, clock   as asked for: they choose among the calibrations of a run
    Limits: ``best`` on a run -> BadInputError with the libraries that the run holds
    """
    if text is None or text in list_calibrations():
        return text
    folder = run_folder(text)
    if folder is None:
        return text
    if backend == "best":
        calibration_in(folder, None, clock)
        raise _no_best_of_a_run(text, folder)
    return str(calibration_in(folder, backend, clock))


def _no_best_of_a_run(text: str, folder: Path) -> BadInputError:
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
    """A machine by name or file, else the one that the calibration is of, with the user's what-ifs."""
    if name is None and calibration is not None:
        name = load_calibration_file(calibration).machine
        if name not in list_machines():
            beside = machine_file_beside(calibration)
            if beside is None:
                what, folder = f"calibration {calibration}", Path(calibration).parent
                raise no_machine_file(what, name, folder, "; or name it with --machine PATH")
            name = str(beside)
    machine = load_machine(name or DEFAULT_MACHINE)
    if calibration is None or calibration in list_calibrations():  # else it was measured on this very machine
        machine = beside_shipped(machine)
    return apply_settings(machine, settings)


def library_of(machine: Machine, backend: str | None, calibration: str | None, best: bool = True) -> str:
    """The library that was asked for; else that of the calibration that was named; else the machine's own."""
    if backend is None:
        return (
            machine.default_backend
            if calibration is None
            else str(load_calibration_file(calibration).backend)
        )

    known = [*(str(item) for item in Backend), *(["best"] if best else [])]
    if backend not in known:
        raise unknown_name("--backend", backend, known)
    return backend


@lru_cache(maxsize=8)
def load_calibration_file(calibration: str) -> Calibration:
    """A user's own calibration, or a shipped one by id; a partial one is said to be so, once."""
    found = load_calibration(calibration)
    if not found.complete:
        warn(f"calibration {calibration} is partial: some planned points are missing")
    return found


def calibration_file(calibration: str | None) -> str | None:
    """The file that ``--calibration`` named; None for a shipped one."""
    return None if calibration is None or calibration in list_calibrations() else calibration


@contextlib.contextmanager
def advice(
    machine: Machine, library: str, clock: str | None, instead: Callable[[], str | None] = lambda: None
) -> Iterator[None]:
    """Where nothing is known for what was asked: say what there is, never what was just used.

    instead  finds lines that have an answer; empty or None: there are none
    """
    try:
        yield
    except NoKernelsError:
        raise
    except NoCalibrationError as error:
        lines = instead()
        if lines:
            raise NoCalibrationError(error.message, lines) from None
        others = known_clocks(machine, library)
        if library not in (*_SHIPPED_LIBRARIES, "best"):
            raise
        if clock is not None and others and clock not in others:
            step = f"{library} on {machine.name} has --clock {' or '.join(others)}."
        else:
            names = [b for b in _SHIPPED_LIBRARIES if b != library and known_clocks(machine, b)]
            step = f"use --backend {names[0]}, " if names and library != "best" else "use "
            step += "another --machine, or fit one from logs: perfmodel import LOG…"
        raise NoCalibrationError(error.message, step) from None


def known_clocks(machine: Machine, library: str) -> list[str]:
    """Clocks of the shipped calibrations of a library that ``machine`` has or borrows."""
    found = []
    for clock in Clock:
        with contextlib.suppress(NoCalibrationError, ValueError):
            choose_calibration(machine, Backend(library), clock)
            found.append(str(clock))
    return found


def check_gpus(table_bytes: float, machine: Machine, reserve: float, what: str = "--table-size") -> None:
    """Refuse tables that need more GPUs than the model describes."""
    usable = machine.value("hbm_bytes") * (1 - reserve)
    if table_bytes > LARGEST_GPUS * usable:
        size, room = format_bytes(table_bytes, binary=False), format_bytes(usable, binary=False)
        raise BadInputError(
            f"{what} {size} needs {format_count(table_bytes / usable)} GPUs of {room}: "
            "more than this model covers.",
            f"at most {format_count(LARGEST_GPUS)} GPUs.",
        )


def check_per_node(gpus_per_node: int | None, machine: Machine) -> None:
    """Refuse a number of GPUs in a node that the machine does not have."""
    if gpus_per_node is not None and not 1 <= gpus_per_node <= machine.gpus_per_node:
        raise BadInputError(
            f"--gpus-per-node {gpus_per_node} cannot be used.",
            f"{machine.name} has 1 to {machine.gpus_per_node} in a node.",
        )


def check_most(name: str, value: float, option: str) -> None:
    """Refuse what is more than the model describes. Limits: above ``LARGEST[name]`` -> BadInputError"""
    if name in LARGEST and value > LARGEST[name]:
        raise BadInputError(
            f"{option} {value:.15g} is more than this model covers.", f"at most {LARGEST[name]:.0f}."
        )


def one_output(**chosen: bool) -> None:
    """Refuse two output formats at once."""
    given = [f"--{name}" for name, wanted in chosen.items() if wanted]
    if len(given) > 1:
        raise BadInputError(f"{' and '.join(given)} cannot be combined.", "choose one output format.")


def split_values(texts: list[str], option: str) -> list[str]:
    """Values of a repeatable option that also takes comma lists."""
    values = [part.strip() for text in texts for part in text.split(",")]
    if not values or any(not value for value in values):
        raise BadInputError(
            f"{option} {','.join(texts)}: an empty value.",
            f"for example {option} {_EXAMPLES.get(option, '1MiB,16MiB')}",
        )
    return values


_EXAMPLES = {
    "--table-size": "10TB,20TB",
    "--machine": "h100-sxm-ib,h200-sxm-ib",
    "--tier": "hbm,uvm,uvm-caching:10%",
    "--backend": "nccl,nvshmem",
    "--clock": "stream,graph",
    "--reduction": f"{AUTO},{BY_DOMAIN}",
    **dict.fromkeys(("--batch", "--pooling", "--dim", "--gpus", "--ranks"), "8,64"),
}
"""Of options that take lists; the rest are sizes."""


def size_values(texts: list[str], option: str = "--size") -> list[int]:
    """Whole bytes of ``64KiB,1MiB`` and of ranges by powers of two, ``1MiB..1GiB``."""
    sizes: list[int] = []
    for text in split_values(texts, option):
        low, dots, high = (part.strip() for part in text.partition(".."))
        first = _whole_bytes(parse_bytes(low, option), text, option)
        if not dots:
            sizes.append(first)
            continue
        last = _whole_bytes(parse_bytes(high, option), text, option)
        if last < first:
            raise BadInputError(f"{option} {text} runs backwards.", f"write {option} {high}..{low}")
        sizes += _doubling(first, last)
    return _not_too_many(sizes, option)


def count_values(texts: list[str], option: str) -> list[int]:
    """Whole numbers of ``8,16`` and of ranges by powers of two, ``8..1024``."""
    counts: list[int] = []
    for text in split_values(texts, option):
        low, dots, high = (part.strip() for part in text.partition(".."))
        first = parse_count(low, option)
        last = parse_count(high, option) if dots else first
        if last < first:
            raise BadInputError(
                f"{option} {text} runs downwards.", f"the smaller number comes first: {option} {high}..{low}."
            )
        counts += _doubling(first, last)
    return _not_too_many(counts, option)


def _whole_bytes(value: float, text: str, option: str) -> int:
    if abs(value - round(value)) > 1e-9 * value:
        raise BadInputError(f"{option} {text} is not a whole number of bytes ({value:.3f}).")
    return round(value)


def _doubling(first: int, last: int) -> list[int]:
    values = [first]
    while 2 * values[-1] <= last:
        values.append(2 * values[-1])
    return values if values[-1] == last else [*values, last]


def _not_too_many(values: list[int], option: str) -> list[int]:
    unique = sorted(set(values))
    if len(unique) > _MOST_VALUES:
        raise BadInputError(f"{option}: {len(unique)} values; at most {_MOST_VALUES}.")
    return unique


def collective_name(text: str) -> str:
    """Our name of a collective, also for ``all-to-all``, ``alltoall`` and ``AllReduce``."""
    plain = re.sub(r"[^a-z]", "", text.lower())
    for name in COLLECTIVES:
        if plain == name.replace("_", ""):
            return name
    if plain in SAMPLES_ONLY:
        raise BadInputError(
            f"--op {text} has no curve: calibrate measures it as a check of what one link gives "
            "(samples only, not fitted).",
            f"perfmodel show latest --samples prints its times; with a curve: {', '.join(COLLECTIVES)}.",
        )

    raise unknown_name("--op collective", text, COLLECTIVES)
