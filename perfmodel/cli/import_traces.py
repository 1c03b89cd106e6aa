"""``perfmodel import`` of traces: a calibration from traces of a production run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibrate.importers.traces import is_trace, read_traces, without_other_kernels
from calibrate.importers.traces.samples import TraceSamples, fittable, stem_of, traced_samples
from perfmodel.cli.output import warn
from perfmodel.effort import tell
from perfmodel.errors import BadInputError, PerfmodelError
from perfmodel.report.trace_text import (
    host_text,
    kernels_text,
    skew_record,
    skew_text,
    trace_record,
    traces_text,
)
from perfmodel.schema.evidence import Backend
from perfmodel.schema.home import MACHINE_NAME, runs_by_age, runs_folder
from perfmodel.schema.machine import Machine, read_machine
from perfmodel.schema.table_files import load_tables
from perfmodel.schema.trace_alignment import rank_skews
from perfmodel.schema.traces import RankTrace
from perfmodel.units import format_bytes

if TYPE_CHECKING:
    import pandas as pd

_OF_HOSTS = (str(Backend.GLOO), str(Backend.MPI), str(Backend.SHMEM))


def tell_of_file(file: str, done_bytes: int, all_bytes: int) -> None:
    """Tell the progress line how much of a file is read."""
    tell(f"reading {file}: {100 * done_bytes // max(all_bytes, 1)} % of {format_bytes(all_bytes)}")


def holds_traces(paths: Sequence[Path]) -> bool:
    """Whether the paths are traces, not logs of benchmarks.

    Limits: a folder with a trace in it, a compressed file -> traces;  both kinds -> BadInputError
    """
    found = {path: _is_traced(path) for path in paths}
    if len(set(found.values())) > 1:
        trace, log = (
            next(path for path, kind in found.items() if kind is wanted) for wanted in (True, False)
        )
        raise BadInputError(
            f"{trace.name} is a trace and {log.name} is none: their times cannot be compared.",
            "import traces and logs separately.",
        )
    return any(found.values())


def _is_traced(path: Path) -> bool:
    if path.is_dir():
        return any(_is_traced(one) for one in sorted(path.iterdir()) if one.is_file())
    return path.is_file() and (path.suffix == ".gz" or is_trace(path))


def read_ranks(paths: Sequence[Path]) -> list[RankTrace]:
    """Read the traces of all ranks."""
    return read_traces(paths, tell_of_file, without_other_kernels)


def refuse_log_options(**given: object) -> None:
    """Raise BadInputError if one of ``given``, options by name that only logs need, was typed (not None)."""
    for name, value in given.items():
        if value is not None and not (name == "clock" and value == "trace"):
            option = f"--{name.replace('_', '-')}"
            raise BadInputError(f"{option} is for logs: a trace says it itself.", f"leave {option} out.")


def refuse_trace_options(*, model: str | None) -> None:
    """Raise BadInputError if an option was typed that only traces need. model  of ``--model``"""
    if model is not None:
        raise BadInputError("--model is for traces: logs hold no tables.", "leave --model out.")


def samples_of(
    traces: Sequence[RankTrace],
    machine: Machine,
    gpus_per_node: int | None,
    version: str | None,
    model: str | None,
) -> TraceSamples:
    """The samples in traces.

    gpus_per_node  how ranks are put on nodes if traces have no host names; None: the machine's
    version        of the library, if typed;  model  whose tables were looked up, if typed
    """
    per_node = gpus_per_node or machine.gpus_per_node
    if gpus_per_node is not None and gpus_per_node < 1:
        raise BadInputError(f"--gpus-per-node {gpus_per_node} is not a number of GPUs.", "at least 1.")
    dim = _columns_of(model) if model is not None else None
    return traced_samples(traces, machine.name, lambda: per_node, version or "", dim)


def of_cpus(result: TraceSamples) -> bool:
    """Whether the traces are of CPU processes: by a library for CPUs, without a GPU or a GPU kernel."""
    launched = (kernel.correlation is not None for trace in result.traces for kernel in trace.kernels)
    on_gpus = any(trace.device for trace in result.traces) or any(launched)
    return result.stack[0].backend in _OF_HOSTS and not on_gpus


def doubt_cpus(result: TraceSamples, machine: Machine, *, force: bool) -> list[str]:
    """A warning if traces of CPUs are imported for a machine of GPUs, which ``force`` (--force) allows.

    Limits: a machine of CPUs -> no warning;  without ``force`` -> BadInputError
    """
    if machine.default_backend in _OF_HOSTS:
        return []
    library = result.stack[0].backend
    text = f"the traces are of CPUs ({library}, no GPU in them), and {machine.name} is a machine of GPUs"
    if not force:
        raise BadInputError(f"{text}.", f"{_machine_of_cpus(library)}\nor --force to use them anyway.")
    return [text]


def _machine_of_cpus(library: str) -> str:
    """The option that names the machine of the latest run on CPUs; else the command that makes such a run."""
    for run in runs_by_age(runs_folder()):
        path = run / MACHINE_NAME
        if _is_of_cpus(path):
            return f"name the machine of the CPUs:\n  --machine {shlex.quote(str(path))}"
    return (
        "make a machine file of the CPUs, and name it (machine.toml in the folder that this prints):\n"
        f"  perfmodel calibrate --quick --backend {library}"
    )


def _is_of_cpus(path: Path) -> bool:
    """Whether the path is a machine file, and its machine has CPUs only."""
    try:
        return path.is_file() and read_machine(path).default_backend in _OF_HOSTS
    except PerfmodelError:
        return False


def source_words(result: TraceSamples) -> str:
    """The names of the traces in a few words: ``4 traces, rank0 to rank3``."""
    names = [stem_of(trace.file) for trace in result.traces]
    return f"the trace {names[0]}" if len(names) == 1 else f"{len(names)} traces, {names[0]} to {names[-1]}"


def _columns_of(model: str) -> int:
    """The number of columns that all tables of a model have. Limits: different numbers -> BadInputError"""
    found = sorted({int(table.dim) for table in load_tables(model).tables})
    if len(found) > 1:
        raise BadInputError(
            f"--model {model} has tables of {found[0]} to {found[-1]} columns: which were looked up?",
            "record the traces with PyTorch 2.2 or newer and record_shapes=True, and leave --model out.",
        )
    return found[0]


def fit_points(result: TraceSamples) -> pd.DataFrame:
    """The samples to fit; a warning names collectives without any. Limits: no samples -> BadInputError"""
    good = fittable(result)
    if good.empty:
        raise BadInputError(
            "\n".join(["nothing in these traces can be fitted:", *(f"  {text}" for text in result.warnings)]),
            "trace some steps without overlap (one stream), or give the traces of all ranks.",
        )
    lost = sorted(set(result.samples["collective"]) - set(good["collective"]))
    if lost:
        warn(f"no sample that can be fitted: {', '.join(lost)}")
    return good


def trace_records(result: TraceSamples) -> dict[str, Any]:
    """For JSON: traces (events of each rank), skew (waits of ranks), host (launch times), kernels."""
    return {
        "traces": [trace_record(trace) for trace in result.traces],
        "skew": [skew_record(skew) for skew in rank_skews(result.alignment.collectives)],
        "host": None if result.host is None else result.host._asdict(),
        "kernels": [] if result.kernels is None else result.kernels.to_dict("records"),
    }


def summary_text(result: TraceSamples) -> str:
    """The text about imported traces: events of each rank, and which rank waits for which."""
    parts = [traces_text(result.traces), skew_text(result.alignment)]
    if result.kernels is not None:
        parts.append(kernels_text(result.kernels, result.kernels_left_out))
    if (host := result.host) is not None:
        parts.append(host_text(host.kernels, host.launch_s, host.queue_s, host.dry))
    return "\n\n".join(part for part in parts if part)
