"""What the doctor doubts: fakes of the kernel's files, of a clock and of GPUs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from calibrate.machine import doctor
from calibrate.machine.doctor import Noise, examine, gpu_findings, probe_noise
from calibrate.machine.identity import Host
from calibrate.machine.local_gpus import LocalGpu

QUIET = Noise(0.0, 0.0, 0.0)
HOST = Host("cpu-acme-9000-4", False, "ACME 9000", cores=4, cores_online=4)
H100 = LocalGpu(0, "NVIDIA H100 80GB HBM3", ecc=True, mig=False, sm_clock_max_hz=1980e6)


def names(root: Path, host: Host = HOST, ranks: int | None = None, noise: Noise = QUIET) -> list[str]:
    return [finding.name for finding in examine(host, ranks, noise, root)]


def write(root: Path, name: str, text: str) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return root


def test_a_quiet_machine_leaves_nothing_to_say(tmp_path: Path) -> None:
    assert names(tmp_path) == []


def test_more_ranks_than_cores(tmp_path: Path) -> None:
    assert names(tmp_path, ranks=4) == []
    (finding,) = examine(HOST, 5, QUIET, tmp_path)
    assert "5 ranks on 4 cores" in finding.text and finding.advice == "--ranks 4"


def test_fewer_cores_than_gpus(tmp_path: Path) -> None:
    host = replace(HOST, cores=1, gpus=(H100, replace(H100, index=1)))
    assert "1 cores for 2 GPUs" in examine(host, None, QUIET, tmp_path)[0].text


def test_noise_is_what_others_take(tmp_path: Path) -> None:
    assert names(tmp_path, noise=Noise(0.03, 1e-3, 0.0)) == ["noise"]
    assert names(tmp_path, noise=Noise(0.0, 0.0, 3.0)) == ["noise"]
    assert names(tmp_path, noise=Noise(0.01, 1e-3, 1.0)) == []


def test_the_probe_adds_up_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of 10 µs for 0.1 s, then one of 0.1 s: half of the time is lost, and in one pause."""
    monkeypatch.setattr(doctor, "allowed_cpus", lambda: [0])
    monkeypatch.setattr(doctor.os, "sched_setaffinity", lambda *_: None, raising=False)
    steps = iter([1e-5 * i for i in range(10_001)] + [0.2])
    seen = probe_noise(0.2, lambda: next(steps))
    assert seen.longest_s == pytest.approx(0.1, rel=0.01)
    assert seen.stolen_share == pytest.approx(0.5, rel=0.01)


def test_the_probe_puts_the_affinity_back() -> None:
    before = doctor.allowed_cpus()
    assert 0 <= probe_noise(0.01).stolen_share <= 1
    assert doctor.allowed_cpus() == before


@pytest.mark.parametrize(
    ("file", "text", "name"),
    [
        ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n", "frequency"),
        ("sys/class/power_supply/BAT0/status", "Discharging\n", "power"),
        ("sys/fs/cgroup/cpu.max", "200000 100000\n", "container"),
        ("sys/fs/cgroup/memory.max", "1073741824\n", "memory"),
    ],
)
def test_files_of_the_kernel(tmp_path: Path, file: str, text: str, name: str) -> None:
    assert names(write(tmp_path, file, text)) == [name]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n"),
        ("sys/class/power_supply/AC/status", "Charging\n"),
        ("sys/fs/cgroup/cpu.max", "max 100000\n"),
        ("sys/fs/cgroup/memory.max", "max\n"),
    ],
)
def test_files_that_are_as_they_should_be(tmp_path: Path, file: str, text: str) -> None:
    assert names(write(tmp_path, file, text)) == []


def test_little_shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dev/shm").mkdir(parents=True)

    class State:
        f_bavail, f_frsize = 64, 2**20

    monkeypatch.setattr(doctor.os, "statvfs", lambda _: State)
    (finding,) = examine(HOST, 2, QUIET, tmp_path)
    assert "64 MiB left; 2 ranks may need 512 MiB" in finding.text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mig": True}, "MIG"),
        ({"ecc": False}, "ECC"),
        ({"throttle_mask": 0x24}, "power cap, thermal (software)"),
        ({"throttle_mask": 0x2}, "by hand"),
        ({"busy_fraction": 0.4}, "40 % busy"),
        ({"memory_used_bytes": 20 * 2**30}, "20.0 GiB"),
    ],
)
def test_unusual_gpus(change: dict[str, object], words: str) -> None:
    (finding,) = gpu_findings([replace(H100, **change)])  # type: ignore[arg-type]
    assert finding.name == "GPU 0" and words in finding.text


def test_usual_gpus() -> None:
    assert gpu_findings([H100, replace(H100, index=1, throttle_mask=0x1)]) == []
    assert len(gpu_findings([H100, replace(H100, index=1, sm_clock_max_hz=1755e6)])) == 1
