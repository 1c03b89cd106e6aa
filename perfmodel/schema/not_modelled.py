"""Accelerators that are refused, because no law covers the topology of their links."""

from __future__ import annotations

import re

from perfmodel.errors import BadInputError

_LAWS = "The laws know links that reach every peer of a domain at one rate, and cards to other nodes."
_TORUS = (
    "its chips form a torus, where an exchange also passes through chips that it is not for: an all-to-all "
    "is bound by the bisection of the torus, which grows slower than its chips"
)
_KINDS = (
    (r"(google-)?tpu|ironwood|v[2-7][ep](-|$)", "a TPU", _TORUS),
    (
        r"(aws-)?(trn\d|inf\d|trainium|inferentia)",
        "Trainium",
        "the chips of an instance form a torus, and an UltraServer adds a level between instances",
    ),
)


def refuse_other_shapes(name: str) -> None:
    """BadInputError for a machine that needs another law. Limits: any other name -> nothing"""
    for begins, what, why in _KINDS:
        if re.match(begins, name.strip().casefold()):
            raise BadInputError(
                f"machine {name!r}: {what} is not modelled: {why}. {_LAWS}",
                "perfmodel machines lists what is modelled.",
                where="machine",
            )
