"""The figures of the report by name, in their order: nothing heavy is imported to list them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

FIGURES = {
    "slowdown": "the slowdown over table sizes, a line each way to exchange",
    "breakdown": "the steps of a batch at several table sizes",
    "collectives-all-to-all": "the measured all-to-all under its fitted curve",
    "collectives-reduce-scatter": "the measured reduce-scatter under its fitted curve",
    "libraries": "NCCL and NVSHMEM side by side, and where they cross",
    "links": "NVLink and PCIe side by side",
    "roofline": "bytes per second of gather and pool over the tables of a GPU",
    "changes": "what each change leaves of the slowdown",
    "tornado": "the slowdown with values of the machine halved and doubled",
    "heat-map": "the slowdown over batch and pooling, and over tables and dim",
    "validation": "predicted against measured times",
    "claims": "what the paper claims beside what comes out here",
    "shardings": "every way to shard at every table size, and which wins",
}
"""Each name with one line on what is drawn."""


@dataclass(frozen=True)
class Others:
    """Figures of another page, and what draws one of them."""

    of: str
    figures: Mapping[str, str]
    lines: str  # {name} stands for the figure


GPUS = Others(
    "the same tables on more and more GPUs",
    {
        "over-gpus": "slowdown, time and samples per second over numbers of GPUs",
        "per-table": "a sharding of its own for every table of a model",
        "plan-scaling": "samples per second of a plan on each number of GPUs, and the knee",
    },
    "perfmodel figure {name} --model mlperf-dlrm-dcnv2",
)


def on_more_gpus(*, model: bool) -> list[str]:
    """All figures of that page; model  whether it is of a model's tables."""
    first, *of_a_model = GPUS.figures
    return [first, *list(FIGURES)[1:], *(of_a_model if model else [])]


COMPARED = Others(
    "two machines, or two calibrations",
    {
        "compare-time": "time over table sizes of A and B, and their ratio",
        "compare-slowdown": "slowdown over table sizes of A and B",
        "compare-steps": "the steps of A and B side by side",
        "compare-differences": "what each step of one saves",
        "compare-all-to-all": "the all-to-all of A and B, and their ratio",
        "compare-reduce-scatter": "the same of the reduce-scatter",
        "compare-all-gather": "the same of the all-gather",
        "compare-all-reduce": "the same of the all-reduce",
        "compare-broadcast": "the same of the broadcast",
        "compare-constants": "constants that differ",
        "compare-needs": "what one value of the slower one would have to be",
    },
    "perfmodel figure {name} --compare h100-sxm-ib h200-sxm-ib",
)
PLAN = Others(
    "a plan",
    {
        "placements": "what each GPU holds, by bytes and by time",
        "steps": "the steps of the plan beside plans without a planner",
        "timeline": "who runs when, and what overlap hides",
        "balance": "how long each GPU is busy and waits",
        "memory": "the bytes of each GPU",
        "tables": "which sharding for which table",
        "others": "what the next best scheme of each table would cost",
    },
    "perfmodel plan --model mlperf-dlrm-dcnv2 --gpus 128 --report plan.html\n"
    "perfmodel figure {name} --page plan.html",
)
CHIP = Others(
    "the cores of one chip",
    {
        "cores": "the time of each core, its tables as blocks, before and after",
        "buffers": "what the buffers of the cores hold",
        "ids": "the same mapping with other ids",
    },
    "perfmodel chip plan --chip ascend-910 --model criteo-kaggle --report cores.html\n"
    "perfmodel figure {name} --page cores.html",
)
SERVICE = Others(
    "a service",
    {
        "latency": "latencies against load, with the limit",
        "made-of": "what the 99th percentile is made of at each load",
        "batches": "what a replica carries at each batch size",
    },
    "perfmodel load --table-size 10TB --qps 500k --p99 10ms --report load.html\n"
    "perfmodel figure {name} --page load.html",
)
OTHERS = (GPUS, COMPARED, PLAN, CHIP, SERVICE)
EVERY = {**FIGURES, **{name: shows for other in OTHERS for name, shows in other.figures.items()}}
"""Figures of all pages: each name is that of one figure."""
