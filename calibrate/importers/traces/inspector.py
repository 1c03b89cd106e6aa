"""Reads dumps of NCCL's inspector plugin: each line is a JSON object about one collective.

Layout: NVIDIA/nccl, plugins/profiler/inspector (README.md, inspector_json.cc), format v4.0, NCCL 2.28.3 on:

    {"header": {"id", "rank", "n_ranks", "nnodes"}, "metadata": {"hostname", "dump_timestamp_us", ...},
     "coll_perf": {"coll", "coll_sn", "coll_msg_size_bytes", "coll_exec_time_us", "coll_timing_source",
                   "coll_algobw_gbs", "coll_busbw_gbs"}}

``coll_msg_size_bytes`` of a reduce-scatter and an all-gather is one rank's share: the plugin multiplies it by
the ranks for the bandwidth (inspectorComputeOpBw), and so does this reader. Each row must agree with its own
bandwidth. A file has the collectives of one process; ``rank`` is its number in the communicator of the line.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from calibrate.importers.traces.kineto_events import US_PER_S, is_time, whole
from calibrate.importers.traces.names import all_ranks, collective_of, payload_bytes
from calibrate.importers.traces.stream import Progress
from perfmodel.errors import BadInputError
from perfmodel.schema.gate import MOST_EVENT_BYTES, decode_json, over
from perfmodel.schema.ranges import MOST_GPUS
from perfmodel.schema.traces import RankTrace, TracedCollective, TraceKind

_BY_RANKS = ("all_gather", "reduce_scatter")
"""Collectives for which the plugin counts one rank's share."""

_ON_GPU = ("", "kernel_gpu")
_CLOSE = 0.01
_GB = 1e9
_HEAD_BYTES = 1 << 16


def is_inspector(path: Path) -> bool:
    """Whether the first line of a file is a collective, or a send, as written by the plugin."""
    try:
        with path.open("rb") as file:
            first = file.read(_HEAD_BYTES).split(b"\n", 1)[0]
        found, _ = decode_json(first.decode())
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and "header" in found and bool({"coll_perf", "p2p_perf"} & set(found))


def read_inspector(path: Path, progress: Progress | None = None) -> RankTrace:
    """The collectives of one process, in all its communicators.

    Limits: no readable line -> BadInputError;  a last line that is cut -> the lines before
    """
    begun = time.monotonic()
    unread: Counter[str] = Counter()
    lines, cut = 0, False
    found: list[tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]] = []
    for line in _lines(path, progress):
        lines += 1
        try:
            one, _ = decode_json(line.decode())
            header, said = one["header"], one["metadata"]
            if "coll_perf" not in one:
                unread[
                    "send or receive: no collective that is modelled (NCCL's all-to-all is made of them)"
                ] += 1
                continue
            parts = header, said, one["coll_perf"]
            if not all(isinstance(part, dict) for part in parts):
                raise TypeError("parts of a line are objects")
            found.append(parts)
        except (ValueError, TypeError, KeyError):
            cut = not line.endswith(b"\n")
            unread["a line that is cut" if cut else "a line that is none of the inspector's"] += 1
    if not found:
        raise BadInputError(
            f"{path.name} holds no collective of NCCL's inspector.", "wanted: coll_perf lines."
        )
    world, rank = max((whole(header.get("n_ranks")), -whole(header.get("rank"))) for header, _, _ in found)
    if world > MOST_GPUS:
        raise over(path.name, "ranks", MOST_GPUS, "copy it again")
    collectives = []
    for header, said, perf in found:
        one = _collective(header, said, perf, -rank, world)
        if isinstance(one, str):
            unread[one] += 1
        else:
            collectives.append(one)
    host = str(found[0][1].get("hostname", ""))
    return RankTrace(
        path.name, TraceKind.INSPECTOR, -rank, world, "nccl", "", host, 0, tuple(collectives), (), (),
        lines, dict(unread), {}, {}, cut, time.monotonic() - begun,
    )  # fmt: skip


def _lines(path: Path, progress: Progress | None) -> Iterator[bytes]:
    size, done = path.stat().st_size, 0
    with path.open("rb") as file:
        while line := file.readline(MOST_EVENT_BYTES):
            done += len(line)
            if progress is not None:
                progress(path.name, done, size)
            if line.strip():
                yield line


def _collective(
    header: Mapping[str, Any], said: Mapping[str, Any], perf: Mapping[str, Any], rank: int, world: int
) -> TracedCollective | str:
    """The collective of one line, or the reason why it is unusable.

    header, said, perf  the line's objects ``header``, ``metadata`` and ``coll_perf``
    rank, world         number of this rank, and of all ranks
    """
    name, ranks = str(perf.get("coll", "")), whole(header.get("n_ranks"))
    collective = collective_of(name)
    if not collective or collective == "all_to_all":
        return f"{name[:30]}: the plugin does not say how its bytes count"
    size, time_us = whole(perf.get("coll_msg_size_bytes")), perf.get("coll_exec_time_us")
    if str(perf.get("coll_timing_source", "")) not in _ON_GPU:
        return "timed on the CPU: NCCL_INSPECTOR_REQUIRE_KERNEL_TIMING=1 leaves it out"
    if ranks < 2:
        return "one rank: nothing was sent"
    if whole(header.get("nnodes", 1)) > 1 and ranks != world:
        return "which ranks its communicator has is not recorded, and it is over several nodes"
    if size <= 0 or not is_time(time_us) or time_us <= 0:
        return "no bytes, or no time"
    traffic = size * ranks if collective in _BY_RANKS else size
    rate = perf.get("coll_algobw_gbs")
    if not is_time(rate) or abs(rate * _GB * time_us / US_PER_S / traffic - 1) > _CLOSE:
        return "its bandwidth is not its bytes by its time"
    sent = size if collective == "all_gather" else traffic
    received = size if collective == "reduce_scatter" else traffic
    time_s = time_us / US_PER_S
    return TracedCollective(
        rank, collective, str(header.get("id", "")), all_ranks(ranks) if ranks == world else (), ranks,
        whole(perf.get("coll_sn")), True, sent, received, payload_bytes(collective, sent, received), "", 0,
        max(whole(said.get("dump_timestamp_us", 0)), 0) / US_PER_S - time_s, time_s,
    )  # fmt: skip
