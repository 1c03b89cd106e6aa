"""What a row of ``claims.toml`` or ``checks.toml`` asks: one function a question, options by the row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from perfmodel.model.dense import BACKWARD, GivenFlops
from perfmodel.onechip.answer import answer_on, cost_on
from perfmodel.onechip.symmetric import global_memory
from perfmodel.plan.pricing.dense import on_machine
from perfmodel.plan.pricing.tables import PlanTables
from perfmodel.projections import grids, project, project_one
from perfmodel.schema.chip import load_chip
from perfmodel.schema.distributions import parse_distribution
from perfmodel.schema.evidence import Clock
from perfmodel.units import format_bytes, format_number, format_ratio, format_time
from perfmodel.validate import crossover, dlrm, measured
from perfmodel.validate.crossover import Comparison
from perfmodel.validate.dlrm_dense import stored
from perfmodel.validate.dlrm_inputs import Case, embark_case, load_inputs
from perfmodel.validate.verdicts import Finding
from perfmodel.validate.within import held_out

if TYPE_CHECKING:
    import pandas as pd

_MILLION = 1e6
_UNMEASURED = Finding(None, "not measured")


def coverage(machine: str) -> Finding:
    """Collectives that both libraries were measured on at some pair of clocks."""
    found = [c for c in crossover.COLLECTIVES if any(crossover.compare(c, *pair) for pair in crossover.PAIRS)]
    return Finding(len(found), f"{len(found)} collectives on {machine}")


def lead(collective: str, older: Sequence[str] = (), claimed: float = 1.0) -> Finding:
    """How much faster NVSHMEM is at 1 KiB, at the paper's clocks; the other clocks in words.

    older    two sources of samples: an NCCL of the paper's time, and today's on the same GPUs
    claimed  by the paper; what the older NCCL does not explain of it goes into the words
    """
    found = {pair: crossover.compare(collective, *pair) for pair in crossover.PAIRS}
    words = [
        format_ratio(one.small_ratio) + (f" {nccl}" if index else "")
        for index, ((_, nccl), one) in enumerate(found.items())
        if one is not None
    ]
    main = found[crossover.PAIRS[0]]
    if main is None:
        return _UNMEASURED
    said = ", ".join(words)
    if older:
        rows = _samples(collective=collective, gpus=8, payload_bytes=1024)
        floors = [rows.loc[rows["source_id"] == source, "time_s"].median() for source in older]
        explained = float(floors[0] / floors[1])
        left = claimed / (main.small_ratio * explained)
        said += (
            f"; NCCL 2.27's floor explains {format_ratio(explained)}, {format_ratio(left)} are unexplained"
        )
    return Finding(main.small_ratio, said)


def _samples(**wanted: Any) -> pd.DataFrame:
    """Shipped samples with these values in these columns."""
    rows = measured.shipped_samples()
    for column, value in wanted.items():
        rows = rows[rows[column] == value]
    return rows


def crossing(collective: str, clocks: tuple[str, str]) -> Finding:
    """Size from which NCCL stays the faster; 0 where one library is the faster throughout."""
    found = _compare(collective, clocks)
    if found is None:
        return _UNMEASURED
    size = found.crossover_bytes
    return Finding(size or 0.0, format_bytes(size) if size is not None else f"{found.winner} throughout")


def rise(collective: str, clocks: tuple[str, str], library: str, sizes: tuple[float, float]) -> Finding:
    """Growth of one library's time between two sizes."""
    found = _compare(collective, clocks)
    if found is None:
        return _UNMEASURED
    growth = dict(zip(("nvshmem", "nccl"), found.rise(*sizes), strict=True))[library]
    start, end = (format_bytes(size) for size in sizes)
    return Finding(growth, f"{format_ratio(growth)} from {start} to {end}")


def _compare(collective: str, clocks: tuple[str, str]) -> Comparison | None:
    nvshmem, nccl = clocks
    return crossover.compare(collective, Clock(nvshmem), Clock(nccl))


def exchange_bytes(**asked: Any) -> Finding:
    """Bytes of the modelled exchange of bags over G B T D w, for a configuration that divides well."""
    result = project_one(**asked)
    names = [step.name for step in result.steps]
    exchange = next(step for step in result.steps if step.name == "all_to_all_bags")
    value = exchange.payload_bytes / (
        asked["gpus"] * asked["batch"] * asked["table_count"] * asked["dim"] * 4
    )
    return Finding(value if "local_sum" in names else 0.0, f"{value:g}, with a local sum")


def crossings(axes: Mapping[str, Sequence[float]], **asked: Any) -> Finding:
    """How often the winner of a projected grid changes as the exchange grows; 0 if NCCL wins the smallest."""
    grid = grids.product(**axes)
    size, wins = _bag_wins(grid, Clock.DEVICE, Clock.EAGER, asked)
    _, stream_wins = _bag_wins(grid, Clock.STREAM, Clock.STREAM, asked)
    changes = [i for i, (a, b) in enumerate(pairwise(wins)) if a != b]
    beyond = f" beyond {format_bytes(size[changes[0]])}" if changes else ""
    words = f"flips{beyond}; on a stream NVSHMEM wins {sum(stream_wins)} of {len(stream_wins)}"
    return Finding(len(changes) if wins[0] else 0, words)


