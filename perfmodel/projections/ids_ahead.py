"""How much time a pass saves if the ids of the next batch are sent during this batch, as in TorchRec."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from perfmodel.model.schedule import COMPUTE, NETWORK, Task, steady
from perfmodel.passes.steps import StepRow

_NEXT = "next "


@dataclass(frozen=True)
class IdsAhead:
    """Consecutive batches, with the ids of the next batch sent during the present batch.

    ids_s     time of all steps before the look-up: sorting the ids, and their exchanges
    step_s    time from one batch to the next;  hidden_s  time saved, against batches one after the other
    Since two collectives share the links, only kernels of the tables hide the exchange: ``hidden_s``. Dense
    layers that take at least ``ids_s`` would hide all of it.
    """

    ids_s: float
    step_s: float
    hidden_s: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return vars(self)


def ids_ahead(steps: Sequence[StepRow]) -> IdsAhead | None:
    """What sending ids ahead would hide, for the steps of a pass in order.

    Limits: no exchange of ids, or no look-up after it -> None
    """
    names = [row.name for row in steps]
    first = names.index("gather_pool") if "gather_pool" in names else 0
    before, after = steps[:first], steps[first:]
    if not any(row.collective for row in before):
        return None
    tasks: list[Task] = []
    for stream, rows, prefix in (("tables", after, ""), ("ids", before, _NEXT)):
        chain: tuple[str, ...] = ()
        for row in rows:
            name, device = f"{prefix}{row.name}", COMPUTE if row.is_kernel else NETWORK
            waits = (f"{_NEXT}{before[-1].name}",) if row is after[0] else ()
            tasks.append(Task(name, stream, row.time_s, chain, waits, device))
            chain = (name,)
    serial = sum(task.duration_s for task in tasks)
    step = min(steady(tasks).step_s, serial)
    return IdsAhead(sum(row.time_s for row in before), step, serial - step)
