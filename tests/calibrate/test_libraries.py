"""The lines that install a library, and whether it really imports."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from calibrate import providers
from calibrate.machine import libraries
from calibrate.machine.local_gpus import LocalGpu

Hide = Callable[..., None]


@pytest.fixture
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Python with its pip beside it, first on the path."""
    for name in ("pip", "python"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    return tmp_path


def with_gpus(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    for module in (libraries, providers):
        monkeypatch.setattr(
            module, "find_gpus", lambda: tuple(LocalGpu(i, "NVIDIA H200") for i in range(count))
        )


@pytest.mark.usefixtures("pip")
def test_torchrec_comes_after_its_torch_and_without_what_it_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus(monkeypatch, 0)
    assert libraries.format_torchrec_command().split(" && ") == [
        "pip install torch==2.13.0",
        "pip install --no-deps torchrec==1.8.0 fbgemm-gpu-cpu==1.8.0 torchmetrics==1.0.3",
        "pip install tensordict==0.15.3 tqdm pyre-extensions lightning-utilities",
    ]
    assert libraries.format_torch_command() == "pip install torch==2.13.0"
    with_gpus(monkeypatch, 1)
    assert libraries.format_torchrec_command().split(" && ") == [
        "pip uninstall -y fbgemm-gpu-cpu",
        "pip install torch==2.13.0",
        "pip install --no-deps --force-reinstall torchrec==1.8.0 fbgemm-gpu==1.8.0 torchmetrics==1.0.3",
        "pip install tensordict==0.15.3 tqdm pyre-extensions lightning-utilities",
    ]
    assert libraries.format_torch_command() == "pip uninstall -y torch && pip install torch==2.13.0"


@pytest.fixture
def hide(monkeypatch: pytest.MonkeyPatch) -> Hide:
    """Modules as if they were not installed."""

    def gone(*names: str) -> None:
        real = importlib.util.find_spec
        monkeypatch.setattr(
            "importlib.util.find_spec", lambda name, *rest: None if name in names else real(name, *rest)
        )

    return gone


@pytest.mark.parametrize(
    ("name", "module", "what", "line"),
    [
        ("gloo", "torch", "torch is not installed", "install torch==2.13.0"),
        ("torch", "torch", "torch is not installed", "install torch==2.13.0"),
        ("exchange", "torch", "torch is not installed", "install torch==2.13.0"),
        ("torchrec", "torchrec", "torchrec is not installed", "--no-deps torchrec==1.8.0"),
        ("torchrec", "tensordict", "tensordict is not installed", "tensordict==0.15.3"),
        ("fbgemm", "fbgemm_gpu", "fbgemm_gpu is not installed", "--no-deps torchrec==1.8.0"),
    ],
)
def test_what_is_missing_is_named_with_its_line(
    name: str, module: str, what: str, line: str, hide: Hide
) -> None:
    hide(module)
    found = providers.describe(name)
    assert (found.usable, found.why_not) == (False, what)
    assert line in found.install
