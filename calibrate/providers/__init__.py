"""Libraries, kernels and whole passes that can be timed, by name; each is imported when it is asked for."""

from __future__ import annotations

import importlib
import importlib.util

from calibrate.operations import Availability, Provider
from perfmodel.errors import BadInputError

COLLECTIVE_PROVIDERS = {
    "mpi": "calibrate.providers.mpi:Mpi",
    "gloo": "calibrate.providers.gloo:Gloo",
    "shmem": "calibrate.providers.shmem:Shmem",
}
"""Libraries of collectives: the name is the backend of a point."""

PROVIDERS = {
    **COLLECTIVE_PROVIDERS,
}
"""Every provider: its module and class. A module has ``availability() -> Availability``."""


def availability(name: str) -> Availability:
    """Whether a provider can run here, without starting it.

    Limits: unknown name -> BadInputError; a module that is missing or does not import -> not usable, with why
    """
    module, _ = _place(name)
    try:
        answer: Availability = importlib.import_module(module).availability()
    except ImportError as error:
        return Availability(False, f"it cannot be imported ({error})")
    return answer


def load(name: str) -> Provider:
    """A provider that is not open yet."""
    module, kind = _place(name)
    provider: Provider = getattr(importlib.import_module(module), kind)()
    return provider


def _place(name: str) -> tuple[str, str]:
    if name not in PROVIDERS:
        raise BadInputError(f"unknown provider {name!r}.", f"known: {', '.join(PROVIDERS)}.")
    module, kind = PROVIDERS[name].split(":")
    return module, kind
