"""The machine file of a host that is not shipped: values that its own run measured, and assumed values."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

from perfmodel import resources
from perfmodel.fit.kernel_fits import fit_kernels
from perfmodel.fit.law_fits import rounded
from perfmodel.schema.evidence import Backend, Clock, Evidence
from perfmodel.schema.gate import read_toml
from perfmodel.schema.machine import KEYS, Machine
from perfmodel.schema.run_files import CLOCK_ORDER, Run
from perfmodel.schema.runs import PointKind

if TYPE_CHECKING:
    import pandas as pd

_LARGE_BYTES = 64 * 2**20
"""A copy of more bytes than this does not fit the caches [bytes]."""


class _Value(NamedTuple):
    """A value of a machine file, in the unit of its key, with its origin."""

    value: float
    source: str
    why: str
    evidence: Evidence = Evidence.MEASURED


def machine_text(run: Run, memory_bytes: float | None = None) -> str:
    """TOML text of a run's machine: each rank counts as a GPU of it, each host as a node.

    memory_bytes  memory of one rank, where the caller knows it
    Every value names its source: this run's kernels and copies if they were timed, else why it is assumed.
    """
    kernels = run.work_samples(PointKind.KERNEL)
    values = _describe_host(run, memory_bytes) | _measure_copies(run, kernels)
    values |= _measure_kernels(run, kernels, _make_machine(run, values))
    stack = run.header.stack
    cpu = stack.get("gpu") or stack.get("cpu", "an unnamed processor")
    network = stack.get("network", "")
    if network not in ("infiniband", "roce", "efa", "slingshot"):
        network = "none" if run.header.nodes == 1 else "ethernet"
    order = [(str(backend), str(clock)) for backend in Backend for clock in CLOCK_ORDER]
    pairs = {(point.backend, str(point.clock)) for point in run.points.values()}
    backend, clock = next((pair for pair in order if pair in pairs), (str(Backend.GLOO), ""))
    head: dict[str, object] = {
        "name": run.header.machine,
        "title": f"{cpu}, {values['gpus_per_node'].value} ranks per node",
        "notes": "made by perfmodel calibrate; a rank stands for a GPU, a host for a node",
    }
    doubts = list(_make_machine(run, values).doubts())  # this machine says so itself
    head |= {"accepted": doubts} if doubts else {}
    tables: dict[str, dict[str, object]] = {"": head, "defaults": {"backend": backend}}
    tables["defaults"] |= {"clock": clock} if clock else {}
    tables["links"] = {"network": network}
    for key in (key for key in KEYS if key in values):  # not every machine has every value
        value = values[key]._asdict()
        tables[f"values.{key}"] = {"value": value.pop("value"), "unit": KEYS[key].unit, **value}
    texts = []
    for name, table in tables.items():
        rows = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in table.items()]
        texts.append("\n".join([f"[{name}]", *rows] if name else rows))
    return "\n\n".join(texts) + "\n"


def _make_machine(run: Run, values: dict[str, _Value]) -> Machine:
    """A host's Machine with these values. Limits: out of range -> pydantic's ValidationError"""
    quantities = {key: {"unit": KEYS[key].unit, **value._asdict()} for key, value in values.items()}
    return Machine.model_validate({"name": run.header.machine, "title": "a host", "values": quantities})


def _describe_host(run: Run, memory_bytes: float | None) -> dict[str, _Value]:
    """What the run says of its host; all else is assumed (``data/host/assumed.toml``)."""
    source = f"run {run.run_id}"
    assumed = read_toml(resources.data_path("host", "assumed.toml"), "assumed values")
    rows = {key: {"source": source} | row for key, row in assumed.items()}
    values = {key: _Value(**row, evidence=Evidence.ASSUMED) for key, row in rows.items()}
    if memory_bytes is not None:
        values["hbm_bytes"] = _Value(memory_bytes, source, "memory that one rank may use")
    # the largest number of ranks per node in any start of the run
    per_node = max([run.header.ranks // run.header.nodes, *(p.gpus_per_node for p in run.points.values())])
    for key, count, why in (
        ("gpus_per_node", per_node, "ranks that ran on each host"),
        ("nvlink_domain_gpus", 1, "ranks meet in the memory of their host"),
        ("nvlink_bytes_per_s", 0, "there is no scale-up link"),
    ):
        values[key] = _Value(count, source, why)
    sizes = dict(re.findall(r"(L\d) (\d+)", run.header.stack.get("caches", "")))
    if sizes:
        level = "L2" if "L2" in sizes else max(sizes)
        why = f"{level} cache of a core, as the system says"
        values["l2_bytes"] = _Value(int(sizes[level]), source, why, Evidence.DATASHEET)
    return values


def _measure_copies(run: Run, kernels: pd.DataFrame) -> dict[str, _Value]:
    """Rates of memory, cache and links, from the fastest copies; of links, from collectives too."""
    source = f"run {run.run_id}"
    values = {}
    collectives = run.collective_samples()
    links = (collectives["payload_bytes"] / collectives["time_s"]).tolist()
    copies = kernels[kernels["operation"] == "copy"]
    if not copies.empty:
        size = copies["payload_bytes"]
        rate = size / copies["time_s"]
        large = rate[size >= min(_LARGE_BYTES, int(size.max()))]
        memory = rounded(float(large.max()))
        values["hbm_bytes_per_s"] = _Value(memory, source, "fastest large copy, all ranks at once")
        cache = rounded(float(rate.max()))
        links.append(cache)
        values["l2_bytes_per_s"] = _Value(cache, source, "fastest copy of any size")
    if links:
        why = "ranks of a host meet in its memory: no copy and no collective was faster"
        values["pcie_bytes_per_s"] = _Value(rounded(float(max(links))), source, why)
    return values


def _measure_kernels(run: Run, kernels: pd.DataFrame, draft: Machine) -> dict[str, _Value]:
    """Constants of the kernels that were timed; the first clock that has some counts. draft  values so far"""
    for clock in (Clock.EAGER, Clock.STREAM):
        for constants in fit_kernels(kernels, draft, clock):
            why = f"fitted to {constants.sample_count} kernels of {constants.implementation}, {clock} clock"
            return {
                key: _Value(interval.value, f"run {run.run_id}", why)
                for key, interval in constants.values.items()
                if interval.known
            }
    return {}
