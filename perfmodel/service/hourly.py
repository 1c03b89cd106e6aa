"""Cost of an hour of a service: machines, and money if prices are known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perfmodel.model import serving_cost
from perfmodel.schema.prices import Prices
from perfmodel.service.service_load import ServiceLoad

REQUESTS = 1e9
"""Number of requests for which machine-hours and money are stated."""


@dataclass(frozen=True)
class HourlyCost:
    """Cost of an hour of a service at its load.

    machine   its name;  node  GPUs per machine;  nodes_per_replica  machines that a replica uses
    whole     whether a replica has its machines for itself; else several may share a machine
    machines  in use, each paid in full: machine-hours per hour;  rate_per_s  the load
    currency  "" without prices;  per_hour  money; None if a price is missing: ``unpriced`` names it
    rented_per_hour  part of ``per_hour`` for the SSDs or the shared memory that hold the rows
    """

    machine: str
    node: int
    nodes_per_replica: int
    whole: bool
    machines: int
    rate_per_s: float
    currency: str = ""
    per_hour: float | None = None
    rented_per_hour: float = 0.0
    unpriced: str = ""

    @property
    def machine_hours_of_requests(self) -> float:
        """Machine-hours for ``REQUESTS`` requests at this load."""
        return float(serving_cost.of_requests(self.machines, self.rate_per_s, REQUESTS))

    @property
    def of_requests(self) -> float | None:
        """Money for ``REQUESTS`` requests at this load."""
        if self.per_hour is None:
            return None
        return float(serving_cost.of_requests(self.per_hour, self.rate_per_s, REQUESTS))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "machine": self.machine,
            "gpus_per_machine": self.node,
            "whole_machines": self.whole,
            "machines_per_replica": self.nodes_per_replica,
            "machines": self.machines,
            "machine_hours_per_1e9_requests": self.machine_hours_of_requests,
            "currency": self.currency or None,
            "per_hour": self.per_hour,
            "per_1e9_requests": self.of_requests,
            "unpriced": self.unpriced or None,
        }


def hourly_cost(answer: ServiceLoad, machine: str, prices: Prices | None = None) -> HourlyCost:
    """The cost of an hour at the asked load.

    machine  its name in ``prices``;  prices  None: machine-hours only, no money
    """
    served = answer.question.served
    each, machines = (
        int(serving_cost.machines_in_use(replicas, served.gpus, served.node, served.whole))
        for replicas in (1, answer.replicas)
    )
    known = (machine, served.node, each, served.whole, machines, answer.asked.load_per_s)
    if prices is None:
        return HourlyCost(*known)
    if machine not in prices.machine_hour:
        return HourlyCost(*known, prices.currency, unpriced=f"machine_hour.{machine}")
    if served.held_in and served.held_in not in prices.tb_month:
        return HourlyCost(*known, prices.currency, unpriced=f"tb_month.{served.held_in}")
    rented = 0.0
    if served.held_in:
        price = prices.tb_month[served.held_in]
        rented = float(serving_cost.storage_cost(served.held_bytes * answer.replicas, 1.0, price))
    hour = prices.machine_hour[machine]
    paid = hour.units(machines, served.node) * hour.money + rented
    return HourlyCost(*known, prices.currency, paid, rented)
