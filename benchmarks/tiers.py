"""Tables in host memory: predicted times beside FBGEMM's, as NVIDIA/recsys-examples measured them on an H100.

Run:     python benchmarks/tiers.py            the constants fitted to one half, the errors of both halves
Samples: data/reference/memory_tiers.csv. One table of 8 Mi rows, and a cache of all rows that are asked for,
         are for fitting; one table of 64 Mi rows, a cache of 80 % of them, and ten tables in host memory are
         held out. Rows of 512 bytes, ids of a power law (exponent 1.05), bags of one row.
Timed:   100 batches that come again in each loop. ``forward``: look-up, with the cache's own work and no
         prefetch ahead. ``train``: that, backward and the update of the rows.
         Both optimizers share their look-up: such runs count once.
Three constants of a look-up are fitted and shipped (data/kernels/kernel_model.toml); three of the update are
fitted here alone. A look-up in place is also that of ``perfmodel project``: with the ids of these runs
(a histogram, as ``--distribution histogram:FILE.csv`` reads it), and with ``zipf:1.05``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import least_squares

from perfmodel.model import access, caching, kernels, set_caches, tiers
from perfmodel.model.set_caches import asked_rate
from perfmodel.passes.tier_times import PACKET
from perfmodel.projections import project_one
from perfmodel.resources import data_path
from perfmodel.schema.constants import load_kernel_constants
from perfmodel.schema.distributions import Distribution, zipf
from perfmodel.schema.machine import load_machine

Array = NDArray[np.float64]

SKEW, ELEMENT_BYTES, STATE_ROWS = 1.05, 4, {"sgd": 0, "adam": 2}
LOOK_UP = ("link_packet_fraction", "cache_floor_s", "cache_row_s")
UPDATE = ("update_floor_s", "update_lookup_s", "both_ways_fraction")
_START = {"link_packet_fraction": 0.9, "cache_floor_s": 1e-4, "cache_row_s": 4e-9}
_START |= {"update_floor_s": 1e-4, "update_lookup_s": 5e-10, "both_ways_fraction": 0.7}
_BINS_PER_OCTAVE = 32


@cache
def power_law(rows: int) -> tuple[Array, Array]:
    """Popularity as that benchmark draws it: whole parts of a density x^-1.05, from 1 to the rows."""
    head = np.arange(1, _BINS_PER_OCTAVE + 1, dtype=np.float64)
    octaves = np.log2((rows - 1) / head[-1])
    steps = np.linspace(0, octaves, int(np.ceil(octaves * _BINS_PER_OCTAVE)) + 1)
    edges = np.unique(np.round(head[-1] * 2**steps))
    first, last = np.concatenate([head, edges[:-1] + 1]), np.concatenate([head, edges[1:]])
    share = (first ** (1 - SKEW) - (last + 1) ** (1 - SKEW)) / (1 - float(rows) ** (1 - SKEW))
    count = last - first + 1
    return share / count, count


def histogram(rows: int) -> Distribution:
    """The same as ``--distribution histogram:FILE.csv`` has it: shares of the rows and of the look-ups."""
    p, count = power_law(rows)
    shares = zip((count / rows).tolist(), (p * count).tolist(), strict=True)
    return Distribution("histogram:power-law", 0.0, tuple(shares))


def projected_s(row: pd.Series, ids: Distribution) -> float:
    """A look-up in place as ``perfmodel project --tier uvm`` has it, with the shipped constants."""
    tables, dim = int(row["tables"]), int(row["dim"])
    size = float(row["rows_per_table"]) * tables * dim * ELEMENT_BYTES
    asked: dict[str, Any] = {
        "table_bytes": size,
        "table_count": tables,
        "dim": dim,
        "pooling": 1,
        "batch": int(row["batch"]),
    }
    return project_one(**asked, gpus=1, tier="uvm", distribution=ids).time_s


def lru_cold_misses(a: Array, rows: Array, sets: float, ways: float, batches: int) -> Array:
    """Rows of each bin that a batch brings into the cache, mean of the first ones after it was emptied.

        m = rows q mean over j of [(1 - q)^(j-1) + sum over k < j of P(gap = k) e_k]   [rows]

    batches  j from 1 to that many;  e_k and the others as in ``set_caches.lru_batch_misses``
    Source: as ``set_caches.lru_batch_misses``; a row that nobody asked for yet is missed
    Limits: batches = 1 -> rows q;  batches -> inf -> ``set_caches.lru_batch_misses``
    """
    chance, gaps = -np.expm1(-a), np.arange(1.0, batches)
    seen = set_caches.rows_asked(a, rows, np.arange(0.0, batches))
    gone = set_caches.evicted_between(seen[:-1], seen[1:], sets, ways)
    stays = np.exp(-a)[:, np.newaxis]
    first = np.sum(stays ** np.arange(batches), axis=1)
    again = np.sum((batches - gaps) * gone * chance[:, np.newaxis] * stays ** (gaps - 1), axis=1)
    return np.asarray(rows * chance * (first + again) / batches)


def both_ways_time(read: float, written: float, latency: float, R2: float) -> float:
    """Time of reads and writes that share a link, as misses and the dirty rows that they evict do.

        t = lambda + max(x_read, x_written) / R2                              [s]

    read, written  bytes each way [bytes];  R2  rate each way while both run [bytes/s]
    Source: the link is full duplex; R2 is below the rate of one way alone (fitted below)
    Limits: nothing written -> ``tiers.link_time`` at R2;  nothing at all -> 0
    """
    return float(tiers.link_time(max(read, written), latency, R2))


@dataclass(frozen=True)
class Run:
    """What one run asks of the tiers, whatever the constants: look-ups and rows of a batch, all tables."""

    location: str
    optimizer: str
    row_bytes: float
    lookups: float
    distinct: float  # rows
    crossing: float  # rows that a forward pass brings over the link
    cold: float  # the same in the first loop, from an empty cache
    gathered: float  # rows that a gather from HBM reads there: those that miss the L2


def run_of(row: pd.Series) -> Run:
    """Of one line of the samples."""
    p, count = power_law(int(row["rows_per_table"]))
    n, tables, repeat = float(row["batch"]), float(row["tables"]), float(row["repeat_batches"])
    row_bytes, ways = float(row["dim"]) * ELEMENT_BYTES, load_kernel_constants().value("cache_ways")
    distinct = float(access.unique_rows(p, count, n))
    crossing, cold = 0.0, 0.0
    if row["location"] == "managed":
        machine = load_machine("h100-sxm-ib")
        latency, link = machine.value("host_latency_s"), machine.value("host_link_bytes_per_s")
        held = float(tiers.rows_in_flight(latency, link, row_bytes))
        crossing = cold = float(caching.cold_misses(p, count, n, held))
    elif row["location"] == "managed_caching":
        asked = float(access.unique_rows(p, count, n * repeat)) * tables
        every = float(row["rows_per_table"]) * tables
        by_rows, by_asked = row["cached_part_of_rows"], row["cached_part_of_asked_rows"]
        sets = np.ceil((by_rows * every if by_asked != by_asked else by_asked * asked) / ways)
        a = asked_rate(p, n)
        found = set_caches.lru_batch_misses(a, count * tables, sets, ways, repeat)
        crossing = cold = float(found.sum()) / tables
        if "empty" in str(row["note"]):
            cold = float(lru_cold_misses(a, count, sets, ways, int(repeat)).sum())
    held = load_machine("h100-sxm-ib").value("l2_bytes") * load_kernel_constants().value("l2_usable_fraction")
    gathered = float(caching.cold_misses(p, count, n, held / row_bytes))
    times = tables * np.array([n, distinct, crossing, cold, gathered])
    return Run(str(row["location"]), str(row["optimizer"]), row_bytes, *times.tolist())


def forward_s(run: Run, value: Callable[[str], float], crossing: float) -> float:
    """Of a look-up."""
    machine = load_machine("h100-sxm-ib")
    known = machine.value
    gathered = kernels.stream_kernel_time(
        (run.gathered + run.lookups) * run.row_bytes, known("launch_floor_s"), known("gather_bytes_per_s")
    )
    constants = load_kernel_constants()
    packets = map(constants.value, PACKET)
    wire = tiers.wire_bytes(run.row_bytes, *packets)
    rate = tiers.row_rate(
        known("host_link_bytes_per_s"),
        value("link_packet_fraction"),
        run.row_bytes,
        wire,
        known("host_bytes_per_s"),
        1,
    )
    fetched = tiers.link_time(crossing * run.row_bytes, known("host_latency_s"), rate)
    if run.location == "managed":
        return float(np.maximum(gathered, fetched))
    looked = tiers.cache_lookup_time(run.distinct, value("cache_floor_s"), value("cache_row_s"))
    return float(gathered + (looked + fetched if run.location == "managed_caching" else 0))


def update_s(run: Run, value: Callable[[str], float]) -> float:
    """Of backward and update: rows of host memory, and states of cached ones, cross the link both ways."""
    known = load_machine("h100-sxm-ib").value
    rows = STATE_ROWS[run.optimizer] + (run.location == "managed")
    moved = 0 if run.location == "device" else rows * run.distinct * run.row_bytes
    rate = value("both_ways_fraction") * known("host_link_bytes_per_s")
    local = value("update_floor_s") + value("update_lookup_s") * run.lookups
    return local + both_ways_time(moved, moved, known("host_latency_s"), rate)


def times(runs: list[Run], value: Callable[[str], float]) -> pd.DataFrame:
    """Predicted ``forward_s`` and ``train_s`` of each run."""
    forward = np.array([forward_s(run, value, run.crossing) for run in runs])
    first = np.array([forward_s(run, value, run.cold) for run in runs])
    update = np.array([update_s(run, value) for run in runs])
    return pd.DataFrame({"forward_s": forward, "train_s": first + update})


def samples() -> pd.DataFrame:
    """The published runs; the mean of runs of one shape and kind counts once."""
    table = pd.read_csv(data_path("reference", "memory_tiers.csv"))
    kept = table.drop(columns=["eval_s", "note"])
    kept["note"] = table["note"].where(table["note"].str.contains("empty"), "")
    names = [name for name in kept if name not in ("forward_s", "train_s")]
    return kept.groupby(names, dropna=False, sort=False, as_index=False)[["forward_s", "train_s"]].mean()


def fitted(seen: pd.DataFrame, runs: list[Run]) -> dict[str, float]:
    """All constants, least squares of the logarithm: those of the look-up first, then those of the update."""
    found = dict(_START)
    found |= _best(LOOK_UP, "forward_s", found, seen, runs)
    return found | _best(UPDATE, "train_s", found, seen, runs)


def _best(
    names: tuple[str, ...], column: str, known: dict[str, float], seen: pd.DataFrame, runs: list[Run]
) -> dict[str, float]:
    """Some constants, with the others as known; a look-up in HBM has none of those of the look-up."""
    measured = np.log(seen[column].to_numpy(float))
    own = np.array([column != "forward_s" or run.location != "device" for run in runs])

    def misses(x: Array) -> Array:
        trial = known | dict(zip(names, np.exp(x).tolist(), strict=True))
        error = np.log(times(runs, trial.__getitem__)[column].to_numpy(float)) - measured
        return np.asarray(error[own])

    best = least_squares(misses, np.log([_START[name] for name in names])).x
    return dict(zip(names, np.exp(best).tolist(), strict=True))


def judged() -> tuple[dict[str, float], pd.DataFrame]:
    """The constants, and every run with its predictions and their errors."""
    table = samples()
    runs = [run_of(row) for _, row in table.iterrows()]
    seen = (table["half"] == "fit").to_numpy()
    constants = fitted(table[seen], [run for run, use in zip(runs, seen, strict=True) if use])
    predicted = times(runs, constants.__getitem__)
    for name in ("forward", "train"):
        table[f"{name}_error"] = predicted[f"{name}_s"] / table[f"{name}_s"] - 1
        table[f"{name}_predicted_s"] = predicted[f"{name}_s"]
    for at, row in table[table["location"] == "managed"].iterrows():
        for name, ids in (("project", histogram(int(row["rows_per_table"]))), ("zipf", zipf(SKEW))):
            table.loc[at, f"{name}_error"] = projected_s(row, ids) / row["forward_s"] - 1
    return constants, table


SHAPE = [
    *("half", "location", "tables", "rows_per_table", "batch"),
    *("cached_part_of_rows", "cached_part_of_asked_rows"),
]


def look_ups(table: pd.DataFrame) -> pd.DataFrame:
    """Each look-up once, whichever optimizer follows it."""
    names = ["forward_error", "project_error", "zipf_error"]
    return table.groupby(SHAPE, dropna=False, sort=False, as_index=False)[names].mean()


OF = {
    "forward": "look-up, fitted here",
    "project": "perfmodel project",
    "zipf": "the same, zipf:1.05",
    "train": "look-up and update",
}


def text() -> str:
    """Constants, every held-out run, and the errors of both halves."""
    constants, table = judged()
    lines = [f"{name:<22}{constants[name]:.4g}" for name in (*LOOK_UP, *UPDATE)]
    head = f"{'held out':<17}{'tables':>7}{'rows':>10}{'batch':>9}  {'optimizer':<10}"
    lines += ["", head + f"{'forward':>9}{'error':>8}{'train':>10}{'error':>8}"]
    for _, row in table[table["half"] == "held_out"].iterrows():
        what = f"{row['location']:<17}{row['tables']:>7}{row['rows_per_table']:>10}{row['batch']:>9}"
        both = "".join(
            f"{1e3 * row[f'{x}_s']:>7.2f} ms{row[f'{x}_error']:>+8.1%}" for x in ("forward", "train")
        )
        lines.append(f"{what}  {row['optimizer']:<10}{both}")
    lines += ["", f"{'half':<10}{'location':<17}{'of':<22}{'runs':>5}{'median':>8}{'most':>8}"]
    for (half, location), part in table.groupby(["half", "location"], sort=False):
        once = look_ups(part)
        names = {"forward": once, "project": once, "zipf": once, "train": part}
        for name, runs in names.items():
            sizes = runs[f"{name}_error"].abs().dropna()
            if len(sizes):
                found = f"{len(sizes):>5}{sizes.median():>8.1%}{sizes.max():>8.1%}"
                lines.append(f"{half:<10}{location:<17}{OF[name]:<22}{found}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(text())
