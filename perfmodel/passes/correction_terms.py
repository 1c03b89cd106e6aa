"""How measurements correct the law: which curve, which size, both times there, and the share carried over."""

from __future__ import annotations

import math

from perfmodel.collectives.corrections import NearestSize, correction
from perfmodel.collectives.time_tables import TimeTable
from perfmodel.model.unknowns import Group
from perfmodel.passes.equations import Equation
from perfmodel.passes.terms import Term, TimeParts
from perfmodel.schema.calibration import Curve
from perfmodel.schema.evidence import Evidence
from perfmodel.schema.priors import load_priors
from perfmodel.units import format_bytes, format_number, format_time


def correction_parts(table: TimeTable, payload_bytes: float, group: Group) -> TimeParts | None:
    """Derivation of the correction of the law by measurements, at one size.

    Limits: nothing was measured -> None
    """
    if table.correction is None:
        return None
    near = table.correction.at(payload_bytes)
    residual = table.at(table.correction.log_residual, payload_bytes)
    carry = table.at(table.correction.carried, payload_bytes)
    factor = math.exp(carry * residual)
    return TimeParts(
        (Equation.of(correction),),
        _terms(near, residual, carry, factor),
        _working(near, residual, carry, factor, payload_bytes, group),
    )


def _ranks(cell: Curve) -> str:
    """The ranks of a measured curve in words: ``80 GPUs (10 domains of 8)``."""
    domains = Group.of(cell.gpus, cell.domain_gpus).domains
    return (
        f"{cell.gpus} GPUs ({domains} domains of {cell.domain_gpus})" if domains > 1 else f"{cell.gpus} GPUs"
    )


def _terms(near: NearestSize, residual: float, carry: float, factor: float) -> tuple[Term, ...]:
    size, cell = format_bytes(near.size_bytes), near.cell
    evidence = Evidence.MEASURED if near.measured else Evidence.INTERPOLATED
    source = ", ".join(cell.sources)
    rows = (
        ("corr", factor, format_number(factor), "", "", "correction: factor of the law's time"),
        ("carry", carry, format_number(carry), "data/priors", "assumed", "part of res that is carried"),
        ("res", residual, format_number(residual), "", "", "averaged residual of the measured cells"),
        ("fade", near.weight, format_number(near.weight), "", "", "weight: 1 at a measured size"),
        ("t_near", near.time_s, format_time(near.time_s), source, str(evidence), f"{size} on {_ranks(cell)}"),
        ("law_near", near.law_s, format_time(near.law_s), "", "", "the law's time of the same"),
    )
    return tuple(Term(*row) for row in rows)


def _working(
    near: NearestSize, residual: float, carry: float, factor: float, payload_bytes: float, group: Group
) -> tuple[str, ...]:
    cell = near.cell
    low, high, size = (
        format_bytes(each) for each in (cell.anchor_bytes[0], cell.anchor_bytes[-1], near.size_bytes)
    )
    wanted = format_bytes(near.wanted_bytes)
    alike = wanted
    if not math.isclose(near.wanted_bytes, payload_bytes):
        alike = f"{format_bytes(payload_bytes)} × {cell.gpus}/{group.gpus} = {wanted}, the same S/G"
    inside = near.octaves == 0
    sources = ", ".join(cell.sources)
    where = "inside" if inside else f"outside: {size} is the nearest"
    first = f"correction by {_ranks(cell)}, measured from {low} to {high} ({sources}): {alike}, is {where}"
    own = math.log(near.time_s / near.law_s)
    said = "measured" if near.measured else "between measured sizes"
    second = (
        f"{size} there: {said} {format_time(near.time_s)}, law {format_time(near.law_s)}, "
        f"ln({format_time(near.time_s)} / {format_time(near.law_s)}) = {format_number(own)}"
    )
    fading = load_priors().shape.fading_octaves
    weight = (
        "fade = 1"
        if inside
        else f"fade = e^(-{near.octaves:.2f} octaves of the grid / {fading:g}) = {near.weight:.3g}"
    )
    third = f"{weight}; fade × ln(…) = {format_number(near.weight * own)}, over about an octave on average "
    third += f"{format_number(residual)}; corr = e^({carry:g} × {format_number(residual)}) = {factor:.3g}"
    return first, second, third
