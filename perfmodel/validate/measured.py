"""The measured points behind a calibration, as medians, to compare predictions with."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.fit.shipped import ClusterEntry, Entry, load_plan
from perfmodel.schema.evidence import COLLECTIVES, Backend
from perfmodel.schema.machine import Machine, load_machine
from perfmodel.schema.samples import load_samples

if TYPE_CHECKING:
    import pandas as pd

MIB = 2.0**20
FLOOR_BYTES = 2.0**16
BULK_BYTES = 32 * MIB
SIZES = ("floor", "middle", "bulk")
"""Classes of message sizes: below 64 KiB, up to 32 MiB, and above."""
_CELL = ["collective", "gpus", "gpus_per_node", "nodes"]
_INTEGERS = ("int8", "uint8")


@lru_cache(maxsize=1)
def shipped_samples() -> pd.DataFrame:
    """All shipped samples of collectives; the files are read only once."""
    return load_samples(None)


@lru_cache(maxsize=1)
def shipped_plan() -> tuple[Entry, ...]:
    """The list of shipped calibrations, with the samples that each is fitted to; read only once."""
    return tuple(load_plan().calibration)


def shipped_clusters() -> tuple[ClusterEntry, ...]:
    """The clusters in that list."""
    return tuple(load_plan().cluster)


def preferred_entries(backend: Backend = Backend.NCCL) -> dict[str, Entry]:
    """The entry of each machine's default calibration, by machine. backend  library of the collectives"""
    return {e.machine: e for e in shipped_plan() if e.preferred and e.backend is backend}


def identity(entry: Entry) -> str:
    """Name of the shipped calibration that is fitted by an entry."""
    return f"{entry.machine}/{entry.backend}-{entry.library_version}-{entry.clock}"


def measured_rows(entry: Entry, samples: pd.DataFrame) -> pd.DataFrame:
    """The samples that an entry's curves are fitted to, with a column domain_gpus.

    Left out, as in fits: rows with a flag, in place, integer reductions where there are floats.
    """
    import pandas as pd

    own = samples[samples["backend"] == str(entry.backend)]
    rows = pd.concat([s.rows(own).assign(_rank=s.rank) for s in entry.cells])
    reduces = rows["collective"].isin(["all_reduce", "reduce_scatter"])
    whole = rows["datatype"].isin(_INTEGERS)
    usable = rows["collective"].isin(COLLECTIVES) & rows["flag"].isin(["", "ok"]) & ~rows["in_place"]
    floats_exist = bool((reduces & ~whole).any())
    rows = rows[usable & ~(reduces & whole & floats_exist)]
    rows = rows[rows["_rank"] == rows.groupby(_CELL, observed=True)["_rank"].transform("min")]
    machine = load_machine(entry.machine)
    domains = [machine.domain_gpus_of(int(n)) for n in rows["gpus_per_node"]]
    return rows.drop(columns="_rank").assign(domain_gpus=np.minimum(rows["gpus"], domains))


def measured_points(entry: Entry, samples: pd.DataFrame) -> pd.DataFrame:
    """The ``medians`` of every measured curve of an entry (``measured_rows``)."""
    return medians(measured_rows(entry, samples), load_machine(entry.machine))


def medians(rows: pd.DataFrame, machine: Machine) -> pd.DataFrame:
    """Median time of every size of every cell in samples: of a collective on a group of ranks.

    Columns collective, gpus, gpus_per_node, nodes, domain_gpus, payload_bytes, time_s, sources (a text).
    """
    domains = [machine.domain_gpus_of(int(n)) for n in rows["gpus_per_node"]]
    rows = rows.assign(domain_gpus=np.minimum(rows["gpus"], domains))
    return (
        rows.groupby([*_CELL, "payload_bytes"], observed=True)
        .agg(
            time_s=("time_s", "median"),
            sources=("source_id", lambda names: " ".join(sorted(set(names.astype(str))))),
            domain_gpus=("domain_gpus", "first"),
        )
        .reset_index()
    )


def predicted(points: pd.DataFrame, model: CollectiveModel) -> pd.DataFrame:
    """The points with columns predicted_s, low_s, high_s (95 %), error (predicted / measured - 1), inside."""
    import pandas as pd

    parts = []
    for collective, rows in points.groupby("collective", observed=True):
        estimate = model.estimate(
            str(collective),
            rows["payload_bytes"].to_numpy(float),
            rows["gpus"].to_numpy(float),
            rows["gpus_per_node"].to_numpy(float),
        )
        parts.append(rows.assign(predicted_s=estimate.time_s, low_s=estimate.low_s, high_s=estimate.high_s))
    return judged(pd.concat(parts)) if parts else points


def judged(points: pd.DataFrame) -> pd.DataFrame:
    """The points with columns error, inside (the 95 % interval) and size (class of sizes, of ``SIZES``)."""
    time, size = points["time_s"], points["payload_bytes"]
    return points.assign(
        error=points["predicted_s"] / time - 1,
        inside=(points["low_s"] <= time) & (time <= points["high_s"]),
        size=np.select([size < FLOOR_BYTES, size < BULK_BYTES], SIZES[:2], SIZES[2]),
    )
