"""The unit family of sizes, as it was typed: who types 1MB reads MB, who types 10TiB reads TiB and GiB."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass(frozen=True)
class TypedSizes:
    """Sizes of one command line.

    binary   by bytes: whether that size was typed in KiB, MiB …
    family   by the family that a size has otherwise (False: of memory, True: of messages): whether all sizes
             of the command line that replace it are binary
    """

    binary: Mapping[float, bool] = field(default_factory=dict)
    family: Mapping[bool, bool] = field(default_factory=dict)


_NONE = TypedSizes()
_TYPED: ContextVar[TypedSizes] = ContextVar("typed_sizes", default=_NONE)


@contextlib.contextmanager
def typed_sizes(typed: TypedSizes) -> Iterator[None]:
    """Within it, ``format_bytes`` writes sizes in the family of ``typed``."""
    before = _TYPED.set(typed)
    try:
        yield
    finally:
        _TYPED.reset(before)


def is_binary(size_bytes: float, otherwise: bool) -> bool:
    """Whether a size is written in KiB, MiB …: as it was typed, else as others were, else ``otherwise``."""
    typed = _TYPED.get()
    return typed.binary.get(float(size_bytes), typed.family.get(otherwise, otherwise))
