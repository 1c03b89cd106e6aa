"""Our row-wise passes equal TorchRec's and torch's embedding_bag on 2 and 4 real ranks.

One pass goes over gloo as TorchRec does; the one-sided ones go over shared memory.
"""

from __future__ import annotations

import functools
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forked_ranks
import pytest

forked_ranks.require_torchrec()

PROGRAM = Path(__file__).with_name("torchrec_ranks.py")
NAMES = [f"{dtype}-{lengths}" for dtype in ("fp32", "fp16") for lengths in ("even", "uneven", "empty")]


@pytest.fixture(scope="module", autouse=True)
def built(kernel_home: Path) -> Iterator[None]:
    """Kernels of the one-sided passes are compiled once, before the ranks start."""
    import torch

    from calibrate.cuda import launch
    from calibrate.cuda.exchange_memory import METHODS
    from calibrate.cuda.row_wise_exchange import kernels, row_access

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERFMODEL_HOME", str(kernel_home))
        for method in METHODS:
            for dtype, width in (("fp32", 16), ("fp16", 8)):  # 12 columns
                made = kernels(dtype, row_access(12, dtype, width), method=method)
                launch.prebuild(list(made.values()), torch.device("cpu"))
        yield
        answers.cache_clear()


@functools.cache
def answers(ranks: int) -> list[dict[str, dict[str, Any]]]:
    """What each rank saw: one start of the ranks for all cases, because TorchRec takes seconds to import."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    codes, said, complaints = forked_ranks.started(PROGRAM, ranks, str(port))
    assert codes == [0] * ranks, [complaint[-3000:] for complaint in complaints]
    return [json.loads(text.strip().splitlines()[-1]) for text in said]


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("name", NAMES)
def test_passes_are_equal(ranks: int, name: str) -> None:
    """Errors are shares of what rounding allows; bags that are not empty hold sums that are not 0."""
    seen = [answer[name] for answer in answers(ranks)]
    for rank, errors in enumerate(seen):
        assert errors["ours"] < 1 and errors["torchrec"] < 1 and errors["both"] < 1, (rank, errors)
        assert 0 <= errors["one_sided"] < 1, (rank, errors)
    assert max(errors["largest"] for errors in seen) > 1
    if "empty" in name:
        assert seen[0]["largest"] == 0  # a rank without ids still serves the others


@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_point_is_exact(ranks: int, dtype: str) -> None:
    for answer in answers(ranks):
        wrong, checked, bytes_sent = answer["points"][dtype]
        assert (wrong, checked) == (0, 33 * 3 * 32) and bytes_sent > 0
