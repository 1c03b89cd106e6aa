"""Computes the answers to the questions of ``claims.toml``: a function for each question.

The arguments of a function are the options in the row; the result is a number with a range (``Finding``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.answer import project_one, sweep
from perfmodel.answer.sweep import prepare
from perfmodel.chip.chip_plan import ChipPlan, plan_chip
from perfmodel.engine.grid import project_grid
from perfmodel.engine.tables import PlanTables
from perfmodel.model.bands import compute_ratio_band
from perfmodel.resources import DEFAULT_MACHINE
from perfmodel.schema.evidence import Clock
from perfmodel.schema.machine import load_chip
from perfmodel.schema.workload import parse_distribution
from perfmodel.units import format_bytes, format_count, format_ratio
from perfmodel.validate import crossover, embark
from perfmodel.validate.verdicts import Finding

_UNMEASURED = Finding(None, "not measured")


def compare_lead(collective: str) -> Finding:
    """How far NVSHMEM leads: NCCL's time over NVSHMEM's at 1 KiB, both timed with the paper's clocks.

    The words of the finding add the same ratio with other clocks.
    """
    compared = {clocks: crossover.compare(collective, *clocks) for clocks in crossover.PAIRS}
    main = compared.pop(crossover.PAIRS[0])
    if main is None:
        return _UNMEASURED
    judged = Finding.within(main.small_ratio, [end.small_ratio for end in main.ends], format_ratio)
    ratios = [f"{format_ratio(pair.small_ratio)} {nccl}" for (_, nccl), pair in compared.items() if pair]
    return replace(judged, words=", ".join([judged.words, *ratios]))


def find_crossing(collective: str, clocks: tuple[str, str]) -> Finding:
    """Size from which NCCL stays faster [bytes]; 0: at all sizes; infinite: NVSHMEM is always faster.

    clocks  how the times of (NVSHMEM, NCCL) were taken
    """
    comparison = crossover.compare(collective, *map(Clock, clocks))
    if comparison is None:
        return _UNMEASURED
    ends = [end.crossover_bytes for end in comparison.ends]
    return Finding.within(comparison.crossover_bytes, ends, format_bytes)


def compare_rise(
    collective: str, clocks: tuple[str, str], library: str, start: float, ends: Sequence[float]
) -> Finding:
    """A library's time at the last size of ``ends`` over its time at ``start``; the band covers all ``ends``.

    clocks  how the times of (NVSHMEM, NCCL) were taken;  library  "nvshmem" or "nccl"
    A factor on the whole curve cancels in the ratio, so measured medians are used directly.
    """
    comparison = crossover.compare(collective, *map(Clock, clocks))
    if comparison is None:
        return _UNMEASURED
    of = ("nvshmem", "nccl").index(library)
    growths = [comparison.rise(start, end)[of] for end in ends]
    judged = Finding.within(growths[-1], growths, format_ratio)
    said = [f"{format_ratio(g)} to {format_bytes(end)}" for g, end in zip(growths, ends, strict=True)]
    return replace(judged, words=f"{'; '.join(reversed(said))}; all from {format_bytes(start)}")


def count_crossings(axes: Mapping[str, Sequence[float]], **options: Any) -> Finding:
    """How often the faster library changes as a grid's exchange grows; 0 if NCCL wins the smallest.

    axes  values of each argument of the grid;  options  that all of its points share
    """
    grid = sweep.combine_axes(**axes)
    sizes, *ratios = _compare_bags(grid, Clock.DEVICE, Clock.EAGER, options)
    _, stream, *_ = _compare_bags(grid, Clock.STREAM, Clock.STREAM, options)
    wins = [ratio > 1 for ratio in ratios]
    beyond = sizes[~wins[0]]
    flips = f"flips from {format_bytes(beyond[0])} on" if len(beyond) else "never flips"
    counts = [float(np.diff(win).sum()) if win[0] else 0.0 for win in wins]
    judged = Finding.within(counts[0], counts, format_count)
    words = f"{judged.words}: {flips}; on a stream NVSHMEM wins {int((stream > 1).sum())} of {len(stream)}"
    return replace(judged, words=words)


def _compare_bags(
    grid: sweep.Columns, nvshmem_clock: Clock, nccl_clock: Clock, options: Mapping[str, Any]
) -> list[NDArray[np.float64]]:
    """[sizes of a rank's exchange, increasing; NCCL's time of a pass over NVSHMEM's; its band's low; high].

    Both run the same kernels, so the band is wider than needed; points of equal size are averaged.
    """
    nvshmem = project_columns(grid, backend="nvshmem", clock=str(nvshmem_clock), **options)
    nccl = project_columns(grid, backend="nccl", clock=str(nccl_clock), **options)
    spans = [(columns["low_s"], columns["time_s"], columns["high_s"]) for columns in (nccl, nvshmem)]
    low, ratio, high = compute_ratio_band(*spans)
    size = nvshmem["gpus"] * grid["batch"] * grid["table_count"] * grid["dim"] * 4
    sizes, places, counts = np.unique(size, return_inverse=True, return_counts=True)
    return [sizes, *(np.bincount(places, values) / counts for values in (ratio, low, high))]


def project_columns(grid: sweep.Columns, machine: str = DEFAULT_MACHINE, **options: Any) -> sweep.Columns:
    """A grid sharded row-wise: the columns of ``project_grid``. options  as of ``perfmodel.project``"""
    return project_grid(*prepare(grid, machine, **options))


def find_slowdown(end: str, gpus: int, **options: Any) -> Finding:
    """The ``end`` ("least" or "largest") of the slowdowns in the paper's two grids on so many GPUs."""
    grids = [project_columns(grid(gpus=(gpus,)), **options) for grid in sweep.GRIDS.values()]
    value = np.concatenate([columns["slowdown"] for columns in grids])
    low = np.concatenate([columns["slowdown_low"] for columns in grids])
    high = np.concatenate([columns["slowdown_high"] for columns in grids])
    place = int((np.argmin if end == "least" else np.argmax)(value))
    return Finding.within(float(value[place]), (float(low[place]), float(high[place])), format_ratio)


