"""One collective, explained: which cell or law its time comes from, with the numbers in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.model import curves
from perfmodel.model.laws import Group
from perfmodel.passes.equations import Equation
from perfmodel.passes.law_terms import LawCase
from perfmodel.passes.terms import Term, TimeParts
from perfmodel.schema.calibration import Curve
from perfmodel.schema.evidence import Evidence
from perfmodel.units import format_bytes, format_number, format_rate, format_time


def collective_parts(
    model: CollectiveModel,
    collective: str,
    payload_bytes: float,
    gpus: int,
    gpus_per_node: int,
    time_s: float,
    evidence: Evidence,
) -> TimeParts:
    """Of a measured cell its curve, else the law of the links; ``time_s`` is what was answered [s].

    Limits: between cells, or neither curve nor law -> the curve's equation without numbers
    """
    group = Group.of(gpus, model.machine.domain_gpus_of(gpus_per_node))
    basis = model.table(collective, gpus, gpus_per_node).basis
    curve = model.calibration.curve(collective, gpus, group.domain_gpus)
    law = model.calibration.law(collective)
    total = f"t = {format_time(time_s)}: {basis}"
    hockney = Equation.of(curves.hockney_time)
    if curve is not None:
        fitted = curve.formula().replace("S", format_bytes(payload_bytes), 1)
        values = (curve.alpha_s.value, curve.beta_bytes_per_s.value, curve.p.value)
        alone = float(curves.hockney_time(payload_bytes, *values))
        fitted += f" = {format_time(alone)} by the curve alone"
        parts = (hockney, Equation.of(curves.anchored_time, ""))
        return TimeParts(parts, tuple(_curve_terms(curve, evidence)), (fitted, total))
    if law is None:
        return TimeParts((hockney,), (), (total,))
    case = LawCase(model, law, collective, group, payload_bytes, time_s, str(evidence))
    fit = f"fitted to {', '.join(law.sources)}" if law.sources else "the prior alone, no samples"
    equations = case.equations()
    reference = f"{equations[0].source}; {fit}"
    return TimeParts(equations, tuple(case.terms()), tuple(case.working(basis)), reference)


def _curve_terms(curve: Curve, evidence: Evidence) -> Iterator[Term]:
    sources = ", ".join(curve.sources)
    rows: tuple[tuple[str, Any, Callable[[float], str], str], ...] = (
        ("alpha", curve.alpha_s, format_time, "floor"),
        ("beta", curve.beta_bytes_per_s, format_rate, "algorithm bandwidth of a large message"),
        ("p", curve.p, format_number, "sharpness of the knee"),
    )
    for symbol, interval, write, meaning in rows:
        text = f"{write(interval.value)} ({write(interval.low)} – {write(interval.high)})"
        yield Term(symbol, interval.value, text, sources, str(evidence), meaning)
