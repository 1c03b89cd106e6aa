"""The measured points behind a calibration, as medians, to compare predictions with."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from perfmodel.collectives.estimate import CollectiveModel
from perfmodel.fit.build import select_usable
from perfmodel.fit.shipped import Entry, load_plan
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


@lru_cache(maxsize=1)
def load_shipped_samples() -> pd.DataFrame:
    """All shipped samples of collectives; the files are read only once."""
    return load_samples()


def list_preferred_entries() -> dict[str, Entry]:
    """The entry of each machine's default calibration of NCCL, by machine."""
    return {entry.machine: entry for entry in load_plan().calibration if entry.is_first}


def select_measured_rows(entry: Entry, samples: pd.DataFrame) -> pd.DataFrame:
    """The samples that an entry's curves are fitted to, with a column domain_gpus."""
    rows = select_usable(entry.rows(samples[samples["backend"] == str(entry.backend)]))
    return rows.assign(domain_gpus=find_domains(rows, load_machine(entry.machine)))


def find_domains(rows: pd.DataFrame, machine: Machine) -> npt.NDArray[np.int64]:
    """For each sample, how many of its ranks one scale-up domain of ``machine`` has."""
    domains = [machine.domain_gpus_of(int(node)) for node in rows["gpus_per_node"]]
    return np.asarray(np.minimum(rows["gpus"].to_numpy(int), np.array(domains, int)))


def list_measured_points(entry: Entry, samples: pd.DataFrame) -> pd.DataFrame:
    """The ``take_medians`` of every measured curve of an entry (``select_measured_rows``)."""
    return take_medians(select_measured_rows(entry, samples), load_machine(entry.machine))


def take_medians(rows: pd.DataFrame, machine: Machine) -> pd.DataFrame:
    """Median time of every size of every cell in samples: of a collective on a group of ranks.

    Columns collective, gpus, gpus_per_node, nodes, domain_gpus, payload_bytes, time_s, sources (a text).
    """
    rows = rows.assign(domain_gpus=find_domains(rows, machine))
    return (
        rows.groupby([*_CELL, "payload_bytes"])
        .agg(
            time_s=("time_s", "median"),
            sources=("source_id", lambda names: " ".join(sorted(set(names.astype(str))))),
            domain_gpus=("domain_gpus", "first"),
        )
        .reset_index()
    )


def predict_points(points: pd.DataFrame, model: CollectiveModel) -> pd.DataFrame:
    """The points with columns predicted_s, low_s, high_s (95 %), error (predicted / measured - 1) and inside.

    inside  whether what was measured is within the band. No points -> no further columns
    """
    import pandas as pd

    parts = []
    for collective, rows in points.groupby("collective"):
        estimate = model.estimate(
            str(collective),
            rows["payload_bytes"].to_numpy(float),
            rows["gpus"].to_numpy(float),
            rows["gpus_per_node"].to_numpy(float),
        )
        parts.append(rows.assign(predicted_s=estimate.time_s, low_s=estimate.low_s, high_s=estimate.high_s))
    return judge_points(pd.concat(parts)) if parts else points


def judge_points(points: pd.DataFrame) -> pd.DataFrame:
    """The points with columns error, inside (the 95 % interval) and size (class of sizes, of ``SIZES``)."""
    time = points["time_s"]
    size = points["payload_bytes"]
    return points.assign(
        error=points["predicted_s"] / time - 1,
        inside=(points["low_s"] <= time) & (time <= points["high_s"]),
        size=np.select([size < FLOOR_BYTES, size < BULK_BYTES], SIZES[:2], SIZES[2]),
    )
