"""What would change a plan: more GPUs, NVLink, memory, shorter bags, more samples; each planned anew."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from perfmodel.errors import BadInputError, PerfmodelError
from perfmodel.passes.settings import CLUSTER
from perfmodel.plan.carried import as_option, carried
from perfmodel.plan.improve import improve
from perfmodel.plan.outcome import Planned
from perfmodel.plan.packing import pack
from perfmodel.plan.placement import Plan
from perfmodel.plan.question import Deadline, PlanQuestion
from perfmodel.plan.schemes import Descent
from perfmodel.project.understood import exact_text
from perfmodel.units import format_bytes, format_count

_MORE_SAMPLES = 4
_QUICK_S = 0.3
_OF_A_SHARE = 0.5
"""A search whose first plan takes longer than the first, and than this part of its share, is not begun."""


@dataclass(frozen=True, eq=False)
class WhatIf:
    """One change, and the plan with it.

    name       cards, nvlink-domain, memory, payload or batch
    words      what changes;  option  that makes the change
    time_s     of the plan with it, a pass; None where there is none, and ``why`` says so
    samples_per_s  of all GPUs
    """

    name: str
    words: str
    option: str
    time_s: float | None = None
    samples_per_s: float | None = None
    why: str = ""

    def to_dict(self) -> dict[str, Any]:
        """SI units."""
        return dict(vars(self))


def what_ifs(question: PlanQuestion, answer: Planned, ends: Deadline, first_s: float) -> tuple[WhatIf, ...]:
    """The changes, each planned anew on what time there is; never slower than the same plan there.

    ends     until when;  first_s  how long the main search took to its first plan [s]
    Limits: time is up -> ``why``;  one GPU -> no NVLink domain
    """
    asked = list(_asked(question, answer))
    found = []
    for at, (name, words, option, changed) in enumerate(asked):
        share = ends.share(len(asked) - at)
        found.append(_one(name, words, option, changed, answer, share, first_s))
    return tuple(found)


def _one(
    name: str,
    words: str,
    option: str,
    changed: PlanQuestion | BadInputError,
    answer: Planned,
    share_s: float,
    first_s: float,
) -> WhatIf:
    if isinstance(changed, BadInputError):
        return WhatIf(name, words, option, why=changed.message)
    ends = Deadline.after(share_s)
    times: list[float] = []
    why = "the time was up: a longer --time-limit plans it"
    try:
        same = changed.recosted(answer.plan)
        times += [same] if same is not None else []
        if first_s <= max(_OF_A_SHARE * share_s, _QUICK_S):
            times += _anew(changed, answer.plan, ends)
    except PerfmodelError as error:
        why = error.message
    if not times:
        return WhatIf(name, words, option, why=why)
    time_s = min(times)
    return WhatIf(name, words, option, time_s, changed.batch * changed.gpus / time_s)


def _anew(changed: PlanQuestion, plan: Plan, ends: Deadline) -> Iterator[float]:
    """Times of plans for a changed question: one that begins with the schemes that were, then a search."""
    e = changed.evaluator
    schemes = carried(plan, e.gpus, e.domain)
    search = changed.search(more=schemes)
    o = search.options
    option = as_option(o, schemes)
    every = np.ones(o.group.size, dtype=bool)

    def late() -> bool:
        return ends.share(1) <= 0

    better = Descent(e, o, changed.limit_bytes).run(option, every, late)
    packed = [pack(e, o, each, changed.limit_bytes) for each in (option, better)]
    states = sorted((state for state in packed if state is not None), key=lambda state: state.time_s)
    if states:
        yield e.cost(improve(states[0], every, late).plan()).time_s
    if not states or not late():
        search.deadline = max(search.began, ends.at_s)
        yield search.run().cost.time_s


def _asked(q: PlanQuestion, answer: Planned) -> Iterator[tuple[str, str, str, PlanQuestion | BadInputError]]:
    """Name, words, option and question of every change."""
    e = answer.evaluator
    twice = 2 * q.gpus
    yield (
        *("cards", f"GPUs {format_count(q.gpus)} → {format_count(twice)}", f"--gpus {twice}"),
        replace(q, gpus=twice),
    )
    if e.domain < e.gpus and q.machine.nvlink_domain_gpus > 1 and e.setting.scenario == CLUSTER:
        wide = -(-q.gpus // q.machine.gpus_per_node) * q.machine.gpus_per_node
        words = f"NVLink domain {format_count(e.domain)} → {format_count(wide)} GPUs"
        key = f"nvlink_domain_gpus={wide}"
        yield "nvlink-domain", words, f"--set {key}", _with(q, nvlink_domain_gpus=float(wide))
    yield _memory(q)
    if q.costs.get("payload") in (None, "fp32"):
        costs = {**q.costs, "payload": "fp16"}
        yield "payload", "bags as fp16 on the wire", "--payload fp16", replace(q, costs=costs)
    batch = _MORE_SAMPLES * q.batch
    words = f"samples a GPU {format_count(q.batch)} → {format_count(batch)}"
    yield "batch", words, f"--batch {batch}", replace(q, batch=batch)


def _memory(q: PlanQuestion) -> tuple[str, str, str, PlanQuestion | BadInputError]:
    """Twice the memory of each GPU, or twice what --max-hbm allows."""
    if q.most_bytes is not None and 2 * q.most_bytes <= q.machine.value("hbm_bytes"):
        words = f"memory {_size(q.most_bytes)} → {_size(2 * q.most_bytes)} a GPU"
        option = f"--max-hbm {exact_text(2 * q.most_bytes, 'byte')}"
        return "memory", words, option, replace(q, most_bytes=2 * q.most_bytes)
    whole = q.machine.value("hbm_bytes")
    changed = _with(q, hbm_bytes=2 * whole)
    option = f"--set hbm_bytes={exact_text(2 * whole, 'byte')}"
    if q.most_bytes is not None and not isinstance(changed, BadInputError):
        changed = replace(changed, most_bytes=2 * q.most_bytes)
        option += f" --max-hbm {exact_text(2 * q.most_bytes, 'byte')}"
    return "memory", f"memory {_size(whole)} → {_size(2 * whole)} a GPU", option, changed


def _size(value: float) -> str:
    return format_bytes(value, binary=False)


def _with(q: PlanQuestion, **values: float) -> PlanQuestion | BadInputError:
    """The question on a machine with other values."""
    try:
        return replace(q, machine=q.machine.with_overrides(values))
    except BadInputError as error:
        return error