def _bag_wins(
    grid: grids.Columns, nvshmem_clock: Clock, nccl_clock: Clock, asked: Mapping[str, Any]
) -> tuple[list[float], list[bool]]:
    """Sizes of one rank's exchange, increasing, and whether NVSHMEM's mean time is the smaller there."""
    one = project(grid, backend="nvshmem", clock=str(nvshmem_clock), **asked)
    two = project(grid, backend="nccl", clock=str(nccl_clock), **asked)
    size = one["gpus"] * one["batch"] * one["table_count"] * one["dim"] * 4
    ratio = (two["time_s"] / one["time_s"]).groupby(size).mean().sort_index()
    return [float(s) for s in ratio.index], [bool(r > 1) for r in ratio]


def sane_points(grid: str) -> Finding:
    """Points with a finite slowdown that is 1 on one GPU and at least 1 beyond."""
    frame = project(grids.GRIDS[grid]())
    slowdown = frame["slowdown"]
    good = np.isfinite(slowdown) & np.where(frame["gpus"] == 1, slowdown == 1, slowdown >= 1)
    return Finding(int(good.sum()), f"{int(good.sum())} of {len(frame)} points")


def slowdown(end: str, gpus: int, **asked: Any) -> Finding:
    """The least or the most slowdown of the paper's two grids on so many GPUs."""
    import pandas as pd

    frame = pd.concat(project(grid(gpus=(gpus,)), **asked) for grid in grids.GRIDS.values())
    pick = np.argmin if end == "least" else np.argmax
    row = frame.iloc[int(pick(frame["slowdown"].to_numpy(float)))]
    band = f"band {format_ratio(row['slowdown_low'])} to {format_ratio(row['slowdown_high'])}"
    return Finding(float(row["slowdown"]), f"{format_ratio(row['slowdown'])} ({band})")


def ratio_of_samples(source: str, slow: str, fast: str) -> Finding:
    """Measured times of one source under two notes, at the smallest size."""
    rows = _samples(source_id=source)
    first = rows[rows["payload_bytes"] == rows["payload_bytes"].min()]
    times = first.groupby("note", observed=True)["time_s"].median()
    value = float(times[slow] / times[fast])
    return Finding(value, f"{format_ratio(value)} at {format_bytes(float(first['payload_bytes'].iloc[0]))}")


def throughput(
    model: str, training_flops: float, *, gpus: int, alpha: float, gradient_bytes: float
) -> Finding:
    """Millions of samples per second of all GPUs: stored plan of EMBark's tables, ids of power law ``alpha``.

    training_flops  operations of a sample, forward and backward
    """
    case = throughput_case(model, gpus, alpha)
    dense = on_machine(GivenFlops(training_flops / (1 + BACKWARD)), case.machine, gradient_bytes)
    step_s = stored(case).step(dense).step_s
    value = case.batch * case.gpus / step_s / _MILLION
    return Finding(value, f"{format_number(value)} million a second, a step of {format_time(step_s)}")


def throughput_case(model: str, gpus: int, alpha: float) -> Case:
    """What EMBark trained on, with ids of another power law."""
    inputs = load_inputs()
    conditions = inputs.embark.model_copy(update={"alpha": alpha})
    return replace(embark_case(inputs, model, gpus), conditions=conditions)


def dependence(chip: str, models: Sequence[str], batch: int, ids: Sequence[str], effort: str) -> Finding:
    """How much longer a batch takes with the worst ids than with the best: our mapping over plain gathers.

    Of the mappings made for each of the ids, the one whose worst batch is shortest; of table sets the worst.
    """
    made_on, kinds = load_chip(chip), [parse_distribution(text) for text in ids]
    found = {}
    for model in models:
        tables = PlanTables.load(model, kinds[0])
        costs = [cost_on(made_on, tables, batch, each) for each in kinds]
        made = [answer_on(made_on, tables, batch, each, effort=effort).mapping for each in kinds]
        times = [[mapping.batch(cost).seconds for cost in costs] for mapping in made]
        best, gathered = min(times, key=max), [global_memory(cost).time_s for cost in costs]
        found[model] = max(best) / min(best), max(gathered) / min(gathered)
    worst = max(found, key=lambda model: found[model][0] / found[model][1])
    ours, plain = found[worst]
    words = f"{format_ratio(ours / plain)}: {format_ratio(ours)} against {format_ratio(plain)} ({worst})"
    return Finding(ours / plain, words)


QUESTIONS: dict[str, Callable[..., Finding]] = {
    "coverage": coverage,
    "lead": lead,
    "crossing": crossing,
    "rise": rise,
    "exchange_bytes": exchange_bytes,
    "crossings": crossings,
    "sane_points": sane_points,
    "slowdown": slowdown,
    "ratio_of_samples": ratio_of_samples,
    "throughput": throughput,
    "dependence": dependence,
    "held_out": held_out,
    "share": dlrm.share,
    "speedup": dlrm.speedup,
}
"""By the name that ``ask`` of a row has as ``what``."""


def answer(ask: Mapping[str, Any]) -> Finding:
    """What is found for the ``ask`` of a row: its ``what`` is the question, all else are its options."""
    return QUESTIONS[ask["what"]](**{name: value for name, value in ask.items() if name != "what"})
