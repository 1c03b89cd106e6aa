"""Checks of ``data/paper/claims.toml``: what arXiv 2512.05831 states, evaluated. One function a claim."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from perfmodel.passes.settings import CLUSTER
from perfmodel.project import grids, project
from perfmodel.schema.evidence import Clock
from perfmodel.units import format_bytes, format_ratio
from perfmodel.validate import crossover, measured
from perfmodel.validate.verdicts import Finding

if TYPE_CHECKING:
    import pandas as pd

SCENARIO = "nvlink-everywhere"
_PAPER = (Clock.DEVICE, Clock.STREAM)
_TORCHREC = (Clock.DEVICE, Clock.EAGER)
_STREAMS = (Clock.STREAM, Clock.STREAM)
_GRAPHS = (Clock.GRAPH, Clock.GRAPH)
_FIGURE_9_GPUS = 128
_BAG_MACHINE = "h200-sxm-ib"
_RISE_BYTES = (2.0**13, 2.0**20)
_P2P_SOURCE = "a100_p2p_disable"


def figure_1_coverage() -> Finding:
    """Collectives that both libraries were measured on at some pair of clocks."""
    found = [c for c in crossover.COLLECTIVES if any(crossover.compare(c, *pair) for pair in crossover.PAIRS)]
    return Finding(len(found), f"{len(found)} collectives on 8 H200")


def _ratio(collective: str) -> Finding:
    """How much faster NVSHMEM is at 1 KiB, at the paper's clocks; the other clocks in words."""
    names = {_PAPER: "", _TORCHREC: "eager", _STREAMS: "stream", _GRAPHS: "graph"}
    found = {pair: crossover.compare(collective, *pair) for pair in names}
    words = [
        " ".join([format_ratio(c.small_ratio), names[pair]]).strip()
        for pair, c in found.items()
        if c is not None
    ]
    main = found[_PAPER]
    return Finding(main.small_ratio if main else None, ", ".join(words))


def _crossover(collective: str, clocks: tuple[Clock, Clock]) -> Finding:
    found = crossover.compare(collective, *clocks)
    if found is None:
        return Finding(None, "not measured")
    size = found.crossover_bytes
    words = format_bytes(size) if size is not None else f"{found.winner} throughout"
    return Finding(size if size is not None else 0.0, words)


def all_gather_rise() -> Finding:
    """Growth of NVSHMEM's time over that of NCCL's from 8 KiB to 1 MiB."""
    found = crossover.compare("all_gather", *_PAPER)
    if found is None:
        return Finding(None, "not measured")
    nvshmem, nccl = found.rise(*_RISE_BYTES)
    return Finding(nvshmem / nccl, f"{format_ratio(nvshmem)} against {format_ratio(nccl)}")


def exchange_bytes() -> Finding:
    """Bytes of the modelled exchange of bags over G B T D w, for a configuration that divides well."""
    from perfmodel.project import project_one

    G, B, T, D, w = 8, 128, 4, 32, 4
    result = project_one(
        machine=_BAG_MACHINE, backend="nvshmem", gpus=G, batch=B, table_count=T, dim=D, pooling=4
    )
    names = [step.name for step in result.steps]
    exchange = next(step for step in result.steps if step.name == "all_to_all_bags")
    value = exchange.payload_bytes / (G * B * T * D * w)
    return Finding(value if "local_sum" in names else 0.0, f"{value:g}, with a local sum")


def embedding_bag_crossings() -> Finding:
    """How often the winner changes as the exchange grows; 0 if NCCL wins the smallest."""
    grid = grids.product(
        gpus=(8,), table_count=2.0 ** np.arange(1, 7), batch=(128, 1024, 4096), pooling=(4, 8, 16), dim=(32,)
    )
    size, wins = _bag_wins(grid, Clock.DEVICE, Clock.EAGER)
    _, stream_wins = _bag_wins(grid, Clock.STREAM, Clock.STREAM)
    changes = [i for i, (a, b) in enumerate(pairwise(wins)) if a != b]
    crossings = len(changes) if wins[0] else 0
    beyond = f" beyond {format_bytes(size[changes[0]])}" if changes else ""
    words = f"flips{beyond}; on a stream NVSHMEM wins {sum(stream_wins)} of {len(stream_wins)}"
    return Finding(crossings, words)


