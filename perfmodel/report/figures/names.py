"""The figures of the report by name, in their order: nothing heavy is imported to list them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

FIGURES = {
    "slowdown": "slowdown against table size, a line for each exchange of bags",
    "breakdown": "the steps of a batch at several table sizes",
    "collectives-all-to-all": "the measured all-to-all and its fitted curve",
    "collectives-reduce-scatter": "the measured reduce-scatter and its fitted curve",
    "libraries": "NCCL and NVSHMEM side by side, and where they cross",
    "links": "NVLink and PCIe side by side",
    "roofline": "bytes per second of gather and pool against table size",
    "changes": "the slowdown after each possible change",
    "tornado": "the slowdown with values of the machine halved and doubled",
    "heat-map": "slowdown against batch and pooling, and against tables and dim",
    "validation": "predicted against measured times",
    "claims": "published claims beside what the model predicts",
    "shardings": "every sharding at every table size, and which is the fastest",
}
"""Each name with one line on what is drawn."""


@dataclass(frozen=True)
class Others:
    """Figures of another page, and what draws one of them, or writes the page that has it."""

    of: str
    figures: Mapping[str, str]
    line: str  # {name} stands for the figure


GPUS = Others(
    "the same tables on more and more GPUs",
    {"over-gpus": "slowdown, time and samples per second against the number of GPUs"},
    "perfmodel figure {name} --model mlperf-dlrm-dcnv2",
)


COMPARED = Others(
    "two machines, or two calibrations",
    {
        "compare-time": "times of A and B against table size, and their ratio",
        "compare-steps": "the steps of A and B side by side",
    },
    "perfmodel figure {name} --compare h100-sxm-ib h200-sxm-ib",
)
PLAN = Others(
    "a plan",
    {
        "placements": "what each GPU holds, by bytes and by time",
        "steps": "the steps of the plan beside those of simple plans",
        "timeline": "what runs when, and what overlap hides",
        "balance": "how long each GPU is busy and waits",
        "memory": "the bytes of each GPU",
        "tables": "which sharding for which table",
        "others": "what the next best scheme of each table would cost",
    },
    "perfmodel plan --model mlperf-dlrm-dcnv2 --gpus 128 --report plan.html",
)
CHIP = Others(
    "the cores of one chip",
    {
        "cores": "the time of each core and its tables, before and after the search",
    },
    "perfmodel chip plan --chip ascend-910 --model criteo-kaggle --report cores.html",
)
SERVICE = Others(
    "a service",
    {
        "latency": "latency against load, with the limit",
        "made-of": "the parts of the p99 at each load",
        "batches": "the highest load of a replica at each batch size",
    },
    "perfmodel load --table-size 10TB --qps 500k --p99 10ms --report load.html",
)
OTHERS = (GPUS, COMPARED, PLAN, CHIP, SERVICE)
EVERY = {**FIGURES, **{name: shows for other in OTHERS for name, shows in other.figures.items()}}
"""Figures of all pages: each name is that of one figure."""
