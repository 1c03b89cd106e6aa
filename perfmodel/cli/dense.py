"""``--dense``: the dense layers beside a plan, by name, file or time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfmodel.engine.training import CostedPlan, Dense, GivenTime, WholeStep
from perfmodel.errors import BadInputError
from perfmodel.schema.priors import DenseFile, load_dense, load_rates
from perfmodel.units import parse_ratio, parse_time

if TYPE_CHECKING:
    from perfmodel.plan.outcome import Planned

_OPTION = "--dense"
_LEAST_S, _MOST_S = 1e-9, 3600.0  # of a batch


def parse_dense(text: str, machine: str) -> DenseFile | GivenTime:
    """The dense layers that ``--dense`` means: a name, ``mine.toml``, ``3ms`` or ``3ms±10%`` (per batch).

    machine  whose GPU runs the layers
    Limits: neither a name, a file nor a time, layers on a machine whose GPU has no known rate, or a time
            below 1 ns or above 1 h -> BadInputError
    """
    plain = text.strip()
    if not plain:
        raise BadInputError(f"{_OPTION} is empty.", "e.g. --dense dlrm-dcnv2 or 3ms.")
    number = plain[0].isdigit() or plain[0] in "+-."
    if not number or plain.endswith(".toml"):
        layers = load_dense(plain)
        load_rates().of(machine)
        return layers
    time_text, apart, error_text = plain.replace("+-", "±").partition("±")
    try:
        time_s = parse_time(time_text.strip(), _OPTION)
        error = parse_ratio(error_text, f"{_OPTION} {text}: the error") if apart else 0.0
    except BadInputError as refused:
        step = "write a time of a batch (3ms), or a name (dlrm-dcnv2)."
        raise BadInputError(str(refused.message), step) from None
    if not _LEAST_S <= time_s <= _MOST_S:
        raise BadInputError(
            f"{_OPTION} {plain} is not what this model covers.", "from 1ns to 1h for a batch."
        )
    if error >= 1:
        raise BadInputError(f"{_OPTION} {text}: an error of all of it.", "less than 100 %, e.g. 3ms±10%.")
    return GivenTime(time_s, error)


def whole_of(answer: Planned, layers: DenseFile | GivenTime | None) -> WholeStep | None:
    """The plan's time together with the time of dense layers; None if there are no dense layers."""
    if layers is None:
        return None
    return WholeStep.compute(
        CostedPlan.compute(answer.evaluator, answer.plan), Dense.compute(layers, answer.evaluator)
    )
