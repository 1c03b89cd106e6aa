"""Readers of traces of production runs."""

from __future__ import annotations

from calibrate.importers.traces.reading import check_alignment, is_trace, read_traces, without_other_kernels

__all__ = ["check_alignment", "is_trace", "read_traces", "without_other_kernels"]
