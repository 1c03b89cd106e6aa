"""Text of the costs of a service per hour: machines, machine-hours, money."""

from __future__ import annotations

from perfmodel.service.hourly import HourlyCost
from perfmodel.service.service_load import ServiceLoad
from perfmodel.units import counted, format_count, format_number


def hourly_words(hourly: HourlyCost, answer: ServiceLoad) -> list[tuple[str, str]]:
    """Pairs of label and text: how many machines are used, and their cost per hour if prices are given."""
    hours = f"{format_number(hourly.machine_hours_of_requests)} machine-hours per 10⁹ requests"
    found = [("Machines", f"{_machines(hourly, answer)}; {hours}")]
    if hourly.per_hour is not None and hourly.of_requests is not None:
        money, each = (f"{format_number(x)} {hourly.currency}" for x in (hourly.per_hour, hourly.of_requests))
        rent = (
            f", {format_number(hourly.rented_per_hour)} of it for the memory or the SSDs that hold the rows"
        )
        more = rent if hourly.rented_per_hour else ""
        found.append(("Cost", f"{money} per hour{more}; {each} per 10⁹ requests at this load"))
    elif hourly.unpriced:
        found.append(("Cost", f"not shown, since the file has no price: {hourly.unpriced}"))
    return found


def _machines(hourly: HourlyCost, answer: ServiceLoad) -> str:
    """``10 nodes of 8 GPUs (h100-sxm-ib), 1 for each replica``, and the reason if whole nodes are needed."""
    size = counted(hourly.node, "GPU")
    words = f"{counted(hourly.machines, 'node')} of {size} ({hourly.machine})"
    if hourly.whole:
        each = f", {format_count(hourly.nodes_per_replica)} for each replica" if answer.replicas > 1 else ""
        return f"{words}{each}: a replica has the host memory and the SSDs of its nodes to itself"
    used, paid = answer.gpus, hourly.machines * hourly.node
    return f"{words}, {used} of whose {paid} GPUs are in use" if used < paid else words
