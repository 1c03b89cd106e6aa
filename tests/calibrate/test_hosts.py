"""Which machine this is, its GPUs, and the lines that install a library: fakes, no hardware."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest
from recorded import assert_recorded

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
from calibrate.providers import hash_kernels
from perfmodel.errors import BadInputError
from perfmodel.resources import data_path

SMI = """0, NVIDIA H100 80GB HBM3, GPU-aa, 550.54.15
1, NVIDIA H100 80GB HBM3, GPU-ab, 550.54.15
Failed to initialize NVML
2
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
        ("NVIDIA L40S-PCIE", "", "l40s-pcie"),
        ("NVIDIA A100-PCIE-40GB", "", "gpu-nvidia-a100-pcie-40gb"),
        ("NVIDIA H200 NVL", "", "gpu-nvidia-h200-nvl"),
    ],
)
def test_the_shipped_machine_with_these_gpus(gpu: str, network: str, machine: str) -> None:
    assert match_machine([gpu, gpu], network)[0] == machine
    with pytest.raises(BadInputError, match="2 kinds"):
        match_machine([gpu, "NVIDIA A100-SXM4-80GB"])


def test_cuda_visible_devices() -> None:
    gpus = read_query(SMI)
    assert gpus[0] == LocalGpu(0, "NVIDIA H100 80GB HBM3", "GPU-aa", "550.54.15")
    visible = {
        None: [0, 1],
        "1": [1],
        "1,0": [1, 0],
        "": [],
        "GPU-ab": [1],
        "0,7,1": [0],
        "-1": [],
        "MIG-c2": [0],
    }
    for chosen, numbers in visible.items():
        assert [gpu.index for gpu in select_visible(gpus, chosen)] == numbers, chosen


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


def test_cores_of_a_container_are_those_of_its_processors_and_of_its_time(tmp_path: Path) -> None:
    """Processors 0 and 2 are one core, 1 and 3 the other."""
    group = fake_node(tmp_path, "any") / "sys/fs/cgroup"
    for cpuset, cores in {"0": 1, "0,2": 1, "0-1": 2, "1-1,3": 1, "0-2\n": 2}.items():
        write(group, {"cpuset.cpus.effective": cpuset, "cpu.max": "250000 100000\n"})
        assert (count_node_cores(tmp_path), read_cpu_share(tmp_path)) == (cores, 2.5)
    for limit, cores in {"150000 100000": 1, "50000 100000": 1, "max 100000": 2}.items():
        assert count_node_cores(write(group, {"cpu.max": limit}).parents[2]) == cores


def test_network_cards_by_name(tmp_path: Path) -> None:
    cards = {
        "infiniband/mlx5_0/x": "infiniband",
        "infiniband/rdmap0s6/x": "efa",
        "cxi/cxi0/x": "slingshot",
        "infiniband/mlx5_0/ports/1/link_layer": "roce",
    }
    for card, network in cards.items():
        root = write(tmp_path / network, {f"sys/class/{card}": "Ethernet\n"})
        assert name_network(root) == network
    write(root, {"sys/class/infiniband/mlx5_0/ports/1/link_layer": "InfiniBand\n"})
    assert name_network(root) == "infiniband"


def test_machine_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "find_gpus", lambda: (LocalGpu(0, "NVIDIA H100 80GB HBM3"),))
    assert describe_host().machine == "h100-sxm-ib"
    assert describe_host("h100-sxm-efa").shipped
    assert describe_host(str(data_path("machines", "h200-sxm-ib.toml"))).shipped
    host = describe_host("my-box")
    assert (host.machine, host.shipped, len(host.gpus)) == ("my-box", False, 1)
    for name in ("h100-sxm-id", "No Spaces"):
        with pytest.raises(BadInputError, match=name):
            describe_host(name)


@pytest.mark.parametrize("gpus", [0, 1])
@pytest.mark.parametrize(
    ("missing", "version", "processor"),
    [
        *((module, "2.13.0", "x86_64") for module in ("torch", "torchrec", "fbgemm_gpu", "cupy", "nothing")),
        *(("nothing", version, "aarch64") for version in ("2.13.0+cpu", "2.13.0+rocm6.4")),
    ],
)
def test_what_is_missing_is_said_with_the_line_that_installs_it(
    missing: str, version: str, processor: str, gpus: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a pip that is first on the path, beside its Python. Where nothing is said, ranks of these kinds."""
    for name in ("pip", "python", "g++"):
        write(tmp_path, {name: "#!/bin/sh\n"}).joinpath(name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(providers.platform, "machine", lambda: processor)
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *_: None if missing in name else 1)
    for module in (providers, libraries):
        monkeypatch.setattr(module, "find_gpus", lambda: ["a GPU"] * gpus)
        monkeypatch.setattr(module, "find_version", lambda names: version)
    offers = {name: providers.describe(name) for name in providers.PROVIDERS}
    said = [f"{name}: {o.why_not or o.devices} {o.install}".rstrip() for name, o in offers.items()]
    ours = offers["perfmodel"]
    said += [*libraries.list_versions("cpu"), *ours.operations, ours.version.replace(hash_kernels(), "HASH")]
    assert_recorded(f"libraries on {gpus} GPUs without {missing}, {version}", *said)
