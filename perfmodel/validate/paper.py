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
from perfmodel.validate.other_papers import ascend_dependence, embark_throughput
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
_NCCL_FLOORS = ("aic_h100_nccl2.27.3", "aic_h100_nccl2.29.2")
_CLAIMED_RATIO = 10.0


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


def _all_gather_rise(which: int) -> Finding:
    """Growth of a library's time from 8 KiB to 1 MiB: 0 NVSHMEM, 1 NCCL."""
    found = crossover.compare("all_gather", *_PAPER)
    if found is None:
        return Finding(None, "not measured")
    growth = found.rise(*_RISE_BYTES)
    return Finding(growth[which], f"{format_ratio(growth[which])} from 8 KiB to 1 MiB")


def all_to_all_ratio() -> Finding:
    """``_ratio``, and what of the distance to the claim an NCCL of the paper's time explains."""
    found = _ratio("all_to_all")
    rows = measured.shipped_samples()
    rows = rows[(rows["collective"] == "all_to_all") & (rows["gpus"] == 8) & (rows["payload_bytes"] == 1024)]
    times = [rows.loc[rows["source_id"] == source, "time_s"].median() for source in _NCCL_FLOORS]
    if found.value is None or not np.isfinite(times).all():
        return found
    older = float(times[0] / times[1])
    left = _CLAIMED_RATIO / (found.value * older)
    words = f"NCCL 2.27's floor explains {format_ratio(older)}, {format_ratio(left)} are unexplained"
    return Finding(found.value, f"{found.words}; {words}")


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
def figure_9(scenario: str, **overrides: float) -> pd.DataFrame:
    """Both grids at 128 GPUs, one row a configuration; ``overrides`` of machine values."""
    import pandas as pd

    both: Sequence[Callable[..., grids.Columns]] = (grids.paper_1, grids.paper_2)
    frames = [
        project(grid(gpus=(_FIGURE_9_GPUS,)), scenario=scenario, overrides=overrides or None) for grid in both
    ]
    return pd.concat(frames)


def _slowdown(which: str, scenario: str = CLUSTER, **overrides: float) -> Finding:
    """The least or the largest slowdown of the two grids at 128 GPUs."""
    frame = figure_9(scenario, **overrides).reset_index(drop=True)
    slowdown = frame["slowdown"].to_numpy(float)
    row = frame.iloc[int(np.argmin(slowdown) if which == "least" else np.argmax(slowdown))]
    band = f"band {format_ratio(row['slowdown_low'])} to {format_ratio(row['slowdown_high'])}"
    return Finding(float(row["slowdown"]), f"{format_ratio(row['slowdown'])} ({band})")


def figure_9_least() -> Finding:
    """All GPUs in one NVLink domain, constants of the machine file and of the laws."""
    return _slowdown("least", nvlink_domain_gpus=_FIGURE_9_GPUS)


def figure_9_most() -> Finding:
    """As ``figure_9_least``."""
    return _slowdown("most", nvlink_domain_gpus=_FIGURE_9_GPUS)


CHECKS: dict[str, Callable[[], Finding]] = {
    "figure_1_coverage": figure_1_coverage,
    "all_reduce_ratio": lambda: _ratio("all_reduce"),
    "all_reduce_crossover": lambda: _crossover("all_reduce", _PAPER),
    "all_gather_ratio": lambda: _ratio("all_gather"),
    "all_gather_rise": lambda: _all_gather_rise(0),
    "all_gather_flat": lambda: _all_gather_rise(1),
    "all_to_all_ratio": all_to_all_ratio,
    "all_to_all_crossover": lambda: _crossover("all_to_all", _PAPER),
    "broadcast_crossover": lambda: _crossover("broadcast", _GRAPHS),
    "exchange_bytes": exchange_bytes,
    "embedding_bag_crossings": embedding_bag_crossings,
    "grid_1_points": lambda: _grid_points(grids.paper_1),
    "grid_2_points": lambda: _grid_points(grids.paper_2),
    "nvlink_over_host": nvlink_over_host,
    "figure_9_least": figure_9_least,
    "figure_9_most": figure_9_most,
    "figure_9_least_on_the_cluster": lambda: _slowdown("least"),
    "figure_9_most_on_the_cluster": lambda: _slowdown("most"),
    "figure_9_least_as_chosen": lambda: _slowdown("least", SCENARIO),
    "figure_9_most_as_chosen": lambda: _slowdown("most", SCENARIO),
    "ascend_dependence": ascend_dependence,
    "embark_dcnv2": lambda: embark_throughput("embark-dcnv2"),
    "embark_t180": lambda: embark_throughput("embark-t180"),
    "embark_t200": lambda: embark_throughput("embark-t200"),
    "embark_t510": lambda: embark_throughput("embark-t510"),
    "embark_t7": lambda: embark_throughput("embark-t7"),
}
"""Check of each claim by name."""
