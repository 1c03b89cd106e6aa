"""``explain collective``: how the time of one collective is derived, stage by stage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.collectives.grid import PER_OCTAVE
from perfmodel.collectives.time_tables import LIMITS, TimeTable, speed_of_light
from perfmodel.errors import BadInputError
from perfmodel.model.collectives import bus_factor, speed_of_light_time
from perfmodel.model.curves import anchored_time, hockney_time
from perfmodel.model.unknowns import Group
from perfmodel.passes.collective_parts import collective_parts
from perfmodel.passes.equations import Equation, name_of
from perfmodel.passes.letters import LETTERS
from perfmodel.passes.terms import Term, TimeParts, quantity_term
from perfmodel.schema.evidence import Evidence
from perfmodel.schema.machine import Machine
from perfmodel.schema.machine_keys import KEYS
from perfmodel.units import format_bytes, format_time

_SAME = 1e-12


@dataclass(frozen=True)
class TimeStage:
    """A stage in the derivation of a collective's time, such as a correction by measurements.

    what  the stage, in words;  time_s  time after the stage [s];  changed  whether it changed the time
    """

    what: str
    time_s: float
    changed: bool
    equation: Equation


@dataclass(frozen=True)
class CollectiveExplanation:
    """A collective with the stages that lead to its time, the equation of the first stage, and its band.

    basis    source of the time: a measured curve or a law
    on_grid  whether the size was measured
    doubts  parts of the standard deviation of ln t [-], which add in quadrature
    time_s, low_s, high_s  the answer with its band [s];  floor_s  its part that is latency [s]
    limit  what the time depends on most;  speed_of_light_s  least time of the links [s];  time  its
           derivation
    """

    model: CollectiveModel
    collective: str
    payload_bytes: float
    group: Group
    basis: str
    time_s: float
    low_s: float
    high_s: float
    floor_s: float
    evidence: Evidence
    limit: str
    speed_of_light_s: float
    time: TimeParts
    stages: tuple[TimeStage, ...]
    doubts: tuple[tuple[str, float], ...]
    on_grid: bool

    @property
    def title(self) -> str:
        """A heading: collective, size, number of GPUs and machine."""
        what = f"{self.collective.replace('_', '-')} of {format_bytes(self.payload_bytes)}"
        return f"{what} on {self.group.gpus} GPUs of {self.model.machine.name}"

    @property
    def light(self) -> Equation:
        """Equation of the speed-of-light bound of the links."""
        return Equation.of(speed_of_light_time)

    @property
    def reference(self) -> str:
        """Where the equation of the time comes from."""
        return self.time.reference or self.time.equations[0].source

    @property
    def busbw_bytes_per_s(self) -> float:
        """Bus bandwidth of the answer [bytes/s]."""
        factor = float(bus_factor(self.collective, self.group.gpus))
        return self.payload_bytes / self.time_s * factor

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        first = self.time.equations[0]
        model = self.model
        return {
            "collective": self.collective,
            "payload_bytes": self.payload_bytes,
            "gpus": self.group.gpus,
            "domain_gpus": self.group.domain_gpus,
            "domains": self.group.domains,
            "machine": model.machine.name,
            "overrides": sorted(model.machine.overrides),
            "backend": str(model.calibration.backend),
            "calibration": model.calibration_id,
            "clock": str(model.clock),
            "basis": self.basis,
            "time_s": self.time_s,
            "low_s": self.low_s,
            "high_s": self.high_s,
            "floor_s": self.floor_s,
            "busbw_bytes_per_s": self.busbw_bytes_per_s,
            "evidence": str(self.evidence),
            "limit": self.limit,
            "equation": "\n".join(each.text for each in self.time.equations if each.text),
            "function": first.function,
            "section": first.section,
            "parts": [each.to_dict() for each in self.time.equations[1:]],
            "reference": self.reference,
            "terms": [vars(term) for term in self.time.terms],
            "working": list(self.time.working),
            "stages": [
                {"what": stage.what, "time_s": stage.time_s, "changed": stage.changed}
                | {"function": stage.equation.function, "section": stage.equation.section}
                for stage in self.stages
            ],
            "on_grid": self.on_grid,
            "doubts": [{"what": what, "log_sd": log_sd} for what, log_sd in self.doubts],
            "speed_of_light": self.light.to_dict() | {"time_s": self.speed_of_light_s},
        }


def explain_collective(
    model: CollectiveModel, collective: str, payload_bytes: float, gpus: int, gpus_per_node: int
) -> CollectiveExplanation:
    """Derivation of the time that ``model.estimate`` returns, for one size and one number of ranks.

    Limits: one rank -> BadInputError;  else as ``model.estimate``
    """
    if gpus == 1:
        raise BadInputError("one GPU sends nothing: 0 s.", "give --gpus 2 or more.")
    found = model.estimate(collective, payload_bytes, gpus, gpus_per_node)
    node = min(gpus_per_node, gpus)
    table = model.table(collective, gpus, node)
    group = Group.of(gpus, model.machine.domain_gpus_of(node))
    time_s, evidence = float(found.time_s), Evidence.from_rank(int(found.evidence))
    time = collective_parts(model, collective, payload_bytes, gpus, node, time_s, evidence)
    light = np.log(speed_of_light(model.machine, collective, group))
    equations = time.equations
    if equations[0].function == name_of(hockney_time):  # a measured curve: how it is used
        equations = (Equation.of(anchored_time), equations[0])
    own = (_size_term(payload_bytes), Term("G", gpus, str(gpus), "", "", LETTERS["G"].meaning))
    more = (*_anchor_terms(model, collective, group, payload_bytes), *_link_terms(model.machine, group))
    return CollectiveExplanation(
        model=model,
        collective=collective,
        payload_bytes=payload_bytes,
        group=group,
        basis=table.basis,
        time_s=time_s,
        low_s=float(found.low_s),
        high_s=float(found.high_s),
        floor_s=float(found.floor_s),
        evidence=evidence,
        limit=LIMITS[int(found.limit)],
        speed_of_light_s=float(np.exp(table.at(light, payload_bytes))),
        time=TimeParts(equations, (*own, *time.terms, *more), time.working, time.reference),
        stages=tuple(_stages(table, payload_bytes)),
        doubts=time.doubts,
        on_grid=bool(np.log2(payload_bytes) * PER_OCTAVE % 1 == 0),
    )


def _size_term(payload_bytes: float) -> Term:
    meaning = "bytes of one rank's buffer, as nccl-tests has it"
    return Term("S", payload_bytes, format_bytes(payload_bytes), "", "", meaning)


def _stages(table: TimeTable, payload_bytes: float) -> Iterator[TimeStage]:
    before = np.nan
    for stage in table.stages:
        log_time = table.at(stage.log_time, payload_bytes)
        changed = not abs(log_time - before) < _SAME
        yield TimeStage(stage.what, float(np.exp(log_time)), changed, Equation.of(stage.function))
        before = log_time


def _anchor_terms(
    model: CollectiveModel, collective: str, group: Group, payload_bytes: float
) -> Iterator[Term]:
    """For a measured curve: the measured sizes on both sides of the requested size, as terms."""
    curve = model.calibration.curve(collective, group.gpus, group.domain_gpus)
    if curve is None:
        return
    sizes, source = np.array(curve.anchor_bytes), ", ".join(curve.sources)
    at = int(np.clip(np.searchsorted(sizes, payload_bytes * 1.001) - 1, 0, max(sizes.size - 2, 0)))
    for letter, i in (("i", at), ("i+1", at + 1)):
        if i < sizes.size:
            time, size = curve.anchor_times_s[i], format_bytes(float(sizes[i]))
            yield Term(f"t_{letter}", time, format_time(time), source, "measured", f"median at {size}")


def _link_terms(machine: Machine, group: Group) -> Iterator[Term]:
    """Datasheet rates of the links, which the speed-of-light bound uses."""
    keys = ["nvlink_bytes_per_s" if machine.nvlink_domain_gpus > 1 else "pcie_bytes_per_s"]
    for key in (*keys, *(["nic_bytes_per_s"] if group.domains > 1 else [])):
        yield quantity_term(key, machine.quantity(key), f"speed of light: {KEYS[key].meaning}")
