"""What-ifs of a plan, each with a new search: faster links, more GPUs, memory, samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from perfmodel.answer.option_texts import format_exact
from perfmodel.effort import Deadline
from perfmodel.engine.placement import Plan
from perfmodel.errors import BadInputError, PerfmodelError
from perfmodel.plan.limiting import Limiting, limiting
from perfmodel.plan.outcome import Planned
from perfmodel.plan.question import PlanQuestion
from perfmodel.plan.searching.carried import as_option, carried, repaired
from perfmodel.units import format_bytes, format_count, format_time

_MORE_SAMPLES = 4
_PAYLOAD = "payload"
_SAME = 5e-4  # of a time: a difference that is not printed
EFFORT = 0.5
"""Share of a search's effort that all what-if searches have together."""


@dataclass(frozen=True, eq=False)
class WhatIf:
    """One change to the question, and the time of the best plan with it.

    name       the limiting resource (``plan.limiting``), cards, nvlink-domain, memory, payload or batch
    words      what changes;  option  the command-line option that makes the change; "" if there is none
    time_s     of a pass with the change [s]; None if there is no plan, or no search ran
    samples_per_s  of all GPUs [1/s]
    why        why there is no plan, or why fp16 takes longer; else ""
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
    """All changes; each has the better of the known plan and of a new search with part of the effort.

    answer  the known plan;  ends  time limit by the clock
    Limits: time is up -> ``cut_short``, and no time;  a limiting resource that is no machine value -> no row
            for it;  one GPU -> no scale-up domain;  Ctrl-C -> KeyboardInterrupt
    """
    plan, limit = answer.plan, limiting(answer)
    asked = [*_of_limit(question, limit), *_asked(question, answer)]
    found = [WhatIf(name, words, option, limits=name == limit.name) for name, words, option, changed in asked]
    fewest = sorted(range(len(asked)), key=lambda at: _gpus(asked[at][3]))  # fewer GPUs are faster to search
    for done, at in enumerate(fewest):
        changed, cap_s = asked[at][3], ends.share(len(asked) - done)
        if isinstance(changed, BadInputError):
            found[at] = replace(found[at], why=changed.message)
            continue
        if ends.over:
            found[at] = replace(found[at], cut_short=True)
            continue
        found[at] = _known(found[at], changed, plan)
        part = replace(changed, effort_s=EFFORT * question.effort_s / len(asked), time_limit_s=cap_s)
        found[at] = _converting(_anew(found[at], part, plan), changed, answer)
    return tuple(found)


def _gpus(changed: PlanQuestion | BadInputError) -> int:
    return 0 if isinstance(changed, BadInputError) else changed.gpus


def _of_limit(
    question: PlanQuestion, limit: Limiting
) -> Iterator[tuple[str, str, str, PlanQuestion | BadInputError]]:
    """The change of the limiting resource, (name, words, option, question), if it is a machine value."""
    if limit.values:
        yield limit.name, limit.words, limit.option, _with(question, **limit.values)


def _known(what: WhatIf, changed: PlanQuestion, plan: Plan) -> WhatIf:
    """The result of a change if tables stay as in ``plan``; on more GPUs, if they keep their schemes.

    what  the change;  changed  the question with it
    """
    time_s = changed.recosted(plan)
    if time_s is None:
        try:
            e, schemes = changed.evaluator, carried(plan, changed.gpus, changed.evaluator.domain)
            options = changed.options(schemes)
            state = repaired(e, options, as_option(options, schemes), changed.limit_bytes, lambda: False)
        except PerfmodelError as error:
            return replace(what, why=error.message)
        time_s = None if state is None else e.cost(state.plan()).time_s
    return _with_time(what, changed, time_s)


def _anew(what: WhatIf, changed: PlanQuestion, plan: Plan) -> WhatIf:
    """The result of a change: the better of ``what``, with the known plan, and of a new search.

    The search starts from the schemes of ``plan``. changed  the question with the change
    """
    try:
        ran = changed.search_like(plan).run()
    except PerfmodelError as error:
        return what if what.time_s else replace(what, why=error.message)
    if ran.stopped == "interrupt":  # an interrupt ends the other searches too
        raise KeyboardInterrupt
    time_s, known = ran.cost.time_s, np.inf if what.time_s is None else what.time_s
    return _with_time(what, changed, min(time_s, known))


def _converting(what: WhatIf, changed: PlanQuestion, answer: Planned) -> WhatIf:
    """Says why smaller bags take longer: the time to convert them, and the time that their exchange saves.

    what  the change of the bags' type;  changed  the question with it
    """
    now_s = answer.found.cost.time_s
    if what.name != _PAYLOAD or what.time_s is None or what.time_s <= now_s * (1 + _SAME):
        return what
    cost = changed.evaluator.cost(answer.plan)
    converting_s = sum(row.time_s for row in cost.rows if row.name.startswith("convert_"))
    saved_s = now_s - (cost.time_s - converting_s)
    if converting_s <= saved_s:
        return what
    saved = f"save {format_time(saved_s)}" if saved_s > 0 else "save nothing"
    kernels = f"the kernels that convert the bags take {format_time(converting_s)}"
    return replace(what, why=f"{kernels}, and the exchanges of this plan {saved}.")


def _with_time(what: WhatIf, changed: PlanQuestion, time_s: float | None) -> WhatIf:
    if time_s is None:
        return what
    return replace(what, time_s=time_s, samples_per_s=changed.batch * changed.gpus / time_s, why="")


def _asked(q: PlanQuestion, answer: Planned) -> Iterator[tuple[str, str, str, PlanQuestion | BadInputError]]:
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
        yield _PAYLOAD, "bags sent as fp16", "--payload fp16", replace(q, costs=costs)
    batch = _MORE_SAMPLES * q.batch
    words = f"samples per GPU {format_count(q.batch)} → {format_count(batch)}"
    yield "batch", words, f"--batch {batch}", replace(q, batch=batch)


def _memory(q: PlanQuestion) -> tuple[str, str, str, PlanQuestion | BadInputError]:
    """The change to twice the memory of each GPU, or twice ``--max-hbm``; returns as ``_asked``."""
    if q.most_bytes is not None and 2 * q.most_bytes <= q.machine.value("hbm_bytes"):
        words = f"memory {_size(q.most_bytes)} → {_size(2 * q.most_bytes)} per GPU"
        option = f"--max-hbm {format_exact(2 * q.most_bytes, 'byte')}"
        return "memory", words, option, replace(q, most_bytes=2 * q.most_bytes)
    whole = q.machine.value("hbm_bytes")
    changed = _with(q, hbm_bytes=2 * whole)
    option = f"--set hbm_bytes={format_exact(2 * whole, 'byte')}"
    if q.most_bytes is not None and not isinstance(changed, BadInputError):
        changed = replace(changed, most_bytes=2 * q.most_bytes)
        option += f" --max-hbm {format_exact(2 * q.most_bytes, 'byte')}"
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
