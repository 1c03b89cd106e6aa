"""Kernels of one source, built once for all tests of a file, with the checks of alignment and overflow.

What is compiled, for a CPU or a GPU, lies in one folder for all workers of a run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="module", autouse=True)
def _kernels_are_compiled_once(kernel_home: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERFMODEL_HOME", str(kernel_home))
        yield


@pytest.fixture(scope="module")
def built(request: pytest.FixtureRequest, _kernels_are_compiled_once: None) -> None:
    """``kernels()`` of the test's own module."""
    import torch

    from calibrate.cuda import kernel_launch

    kernel_launch.prebuild(request.module.kernels(), torch.device("cpu"), checked=True)


@pytest.fixture
def seed() -> int:
    """Another one in every run; pytest shows that of a test that fails."""
    number = int.from_bytes(os.urandom(4), "little")
    print(f"seed {number}")
    return number


@pytest.fixture(params=[0, 1, 12345], ids=lambda order: f"order{order}")
def order(request: pytest.FixtureRequest) -> Iterator[None]:
    """The order in which the threads of a block take turns: rising, falling, random."""
    from calibrate.cuda import kernel_launch

    kernel = request.module.kernels()[0]
    kernel_launch.cpu_order(kernel, request.param)
    yield
    kernel_launch.cpu_order(kernel, 0)
