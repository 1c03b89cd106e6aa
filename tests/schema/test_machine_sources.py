"""Constants of the shipped machines: none from a source that ``validate`` judges; spreads as published."""

from __future__ import annotations

import csv
import math
import statistics
from pathlib import Path

import pytest

from perfmodel import resources
from perfmodel.errors import BadInputError
from perfmodel.schema.evidence import Backend
from perfmodel.schema.machine import list_machines, load_machine
from perfmodel.validate.claims import load_claims
from perfmodel.validate.measured import shipped_samples

MACHINES = list_machines()
JUDGED = (
    "2512.05831",
    "fig. 9",
    "fig 9",
    "figure 9",
    "dissecting embedding bag",
    "embark",
    "2507.01676",
    "mlperf",
)
"""Words of what ``validate --paper`` and ``benchmarks/mlperf_steps.py`` judge, in a source."""


def published(key: str) -> list[tuple[float, float]]:
    path = resources.data_path("kernels", "published_kernels.csv")
    with path.open(encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if row["key"] == key]
    return [(float(row["low"]), float(row["high"])) for row in rows]


def middle_and_spread(key: str) -> tuple[float, float]:
    logs = [math.log(low * high) / 2 for low, high in published(key)]
    return math.exp(statistics.mean(logs)), statistics.stdev(logs)


@pytest.mark.parametrize("name", MACHINES)
def test_no_value_has_a_source_that_is_judged(name: str) -> None:
    ids = {claim.id for claim in load_claims().claim}
    for key, quantity in load_machine(name).values.items():
        if (name, key) == ("h100-paper", "nvlink_domain_gpus"):  # the paper's question, not its result
            continue
        text = f"{quantity.source} {quantity.why}".lower()
        assert not [word for word in JUDGED if word in text], (name, key)
        assert not [each for each in ids if f"claim {each}" in text or f"row {each}" in text], (name, key)


@pytest.mark.parametrize("name", MACHINES)
def test_kernel_constants_are_the_middle_of_what_was_published(name: str) -> None:
    machine = load_machine(name)
    share, share_sd = middle_and_spread("gather_fraction")
    floor, floor_sd = middle_and_spread("launch_floor_us")
    ((few, many),) = published("bucketize_kernels")
    kernels_sd = math.log(many / few) / math.sqrt(2)
    rate = machine.value("hbm_bytes_per_s")
    for key, value, log_sd in (
        ("gather_bytes_per_s", share * rate, share_sd),
        ("launch_floor_s", floor * 1e-6, floor_sd),
        ("bucketize_floor_s", math.sqrt(few * many) * floor * 1e-6, math.hypot(floor_sd, kernels_sd)),
    ):
        assert machine.value(key) == pytest.approx(value, rel=0.02), key
        stated = machine.quantity(key).log_sd
        if machine.ring_backend is Backend.NCCL:
            assert stated == pytest.approx(log_sd, abs=0.01), key
        else:  # of other GPUs than these
            assert stated is not None and stated > log_sd + 0.1, key


@pytest.mark.parametrize("text", ["-0.1", "nan", "4.0"])
def test_a_spread_is_a_small_number(text: str, tmp_path: Path) -> None:
    source = resources.data_path("machines", "h100-sxm-ib.toml").read_text(encoding="utf-8")
    path = tmp_path / "mine.toml"
    path.write_text(source.replace("log_sd = 0.33", f"log_sd = {text}"), encoding="utf-8")
    with pytest.raises(BadInputError, match="log_sd"):
        load_machine(path)


@pytest.mark.parametrize(
    ("source", "ids", "clock", "collectives"),
    [
        ("TensorRT-LLM", "aic_customar.*trtllm", "graph", ["all_reduce"]),
        ("SGLang", "aic_customar.*sglang", "graph", ["all_reduce"]),
        ("vLLM", "aic_customar.*vllm", "graph", ["all_reduce"]),
        ("NCCL all-gather", "aic_(?!gb200_nvl72).*_nccl", "stream", ["all_gather", "reduce_scatter"]),
    ],
)
def test_launch_floors_are_those_of_the_shipped_samples(
    source: str, ids: str, clock: str, collectives: list[str]
) -> None:
    path = resources.data_path("kernels", "published_kernels.csv")
    with path.open(encoding="utf-8") as lines:
        (row,) = (
            row
            for row in csv.DictReader(lines)
            if row["key"] == "launch_floor_us" and source in row["source"]
        )
    samples = shipped_samples()
    rows = samples[
        samples["source_id"].astype(str).str.match(ids)
        & (samples["clock"] == clock)
        & (samples["gpus"] == 2)
        & (samples["nodes"] == 1)
        & (samples["payload_bytes"] <= 4096)
        & samples["collective"].isin(collectives)
        & samples["flag"].isin(["", "ok"])
        & ~samples["in_place"]
    ]
    floors = 1e6 * rows.groupby(["source_id", "collective"], observed=True)["time_s"].min()
    assert floors.min() == pytest.approx(float(row["low"]), abs=0.01)
    assert floors.max() == pytest.approx(float(row["high"]), abs=0.01)
