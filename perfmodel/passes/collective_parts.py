"""A collective, explained: the measurement or law that its time comes from, with the numbers in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.collectives.spreads import between_cells
from perfmodel.collectives.time_tables import TimeTable
from perfmodel.model import curves
from perfmodel.model.unknowns import Group
from perfmodel.passes.correction_terms import correction_parts
from perfmodel.passes.equations import Equation
from perfmodel.passes.explained_law import ExplainedLaw
from perfmodel.passes.letters import LETTERS
from perfmodel.passes.terms import Term, TimeParts
from perfmodel.schema.calibration import Curve
from perfmodel.schema.evidence import Evidence
from perfmodel.units import format_bytes, format_number, format_rate, format_time

_REST = 0.005  # share of a correction above which it is printed


def collective_parts(
    model: CollectiveModel,
    collective: str,
    payload_bytes: float,
    gpus: int,
    gpus_per_node: int,
    time_s: float,
    evidence: Evidence,
    ranks: str = "G",
) -> TimeParts:
    """How a collective's time follows from its equations and terms, with the parts of its error band.

    The equations are of the measured curve on these ranks, else of the law of the links.

    time_s, evidence  of the answer that is explained;  ranks  letter for the number of ranks
    Limits: measured on fewer and on more ranks of the domain -> the interpolation between the two curves
    """
    group = Group.of(gpus, model.machine.domain_gpus_of(gpus_per_node))
    table = model.table(collective, gpus, gpus_per_node)
    basis, doubts = table.basis, tuple(_doubts(table, payload_bytes))
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
        return TimeParts(parts, tuple(_curve_terms(curve, evidence)), (fitted, total), doubts=doubts)
    if any(stage.function is between_cells for stage in table.stages):
        return replace(_between_parts(table, payload_bytes, gpus, total, evidence), doubts=doubts)
    assert law is not None  # otherwise there would be no table
    case = ExplainedLaw(model, law, collective, group, payload_bytes, time_s, str(evidence), ranks)
    fit = f"fitted to {', '.join(law.sources)}" if law.sources else "the prior alone, no samples"
    equations, terms, working = case.equations, tuple(case.terms()), tuple(case.working(basis))
    reference = f"{equations[0].source}; {fit}"
    carried = correction_parts(table, payload_bytes, group)
    if carried is not None:
        equations, terms = (*equations, *carried.equations), (*terms, *carried.terms)
        working = (*working[:-1], *carried.working, working[-1])
    rest = time_s / float(case.recorded) / ((carried.terms[0].value or 1.0) if carried else 1.0)
    if abs(rest - 1) >= _REST:
        words = "from reading between two sizes of the grid, or from the stages after the law"
        said = f"of the correction × {rest:.3g} is {words}: perfmodel explain collective prints each"
        working = (*working[:-1], said, working[-1])
    return TimeParts(equations, terms, working, reference, doubts=doubts)


def _doubts(table: TimeTable, payload_bytes: float) -> Iterator[tuple[str, float]]:
    for doubt in table.doubts:
        log_sd = table.at(doubt.log_sd, payload_bytes)
        if log_sd > 0:
            yield doubt.what, log_sd


def _between_parts(
    table: TimeTable, payload_bytes: float, gpus: int, total: str, evidence: Evidence
) -> TimeParts:
    """The linear interpolation in G between the curves measured on fewer and on more ranks."""
    names = re.findall(r"\d+", table.basis)[:2]
    low, high = (int(name) for name in names)
    stages = {stage.what: table.at(stage.log_time, payload_bytes) for stage in table.stages}
    times = [float(np.exp(stages[f"measured on {cell} GPUs"])) for cell in (low, high)]
    share = (gpus - low) / (high - low)
    terms = [Term("G", gpus, str(gpus), "", "", LETTERS["G"].meaning)]
    for letter, cell, time in (("a", low, times[0]), ("b", high, times[1])):
        terms.append(Term(letter, cell, str(cell), "", "", "measured GPUs"))
        meaning = f"time on {cell} GPUs"
        terms.append(Term(f"t_{letter}", time, format_time(time), "", str(evidence), meaning))
    first, second = (format_time(time) for time in times)
    line = f"ln t: {share:.3g} of the way from {first} on {low} GPUs to {second} on {high}"
    equation = Equation.of(between_cells, "ln t = ln t_a + (G - a)/(b - a) (ln t_b - ln t_a)")
    return TimeParts((equation, Equation.of(curves.anchored_time, "")), tuple(terms), (line, total))


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
