"""How fast our model scores every way to shard many different tables, as a line of benchmarks/planner.py."""

from __future__ import annotations

import time

from planner_cases import DRAWN, tables_of

from perfmodel.plan import Evaluator
from perfmodel.plan.choices.options import options_of

_TABLES, _GPUS, _BATCH = 1000, 128, 1024
_RUNS = 6  # the first ones warm up
_TO_MS = 1e3


def scoring(machine: str, share: float) -> str:
    """Least CPU time of several runs, of a forward pass and of a step of training; goal: 50 ms."""
    said, count = [], 0
    for name, optimizer in (("forward", "none"), ("training", "rowwise-adagrad")):
        evaluator = Evaluator.on(
            machine,
            tables_of(f"{DRAWN}{_TABLES}"),
            _BATCH,
            _GPUS,
            training=name == "training",
            optimizer=optimizer,
        )
        limit_bytes = share * evaluator.setting.machine.value("hbm_bytes")
        took = []
        for _ in range(_RUNS):
            began = time.process_time()
            options = options_of(evaluator, limit_bytes)
            evaluator.step_times(options.average)
            took.append(time.process_time() - began)
        count = options.group.size
        said.append(f"{name} {min(took) * _TO_MS:.0f} ms")
    return (
        f"Loads, memory and times of all {count} ways to shard {_TABLES} different tables on {_GPUS} GPUs: "
        f"{', '.join(said)} of a core (least of {_RUNS})."
    )
