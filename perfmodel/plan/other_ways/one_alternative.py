"""One alternative, which is a way to hold and look up the tables: its parts, time of a batch, and cost."""

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
"""Number of samples for which costs are stated."""


@dataclass(frozen=True)
class EqualBatch:
    """The batch that is equal for all alternatives.

    total   samples of all GPUs together; None: equal samples per GPU
    of_gpu  samples of one GPU: of each if ``total`` is None, else of the alternative ``where``
    """

    total: int | None
    of_gpu: int
    where: str = "in HBM"

    @staticmethod
    def of(equal: str, base: Projection, where: str = "in HBM") -> EqualBatch:
        """The equal batch.

        equal  one of ``EQUAL_BATCHES``;  base  row-wise in HBM, whose replicas fill a machine"""
        if equal not in EQUAL_BATCHES:
            raise unknown_name("--equal-batch", equal, EQUAL_BATCHES)
        each = int(base.work.batch[0])
        return EqualBatch(each * base.gpus * copies_of(base) if equal == GLOBAL else None, each, where)

    def on(self, gpus: int) -> int:
        """Samples of one GPU, of ``gpus``. Limits: more GPUs than samples -> 1, and some GPUs have none"""
        return self.of_gpu if self.total is None else math.ceil(self.total / gpus)

    def samples(self, gpus: int) -> int:
        """Samples of ``gpus`` GPUs together."""
        return self.of_gpu * gpus if self.total is None else self.total

    def cost(self, time_s: float, gpus: int, paid: int) -> float:
        """Paid GPU-seconds per sample."""
        return time_s * paid / self.samples(gpus)


def node_of(machine: Machine, gpus_per_node: int | None = None) -> int:
    """GPUs in use per node."""
    return int(gpus_per_node or machine.gpus_per_node)


def copies_of(answer: Projection) -> int:
    """Number of replicas, each on a part of the GPUs, that fit in one machine side by side."""
    node = node_of(answer.setting.machine, answer.forward.gpus_per_node)
    return int(serving_cost.copies_in_machine(answer.gpus, node, whole=False))


@dataclass(frozen=True, eq=False)
class Alternative:
    """One alternative (a way to hold and look up the tables), with its costs.

    name    short, for files and JSON;  label  in words;  machine  its name
    what    how rows are held: uvm-caching, 27 % of the rows in HBM
    gpus_why  why it has this number of GPUs; "" if ``what`` says it
    answer  of one replica; None if impossible: ``why`` says the reason
    copies  replicas side by side, in one machine;  equal   the batch that is equal for all alternatives
    stated  whether its memory is the user's description, not for sale
    training  whether a pass is forward and backward
    network  whose exchange times it uses, if its machine is not the given machine
    hour  price of its machine;  cost  money; None if a price is missing: ``unpriced`` names it
    least_bytes_per_s  for a stated memory: the rate with as many GPU-hours as the best alternative that is
          sold; None if even its own rate is not enough
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
        """The memory that holds all rows, if there is one."""
        return self.answer.forward.memory if self.answer else None

    @property
    def time_s(self) -> float:
        """Time of a batch [s]."""
        return self.answer.time_s if self.answer else float("inf")

    @property
    def batch(self) -> float:
        """Samples of one GPU."""
        return float(self.answer.work.batch[0]) if self.answer else float("nan")

    @property
    def samples(self) -> float:
        """Samples of a batch on all GPUs."""
        return float(self.equal.samples(self.gpus)) if self.equal else float("nan")

    @cached_property
    def gpus(self) -> int:
        """GPUs at work; for one shared memory, the GPUs that share it."""
        if self.memory is not None:
            return self.memory.sharers
        return self.copies * self.answer.gpus if self.answer else 0

    @property
    def samples_per_s(self) -> float:
        """Samples per second of all GPUs."""
        return float(serving_cost.samples_per_s(self.samples, self.time_s))

    @cached_property
    def machines(self) -> int:
        """Machines in use, each paid in full."""
        if self.answer is None:
            return 0
        node = node_of(self.answer.setting.machine, self.answer.forward.gpus_per_node)
        return int(serving_cost.machines_in_use(1, self.gpus, node, whole=True))

    @property
    def gpus_paid(self) -> int:
        """GPUs that are paid: all GPUs of the machines in use, or of the racks that a price is for."""
        if self.answer is None:
            return 0
        node = self.answer.setting.machine.gpus_per_node
        together = (self.hour.gpus if self.hour else None) or node
        return together * (self.hour or HourPrice(0.0)).units(self.machines, node)

    @property
    def gpu_hours(self) -> float:
        """GPU-hours for ``SAMPLES`` samples, including GPUs that are paid but idle."""
        return self.hours(self.gpus_paid)

    @property
    def machine_hours(self) -> float:
        """Machine-hours for ``SAMPLES`` samples, from which energy is computed."""
        return self.hours(self.machines)

    @cached_property
    def priced_hours(self) -> float:
        """Paid hours for ``SAMPLES`` samples, in the unit of ``hour``: machines, GPUs or racks."""
        if self.answer is None or self.hour is None:
            return self.machine_hours
        return self.hours(self.hour.units(self.machines, self.answer.setting.machine.gpus_per_node))

    def hours(self, many: int) -> float:
        """Hours of ``many`` GPUs or machines while ``SAMPLES`` samples are processed."""
        return float(serving_cost.hours_paid(self.time_s, self.samples, SAMPLES, many))

    @property
    def energy_kwh(self) -> float | None:
        """Upper limit of the energy for ``SAMPLES`` samples. None if the power of a node is not stated."""
        if self.answer is None or not self.answer.setting.machine.knows("node_w"):
            return None
        return float(serving_cost.energy_kwh(self.machine_hours, self.answer.setting.machine.value("node_w")))

    def with_batch(self, equal: EqualBatch) -> Alternative:
        """The alternative on the same GPUs with another equal batch, without prices.

        Limits: the same samples per GPU -> the same answer
        """
        if self.answer is None or equal.on(self.gpus) == self.batch:
            return replace(self, equal=equal, cost=None)
        forward, work = self.answer.forward, self.answer.work
        work = replace(work, batch=np.full_like(work.batch, equal.on(self.gpus)))
        found = costed(forward, work)
        answer = projection_at(forward, work, self.answer.gpu_count.reserve, found, 0)
        return replace(self, equal=equal, cost=None, answer=answer)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
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