def count_gpus_needed(table_bytes: float, hbm_bytes: float) -> Finding:
    """GPUs that hold so many bytes of tables, if each has ``hbm_bytes`` of memory and none is kept free."""
    needed = project_one(table_bytes=table_bytes, reserve=0, overrides={"hbm_bytes": hbm_bytes})
    usual = project_one(table_bytes=table_bytes)
    by_paper = f"{needed.gpus} GPUs, {format_ratio(needed.slowdown)} slower"
    by_default = f"{usual.gpus} GPUs, {format_ratio(usual.slowdown)} slower"
    size = format_bytes(hbm_bytes, binary=False).replace(" ", "")
    words = f"{by_paper} (--set reserve=0 --set hbm_bytes={size}); {by_default} by default"
    return Finding(needed.gpus, words)


def compare_samples(source: str, slow: str, fast: str, below_bytes: float = inf) -> Finding:
    """A measured time under one condition over the time under another, at the smallest measured size.

    source  id of the samples' source;  slow, fast  the two conditions, as the samples' ``note`` has them:
            "p2p-disabled", "p2p-on";  below_bytes  only smaller messages count, if a claim is about them
    """
    from perfmodel.validate.medians import load_shipped_samples

    rows = load_shipped_samples()
    rows = rows[(rows["source_id"] == source) & (rows["payload_bytes"] < below_bytes)]
    if rows.empty:
        return _UNMEASURED
    smallest = rows["payload_bytes"].min()
    times = rows[rows["payload_bytes"] == smallest].groupby("note")["time_s"].median()
    value = float(times[slow] / times[fast])
    return Finding(value, f"{format_ratio(value)} at {format_bytes(float(smallest))}")


def compare_dependence(chip: str, models: Sequence[str], batch: int, ids: Sequence[str]) -> Finding:
    """How much the time depends on the ids: of our mapping to a chip's cores, relative to plain gathers.

        (worst / best - 1) of our mapping over (worst / best - 1) of plain gathers                [-]

    worst, best  longest and shortest time of a batch over the distributions ``ids``, for all sets of tables
    Of the mappings for each distribution, the mapping with the shortest worst batch is used.
    Limits: a mapping that does not depend on the ids -> 0;  as sensitive as plain gathers -> 1
    """
    ratios = []
    words = []
    for model in models:
        plans = [_plan_chip(chip, model, batch, name) for name in ids]
        times = [[plan.time_with(plan_of.tables) for plan_of in plans] for plan in plans]
        best = min(times, key=max)
        gathered = [plan.baseline_s for plan in plans]
        ours = max(best) / min(best)
        plain = max(gathered) / min(gathered)
        ratios.append((ours - 1) / (plain - 1))
        words.append(f"{format_ratio(ours)} against {format_ratio(plain)} ({model})")
    judged = Finding.within(max(ratios), ratios, format_ratio)
    return replace(judged, words=f"{judged.words}: {', '.join(words)}")


def compare_chip_speedup(chip: str, models: Sequence[str], batch: int, ids: Sequence[str]) -> Finding:
    """Time of plain gathers over the time of a mapping for the ids: median over sets of tables and ids.

    chip, models  names of a shipped chip and sets of tables;  ids  distributions, as ``zipf:1.05``
    """
    speedups = [_plan_chip(chip, model, batch, name).speedup for model in models for name in ids]
    return Finding.within(float(np.median(speedups)), speedups, format_ratio)


@lru_cache(maxsize=32)
def _plan_chip(chip: str, model: str, batch: int, ids: str) -> ChipPlan:
    """The plan of a set of tables, by its name, on a shipped chip. ids  a distribution, as ``zipf:1.05``"""
    return plan_chip(load_chip(chip), PlanTables.load(model, parse_distribution(ids)), batch)


QUESTIONS: dict[str, Callable[..., Finding]] = {
    "lead": compare_lead,
    "crossing": find_crossing,
    "rise": compare_rise,
    "crossings": count_crossings,
    "slowdown": find_slowdown,
    "ratio_of_samples": compare_samples,
    "throughput": embark.predict_throughput,
    "gpus_needed": count_gpus_needed,
    "dependence": compare_dependence,
    "chip_speedup": compare_chip_speedup,
    "share": embark.compute_share,
    "speedup": embark.compare_speedup,
}
"""Questions by the name in ``what`` of a row's ``ask``."""


def find_answer(ask: Mapping[str, Any]) -> Finding:
    """The value for a row. ask  of the row: ``what`` names the question, other keys are its arguments"""
    return QUESTIONS[ask["what"]](**{name: value for name, value in ask.items() if name != "what"})
