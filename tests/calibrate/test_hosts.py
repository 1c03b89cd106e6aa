"""Which machine this is, its GPUs, and the lines that install a library: fakes, no hardware."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from calibrate import providers
from calibrate.machine import identity, libraries
from calibrate.machine.identity import (
    count_node_cores,
    describe_host,
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
    with pytest.raises(BadInputError, match="2 kinds"):
        match_machine([gpu, "NVIDIA A100-SXM4-80GB"])


@pytest.mark.parametrize(
    ("chosen", "visible"),
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
def test_cuda_visible_devices(chosen: str | None, visible: list[int]) -> None:
    gpus = read_query(SMI)
    assert gpus[0] == LocalGpu(0, "NVIDIA H100 80GB HBM3", "GPU-aa", "550.54.15")
    assert [gpu.index for gpu in select_visible(gpus, chosen)] == visible


def test_gpus_are_those_that_the_driver_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho '{SMI.splitlines()[0]}'\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_gpus({}) == tuple(read_query(SMI)[:1]) and find_gpus({"CUDA_VISIBLE_DEVICES": ""}) == ()
    program.write_text("#!/bin/sh\nexit 9\n")
    assert find_gpus({}) == ()


def fake_node(root: Path, cpu: str) -> Path:
    """Four logical processors on two cores."""
    files = {"proc/cpuinfo": f"processor : 0\nmodel name\t: {cpu}\n\nprocessor : 1\n"}
    for cpu in range(4):
        topology = f"sys/devices/system/cpu/cpu{cpu}/topology"
        files |= {f"{topology}/core_id": f"{cpu % 2}\n", f"{topology}/physical_package_id": "0\n"}
    caches = ("1 Data 48K", "1 Instruction 32K", "2 Unified 1024K", "3 Unified 32M")
    for index, cache in enumerate(map(str.split, caches)):
        folder = f"sys/devices/system/cpu/cpu0/cache/index{index}"
        files |= {
            f"{folder}/{name}": text for name, text in zip(("level", "type", "size"), cache, strict=True)
        }
    return write(root, files)


@pytest.mark.parametrize(
    ("cpu", "slug"),
    [
        ("Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz", "intel-xeon-platinum-8375c"),
        ("AMD EPYC 7763 64-Core Processor", "amd-epyc-7763"),
        ("13th Gen Intel(R) Core(TM) i7-1370P", "intel-core-i7-1370p"),
        ("AMD Ryzen 7 PRO 6850U with Radeon Graphics", "amd-ryzen-7-pro-6850u"),
    ],
)
def test_a_host_without_gpus_is_named_after_its_processor(
    cpu: str, slug: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "find_gpus", tuple)
    monkeypatch.setattr(identity, "list_cpus", lambda: [0, 1, 2, 3])
    monkeypatch.setattr(identity.os, "cpu_count", lambda: 4)
    host = describe_host(root=fake_node(tmp_path, cpu))
    assert (host.machine, host.cores, host.cores_online) == (f"cpu-{slug}-2", 2, 2)
    assert (host.gpus, host.shipped) == ((), False)
    assert host.caches == {"L1": 48 * 1024, "L2": 2**20, "L3": 32 * 2**20}
    with pytest.raises(BadInputError, match="--machine h100-sxm-ib: there is no GPU here"):
        describe_host("h100-sxm-ib")
    assert describe_host("my-box").machine == "my-box"


@pytest.mark.parametrize(("cpuset", "cores"), [("0", 1), ("0,2", 1), ("0-1", 2), ("1-1,3", 1), ("0-2\n", 2)])
def test_cores_of_a_container_are_those_of_its_processors(tmp_path: Path, cpuset: str, cores: int) -> None:
    """Processors 0 and 2 are one core, 1 and 3 the other."""
    write(fake_node(tmp_path, "any"), {"sys/fs/cgroup/cpuset.cpus.effective": cpuset})
    assert count_node_cores(tmp_path) == cores


@pytest.mark.parametrize(("limit", "share"), [("150000 100000\n", 1.5), ("max 100000\n", None), ("", None)])
def test_a_containers_share(tmp_path: Path, limit: str, share: float | None) -> None:
    assert read_cpu_share(write(tmp_path, {"sys/fs/cgroup/cpu.max": limit} if limit else {})) == share


@pytest.mark.parametrize(
    ("card", "text", "network"),
    [
        ("infiniband/mlx5_0/x", "", "infiniband"),
        ("infiniband/rdmap0s6/x", "", "efa"),
        ("cxi/cxi0/x", "", "slingshot"),
        ("infiniband/mlx5_0/ports/1/link_layer", "Ethernet\n", "roce"),
        ("infiniband/mlx5_0/ports/1/link_layer", "InfiniBand\n", "infiniband"),
    ],
)
def test_network_cards_by_name(tmp_path: Path, card: str, text: str, network: str) -> None:
    assert name_network(write(tmp_path, {f"sys/class/{card}": text})) == network


def test_machine_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "find_gpus", lambda: (LocalGpu(0, "NVIDIA H100 80GB HBM3"),))
    assert describe_host().machine == "h100-sxm-ib"
    assert describe_host("h100-sxm-efa").shipped
    host = describe_host("my-box")
    assert (host.machine, host.shipped, len(host.gpus)) == ("my-box", False, 1)
    for name in ("h100-sxm-id", "No Spaces"):
        with pytest.raises(BadInputError, match=name):
            describe_host(name)


TORCH = "pip install torch==2.13.0"
BESIDE = "pip install tensordict==0.15.3 tqdm pyre-extensions lightning-utilities"
WITHOUT = "torchrec==1.8.0 {}==1.8.0 torchmetrics==1.0.3"


@pytest.mark.parametrize(
    ("gpus", "torch", "torchrec"),
    [
        ((), [TORCH], [TORCH, f"pip install --no-deps {WITHOUT.format('fbgemm-gpu-cpu')}", BESIDE]),
        (
            (LocalGpu(0, "NVIDIA H200"),),
            ["pip uninstall -y torch", TORCH],
            [
                "pip uninstall -y fbgemm-gpu-cpu",
                TORCH,
                f"pip install --no-deps --force-reinstall {WITHOUT.format('fbgemm-gpu')}",
                BESIDE,
            ],
        ),
    ],
)
def test_torchrec_comes_after_its_torch_and_without_what_it_depends_on(
    gpus: tuple[LocalGpu, ...],
    torch: list[str],
    torchrec: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By a pip that is first on the path, beside its Python."""
    for name in ("pip", "python"):
        write(tmp_path, {name: "#!/bin/sh\n"}).joinpath(name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(libraries, "find_gpus", lambda: gpus)
    assert libraries.format_torch_command().split(" && ") == torch
    assert libraries.format_torchrec_command().split(" && ") == torchrec


def hide(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    """Let all modules but one be there."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *_: None if missing in name else 1)


@pytest.mark.parametrize(
    ("name", "module", "line"),
    [
        ("gloo", "torch", "install torch==2.13.0"),
        ("torch", "torch", "install torch==2.13.0"),
        ("exchange", "torch", "install torch==2.13.0"),
        ("torchrec", "torchrec", "--no-deps torchrec==1.8.0"),
        ("torchrec", "tensordict", "tensordict==0.15.3"),
        ("fbgemm", "fbgemm_gpu", "--no-deps torchrec==1.8.0"),
        ("perfmodel", "cuda.core", "cupy-cuda13x"),
        ("perfmodel", "cupy", "cupy-cuda13x"),
    ],
)
def test_what_is_missing_is_named_with_its_line(
    name: str, module: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "perfmodel":
        monkeypatch.setattr(providers, "find_gpus", lambda: ["a GPU"])
    hide(monkeypatch, module)
    offered = providers.describe(name)
    assert not offered.usable and f"{module} is not installed" in offered.why_not
    assert line in offered.install


def test_our_own_kernels_are_timed_where_there_is_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """They run on a CPU too, slowly: that is for tests."""
    monkeypatch.setattr(providers, "find_gpus", tuple)
    assert "no NVIDIA GPU" in providers.describe("perfmodel").why_not
    monkeypatch.setattr(providers, "find_gpus", lambda: ["a GPU"])
    monkeypatch.setattr(providers, "find_version", lambda names: "2.13.0")
    hide(monkeypatch, "nothing")
    offered = providers.describe("perfmodel")
    assert offered.usable and offered.devices == ("cuda",) and offered.operations == ("gather_pool",)
    assert offered.version == f"perfmodel {providers.hash_kernels()}"
