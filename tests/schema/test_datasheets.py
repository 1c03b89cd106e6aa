"""Datasheet values of shipped machines against a second copy of the sources: a wrong digit shows here."""

from __future__ import annotations

import csv
import json
import tomllib
from pathlib import Path

import pytest

from perfmodel import resources
from perfmodel.schema.evidence import Evidence
from perfmodel.schema.machine import list_machines, load_machine

TB, GB, MB = 1e12, 1e9, 1e6
MIB, GIB = 2**20, 2**30
COLUMNS = ("hbm_bytes_per_s", "l2_bytes", "sm_count", "gpus_per_node", "nvlink_domain_gpus",
           "nvlink_bytes_per_s", "pcie_bytes_per_s", "nic_bytes_per_s", "nics_per_node")  # fmt: skip
DATASHEETS = {
    # NVIDIA A100: 80 GB of HBM2e at 2 039 GB/s, or 40 GB of HBM2 at 1 555; 40 MB of L2, 108 SMs, PCIe 4,
    # NVLink 600 GB/s both ways; DGX A100: 8 cards of 200 Gbit/s; Polaris: 2 Slingshot 10 cards of 100 Gbit/s
    "a100-sxm-ib": (2.039 * TB, 40 * MB, 108, 8, 8, 300 * GB, 32 * GB, 25 * GB, 8),
    "a100-slingshot": (1.555 * TB, 40 * MB, 108, 4, 4, 300 * GB, 32 * GB, 12.5 * GB, 2),
    # NVIDIA H100 SXM: 80 GB at 3.35 TB/s, 50 MB, 132 SMs, NVLink 900 GB/s both ways, PCIe 5;
    # DGX H100: 8 cards of 400 Gbit/s; p5: 32 interfaces of 100 Gbit/s, four a GPU
    "h100-sxm-ib": (3.35 * TB, 50 * MB, 132, 8, 8, 450 * GB, 64 * GB, 50 * GB, 8),
    "h100-sxm-efa": (3.35 * TB, 50 * MB, 132, 8, 8, 450 * GB, 64 * GB, 50 * GB, 32),
    # NVIDIA H200: 141 GB at 4.8 TB/s
    "h200-sxm-ib": (4.8 * TB, 50 * MB, 132, 8, 8, 450 * GB, 64 * GB, 50 * GB, 8),
    "h200-sxm-roce": (4.8 * TB, 50 * MB, 132, 8, 8, 450 * GB, 64 * GB, 50 * GB, 8),
    # NVIDIA GH200: 96 GB of HBM3 at 4 TB/s; Alps: 4 a node, one Slingshot 11 card of 200 Gbit/s each
    "gh200-slingshot": (4.0 * TB, 50 * MB, 132, 4, 4, 450 * GB, 64 * GB, 25 * GB, 4),
    # NVIDIA B200: 180 GB at 7.7 TB/s, 126 MB, 148 SMs, NVLink 1.8 TB/s both ways; GB200: 186 GB at 8 TB/s
    "b200-sxm-ib": (7.7 * TB, 126 * MB, 148, 8, 8, 900 * GB, 64 * GB, 50 * GB, 8),
    "b200-sxm-roce": (7.7 * TB, 126 * MB, 148, 8, 8, 900 * GB, 64 * GB, 50 * GB, 8),
    "gb200-nvl72": (8.0 * TB, 126 * MB, 148, 4, 72, 900 * GB, 64 * GB, 50 * GB, 4),
    # NVIDIA B300 and GB300: 288 GB at 7.75 and 8 TB/s, cards of 800 Gbit/s behind PCIe 6
    "b300-sxm-ib": (7.75 * TB, 126 * MB, 148, 8, 8, 900 * GB, 128 * GB, 100 * GB, 8),
    "gb300-nvl72": (8.0 * TB, 126 * MB, 148, 4, 72, 900 * GB, 128 * GB, 100 * GB, 4),
    # AMD MI355X: 288 GiB at 8 TB/s, 256 MiB of Infinity Cache, 256 compute units, PCIe 5,
    # 7 links of 76.8 GB/s
    "mi355x-roce": (8 * TB, 256 * 2**20, 256, 8, 8, 537.6 * GB, 64 * GB, 50 * GB, 8),
    # NVIDIA L40S: 48 GB at 864 GB/s, 96 MB, 142 SMs, PCIe 4
    # NVIDIA RTX PRO 6000: 96 GB at 1 792 GB/s, 128 MB, 188 SMs, PCIe 5
    "l40s-pcie": (864 * GB, 96 * MB, 142, 8, 1, 0, 32 * GB, None, None),
    "rtx-pro-6000-pcie": (1.792 * TB, 128 * MB, 188, 8, 1, 0, 64 * GB, None, None),
}
DENSE_FLOPS_PER_S = {
    "a100-sxm-ib": 312e12, "a100-slingshot": 312e12, "h100-sxm-ib": 989.4e12, "h100-sxm-efa": 989.4e12,
    "h200-sxm-ib": 989.4e12, "gh200-slingshot": 989.4e12, "b200-sxm-ib": 2.25e15, "gb200-nvl72": 2.5e15,
    "h200-sxm-roce": 989.4e12, "b200-sxm-roce": 2.25e15, "l40s-pcie": 362e12, "rtx-pro-6000-pcie": 500e12,
    "mi355x-roce": 2.5e15, "b300-sxm-ib": 2.25e15, "gb300-nvl72": 2.5e15,
}  # fmt: skip


