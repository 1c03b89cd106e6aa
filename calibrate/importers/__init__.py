"""Reads logs of other tools."""

from __future__ import annotations

from calibrate.importers.logged_rows import UnreadLine
from calibrate.importers.merge import ImportResult, Stack, check_given, import_logs, read_text, reasons_of

__all__ = ["ImportResult", "Stack", "UnreadLine", "check_given", "import_logs", "read_text", "reasons_of"]
