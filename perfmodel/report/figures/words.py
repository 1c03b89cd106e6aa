"""Words that several figures share: names of libraries and collectives, hover text, escaped text."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Any

from perfmodel.report.columns import Column
from perfmodel.units import format_bytes

_LIBRARIES = {
    "nccl": "NCCL",
    "rccl": "RCCL",
    "nvshmem": "NVSHMEM",
    "mpi": "MPI",
    "gloo": "Gloo",
}


def library_name(backend: str) -> str:
    """A library's name in text: ``nccl`` -> ``NCCL``."""
    return _LIBRARIES.get(backend, backend)


def collective_name(collective: str) -> str:
    """A collective's name in text: ``all_to_all`` -> ``all-to-all``."""
    return collective.replace("_", "-")


def sentence(text: str) -> str:
    """The text with a capital first letter and a full stop."""
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def size_words(size: float) -> str:
    """A memory size: ``20.5 GB``."""
    return format_bytes(size, binary=False)


def safe(text: str) -> str:
    """The text with < > & escaped, because figures interpret tags; for text from files."""
    return html.escape(text, quote=False)


def told(columns: Iterable[Column], row: Any) -> str:
    """The hover text of a row: a line for each column that has a text."""
    return hover(column.text(row) for column in columns if column.text is not None)


def hover(lines: Iterable[str]) -> str:
    """The lines joined for hover text; empty lines are left out."""
    return "<br>".join(line for line in lines if line)