MEMORY = {
    # what CUDA reports [MiB or GiB], and nvidia-smi [MiB]; rocm-smi and Intel state what is sold
    "a100-sxm-ib": (81251 * MIB, 81920), "a100-slingshot": (40339 * MIB, 40960),
    "h100-sxm-ib": (79.11 * GIB, 81559), "h100-sxm-efa": (79.11 * GIB, 81559),
    "h200-sxm-ib": (139.80 * GIB, 143771), "h200-sxm-roce": (139.80 * GIB, 143771),
    "gh200-slingshot": (94.50 * GIB, None), "gb200-nvl72": (184.31 * GIB, None),
    "b200-sxm-ib": (178.35 * GIB, 183359), "b200-sxm-roce": (178.35 * GIB, 183359),
    "l40s-pcie": (44.40 * GIB, 46068), "rtx-pro-6000-pcie": (94.97 * GIB, 97887),
    "mi355x-roce": (288 * GIB, None), "b300-sxm-ib": (286.1 * GB, 275040),
    "gb300-nvl72": (295.6 * GB, 284208),
}  # fmt: skip


@pytest.mark.parametrize("name", MEMORY)
def test_memory_is_what_the_driver_reports(name: str) -> None:
    """ "80 GB" are GiB less what the driver holds: 79.11 GiB of an H100 are 84.9e9 bytes."""
    reported, shown = MEMORY[name]
    memory = load_machine(name).value("hbm_bytes")
    assert memory == pytest.approx(reported, rel=1e-4)
    assert shown is None or 0.96 * shown * MIB < memory < shown * MIB


def test_the_h200s_memory_is_that_of_the_measured_card() -> None:
    path = resources.data_path("measurements", "kernels", "h200-environment.json")
    card = json.loads(path.read_text(encoding="utf-8"))
    assert load_machine("h200-sxm-ib").value("hbm_bytes") == card["total_bytes"] == 150_109_880_320


@pytest.mark.parametrize("name", DATASHEETS)
def test_values_are_those_of_the_datasheet(name: str) -> None:
    machine = load_machine(name)
    for key, value in zip(COLUMNS, DATASHEETS[name], strict=True):
        if value is None:
            continue
        found = machine.quantity(key)
        if found.evidence is Evidence.MEASURED:  # what the GPU reports
            assert key == "l2_bytes" and "data/measurements" in found.source
            continue
        assert found.value == pytest.approx(value, rel=1e-9), key
        assert found.evidence is Evidence.DATASHEET and found.source, key


def test_the_smallest_read_is_the_smallest_in_use() -> None:
    """Sectors of NVIDIA and bursts of HBM2E have 32 bytes; CDNA leaves its path of 32 unused, so 64."""
    for name in DATASHEETS:
        assert load_machine(name).value("sector_bytes") == (64 if name == "mi355x-roce" else 32), name


def test_every_shipped_machine_is_here() -> None:
    assert set(list_machines()) == {*DATASHEETS, "h100-paper"}  # which nobody makes


def test_dense_rates_are_those_of_the_datasheet() -> None:
    rates = tomllib.loads(resources.data_path("dlrm", "rates.toml").read_text(encoding="utf-8"))
    assert {name: gpu["flops_per_s"] for name, gpu in rates["gpu"].items()} == DENSE_FLOPS_PER_S
    assert DENSE_FLOPS_PER_S.keys() == DATASHEETS.keys()


REFERENCE = sorted(resources.data_path("reference").glob("*.csv"))


@pytest.mark.parametrize("path", REFERENCE, ids=lambda path: path.stem)
def test_rows_of_reference_data_are_whole_and_times_are_seconds(path: Path) -> None:
    pages = [resources.data_path(name, "SOURCES.md") for name in ("reference", "measurements")]
    sources = "".join(page.read_text(encoding="utf-8") for page in pages)
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream, strict=True, restkey="extra", restval=None))
    assert len(rows) > 20 and len(REFERENCE) == 6
    for row in rows:
        assert "extra" not in row and None not in row.values() and row["source_id"] in sources
        names = ("time_s", "step_time_s", "forward_s", "train_s", "eval_s")
        assert all(1e-7 < float(row[name]) < 10 for name in names if row.get(name))