def _bag_wins(
    grid: dict[str, Any], nvshmem_clock: Clock, nccl_clock: Clock
) -> tuple[list[float], list[bool]]:
    """Sizes of one rank's exchange, increasing, and whether NVSHMEM's mean time is the smaller there."""
    one = project(grid, _BAG_MACHINE, backend="nvshmem", clock=str(nvshmem_clock))
    two = project(grid, _BAG_MACHINE, backend="nccl", clock=str(nccl_clock))
    size = one["gpus"] * one["batch"] * one["table_count"] * one["dim"] * 4
    ratio = (two["time_s"] / one["time_s"]).groupby(size).mean().sort_index()
    return [float(s) for s in ratio.index], [bool(r > 1) for r in ratio]


def _grid_points(grid: Callable[..., grids.Columns]) -> Finding:
    """Points with a finite slowdown that is 1 on one GPU and at least 1 beyond."""
    frame = project(grid())
    alone = frame["gpus"] == 1
    slowdown = frame["slowdown"]
    good = np.isfinite(slowdown) & np.where(alone, slowdown == 1, slowdown >= 1)
    return Finding(int(good.sum()), f"{int(good.sum())} of {len(frame)} points")


def nvlink_over_host() -> Finding:
    """All-reduce of the smallest published size, peer-to-peer off over on."""
    samples = measured.shipped_samples()
    rows = samples[samples["source_id"] == _P2P_SOURCE]
    if rows.empty:
        return Finding(None, "not measured")
    first = rows[rows["payload_bytes"] == rows["payload_bytes"].min()]
    times = first.groupby("note", observed=True)["time_s"].median()
    value = float(times["p2p-disabled"] / times["p2p-on"])
    return Finding(value, f"{format_ratio(value)} at {format_bytes(float(first['payload_bytes'].iloc[0]))}")


@lru_cache(maxsize=4)
def figure_9(scenario: str) -> pd.DataFrame:
    """Both grids at 128 GPUs, one row a configuration."""
    import pandas as pd

    both: Sequence[Callable[..., grids.Columns]] = (grids.paper_1, grids.paper_2)
    return pd.concat([project(grid(gpus=(_FIGURE_9_GPUS,)), scenario=scenario) for grid in both])


def _slowdown(scenario: str, which: str) -> Finding:
    frame = figure_9(scenario).reset_index(drop=True)
    slowdown = frame["slowdown"].to_numpy(float)
    row = frame.iloc[int(np.argmin(slowdown) if which == "least" else np.argmax(slowdown))]
    band = f"band {format_ratio(row['slowdown_low'])} to {format_ratio(row['slowdown_high'])}"
    return Finding(float(row["slowdown"]), f"{format_ratio(row['slowdown'])} ({band})")


def figure_9_least() -> Finding:
    """Least slowdown of the two grids at 128 GPUs, all of them in one NVLink domain."""
    return _slowdown(SCENARIO, "least")


def figure_9_most() -> Finding:
    """Largest slowdown of the two grids at 128 GPUs, all of them in one NVLink domain."""
    return _slowdown(SCENARIO, "most")


CHECKS: dict[str, Callable[[], Finding]] = {
    "figure_1_coverage": figure_1_coverage,
    "all_reduce_ratio": lambda: _ratio("all_reduce"),
    "all_reduce_crossover": lambda: _crossover("all_reduce", _PAPER),
    "all_gather_ratio": lambda: _ratio("all_gather"),
    "all_gather_rise": all_gather_rise,
    "all_to_all_ratio": lambda: _ratio("all_to_all"),
    "all_to_all_crossover": lambda: _crossover("all_to_all", _PAPER),
    "broadcast_crossover": lambda: _crossover("broadcast", _GRAPHS),
    "exchange_bytes": exchange_bytes,
    "embedding_bag_crossings": embedding_bag_crossings,
    "grid_1_points": lambda: _grid_points(grids.paper_1),
    "grid_2_points": lambda: _grid_points(grids.paper_2),
    "nvlink_over_host": nvlink_over_host,
    "figure_9_least": figure_9_least,
    "figure_9_most": figure_9_most,
    "figure_9_most_on_the_cluster": lambda: _slowdown(CLUSTER, "most"),
}
"""Check of each claim by name."""
