"""Sizes are printed in the units that the user typed: MB for ``1MB``, TiB and GiB for ``10TiB``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass(frozen=True)
class TypedSizes:
    """For sizes of a command line, whether they were typed in KiB, MiB … (True) or in kB, MB … (False).

    binary   by typed size [byte]
    family   for all sizes of memory (key False) and of messages (key True); no entry if both were typed
    """

    binary: Mapping[float, bool] = field(default_factory=dict)
    family: Mapping[bool, bool] = field(default_factory=dict)


_NONE = TypedSizes()
_TYPED: ContextVar[TypedSizes] = ContextVar("typed_sizes", default=_NONE)


@contextlib.contextmanager
def typed_sizes(typed: TypedSizes) -> Iterator[None]:
    """Context in which ``format_bytes`` prints sizes in the units that ``typed`` says the user typed."""
    before = _TYPED.set(typed)
    try:
        yield
    finally:
        _TYPED.reset(before)


def is_binary(size_bytes: float, otherwise: bool) -> bool:
    """Whether to print a size in KiB, MiB …: as it was typed, else as other sizes of its sort were typed.

    otherwise  the answer if none was typed: True for sizes of messages, False for sizes of memory
    """
    typed = _TYPED.get()
    return typed.binary.get(float(size_bytes), typed.family.get(otherwise, otherwise))
