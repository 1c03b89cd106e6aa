"""One way to serve the tables: what it is, how long a batch takes, what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perfmodel.model import serving_cost
from perfmodel.passes.basis import LocalMemory
from perfmodel.projections import Projection

SAMPLES = 1e9
"""Samples that costs are told for."""
_BELOW_HBM = ("fetch_rows", "gather_host", "read_ssd")
"""Steps that read rows below the HBM: a plan that may use host memory and does not has none."""


@dataclass(frozen=True, eq=False)
class Alternative:
    """One way to serve the tables, with what it takes.

    name    a slug;  label  in words;  machine  its name
    what    how rows are held: uvm-caching, 27 % of the rows in HBM
    gpus_why  why it has this number of GPUs; "": it is said in ``what``
    answer  None where it is not possible, then ``why``;  stated  whether its memory is only stated, not sold
    cost  money; None where a price is missing, then ``unpriced`` names it: tb_month.ssd
    least_bytes_per_s  of a memory that is only stated: the rate at which it would take as long as the best
          that is sold; None where it takes longer already
    """

    name: str
    label: str
    machine: str
    what: str = ""
    answer: Projection | None = None
    gpus_why: str = ""
    why: str = ""
    stated: bool = False
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
    def gpus(self) -> int:
        """At work: of one memory, those that share it."""
        if self.memory is not None:
            return self.memory.sharers
        return self.answer.gpus if self.answer else 0

    @property
    def samples_per_s(self) -> float:
        """Of all GPUs."""
        return float(serving_cost.samples_per_s(self.gpus, self.batch, self.time_s))

    @property
    def gpu_hours(self) -> float:
        """Of ``SAMPLES`` samples."""
        return float(serving_cost.gpu_hours(self.time_s, self.batch, SAMPLES))

    @property
    def node(self) -> int:
        """GPUs of a machine."""
        if self.answer is None:
            return 0
        forward = self.answer.forward
        return int(forward.gpus_per_node or forward.setting.machine.gpus_per_node)

    @property
    def whole(self) -> bool:
        """Whether it has its machines to itself: rows are in their host memory or on their SSDs."""
        if self.answer is None or self.answer.forward.tier is None:
            return False
        return any(step.name in _BELOW_HBM for step in self.answer.steps)

    @property
    def machines(self) -> float:
        """In use: whole ones (``whole``), or the share of the GPUs."""
        if self.answer is None:
            return 0.0
        return float(serving_cost.machines_in_use(1, self.gpus, self.node, self.whole))

    @property
    def machine_hours(self) -> float:
        """Of ``SAMPLES`` samples: what money is paid for."""
        if self.answer is None:
            return float("nan")
        return float(serving_cost.machine_cost(self.gpu_hours, self.gpus, self.machines, 1.0))

    @property
    def energy_kwh(self) -> float | None:
        """Of as many, at most: of boards alone. None where the machine does not say their power."""
        if self.answer is None or not self.answer.setting.machine.knows("board_w"):
            return None
        return float(serving_cost.energy_kwh(self.gpu_hours, self.answer.setting.machine.value("board_w")))

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
            "gpus": self.gpus,
            "gpus_why": self.gpus_why or None,
            **{key: totals[key] for key in ("time_s", "low_s", "high_s")},
            "samples_per_s": self.samples_per_s,
            "samples_per_s_per_gpu": self.samples_per_s / self.gpus,
            "gpu_hours": self.gpu_hours,
            "whole_machines": self.whole,
            "machines": self.machines,
            "machine_hours": self.machine_hours,
            "energy_kwh_at_most": self.energy_kwh,
            "cost": self.cost,
            "unpriced": self.unpriced or None,
            "least_bytes_per_s": self.least_bytes_per_s,
            "evidence": str(self.answer.evidence),
            "main_evidence": str(self.answer.main_evidence),
            "steps": [step.to_dict() for step in self.answer.steps],
            "why_not": None,
        }
