"""One step of a projection, explained: its equation, the user's numbers in it, and where each comes from.

Equations and their sources are the docstrings of the model's own functions, so they cannot drift from them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.collectives.library import Faster
from perfmodel.errors import BadInputError
from perfmodel.model import collectives, curves, kernels, laws
from perfmodel.passes.handover import Handover
from perfmodel.passes.settings import OneDomain
from perfmodel.passes.steps import HANDOVER, LABELS, StepRow
from perfmodel.project import laws_explained as laws_of
from perfmodel.project.costs import CONVERT_IN, CONVERT_OUT
from perfmodel.project.projection import Projection
from perfmodel.project.terms import Term as Term
from perfmodel.project.terms import kernel_terms, payload_equation, payload_terms
from perfmodel.schema.calibration import Curve
from perfmodel.units import format_bytes, format_number, format_rate, format_time

ALIASES = {
    "gather": "gather_pool",
    "pool": "gather_pool",
    "lookup": "gather_pool",
    "permute": "bucketize",
    "splits": "all_to_all_splits",
    "lengths": "all_to_all_lengths",
    "ids": "all_to_all_ids",
    "indices": "all_to_all_ids",
}
"""Other names of steps; beside them every step has its own name, its label, and any part of its name from the
start that no other step shares. ``bags`` is the exchange of bags, whatever does it."""
_SHORTEST = 3
_OF_BAGS = ("reduce_scatter_bags", "all_to_all_bags", "exchange_bags", "all_to_all_sparse_bags")


Parts = tuple[str, str, tuple[Term, ...], tuple[str, ...]]
"""Equation, its source, the terms, the working."""


@dataclass(frozen=True)
class Explanation:
    """A step with its equation, its terms, and how the terms make its time."""

    step: StepRow
    title: str
    payload_equation: str
    equation: str
    reference: str  # where the equation is from
    terms: tuple[Term, ...]
    working: tuple[str, ...]  # the equation with the numbers in it
    gpus: int

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words, for JSON."""
        return {
            "step": self.step.to_dict(),
            "title": self.title,
            "payload_equation": self.payload_equation,
            "equation": self.equation,
            "reference": self.reference,
            "terms": [vars(term) for term in self.terms],
            "working": list(self.working),
            "gpus": self.gpus,
        }


def explain_step(answer: Projection, name: str) -> Explanation:
    """Explain the step that ``name`` means.

    Limits: as ``find_step``
    """
    step = find_step(answer, name)
    like = "local_sum" if step.name in (CONVERT_OUT, CONVERT_IN) else ""
    terms = tuple(payload_terms(answer, step))
    payload = Payload(payload_equation(answer, step, equation_of), terms, like=like)
    return explained(answer, step, payload)


@dataclass(frozen=True)
class Payload:
    """The bytes of a step: equation, terms, and how they add up where that needs words."""

    equation: str
    terms: tuple[Term, ...]
    working: tuple[str, ...] = ()
    like: str = ""  # the kernel of a projection whose constants the step has


def explained(answer: Projection, step: StepRow, payload: Payload) -> Explanation:
    """A step with the equation of its time beside that of its bytes."""
    if step.name == HANDOVER:
        return _handover(answer, step)
    alike = replace(step, name=payload.like or step.name)
    parts = _kernel(answer, alike) if not step.collective else _communication(answer, step)
    equation, reference, terms, working = parts
    return Explanation(
        step=step,
        title=f"{step.label} on {answer.gpus} GPUs of {answer.setting.machine.name}",
        payload_equation=payload.equation,
        equation=equation,
        reference=reference,
        terms=(*payload.terms, *terms),
        working=(*payload.working, *working),
        gpus=answer.gpus,
    )


def _handover(answer: Projection, step: StepRow) -> Explanation:
    known, source = answer.setting.handover, ", ".join(answer.calibrations)
    terms = [
        Term(
            f"h({name.replace('_', ' ')})",
            each.value,
            f"{format_time(each.value)} ({format_time(each.low)} – {format_time(each.high)})",
            source,
            str(step.evidence),
            "median over whole passes of what the step takes there beyond its curve",
        )
        for name, each in sorted(known.constants.items())
    ]
    for name, pairs in sorted(known.pairs.items()):
        counts = ", ".join(str(after.gpus) for after, _ in pairs)
        text = f"{counts} ranks"
        meaning = f"curves of {name} after a kernel and in a loop of its own"
        terms.append(Term("t_after, t_alone", float(pairs[0][0].gpus), text, source, "measured", meaning))
    return Explanation(
        step=step,
        title=f"{step.label} on {answer.gpus} GPUs of {answer.setting.machine.name}",
        payload_equation="0",
        equation=equation_of(Handover),
        reference=source_of(Handover),
        terms=tuple(terms),
        working=(f"t = {format_time(step.time_s)} for all collectives together",),
        gpus=answer.gpus,
    )


