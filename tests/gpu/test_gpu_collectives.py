"""Libraries of collectives on GPUs: one rank a GPU where there are two, else two ranks on one as a check.

Two ranks on one GPU show that a library works; their times say nothing of a fabric and are never kept.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from oracles import environment, free_port

from calibrate import providers
from calibrate.machine.node import find_gpus
from calibrate.providers.torch_world import SHARES_A_GPU_FROM

WORKER = Path(__file__).parents[1] / "calibrate" / "provider_ranks.py"


def run_two(name: str) -> list[dict[str, Any]]:
    port = str(free_port())
    line = [sys.executable, str(WORKER), "2", name, port, f"gpu{port}", "cuda"]
    started = [
        subprocess.Popen([*line, str(rank)], stdout=subprocess.PIPE, text=True, env=environment())
        for rank in range(2)
    ]
    try:
        texts = [rank.communicate(timeout=300)[0] for rank in started]
    finally:
        for rank in started:
            rank.kill()
    assert [rank.returncode for rank in started] == [0, 0]
    return [json.loads(text.splitlines()[-1]) for text in texts]


@pytest.mark.parametrize("name", ["nccl", "nvshmem"])
def test_two_ranks(name: str) -> None:
    offered = providers.describe(name)
    if not offered.usable:
        pytest.skip(f"NOT TESTED on a GPU, {name}: {offered.why_not}")
    if len(find_gpus()) < 2:
        if name != "nccl":
            pytest.skip(f"NOT TESTED on a GPU, {name}: it needs two GPUs")
        import torch

        version = tuple(torch.cuda.nccl.version())
        if version[:2] < SHARES_A_GPU_FROM:
            pytest.skip(f"NOT TESTED on a GPU, nccl {version} cannot share the one that is here")
    for answer in run_two(name):
        (seen,) = answer["seen"].values()
        assert seen and [visit for visit in seen if visit["wrong"] or visit["missed"]] == []
