"""Reasons to doubt a calibration that is valid in form: its fit, and its data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perfmodel.collectives.rates import inside_rate
from perfmodel.collectives.stored import step_constants
from perfmodel.fit.links import prior_of
from perfmodel.model.collectives import domains_of, speed_of_light_time
from perfmodel.model.laws import LINK_LAWS
from perfmodel.model.unknowns import Group
from perfmodel.report.terminal import paragraph
from perfmodel.schema.calibration import UNKNOWN_VERSION, Calibration, Curve, Law
from perfmodel.schema.machine import Machine, list_machines, load_machine
from perfmodel.schema.priors import load_priors
from perfmodel.units import counted, format_fraction, format_number

_DOUBTFUL_MEDIAN = 0.1
_FASTER_THAN_LIGHT = 1.02  # times are printed with three digits
_LONG_RANGE = 1e6
_MOST_NAMED = 3
_REPLACES = "the file replaces the whole shipped calibration, so these bands can be wider than without it"
_GROWTH_OVER_A_LONG_RANGE = 1.5
_CONTRADICTION = 3.0
"""Largest factor between a measured curve and its neighbours. Shipped curves are within 2, except all-to-alls
of a PCIe box and of an NVL72 with old NCCL."""
_CONTRADICTION_ELSEWHERE = 4.0
"""The factor for a curve without neighbours, which is compared with all curves of its law."""


def doubts(item: Calibration) -> list[str]:
    """All reasons to doubt a calibration: first its data, then its fit."""
    found = data_doubts(item)
    if not item.complete:
        found.append("it is partial: some planned points are missing")
    if not item.checked:
        found.append("the results of the timed operations were not checked")
    for curve in item.curves:
        name = _name(curve)
        if curve.at_bound:
            found.append(f"{name}: {', '.join(curve.at_bound)} ended at a bound of the fit")
        if curve.loo_median is None:
            found.append(f"{name}: too few points for a leave-one-out error")
        elif curve.loo_median > _DOUBTFUL_MEDIAN:
            found.append(f"{name}: median error {format_fraction(curve.loo_median)} on points left out")
        own = item.library_version or UNKNOWN_VERSION
        if (curve.library_version, curve.clock) != (own, item.clock):
            found.append(
                f"{name}: from {curve.library_version}, clock {curve.clock}, not the calibration's own"
            )
    return found


def data_doubts(item: Calibration, machine: Machine | None = None) -> list[str]:
    """Doubts about the data: times below the links' limits, no growth with size, a law without samples."""
    if machine is None and item.machine in list_machines():
        machine = load_machine(item.machine)
    found = []
    for curve in item.curves:
        sizes, times = np.asarray(curve.anchor_bytes), np.asarray(curve.anchor_times_s)
        if machine is not None:
            factor = float((light_times(curve, machine) / times).max())
            if factor > _FASTER_THAN_LIGHT:
                found.append(
                    f"{_name(curve)}: up to {format_number(factor)} times faster than the links of "
                    f"{machine.name} allow (another machine, another number of GPUs, or not all bytes sent?)"
                )
        if sizes[-1] >= _LONG_RANGE * sizes[0] and times[-1] < _GROWTH_OVER_A_LONG_RANGE * times[0]:
            found.append(f"{_name(curve)}: the time hardly grows while the message grows a million times")
    found += neighbour_doubts(item, machine) if machine is not None else []
    own = item.this_cluster and item.machine in list_machines()
    replaced = f" ({_REPLACES})" if own else ""
    for law in item.laws:
        if not law.sources:
            names = ", ".join(law.collectives)
            found.append(
                f"{names}: no sample; beyond measured cells it uses values of machines of this kind{replaced}"
            )
    return found


def neighbour_doubts(item: Calibration, machine: Machine) -> list[str]:
    """Measured curves several times slower or faster than their neighbours suggest.

    Each curve's time is divided by the time of the law before any sample (so that a bad curve cannot bend
    it), and compared with the median of its neighbours: curves of the same law (NVSHMEM: of the same
    collective) that also span one NVLink domain, or several. Without neighbours: with all curves of its law.
    Limits: a library without a law, or the only curve of its law -> nothing
    """
    over = {id(curve): _over_prior(curve, law, machine) for curve, law in _with_laws(item)}
    found = []
    for curve, law in _with_laws(item):
        alike = [(c, other) for c, other in _with_laws(item) if c is not curve and other is law]
        near = [c for c, other in alike if _neighbours(curve, law, c, other)]
        most = _CONTRADICTION if near else _CONTRADICTION_ELSEWHERE
        near = near or [c for c, _ in alike]
        if not near:
            continue
        apart = over[id(curve)] - float(np.median([over[id(c)] for c in near]))
        if abs(apart) > np.log(most):
            word = "slower" if apart > 0 else "faster"
            names = ", ".join(_name(c) for c in near[:_MOST_NAMED])
            more = f" and {len(near) - _MOST_NAMED} more" if len(near) > _MOST_NAMED else ""
            found.append(
                f"{_name(curve)}: {format_number(float(np.exp(abs(apart))))} times {word} than its "
                f"neighbours suggest ({names}{more}): other settings, other cards, or a disturbed run?"
            )
    return found


def _with_laws(item: Calibration) -> list[tuple[Curve, Law]]:
    pairs = [(curve, item.law(curve.collective)) for curve in item.curves]
    return [(curve, law) for curve, law in pairs if law is not None]


def _neighbours(curve: Curve, law: Law, other: Curve, law_of_other: Law) -> bool:
    """Whether two curves follow the same law, and both span one domain or both several."""
    return law is law_of_other and (curve.gpus > curve.domain_gpus) == (other.gpus > other.domain_gpus)


def _over_prior(curve: Curve, law: Law, machine: Machine) -> float:
    """ln of a curve's time over the time of its law before any sample: the median over its sizes."""
    priors = load_priors()
    unknowns = prior_of(law.law, machine, priors).centre
    steps, group = step_constants(machine, priors), Group.of(curve.gpus, curve.domain_gpus)
    known = LINK_LAWS[law.law].time_at(
        unknowns, steps, curve.collective, group, np.asarray(curve.anchor_bytes)
    )
    return float(np.median(np.log(np.asarray(curve.anchor_times_s) / known)))


def light_times(curve: Curve, machine: Machine) -> np.ndarray:
    """Least times that the datasheet rates of ``machine`` allow at the curve's sizes [s]."""
    domain = min(curve.gpus, curve.domain_gpus)
    return speed_of_light_time(
        curve.collective,
        curve.anchor_bytes,
        curve.gpus,
        domain,
        domains_of(curve.gpus, domain),
        inside_rate(machine),
        machine.value("nic_bytes_per_s"),
        in_switch=machine.links.nvls,
    )


def _name(curve: Curve) -> str:
    return f"{curve.collective} on {curve.gpus} GPUs"


def doubts_text(found: Sequence[str]) -> str:
    """The verdict and the list of doubts; the text says so if there are none."""
    if not found:
        return "Checked   valid; no doubts"
    return f"Checked   valid; {counted(len(found), 'doubt')}\n" + "\n".join(
        paragraph(line, indent=3) for line in found
    )
