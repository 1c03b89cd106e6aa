"""Reads ``--alpha`` and ``--distribution``: how often the ids ask for each row."""

from __future__ import annotations

from perfmodel.cli.options import apart
from perfmodel.errors import BadInputError
from perfmodel.schema.distributions import UNIFORM, Distribution, parse_distribution, zipf
from perfmodel.schema.ranges import MOST_SKEW
from perfmodel.units import parse_ratio


def ids_of(alpha: str | None, distribution: str | None) -> Distribution:
    """The distribution of ids, uniform if neither option was typed. Limits: both options -> BadInputError"""
    same = f"--alpha {alpha} is --distribution zipf:{alpha}: give one of them."
    apart("--alpha", alpha, same, distribution=distribution)
    if alpha is not None:
        try:
            return zipf(parse_ratio(alpha, "--alpha", allow_zero=True))
        except BadInputError:
            raise BadInputError(
                f"--alpha {alpha} cannot be used.",
                f"it is the exponent of Zipf's law: 0 (uniform ids) to {MOST_SKEW}, e.g. --alpha 1.05.",
            ) from None
    return UNIFORM if distribution is None else parse_distribution(distribution)
