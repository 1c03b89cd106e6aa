"""Which machine this is, its GPUs, and the lines that install a library: fakes, no hardware."""

from __future__ import annotations

import importlib.util
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from calibrate import providers
from calibrate.machine import identity, libraries
from calibrate.machine.identity import (
    describe_host,
    make_slug,
    match_machine,
    name_network,
    read_cpu_share,
)
from calibrate.machine.node import LocalGpu, find_gpus, read_query, select_visible
from perfmodel.errors import BadInputError

SMI = """0, NVIDIA H100 80GB HBM3, GPU-aa, 550.54.15
1, NVIDIA H100 80GB HBM3, GPU-ab, 550.54.15
Failed to initialize NVML
"""


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


@pytest.mark.parametrize(
    ("gpu", "network", "machine"),
    [
        ("NVIDIA H100 80GB HBM3", "", "h100-sxm-ib"),
        ("NVIDIA H100 80GB HBM3", "efa", "h100-sxm-efa"),
        ("NVIDIA H200", "infiniband", "h200-sxm-ib"),
        ("NVIDIA H200", "roce", "h200-sxm-roce"),
        ("NVIDIA GB200", "", "gb200-nvl72"),
        ("NVIDIA GH200 480GB", "", "gh200-slingshot"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "", "rtx-pro-6000-pcie"),
        ("NVIDIA A100-PCIE-40GB", "", "gpu-nvidia-a100-pcie-40gb"),
        ("NVIDIA H200 NVL", "", "gpu-nvidia-h200-nvl"),
    ],
)
def test_the_shipped_machine_with_these_gpus(gpu: str, network: str, machine: str) -> None:
    assert match_machine([gpu, gpu], network)[0] == machine


def test_gpus_of_two_kinds_are_no_machine() -> None:
    with pytest.raises(BadInputError, match="2 kinds"):
        match_machine(["NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"])


def test_nvidia_smi_is_read() -> None:
    first, second = read_query(SMI)
    assert first == LocalGpu(0, "NVIDIA H100 80GB HBM3", "GPU-aa", "550.54.15")
    assert second.uuid == "GPU-ab"


@pytest.mark.parametrize(
    ("chosen", "kept"),
    [
        (None, [0, 1]),
        ("1", [1]),
        ("1,0", [1, 0]),
        ("", []),
        ("GPU-ab", [1]),
        ("0,7,1", [0]),
        ("-1", []),
        ("MIG-c2", [0]),
    ],
)
def test_cuda_visible_devices(chosen: str | None, kept: list[int]) -> None:
    assert [gpu.index for gpu in select_visible(read_query(SMI), chosen)] == kept


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz", "intel-xeon-platinum-8375c"),
        ("AMD EPYC 7763 64-Core Processor", "amd-epyc-7763"),
        ("13th Gen Intel(R) Core(TM) i7-1370P", "intel-core-i7-1370p"),
        ("AMD Ryzen 7 PRO 6850U with Radeon Graphics", "amd-ryzen-7-pro-6850u"),
        ("", "unknown"),
    ],
)
def test_names_of_processors(name: str, expected: str) -> None:
    assert make_slug(name) == expected


def fake_node(root: Path) -> Path:
    """Four logical processors on two cores of a made-up processor."""
    files = {"proc/cpuinfo": "processor : 0\nmodel name\t: ACME 9000 CPU @ 3GHz\n\nprocessor : 1\n"}
    for cpu in range(4):
        topology = f"sys/devices/system/cpu/cpu{cpu}/topology"
        files |= {f"{topology}/core_id": f"{cpu % 2}\n", f"{topology}/physical_package_id": "0\n"}
    for index, (level, kind, size) in enumerate(
        [
            ("1", "Data", "48K"),
            ("1", "Instruction", "32K"),
            ("2", "Unified", "1024K"),
            ("3", "Unified", "32M"),
        ]
    ):
        cache = f"sys/devices/system/cpu/cpu0/cache/index{index}"
        files |= {f"{cache}/level": level, f"{cache}/type": kind, f"{cache}/size": size}
    return write(root, files)


def test_a_host_without_gpus_is_named_after_its_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = fake_node(tmp_path)
    monkeypatch.setattr(identity, "find_gpus", lambda: ())
    monkeypatch.setattr(identity, "list_cpus", lambda: [0, 1, 2, 3])
    monkeypatch.setattr(identity.os, "cpu_count", lambda: 4)
    found = describe_host(root=root)
    assert (found.machine, found.cores, found.cores_online) == ("cpu-acme-9000-2", 2, 2)
    assert (found.gpus, found.shipped) == ((), False)
    assert found.caches == {"L1": 48 * 1024, "L2": 2**20, "L3": 32 * 2**20}


@pytest.mark.parametrize(
    ("files", "share"),
    [
        ({"sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5),
        ({"sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        ({}, None),
    ],
)
def test_a_containers_share(tmp_path: Path, files: dict[str, str], share: float | None) -> None:
    assert read_cpu_share(write(tmp_path, files)) == share


def test_network_cards_by_name(tmp_path: Path) -> None:
    assert name_network(write(tmp_path / "a", {"sys/class/infiniband/mlx5_0/x": ""})) == "infiniband"
    assert name_network(write(tmp_path / "b", {"sys/class/infiniband/rdmap0s6/x": ""})) == "efa"
    assert name_network(write(tmp_path / "c", {"sys/class/cxi/cxi0/x": ""})) == "slingshot"
    for name, layer, network in (("d", "Ethernet", "roce"), ("e", "InfiniBand", "infiniband")):
        card = {"sys/class/infiniband/mlx5_0/ports/1/link_layer": f"{layer}\n"}
        assert name_network(write(tmp_path / name, card)) == network


def test_machine_says_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "find_gpus", lambda: (LocalGpu(0, "NVIDIA H100 80GB HBM3"),))
    assert describe_host().machine == "h100-sxm-ib"
    assert describe_host("h100-sxm-efa").shipped
    own = describe_host("my-box")
    assert (own.machine, own.shipped, len(own.gpus)) == ("my-box", False, 1)
    with pytest.raises(BadInputError, match="h100-sxm-id"):
        describe_host("h100-sxm-id")
    with pytest.raises(BadInputError, match="No Spaces"):
        describe_host("No Spaces")


def test_cpus_are_no_shipped_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibrate.machine.identity.find_gpus", tuple)
    with pytest.raises(BadInputError, match="--machine h100-sxm-ib: there is no GPU here"):
        describe_host("h100-sxm-ib")
    assert describe_host("my-box").machine == "my-box"


def line(index: int, uuid: str) -> str:
    return f"{index}, NVIDIA H200, {uuid}, 580.159.03"


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """nvidia-smi with two GPUs."""
    program = tmp_path / "nvidia-smi"
    program.write_text(f'#!/bin/sh\necho "{line(0, "GPU-aa")}"\necho "{line(1, "GPU-ab")}"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path))
    return program


@pytest.mark.usefixtures("smi")
def test_gpus_are_those_that_the_driver_names() -> None:
    first, second = find_gpus({})
    assert (first.name, first.driver, second.uuid) == ("NVIDIA H200", "580.159.03", "GPU-ab")


def test_a_program_that_fails_names_no_gpu(smi: Path) -> None:
    smi.write_text("#!/bin/sh\nexit 9\n")
    assert find_gpus({}) == ()


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
