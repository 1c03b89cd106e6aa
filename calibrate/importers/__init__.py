"""Reads logs of other tools."""

from __future__ import annotations

from calibrate.importers.logged_rows import LogLine
from calibrate.importers.merge import ImportResult, Stack, check_given, import_logs, read_text, reasons_of

__all__ = ["ImportResult", "LogLine", "Stack", "check_given", "import_logs", "read_text", "reasons_of"]
