"""Kernels of one source, built once for all tests of a file, with the checks of alignment and overflow."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from cuda_memory import fresh_random


@pytest.fixture(scope="module")
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """``kernels()`` of the test's own module."""
    import torch

    from calibrate.cuda import launch

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERFMODEL_HOME", str(tmp_path_factory.mktemp("home")))
        launch.prebuild(request.module.kernels(), torch.device("cpu"), checked=True)
        yield


@pytest.fixture
def rng() -> np.random.Generator:
    """Other numbers in every run; the seed is printed."""
    return fresh_random()


@pytest.fixture(params=[0, 1, 12345], ids=lambda order: f"order{order}")
def order(request: pytest.FixtureRequest) -> Iterator[None]:
    """The order in which the threads of a block take turns: rising, falling, random."""
    from calibrate.cuda import launch

    kernel = request.module.kernels()[0]
    launch.cpu_order(kernel, request.param)
    yield
    launch.cpu_order(kernel, 0)
