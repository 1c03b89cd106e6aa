"""Readers of traces of production runs."""

from __future__ import annotations

from calibrate.importers.traces.reading import check_alignment, is_trace, read_traces

__all__ = ["check_alignment", "is_trace", "read_traces"]
