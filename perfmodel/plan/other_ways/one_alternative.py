"""One way to serve the tables: what it is, how long a batch takes, what it costs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from perfmodel.model import serving_cost
from perfmodel.passes.basis import LocalMemory
from perfmodel.projections import Projection
from perfmodel.projections.grid import costed
from perfmodel.projections.projection import projection_at
from perfmodel.question.passes import EQUAL_BATCHES, GLOBAL
from perfmodel.schema.files import unknown_name
from perfmodel.schema.machine import Machine
from perfmodel.schema.prices import HourPrice

SAMPLES = 1e9
"""Samples that costs are told for."""


@dataclass(frozen=True)
class EqualBatch:
    """The batch that all alternatives have alike.

    total   samples of all GPUs together; None: each GPU has as many
    of_gpu  samples of one GPU: of all alternatives, or ``where`` alone, in words
    """

    total: int | None
    of_gpu: int
    where: str = "in HBM"

    @staticmethod
    def of(equal: str, base: Projection, where: str = "in HBM") -> EqualBatch:
        """equal  one of ``EQUAL_BATCHES``;  base  row-wise in HBM, of which copies fill a machine"""
        if equal not in EQUAL_BATCHES:
            raise unknown_name("--equal-batch", equal, EQUAL_BATCHES)
        each = int(base.work.batch[0])
        return EqualBatch(each * base.gpus * copies_of(base) if equal == GLOBAL else None, each, where)

    def on(self, gpus: int) -> int:
        """Samples of one of these GPUs. Limits: more GPUs than samples -> 1, some GPUs have none"""
        return self.of_gpu if self.total is None else math.ceil(self.total / gpus)

    def samples(self, gpus: int) -> int:
        """Of all of them."""
        return self.of_gpu * gpus if self.total is None else self.total

    def cost(self, time_s: float, gpus: int, paid: int) -> float:
        """GPU-seconds that are paid for a sample."""
        return time_s * paid / self.samples(gpus)


def node_of(machine: Machine, gpus_per_node: int | None = None) -> int:
    """GPUs in use of each machine."""
    return int(gpus_per_node or machine.gpus_per_node)


def copies_of(answer: Projection) -> int:
    """Copies of tables in HBM that fill a machine: what one does with its other GPUs."""
    node = node_of(answer.setting.machine, answer.forward.gpus_per_node)
    return int(serving_cost.copies_in_machine(answer.gpus, node, whole=False))


@dataclass(frozen=True, eq=False)
class Alternative:
    """One way to serve the tables, with what it takes.

    name    a slug;  label  in words;  machine  its name
    what    how rows are held: uvm-caching, 27 % of the rows in HBM
    gpus_why  why it has this number of GPUs; "": it is said in ``what``
    answer  of one copy; None where it is not possible, then ``why``;  copies  side by side, in one machine
    equal   the batch that all alternatives have alike
    stated  whether its memory is only stated, not sold;  training  whether a pass is forward and backward
    network  whose exchanges it has, where its machine is not the one that was asked for
    hour  price of its machine;  cost  money; None where a price is missing, then ``unpriced`` names it:
          tb_month.ssd
    least_bytes_per_s  of a memory that is only stated: the rate at which it would take as many GPU-hours as
          the best that is sold; None where it takes more already
    """

    name: str
    label: str
    machine: str
    what: str = ""
    answer: Projection | None = None
    gpus_why: str = ""
    why: str = ""
    equal: EqualBatch | None = None
    copies: int = 1
    stated: bool = False
    training: bool = False
    network: str = ""
    hour: HourPrice | None = None
    cost: float | None = None
    unpriced: str = ""
    least_bytes_per_s: float | None = None

    @property
    def memory(self) -> LocalMemory | None:
        """The one that holds all rows, where one does."""
        return self.answer.forward.memory if self.answer else None

    @property
    def time_s(self) -> float:
        """Of a batch."""
        return self.answer.time_s if self.answer else float("inf")

    @property
    def batch(self) -> float:
        """Samples of one GPU."""
        return float(self.answer.work.batch[0]) if self.answer else float("nan")

    @property
    def samples(self) -> float:
        """Of a batch, on all GPUs."""
        return float(self.equal.samples(self.gpus)) if self.equal else float("nan")

    @cached_property
    def gpus(self) -> int:
        """At work: of one memory, those that share it."""
        if self.memory is not None:
            return self.memory.sharers
        return self.copies * self.answer.gpus if self.answer else 0

    @property
    def samples_per_s(self) -> float:
        """Of all GPUs."""
        return float(serving_cost.samples_per_s(self.samples, self.time_s))

    @cached_property
    def machines(self) -> int:
        """In use, each paid whole."""
        if self.answer is None:
            return 0
        node = node_of(self.answer.setting.machine, self.answer.forward.gpus_per_node)
        return int(serving_cost.machines_in_use(1, self.gpus, node, whole=True))

    @property
    def gpus_paid(self) -> int:
        """All of the machines in use, or of the racks that a price is of, whether they work or not."""
        if self.answer is None:
            return 0
        node = self.answer.setting.machine.gpus_per_node
        together = (self.hour.gpus if self.hour else None) or node
        return together * (self.hour or HourPrice(0.0)).units(self.machines, node)

    @property
    def gpu_hours(self) -> float:
        """Of ``SAMPLES`` samples, those of GPUs that are only paid with them."""
        return self.hours(self.gpus_paid)

    @property
    def machine_hours(self) -> float:
        """Of as many: what energy is counted by."""
        return self.hours(self.machines)

    @cached_property
    def priced_hours(self) -> float:
        """Hours that are paid for as many, of what ``hour`` is of: machines, GPUs or racks."""
        if self.answer is None or self.hour is None:
            return self.machine_hours
        return self.hours(self.hour.units(self.machines, self.answer.setting.machine.gpus_per_node))

    def hours(self, many: int) -> float:
        """Of as many GPUs or machines while ``SAMPLES`` samples are processed."""
        return float(serving_cost.hours_paid(self.time_s, self.samples, SAMPLES, many))

    @property
    def energy_kwh(self) -> float | None:
        """Of as many, at most. None where the machine does not say the power of a node."""
        if self.answer is None or not self.answer.setting.machine.knows("node_w"):
            return None
        return float(serving_cost.energy_kwh(self.machine_hours, self.answer.setting.machine.value("node_w")))

    def with_batch(self, equal: EqualBatch) -> Alternative:
        """The same on the same GPUs, with another batch held; without money.

        Limits: as many samples of a GPU -> the same answer
        """
        if self.answer is None or equal.on(self.gpus) == self.batch:
            return replace(self, equal=equal, cost=None)
        forward, work = self.answer.forward, self.answer.work
        work = replace(work, batch=np.full_like(work.batch, equal.on(self.gpus)))
        found = costed(forward, work)
        answer = projection_at(forward, work, self.answer.gpu_count.reserve, found, 0)
        return replace(self, equal=equal, cost=None, answer=answer)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words."""
        found: dict[str, Any] = {"name": self.name, "label": self.label, "machine": self.machine}
        if self.answer is None:
            return {**found, "why_not": self.why}
        totals = self.answer.totals
        return {
            **found,
            "what": self.what,
            "stated": self.stated,
            "training": self.training,
            "network": self.network or None,
            "gpus": self.gpus,
            "gpus_paid": self.gpus_paid,
            "copies": self.copies,
            "gpus_why": self.gpus_why or None,
            **{key: totals[key] for key in ("time_s", "low_s", "high_s")},
            "samples": self.samples,
            "batch": self.batch,
            "samples_per_s": self.samples_per_s,
            "samples_per_s_per_gpu": self.samples_per_s / self.gpus,
            "gpu_hours": self.gpu_hours,
            "machines": self.machines,
            "machine_hours": self.machine_hours,
            "energy_kwh_at_most": self.energy_kwh,
            "price": self.hour and vars(self.hour),
            "cost": self.cost,
            "unpriced": self.unpriced or None,
            "least_bytes_per_s": self.least_bytes_per_s,
            "evidence": str(self.answer.evidence),
            "main_evidence": str(self.answer.main_evidence),
            "steps": [step.to_dict() for step in self.answer.steps],
            "why_not": None,
        }
