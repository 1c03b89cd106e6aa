"""Our row-wise pass equals TorchRec's and torch's embedding_bag on 2 and 4 real gloo ranks."""

from __future__ import annotations

import functools
import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("torchrec")

PROGRAM = Path(__file__).with_name("torchrec_ranks.py")
NAMES = [
    f"{dtype}-{lengths}-{weights}"
    for dtype in ("fp32", "fp16")
    for lengths in ("even", "uneven", "empty")
    for weights in ("plain", "weighted")
]


@functools.cache
def answers(ranks: int) -> list[dict[str, dict[str, float]]]:
    """What each rank saw: one start of the ranks for all cases, because TorchRec takes seconds to import."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), str(rank), str(ranks), str(port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        said = [process.communicate(timeout=120) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (_, complaint) in zip(processes, said, strict=True):
        assert process.returncode == 0, complaint[-3000:]
    return [json.loads(text.strip().splitlines()[-1]) for text, _ in said]


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("name", NAMES)
def test_passes_are_equal(ranks: int, name: str) -> None:
    """Errors are shares of what rounding allows; bags that are not empty hold sums that are not 0."""
    seen = [answer[name] for answer in answers(ranks)]
    for rank, errors in enumerate(seen):
        assert errors["ours"] < 1 and errors["torchrec"] < 1 and errors["both"] < 1, (rank, errors)
    assert max(errors["largest"] for errors in seen) > 1
    if "empty" in name:
        assert seen[0]["largest"] == 0  # a rank without ids still serves the others
