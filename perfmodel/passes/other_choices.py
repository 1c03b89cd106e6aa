"""Time of a collective with each algorithm and protocol that its library could choose."""

from __future__ import annotations

from dataclasses import dataclass

from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.collectives.library import Library, Links
from perfmodel.model.unknowns import Group
from perfmodel.passes.explained_law import ExplainedLaw


@dataclass(frozen=True)
class ProtocolTimes:
    """Times at one size by ``algorithm protocol`` [s]; ``taken``: the pair that NCCL chooses by the law."""

    taken: str
    times_s: dict[str, float]


def choices_at(
    links: Links, collective: str, payload_bytes: float, gpus: int, gpus_per_node: int, time_s: float
) -> ProtocolTimes | None:
    """Times of all candidates of the law, scaled so that the chosen candidate has the answered time.

    time_s  answered time of the collective, corrected by measurements [s]
    Limits: two libraries, or no law of rings and trees for this collective -> None
    """
    if not isinstance(links, Library) or not isinstance(links.times, CollectiveModel):
        return None
    model = links.times
    law = model.calibration.law(collective)
    if law is None:
        return None
    group = Group.of(gpus, model.machine.domain_gpus_of(min(gpus_per_node, gpus)))
    case = ExplainedLaw(model, law, collective, group, payload_bytes, time_s, "")
    if case.choice is None or case.taken is None:
        return None
    names = [each.name for each in case.choice.candidates]
    taken = names[case.taken]
    times = dict(zip(names, (float(time) for time in case.choice.times_s), strict=True))
    factor = time_s / times[taken]
    return ProtocolTimes(taken, {name: factor * time for name, time in times.items()})
