"""``--dense``: the dense layers beside a plan, by name, file or time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfmodel.engine.training import CostedPlan, Dense, GivenTime, WholeStep
from perfmodel.errors import BadInputError
from perfmodel.schema.priors import DenseFile, load_dense, load_rates
from perfmodel.units import parse_ratio, parse_time

if TYPE_CHECKING:
    from perfmodel.plan.outcome import Planned

_LEAST_S, _MOST_S = 1e-9, 3600.0  # of a batch


def parse_dense(text: str, machine: str) -> DenseFile | GivenTime:
    """The dense layers that ``--dense`` means: a name, ``mine.toml``, ``3ms`` or ``3ms±10%`` (per batch).

    machine  whose GPU runs the layers
    Limits: neither a name, a file nor a time, layers on a machine whose GPU has no known rate, or a time
            below 1 ns or above 1 h -> BadInputError
    """
    text = text.strip()
    if text.endswith(".toml") or not (text[:1].isdigit() or text[:1] in "+-."):
        layers = load_dense(text)
        load_rates().of(machine)
        return layers
    time_text, apart, error_text = text.replace("+-", "±").partition("±")
    try:
        time_s = parse_time(time_text.strip(), "--dense")
    except BadInputError as error:
        step = "write a time of a batch (3ms), or a name (dlrm-dcnv2)."
        raise BadInputError(str(error.message), step) from None
    spread = parse_ratio(error_text, f"--dense {text}: the error") if apart else 0.0
    if not _LEAST_S <= time_s <= _MOST_S or spread >= 1:
        step = "from 1ns to 1h for a batch, with an error of less than 100 %, e.g. 3ms±10%."
        raise BadInputError(f"--dense {text} is not what this model covers.", step)
    return GivenTime(time_s, spread)


def whole_of(answer: Planned, layers: DenseFile | GivenTime | None) -> WholeStep | None:
    """The plan's time together with the time of dense layers; None if there are no dense layers."""
    if layers is None:
        return None
    costed = CostedPlan.compute(answer.evaluator, answer.plan)
    return WholeStep.compute(costed, Dense.compute(layers, answer.evaluator))
