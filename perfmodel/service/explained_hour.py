"""Explains the numbers of ``perfmodel load`` about an hour: machines, machine-hours, money."""

from __future__ import annotations

from collections.abc import Iterator

from perfmodel.model import serving_cost
from perfmodel.passes.equations import Equation, ExplainedNumber
from perfmodel.service.hourly import REQUESTS, HourlyCost
from perfmodel.service.service_load import ServiceLoad
from perfmodel.units import counted, format_count, format_number, format_per_second


def hourly_numbers(hourly: HourlyCost, answer: ServiceLoad) -> Iterator[ExplainedNumber]:
    """Machines in use, and machine-hours and cost of a given number of requests."""
    gpus, many = answer.question.served.gpus, counted(answer.replicas, "replica")
    rate = format_per_second(hourly.rate_per_s, "requests")
    sort = "has its machines to itself, k = 1" if hourly.whole else "may share a machine with others"
    yield ExplainedNumber(
        "machines",
        "cost.machines",
        hourly.machines,
        format_number(hourly.machines),
        Equation.of(serving_cost.machines_in_use),
        (f"R = {many}, G = {format_count(gpus)}, g = {hourly.node} GPUs: a replica {sort}",),
    )
    hours = hourly.machine_hours_of_requests
    yield ExplainedNumber(
        "machine-hours per 10⁹ requests",
        "cost.machine_hours_per_1e9_requests",
        hours,
        f"{format_number(hours)} h",
        Equation.of(serving_cost.of_requests),
        (f"c = {format_number(hourly.machines)} machine-hours per hour, lambda = {rate}, N = {REQUESTS:g}",),
    )
    if hourly.per_hour is None or hourly.of_requests is None:
        return
    money = f"{format_number(hourly.per_hour)} {hourly.currency}"
    machines = hourly.per_hour - hourly.rented_per_hour
    each = f"{format_number(machines / hourly.machines)} {hourly.currency}"
    rent = f" + {format_number(hourly.rented_per_hour)} of storage" if hourly.rented_per_hour else ""
    yield ExplainedNumber(
        "cost per hour",
        "cost.per_hour",
        hourly.per_hour,
        money,
        Equation.of(serving_cost.machines_in_use, "machines × price of a machine's hour + storage_cost"),
        (f"{format_number(hourly.machines)} machines × {each}{rent} = {money}",),
    )
    yield ExplainedNumber(
        "cost per 10⁹ requests",
        "cost.per_1e9_requests",
        hourly.of_requests,
        f"{format_number(hourly.of_requests)} {hourly.currency}",
        Equation.of(serving_cost.of_requests),
        (f"c = {money} per hour, lambda = {rate}, N = {REQUESTS:g}",),
    )