def _kernel(answer: Projection, step: StepRow) -> Parts:
    function = kernels.gather_pool_time if step.name == "gather_pool" else kernels.stream_kernel_time
    working = tuple(_kernel_working(answer, step))
    return equation_of(function), source_of(function), tuple(kernel_terms(answer, step)), working


def _kernel_working(answer: Projection, step: StepRow) -> Iterator[str]:
    rest = format_time(step.time_s - step.floor_s)
    yield f"t = {format_time(step.floor_s)} + {rest} for the bytes = {format_time(step.time_s)}"
    if step.name == "gather_pool":
        yield f"the same batch from local memory: {format_time(answer.baseline_time_s)}"


def _communication(answer: Projection, step: StepRow) -> Parts:
    model, scenario = _model_of(answer, step)
    if scenario is None or answer.gpus <= scenario.anchor:
        return _collective(answer, step, model)
    working = (_one_domain_working(answer, step, scenario),)
    terms = tuple(_one_domain_terms(answer, step, scenario))
    return equation_of(OneDomain), source_of(OneDomain), terms, working


def _one_domain_terms(answer: Projection, step: StepRow, scenario: OneDomain) -> Iterator[Term]:
    rows = (("G0", "anchor_gpus"), ("a", "extra_peer_s"), ("beta", "bus_bytes_per_s"))
    for symbol, key in rows:
        q = scenario.assumed.quantity(key)
        value = float(scenario.anchor) if symbol == "G0" else q.value
        text = str(scenario.anchor) if symbol == "G0" else str(q)
        yield Term(symbol, value, text, q.source, str(q.evidence), f"{key}: {q.why}")
    far = step.floor_s - (answer.gpus - scenario.anchor) * scenario.assumed.value("extra_peer_s")
    yield Term("alpha(G0)", far, format_time(far), scenario.measured.calibration_id, "", "floor on G0 GPUs")
    factor = float(collectives.bus_factor(_collective_of(step), answer.gpus))
    yield Term("f(G)", factor, f"{factor:.3f}", "", "", "bus factor: bytes on the wire over S")
    ratio = scenario.rate_ratio
    yield Term(
        "k", ratio, format_number(ratio), "", "", "what-if of nvlink_bytes_per_s over the machine's own"
    )


def _one_domain_working(answer: Projection, step: StepRow, scenario: OneDomain) -> str:
    peers, extra = answer.gpus - scenario.anchor, scenario.assumed.value("extra_peer_s")
    far = format_time(step.floor_s - peers * extra)
    rest = format_time(step.time_s - step.floor_s)
    total = format_time(step.time_s)
    return f"t = {far} + {peers} × {format_time(extra)} + {rest} for the bytes = {total}"


def find_step(answer: Projection, name: str) -> StepRow:
    """The step that a user means: its name, its label, an alias, or the start of one name alone.

    Limits: '' and names of no step -> BadInputError with the steps; of several -> BadInputError with those
    """
    wanted = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    steps = {step.name: step for step in answer.steps}
    labels = {re.sub(r"[^a-z0-9]+", "_", label.lower()).strip("_"): key for key, label in LABELS.items()}
    wanted = labels.get(wanted, ALIASES.get(wanted, wanted))
    if wanted in steps:
        return steps[wanted]
    bags = next((step for step in answer.steps if step.name in _OF_BAGS), None)
    if bags is not None and wanted in ("bags", "reduce_scatter" if bags.name == "exchange_bags" else "bags"):
        return bags
    found = [s for s in answer.steps if s.name.startswith(wanted)] if len(wanted) >= _SHORTEST else []
    if len(found) == 1:
        return found[0]
    known = ", ".join(step.name.replace("_", "-") for step in found or answer.steps)
    if found:
        raise BadInputError(f"{name!r} means several steps of this projection.", f"one of: {known}.")
    raise BadInputError(f"{name!r} is no step of this projection.", f"its steps: {known}.")


