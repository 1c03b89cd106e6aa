"""What tests judge the product by: every plan and mapping tried, plain numpy, ranks whose truth is known."""

from __future__ import annotations

import os
from pathlib import Path


def environment() -> dict[str, str]:
    """Of a process that a test starts: it finds the oracles as the test does."""
    here = str(Path(__file__).parents[1])
    known = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{here}{os.pathsep}{known}" if known else here}
