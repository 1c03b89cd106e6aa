"""The host tier: from samples of a slow tier that is emulated here to the constants, and to ``--tier``.

The emulation is no calibration, and none of it is shipped: it goes read by read over one link, and knows no
equation.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrate.operations import Availability
from calibrate.planning.host_cells import BAG_ROWS, LOOKUPS, MOST_BYTES, host_points
from calibrate.planning.measurement_plan import Request, make_plan
from calibrate.planning.world import World
from perfmodel.fit.host_tier import fit_host_tier
from perfmodel.fit.runs import fit_run
from perfmodel.projections import project_one
from perfmodel.report.calibration_text import calibration_text
from perfmodel.schema.calibration import read_calibration, save_calibration
from perfmodel.schema.evidence import Evidence
from perfmodel.schema.machine import load_machine
from perfmodel.schema.run_files import Run
from perfmodel.schema.runs import Finish, Point, RunHeader, Status, Visit

H100 = load_machine("h100-sxm-ib")
LAUNCH_S = H100.value("launch_floor_s")
WORLD = World(
    ranks=1,
    device="cuda",
    memory_bytes=80e9,
    providers={name: Availability(True, operations=()) for name in ("torch", "perfmodel")},
)


class Link:
    """A link and the memory behind it, one read after the other.

    latency_s  from a read to the first byte of its data;  rate  of the wire [bytes/s];  header  of a packet
    sector     smallest read [bytes];  most  reads under way;  address_s  of a row of a large table
    """

    def __init__(
        self,
        latency_s: float,
        rate: float,
        header: int = 18,
        sector: int = 32,
        most: int = 2**15,
        address_s: float = 0.0,
    ) -> None:
        self.latency_s, self.rate, self.header, self.sector, self.most = latency_s, rate, header, sector, most
        self.address_s = address_s

    def gather_s(self, rows: int, row_bytes: int, *, large: bool = False) -> float:
        """A kernel that reads so many rows: each read waits for a place, the memory and the wire."""
        reads, left = [], -(-row_bytes // self.sector) * self.sector
        while left > 0:
            reads.append(min(left, 128))
            left -= reads[-1]
        done: list[float] = []
        free = 0.0
        for at in range(rows * len(reads)):
            issued = done[at - self.most] if at >= self.most else 0.0
            begin = max(issued + self.latency_s, free)
            free = begin + (reads[at % len(reads)] + self.header) / self.rate
            if large and (at + 1) % len(reads) == 0:  # the next row's address
                free = max(free, self.latency_s + (at + 1) / len(reads) * self.address_s)
            done.append(free)
        return LAUNCH_S + done[-1]

    def copy_s(self, size: int) -> float:
        return 5e-6 + size / (0.95 * self.rate)


def measured(link: Link, noise: float = 0.0, ranks: int = 1, preset: str = "standard") -> Run:
    """A run that timed this link: every cell of the plan, long ones in proportion to shorter ones."""
    stack = {"gpu": "H100", "cpu": "a CPU"}
    known = {"fingerprint": "0" * 16, "started_at": "now", "machine": H100.name, "ranks": 1, "nodes": 1}
    made, rng = Run(RunHeader.model_validate({**known, "stack": stack}), {}, {}, {}), np.random.default_rng(1)
    for point in host_points(WORLD, preset):
        time_s = _time(link, point)
        if time_s is None:
            continue
        time_s *= float(np.exp(rng.normal(0, noise)))
        made.points[point.key] = point
        made.visits[point.key] = [Visit(key=point.key, round=0, at="now", times_s=[time_s], checked=1)]
        made.finishes[point.key] = Finish(key=point.key, status=Status.OK, median_s=time_s)
    return made


def _time(link: Link, point: Point) -> float | None:
    assert point.work is not None
    if point.operation.startswith("copy"):
        return link.copy_s(point.work.dim)
    if point.operation != "gather_host":
        return None
    rows, row, most = point.work.batch * BAG_ROWS, 4 * point.work.dim, 4096
    large = point.work.rows * row > 2**29
    few = link.gather_s(min(rows, most), row, large=large)
    half = link.gather_s(most // 2, row, large=large)
    return few if rows <= most else few + (few - half) * (rows - most) / (most // 2)


PCIE = Link(1.3e-6, 57e9)


def test_cells_span_rows_tables_and_batches() -> None:
    points = [p for p in host_points(WORLD, "standard") if p.operation == "gather_host"]
    works = [p.work for p in points if p.work is not None]
    assert {4 * work.dim for work in works} >= {32, 64, 128, 256, 512, 1024}
    assert min(work.rows * work.dim * 4 for work in works) > H100.value("l2_bytes") * 4
    assert len({round(work.rows * work.dim * 4 / 2**28) for work in works}) == 2
    assert {work.batch * BAG_ROWS for work in works} >= {LOOKUPS[0], MOST_BYTES // 1024}
    assert {p.implementation for p in points} == {"perfmodel"} and {str(p.clock) for p in points} == {
        "stream"
    }
    small = World(ranks=1, device="cuda", memory_bytes=2e9, providers=WORLD.providers)
    assert {p.operation for p in host_points(small, "quick")} & {"gather_host"} == set()  # 256 MiB of 2 GB
    only = make_plan(Request(only=["host:gather_host"]), WORLD)
    assert {p.operation for p in only.points} == {"gather_host"}


@pytest.mark.parametrize(
    "link",
    [
        PCIE,
        Link(1.6e-6, 26e9),
        Link(0.7e-6, 400e9, header=4),
        Link(1.3e-6, 57e9, sector=64),
        Link(1.3e-6, 57e9, address_s=8e-9),
    ],
)
def test_constants_of_an_emulated_tier_come_back(link: Link) -> None:
    found = fit_host_tier(measured(link, noise=0.01), H100)
    assert found is not None and not found.untold
    value = {key: one.value for key, one in found.values.items()}
    assert value["link_bytes_per_s"] == pytest.approx(link.rate, rel=0.03)
    assert value["host_latency_s"] == pytest.approx(link.latency_s, rel=0.1)
    assert value["link_header_bytes"] == pytest.approx(link.header, rel=0.25)
    assert value["link_sector_bytes"] == link.sector
    shortest = 32 + link.header if link.sector == 32 else 64 + link.header
    assert value["link_row_bytes"] == pytest.approx(max(link.address_s * link.rate, shortest), rel=0.1)
    assert value["copy_to_device_bytes_per_s"] == pytest.approx(0.95 * link.rate, rel=0.03)
    for key, true in (("link_bytes_per_s", link.rate), ("host_latency_s", link.latency_s)):
        assert found.values[key].low <= true <= found.values[key].high
    assert found.loo_median is not None and found.loo_median < 0.02


def test_rows_of_whole_packets_tell_no_header() -> None:
    """Every read is of 128 bytes: only what arrives of a packet is known, not what its header takes."""
    found = fit_host_tier(measured(Link(1.3e-6, 57e9, header=30, sector=128), noise=0.01), H100)
    assert found is not None and found.untold == ["link_header_bytes"]
    assert found.values["link_sector_bytes"].value == 128
    arrives = found.values["link_bytes_per_s"].value * 128 / (128 + 18)
    assert arrives == pytest.approx(57e9 * 128 / 158, rel=0.02)


def test_too_few_reads_under_way_are_a_slower_link() -> None:
    """512 reads of 128 bytes in 1.3 us are 50 GB/s, whatever the wire could carry."""
    few = Link(1.3e-6, 500e9, header=0, most=512)
    found = fit_host_tier(measured(few), H100)
    assert found is not None
    wide = fit_host_tier(measured(Link(1.3e-6, 500e9, header=0)), H100)
    assert wide is not None
    rates = [one.values["link_bytes_per_s"].value for one in (found, wide)]
    assert rates[0] < 0.2 * rates[1]


def test_what_the_samples_do_not_tell_stays_the_machines_own() -> None:
    assert fit_host_tier(Run(measured(PCIE).header, {}, {}, {}), H100) is None
    slow_launch = fit_host_tier(measured(PCIE), H100, launch_floor_s=1.0)
    assert slow_launch is not None and slow_launch.untold == ["host_latency_s"]


@pytest.mark.parametrize("tier", ["uvm", "uvm-caching:10%"])
def test_a_projection_takes_the_measured_tier(tmp_path: Path, tier: str) -> None:
    """A link of half the datasheet's rate: as slow as that what-if, and with measured evidence."""
    link = Link(2.6e-6, 29e9)
    (calibration,) = fit_run(measured(link, noise=0.005), H100)
    file = tmp_path / "mine.json"
    save_calibration(calibration, file)
    assert read_calibration(file) == calibration
    asked: dict[str, Any] = {
        "table_bytes": 200e9,
        "gpus": 1,
        "tier": tier,
        "batch": 4096,
        "pooling": 20,
        "dim": 256,  # rows that are longer than what an address takes
    }
    shipped, own = project_one(**asked), project_one(**asked, calibration=str(file))
    name = "gather_host" if tier == "uvm" else "fetch_rows"
    before, after = (next(s for s in one.steps if s.name == name) for one in (shipped, own))
    assert after.time_s / before.time_s == pytest.approx(0.908 * 64 / 29, rel=0.05)
    assert after.evidence is Evidence.MEASURED and before.evidence is Evidence.DATASHEET
    machine, constants = own.setting.machine, own.setting.constants
    assert machine.value("host_latency_s") == pytest.approx(2.6e-6, rel=0.1)
    assert machine.quantity("host_link_bytes_per_s").evidence is Evidence.MEASURED
    assert constants.value("link_packet_fraction") == 1
    faster = project_one(**asked, calibration=str(file), overrides={"host_link_bytes_per_s": 128e9})
    step = next(s for s in faster.steps if s.name == name)
    assert after.time_s / step.time_s == pytest.approx(2, rel=0.02)  # twice the datasheet's: twice the rate
    if tier == "uvm":
        few, more = link.gather_s(4096, 4 * 256), link.gather_s(8192, 4 * 256)
        emulated = few + (more - few) * (4096 * 20 / 4096 - 1)
        assert after.time_s == pytest.approx(emulated, rel=0.05)


def test_a_calibration_says_what_it_measured() -> None:
    (calibration,) = fit_run(measured(PCIE), H100)
    words = " ".join(calibration_text(calibration, H100).split())
    assert "link, as rows fill it 57" in words and "from a read to its data 1.3" in words
    assert "smallest reads are under way at full rate" in words
    assert "copies to the host" in words