def equation_of(function: Callable[..., Any]) -> str:
    """The indented formula of a docstring, without its unit."""
    lines = (inspect.getdoc(function) or "").splitlines()
    indented: list[str] = []
    for line in lines[1:]:
        if line.startswith("    "):
            indented.append(line.strip())
        elif indented:
            break
    return "\n".join(" ".join(line.split()) for line in indented)


def source_of(function: Callable[..., Any]) -> str:
    """The ``Source:`` of a docstring."""
    lines = (inspect.getdoc(function) or "").splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith("Source:")), len(lines))
    text: list[str] = []
    for line in lines[start:]:
        if text and not line.startswith("  "):
            break
        text.append(line.removeprefix("Source:").strip())
    return " ".join(text)


def _model_of(answer: Projection, step: StepRow) -> tuple[CollectiveModel, OneDomain | None]:
    """The model that made a step's time, and the scenario around it if there is one."""
    links = answer.setting.links
    if isinstance(links, Faster):
        links = links.first if links.first.name == step.library else links.second
    times = links.times
    if isinstance(times, OneDomain):
        inner = times.measured
        return (inner, times) if isinstance(inner, CollectiveModel) else _unknown(inner)
    return (times, None) if isinstance(times, CollectiveModel) else _unknown(times)


def _unknown(times: object) -> Any:
    raise BadInputError(
        f"times of kind {type(times).__name__} cannot be explained.", "use --scenario cluster."
    )


def _collective_of(step: StepRow) -> str:
    """The collective that a step runs; of the two that ``best`` chooses from, the first."""
    return step.collective.split(" or ")[0]


def _ranks(answer: Projection, step: StepRow) -> tuple[int, int]:
    """Ranks of the step's group, and how many of them are in a node."""
    node = answer.gpu_count.gpus_per_node
    domain = int(answer.forward.domain(answer.work.gpus)[0])
    if step.name.endswith("_inside") and answer.gpus % domain == 0:
        return domain, node
    if step.name.endswith("_across"):
        return answer.gpus // domain, 1
    return answer.gpus, node


def _collective(answer: Projection, step: StepRow, model: CollectiveModel) -> Parts:
    """Equation, source, terms and working of a collective: its measured cell, or the law of its links."""
    collective = _collective_of(step)
    gpus, node = _ranks(answer, step)
    group = laws.Group.of(gpus, model.machine.domain_gpus_of(node))
    basis = model.table(collective, gpus, node).basis
    curve = model.calibration.curve(collective, gpus, group.domain_gpus)
    law = model.calibration.law(collective)
    total = f"t = {format_time(step.time_s)}: {basis}"
    hockney = curves.hockney_time
    if curve is not None:
        fitted = curve.formula().replace("S", format_bytes(step.payload_bytes), 1)
        values = (curve.alpha_s.value, curve.beta_bytes_per_s.value, curve.p.value)
        fitted += f" = {format_time(float(hockney(step.payload_bytes, *values)))} by the curve alone"
        return equation_of(hockney), source_of(hockney), tuple(_curve_terms(curve, step)), (fitted, total)
    if law is None:
        return equation_of(hockney), source_of(hockney), (), (total,)
    case = laws_of.Case(model, law, collective, group, step)
    fit = f"fitted to {', '.join(law.sources)}" if law.sources else "the prior alone, no samples"
    if law.law == "ring_tree":
        function: Callable[..., Any] = laws.ring_tree_time
        more, own, working = (
            laws_of.RING_EQUATION,
            laws_of.ring_terms(case),
            laws_of.ring_working(case, basis),
        )
    else:
        function, more = laws.pairwise_time, laws_of.pairwise_equations(case)
        own, working = laws_of.pairwise_terms(case), laws_of.pairwise_working(case, basis)
    terms = (*laws_of.shape_terms(group), *own)
    return f"{equation_of(function)}\n{more}", f"{source_of(function)}; {fit}", terms, tuple(working)


def _curve_terms(curve: Curve, step: StepRow) -> Iterator[Term]:
    sources = ", ".join(curve.sources)
    rows: tuple[tuple[str, Any, Callable[[float], str], str], ...] = (
        ("alpha", curve.alpha_s, format_time, "floor"),
        ("beta", curve.beta_bytes_per_s, format_rate, "algorithm bandwidth of a large message"),
        ("p", curve.p, format_number, "sharpness of the knee"),
    )
    for symbol, interval, write, meaning in rows:
        text = f"{write(interval.value)} ({write(interval.low)} – {write(interval.high)})"
        yield Term(symbol, interval.value, text, sources, str(step.evidence), meaning)
