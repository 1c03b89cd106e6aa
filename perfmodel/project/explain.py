"""One step of a projection, explained: its equation, the user's numbers in it, and where each comes from.

Equations and their sources are the docstrings of the model's own functions, so they cannot drift from them.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfmodel.errors import BadInputError
from perfmodel.fit.build import domain_gpus_of
from perfmodel.fit.links import step_constants
from perfmodel.model import collectives, curves, embedding_bag, kernels, laws
from perfmodel.predict import CollectiveModel
from perfmodel.prediction.overrides import scaled_unknowns
from perfmodel.project.links import Faster
from perfmodel.project.projection import Projection, StepRow
from perfmodel.project.scenarios import OneDomain
from perfmodel.schema.calibration import Curve, Law
from perfmodel.schema.evidence import Evidence
from perfmodel.schema.machine import KEYS
from perfmodel.schema.priors import load_priors
from perfmodel.units import format_bytes, format_number, format_quantity, format_rate, format_time

_Z95 = 1.96
_PAYLOADS: dict[str, Callable[..., Any]] = {
    "bucketize": embedding_bag.bucketize_bytes,
    "all_to_all_splits": embedding_bag.splits_bytes,
    "all_to_all_lengths": embedding_bag.lengths_bytes,
    "all_to_all_ids": embedding_bag.ids_bytes,
    "gather_pool": kernels.gather_bytes,
    "local_sum": embedding_bag.local_sum_bytes,
}
_KERNEL_KEYS = {
    "bucketize": ("bucketize_floor_s", "bucketize_bytes_per_s"),
    "gather_pool": ("launch_floor_s", "gather_bytes_per_s", "l2_bytes_per_s", "l2_bytes", "sector_bytes",
                    "small_row_penalty_32", "small_row_penalty_64"),
    "local_sum": ("launch_floor_s", "local_sum_bytes_per_s"),
}  # fmt: skip
_ALIASES = {"gather": "gather_pool", "pool": "gather_pool", "lookup": "gather_pool", "permute": "bucketize"}


@dataclass(frozen=True)
class Term:
    """One number of an equation."""

    symbol: str
    value: float
    text: str  # the value with its unit, as people write it
    source: str
    evidence: str
    meaning: str


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
        step = {k: str(v) if k in ("clock", "evidence") else v for k, v in vars(self.step).items()}
        return {
            "step": step,
            "title": self.title,
            "payload_equation": self.payload_equation,
            "equation": self.equation,
            "reference": self.reference,
            "terms": [vars(term) for term in self.terms],
            "working": list(self.working),
            "gpus": self.gpus,
        }


def explain_step(answer: Projection, name: str) -> Explanation:
    """Explain the step that ``name`` means: its name, a part of it, or its collective.

    Limits: several steps fit -> the longest one; none fits -> BadInputError listing the steps
    """
    step = find_step(answer, name)
    parts = _kernel(answer, step) if not step.collective else _communication(answer, step)
    equation, reference, terms, working = parts
    size = format_bytes(step.payload_bytes)
    payload = Term("S", step.payload_bytes, size, "", "", "bytes of one GPU in this step")
    shape = Term("G", answer.gpus, str(answer.gpus), str(answer.gpu_count), "", "GPUs")
    return Explanation(
        step=step,
        title=f"{step.label} on {answer.gpus} GPUs of {answer.setting.machine.name}",
        payload_equation=equation_of(_PAYLOADS.get(step.name, embedding_bag.partial_bags_bytes)),
        equation=equation,
        reference=reference,
        terms=(payload, shape, *terms),
        working=working,
        gpus=answer.gpus,
    )


def _kernel(answer: Projection, step: StepRow) -> Parts:
    function = kernels.gather_pool_time if step.name == "gather_pool" else kernels.stream_kernel_time
    working = tuple(_kernel_working(answer, step))
    return equation_of(function), source_of(function), tuple(_kernel_terms(answer, step)), working


def _communication(answer: Projection, step: StepRow) -> Parts:
    model, scenario = _model_of(answer, step)
    if scenario is None or answer.gpus <= scenario.assumed.value("anchor_gpus"):
        return _collective(answer, step, model)
    terms = tuple(
        Term(key, q.value, str(q), q.source, str(q.evidence), q.why)
        for key, q in scenario.assumed.values.items()
    )
    rest = format_time(step.time_s - step.floor_s)
    working = (f"t = {format_time(step.floor_s)} + {rest} for the bytes = {format_time(step.time_s)}",)
    return equation_of(OneDomain), source_of(OneDomain), terms, working


def find_step(answer: Projection, name: str) -> StepRow:
    """The step that a user means."""
    wanted = name.strip().lower().replace("-", "_").replace(" ", "_")
    wanted = _ALIASES.get(wanted, wanted)
    exact = [s for s in answer.steps if wanted in (s.name, s.collective)]
    partial = [s for s in answer.steps if wanted and (wanted in s.name or wanted in s.collective)]
    found = exact or partial
    if not found:
        known = ", ".join(step.name.replace("_", "-") for step in answer.steps)
        raise BadInputError(f"{name!r} is no step of this projection.", f"its steps: {known}.")
    return max(found, key=lambda step: step.time_s)


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


def _collective(answer: Projection, step: StepRow, model: CollectiveModel) -> Parts:
    """Equation, source, terms and working of a collective: its measured cell, or the law of its links."""
    collective = step.collective.split(" or ")[0] if step.name != "all_to_all_bags" else "all_to_all"
    node = answer.gpu_count.gpus_per_node
    gpus = answer.gpus
    domain = domain_gpus_of(model.machine, node)
    group = laws.Group.of(gpus, domain)
    basis = model.table(collective, gpus, node).basis
    calibration = model.calibration
    curve = calibration.curve(collective, gpus, group.domain_gpus)
    law = calibration.law(collective)
    total = f"t = {format_time(step.time_s)}: {basis}"
    hockney = curves.hockney_time
    if curve is not None:
        fitted = curve.formula().replace("S", format_bytes(step.payload_bytes), 1)
        return equation_of(hockney), source_of(hockney), tuple(_curve_terms(curve)), (fitted, total)
    if law is None:
        return equation_of(hockney), source_of(hockney), (), (total,)
    terms = (*_shape_terms(group), *_law_terms(law))
    function: Callable[..., Any] = laws.ring_tree_time if law.law == "ring_tree" else laws.pairwise_time
    working = tuple(_law_working(model, law, collective, group, step))
    return equation_of(function), source_of(function), terms, (*working, total)


def _shape_terms(group: laws.Group) -> Iterator[Term]:
    yield Term("g", group.domain_gpus, str(group.domain_gpus), "", "", "GPUs of one NVLink domain (or node)")
    yield Term("N", group.domains, str(group.domains), "", "", "domains")


def _curve_terms(curve: Curve) -> Iterator[Term]:
    sources = ", ".join(curve.sources)
    rows: tuple[tuple[str, Any, Callable[[float], str], str], ...] = (
        ("alpha", curve.alpha_s, format_time, "floor"),
        ("beta", curve.beta_bytes_per_s, format_rate, "algorithm bandwidth of a large message"),
        ("p", curve.p, format_number, "sharpness of the knee"),
    )
    for symbol, interval, write, meaning in rows:
        text = f"{write(interval.value)} ({write(interval.low)} – {write(interval.high)})"
        yield Term(symbol, interval.value, text, sources, str(Evidence.MEASURED), meaning)


def _law_terms(law: Law) -> Iterator[Term]:
    """Fitted unknowns with their 95 % intervals."""
    sources = ", ".join(law.sources) or "prior"
    known = Evidence.EXTRAPOLATED if law.fitted_domains > 1 else Evidence.TRANSFERRED
    for i, (name, value) in enumerate(zip(law.names, law.values, strict=True)):
        spread = math.exp(_Z95 * math.sqrt(max(law.log_covariance[i][i], 0.0)))
        write = _writer(name)
        text = f"{write(value)} ({write(value / spread)} – {write(value * spread)})"
        yield Term(name, value, text, sources, str(known), "fitted, NCCL's constants as the prior")


def _writer(name: str) -> Callable[[float], str]:
    if name.endswith("_bytes_per_s"):
        return format_rate
    return format_time if name.endswith("_s") else format_number


def _law_working(
    model: CollectiveModel, law: Law, collective: str, group: laws.Group, step: StepRow
) -> Iterator[str]:
    """The law's time in numbers, and what the nearest measured cell makes of it."""
    steps = step_constants(model.machine, load_priors())
    unknowns = scaled_unknowns(np.log(np.array(law.values)), law, model.machine, model.machine.unchanged())
    size = np.array([step.payload_bytes])
    if law.law == "ring_tree":
        latency = laws.ring_tree_latencies(unknowns, steps, collective, group)
        rate = laws.ring_tree_bandwidths(unknowns, steps, collective, group)
        factor = float(collectives.bus_factor(collective, group.gpus))
        k = int(np.argmin(latency + size * factor / rate))
        time = float(latency[k] + size[0] * factor / rate[k])
        size_text, chosen = format_bytes(step.payload_bytes), collectives.ALGORITHMS[k]
        sum_text = f"{format_time(latency[k])} + {size_text} · {factor:.3f} / {format_rate(rate[k])}"
        yield f"cheapest: {chosen}: {sum_text} = {format_time(time)}"
    else:
        time = float(laws.pairwise_time(unknowns, steps, collective, group, size)[0])
        floor = float(laws.pairwise_time(unknowns, steps, collective, group, np.zeros(1))[0])
        rest = format_time(time - floor)
        yield f"floor {format_time(floor)} + rendezvous and bytes {rest} = {format_time(time)}"


def _kernel_terms(answer: Projection, step: StepRow) -> Iterator[Term]:
    machine = answer.setting.machine
    for key in _KERNEL_KEYS[step.name]:
        quantity = machine.quantity(key)
        text = format_quantity(quantity.value, quantity.unit)
        yield Term(key, quantity.value, text, quantity.source, str(quantity.evidence), KEYS[key].meaning)


def _kernel_working(answer: Projection, step: StepRow) -> Iterator[str]:
    rest = format_time(step.time_s - step.floor_s)
    yield f"t = {format_time(step.floor_s)} + {rest} for the bytes = {format_time(step.time_s)}"
    if step.name == "gather_pool":
        yield f"the same batch from local memory: {format_time(answer.baseline_time_s)}"
