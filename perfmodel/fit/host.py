"""The machine file of a host that is not shipped: values that its own run measured, and assumed values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from perfmodel.fit.implementations import fit_kernels
from perfmodel.fit.links import rounded
from perfmodel.schema.evidence import Backend, Clock, Evidence
from perfmodel.schema.machine import KEYS, Machine
from perfmodel.schema.run_files import Run

if TYPE_CHECKING:
    import pandas as pd

_CACHE_LINE_BYTES = 64
_ASSUMED_MEMORY_BYTES = 4 * 2**30
_LARGE_BYTES = 64 * 2**20
"""A copy of more bytes than this does not fit the caches [bytes]."""


class _Value(NamedTuple):
    value: float
    source: str
    why: str
    evidence: Evidence


def machine_text(run: Run, memory_bytes: float | None = None) -> str:
    """TOML text of a run's machine: each rank counts as a GPU of it, each host as a node.

    memory_bytes  memory of one rank, where the caller knows it
    Every value names its source: this run's kernels and copies if they were timed, else why it is assumed.
    """
    values = _values(run, memory_bytes)
    backend, clock = _defaults(run)
    cpu = run.header.stack.get("gpu") or run.header.stack.get("cpu", "an unnamed processor")
    title = f"{cpu}, {_per_node(run)} ranks per node"
    far = list(_machine(run, values).doubts())  # this machine says so itself
    lines = [
        f"name = {_quoted(run.header.machine)}",
        f"title = {_quoted(title)}",
        f"notes = {_quoted('made by perfmodel calibrate; a rank stands for a GPU, a host for a node')}",
        *([f"accepted = {json.dumps(far)}"] if far else []),
        "",
        "[defaults]",
        f"backend = {_quoted(backend)}",
        *([f"clock = {_quoted(clock)}"] if clock else []),
        "",
        "[links]",
        f"network = {_quoted(_network(run))}",
    ]
    for key, known in KEYS.items():
        if key not in values:  # not every machine has it
            continue
        found = values[key]
        lines += [
            "",
            f"[values.{key}]",
            f"value = {found.value!r}",
            f"unit = {_quoted(known.unit)}",
            f"source = {_quoted(found.source)}",
            f"why = {_quoted(found.why)}",
            f"evidence = {_quoted(str(found.evidence))}",
        ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _per_node(run: Run) -> int:
    """The largest number of ranks per node in any start of the run."""
    return max([run.header.ranks // run.header.nodes, *(p.gpus_per_node for p in run.points.values())])


def _defaults(run: Run) -> tuple[str, str]:
    from perfmodel.schema.run_folders import CLOCK_ORDER

    seen = {(point.backend, point.clock) for point in run.points.values() if point.backend in list(Backend)}
    if not seen:
        return str(Backend.GLOO), ""
    backend, clock = min(
        seen, key=lambda pair: (list(Backend).index(Backend(pair[0])), CLOCK_ORDER.index(pair[1]))
    )
    return backend, str(clock)


def _network(run: Run) -> str:
    known = ("infiniband", "roce", "efa", "slingshot")
    found = run.header.stack.get("network", "")
    if found in known:
        return found
    return "none" if run.header.nodes == 1 else "ethernet"


def _values(run: Run, memory_bytes: float | None) -> dict[str, _Value]:
    """Every value of the machine file; later sources override earlier ones."""
    found = dict(_of_the_host(run, memory_bytes))
    kernels = run.kernel_samples()
    found |= dict(_of_copies(run, kernels))
    draft = _machine(run, found)
    for clock in (Clock.EAGER, Clock.STREAM, Clock.GRAPH):
        constants = fit_kernels(kernels, draft, clock)
        if constants is not None:
            what = f"fitted to {constants.sample_count} kernels of {constants.implementation}, {clock} clock"
            found |= {
                key: _Value(interval.value, _source(run), what, Evidence.MEASURED)
                for key, interval in constants.values.items()
                if interval.known
            }
            break
    return found


def _machine(run: Run, values: dict[str, _Value]) -> Machine:
    quantities = {key: {"unit": KEYS[key].unit, **found._asdict()} for key, found in values.items()}
    return Machine.model_validate({"name": run.header.machine, "title": "a host", "values": quantities})


def _source(run: Run) -> str:
    return f"run {run.run_id}"


def _of_the_host(run: Run, memory_bytes: float | None) -> Iterator[tuple[str, _Value]]:
    measured, assumed = Evidence.MEASURED, Evidence.ASSUMED
    source = _source(run)
    if memory_bytes is None:
        yield "hbm_bytes", _Value(_ASSUMED_MEMORY_BYTES, "nobody", "the run does not say it", assumed)
    else:
        yield "hbm_bytes", _Value(memory_bytes, source, "memory that one rank may use", measured)
    for key, value, why in (
        ("gpus_per_node", _per_node(run), "ranks that ran on each host"),
        ("nvlink_domain_gpus", 1, "ranks meet in the memory of their host"),
        ("nvlink_bytes_per_s", 0, "there is no scale-up link"),
    ):
        yield key, _Value(value, source, why, measured)
    yield "sm_count", _Value(1, source, "one rank is one core", assumed)
    yield "nics_per_node", _Value(1, "nobody", "one network card a host", assumed)
    yield "sector_bytes", _Value(_CACHE_LINE_BYTES, "x86-64 and Arm servers", "one cache line", assumed)
    yield "l2_bytes", _cache(run)
    yield "nic_bytes_per_s", _Value(1.25e9, "nobody", "10 Gbit/s Ethernet; collectives are measured", assumed)
    for name, typical in _TYPICAL.items():
        yield (
            name,
            _Value(typical, "nobody", "the order of a server's core; this run did not time it", assumed),
        )


_TYPICAL = {
    "hbm_bytes_per_s": 10e9,
    "pcie_bytes_per_s": 10e9,
    "l2_bytes_per_s": 30e9,
    "gather_bytes_per_s": 5e9,
    "launch_floor_s": 5e-6,
    "row_access_bytes": 64.0,
    "bag_factor": 1.0,
    "bucketize_floor_s": 30e-6,
    "bucketize_bytes_per_s": 0.5e9,
    "local_sum_bytes_per_s": 5e9,
}
"""Orders of magnitude for values that a run did not measure."""


def _cache(run: Run) -> _Value:
    """The cache of one core: its L2, else the largest cache that the run names."""
    sizes = {
        level: int(size) for level, size in re.findall(r"(L\d) (\d+)", run.header.stack.get("caches", ""))
    }
    if not sizes:
        return _Value(2**20, "nobody", "the run does not say its caches", Evidence.ASSUMED)
    level = "L2" if "L2" in sizes else max(sizes)
    return _Value(
        sizes[level], _source(run), f"{level} cache of a core, as the system says", Evidence.DATASHEET
    )


def _of_copies(run: Run, kernels: pd.DataFrame) -> Iterator[tuple[str, _Value]]:
    """Rates of memory, cache and links by key, from the fastest copies; of links, from collectives too."""
    source, measured = _source(run), Evidence.MEASURED
    seen = run.collective_samples()
    links = (seen["payload_bytes"] / seen["time_s"]).tolist()
    copies = kernels[kernels["operation"] == "copy"]
    if not copies.empty:
        rate, size = copies["payload_bytes"] / copies["time_s"], copies["payload_bytes"]
        large = rate[size >= min(_LARGE_BYTES, int(size.max()))]
        memory, cache = rounded(float(large.max())), rounded(float(rate.max()))
        links.append(cache)
        yield "hbm_bytes_per_s", _Value(memory, source, "fastest large copy, all ranks at once", measured)
        yield "l2_bytes_per_s", _Value(cache, source, "fastest copy of any size", measured)
    if links:
        why = "ranks of a host meet in its memory: no copy and no collective was faster"
        yield "pcie_bytes_per_s", _Value(rounded(float(max(links))), source, why, measured)
