"""What tests judge the product by: every plan and mapping tried, plain numpy, ranks whose truth is known."""

from __future__ import annotations

import os
import socket
from pathlib import Path


def environment() -> dict[str, str]:
    """Of a process that a test starts: it finds the oracles, and `calibrate` before its tests."""
    tests = Path(__file__).parents[1]
    before = os.environ.get("PYTHONPATH")
    paths = [str(tests), str(tests.parent), *([before] if before else [])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])
