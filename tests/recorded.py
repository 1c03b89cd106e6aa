"""What a heuristic did, choice by choice, as it is recorded: plans as good may come another way.

A search that takes another turn counts other work, or improves at other times. After a change that is meant,
and after constants of the model were fitted anew, write the records again: ``RECORD=1 pytest -n 0`` of the
tests that fail.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

_PATH = Path(__file__).parent / "golden" / "recorded.json"


def assert_recorded(name: str, *values: Any) -> None:
    """The values are those of the record: numbers to nine digits, equal on every CPU."""
    said = [f"{value:.9g}" if isinstance(value, float) else value for value in values]
    records = json.loads(_PATH.read_text(encoding="utf-8"))
    if os.environ.get("RECORD"):
        records = dict(sorted((records | {name: said}).items()))
        lines = (f"{json.dumps(key)}: {json.dumps(record)}" for key, record in records.items())
        _PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    assert records.get(name) == said, "RECORD=1 writes it again"
