"""What-ifs of a plan, each with a new search: faster links, more GPUs, memory, samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from perfmodel.answer.question import format_exact
from perfmodel.effort import Deadline
from perfmodel.engine.placement import Plan
from perfmodel.errors import BadInputError, PerfmodelError
from perfmodel.plan.limiting import limiting
from perfmodel.plan.outcome import Planned
from perfmodel.plan.question import PlanQuestion
from perfmodel.units import format_bytes, format_count

_MORE_SAMPLES = 4
EFFORT = 0.5
"""Share of a search's effort that all what-if searches have together."""


@dataclass(frozen=True, eq=False)
class WhatIf:
    """One change to the question, and the time of the best plan with it.

    name       the limiting resource (``plan.limiting``), cards, nvlink-domain, memory, payload or batch
    words      what changes;  option  the command-line option that makes the change; "" if there is none
    time_s     of a pass with the change [s]; None if there is no plan, or no search ran
    samples_per_s  of all GPUs [1/s]
    why        why there is no plan; else ""
    cut_short  whether the time limit left no time for a search
    limits     whether the change is of the limiting resource
    """

    name: str
    words: str
    option: str
    time_s: float | None = None
    samples_per_s: float | None = None
    why: str = ""
    cut_short: bool = False
    limits: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, in SI units."""
        return dict(vars(self))


def what_ifs(question: PlanQuestion, answer: Planned, ends: Deadline) -> tuple[WhatIf, ...]:
    """All changes, each with the better of the known plan, where it fits, and of a search with less effort.

    answer  the known plan;  ends  time limit by the clock
    Limits: time is up -> ``cut_short``, and no time;  a limiting resource that is no machine value -> no row
            for it;  one GPU -> no scale-up domain;  Ctrl-C -> KeyboardInterrupt
    """
    limit = limiting(answer)
    changes = [*_change_others(question, answer)]
    if limit.values:
        changes.insert(0, (limit.name, limit.words, limit.option, _with(question, **limit.values)))
    found = [WhatIf(name, words, option, limits=name == limit.name) for name, words, option, _ in changes]
    fewest = sorted(
        range(len(changes)), key=lambda at: _count_gpus(changes[at][3])
    )  # they are faster to search
    for done, at in enumerate(fewest):
        changed, cap_s = changes[at][3], ends.share(len(changes) - done)
        if isinstance(changed, BadInputError):
            found[at] = replace(found[at], why=changed.message)
        elif ends.over:
            found[at] = replace(found[at], cut_short=True)
        else:
            part = replace(changed, effort_s=EFFORT * question.effort_s / len(changes), time_limit_s=cap_s)
            found[at] = _time_change(found[at], part, answer.plan)
    return tuple(found)


def _count_gpus(changed: PlanQuestion | BadInputError) -> int:
    return 0 if isinstance(changed, BadInputError) else changed.gpus


def _time_change(what: WhatIf, changed: PlanQuestion, plan: Plan) -> WhatIf:
    """A change with the time of the better of ``plan`` and of a new search. changed  the question with it"""
    why, times = "", list[float | None]()
    try:
        times.append(changed.recosted(plan))
        ran = changed.search().run()
        if ran.stopped == "interrupt":  # an interrupt ends the other searches too
            raise KeyboardInterrupt
        times.append(ran.cost.time_s)
    except PerfmodelError as error:
        why = error.message
    known = [time_s for time_s in times if time_s is not None]
    if not known:
        return replace(what, why=why)
    return replace(what, time_s=min(known), samples_per_s=changed.batch * changed.gpus / min(known))


def _change_others(
    q: PlanQuestion, answer: Planned
) -> Iterator[tuple[str, str, str, PlanQuestion | BadInputError]]:
    """Every change as (name, words, command-line option, question with it or the error if impossible)."""
    e = answer.evaluator
    twice = 2 * q.gpus
    yield (
        *("cards", f"GPUs {format_count(q.gpus)} → {format_count(twice)}", f"--gpus {twice}"),
        _changed(q, gpus=twice),
    )
    if e.domain < e.gpus and q.machine.nvlink_domain_gpus > 1:
        used = q.costs.get("gpus_per_node") or q.machine.gpus_per_node
        wide = -(-q.gpus // used) * q.machine.gpus_per_node  # whole nodes, each domain in use as before
        words = f"{q.machine.links.scale_up} domain {format_count(q.machine.nvlink_domain_gpus)}"
        words += f" → {format_count(wide)} GPUs"
        if wide != q.gpus:
            words += f", {format_count(e.domain)} → {format_count(q.gpus)} of them in use"
        key = f"nvlink_domain_gpus={wide}"
        yield "nvlink-domain", words, f"--set {key}", _with(q, nvlink_domain_gpus=float(wide))
    yield _memory(q)
    if q.costs.get("payload") in (None, "fp32"):
        costs = {**q.costs, "payload": "fp16"}
        yield "payload", "bags sent as fp16", "--set payload=fp16", replace(q, costs=costs)
    batch = _MORE_SAMPLES * q.batch
    words = f"samples per GPU {format_count(q.batch)} → {format_count(batch)}"
    yield "batch", words, f"--batch {batch}", replace(q, batch=batch)


def _memory(q: PlanQuestion) -> tuple[str, str, str, PlanQuestion | BadInputError]:
    """The change to twice the memory of each GPU, or twice ``max_hbm``; returns as ``_change_others``."""
    if q.most_bytes is not None and 2 * q.most_bytes <= q.machine.value("hbm_bytes"):
        words = f"memory {_size(q.most_bytes)} → {_size(2 * q.most_bytes)} per GPU"
        option = f"--set max_hbm={format_exact(2 * q.most_bytes, 'byte')}"
        return "memory", words, option, replace(q, most_bytes=2 * q.most_bytes)
    whole = q.machine.value("hbm_bytes")
    changed = _with(q, hbm_bytes=2 * whole)
    option = f"--set hbm_bytes={format_exact(2 * whole, 'byte')}"
    if q.most_bytes is not None and not isinstance(changed, BadInputError):
        changed = replace(changed, most_bytes=2 * q.most_bytes)
        option += f" --set max_hbm={format_exact(2 * q.most_bytes, 'byte')}"
    return "memory", f"memory {_size(whole)} → {_size(2 * whole)} per GPU", option, changed


def _size(value: float) -> str:
    return format_bytes(value, binary=False)


def _with(q: PlanQuestion, **values: float) -> PlanQuestion | BadInputError:
    """The question on a machine with these values, by key; an error if they are not possible."""
    try:
        return _changed(q, machine=q.machine.with_overrides(values))
    except BadInputError as error:
        return error


def _changed(q: PlanQuestion, **values: Any) -> PlanQuestion | BadInputError:
    """The question with these fields changed; an error if they are not possible."""
    try:
        return replace(q, **values)
    except BadInputError as error:
        return error
