"""One rank's trace as torch.profiler writes it (Kineto, Chrome's trace format): .json or .json.gz."""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from calibrate.importers.traces.columns import KernelColumns, busy_during
from calibrate.importers.traces.kineto_events import KinetoEvents, whole
from calibrate.importers.traces.kineto_gloo import gloo_collectives
from calibrate.importers.traces.kineto_kernels import join_kernels, operators_as_kernels
from calibrate.importers.traces.kineto_nccl import TracedWorld, nccl_collectives
from calibrate.importers.traces.stream import TraceStream
from perfmodel.errors import BadInputError
from perfmodel.schema.gate import over
from perfmodel.schema.ranges import MOST_GPUS
from perfmodel.schema.traces import RankTrace, TracedCollective, TracedRange, TraceKind

_NS_PER_US = 1000
_RANK = re.compile(r"(?:rank|worker)[-_]?(\d+)", re.IGNORECASE)
_VERSIONS = {
    "nccl_version": "nccl",
    "cuda_runtime_version": "cuda_runtime",
    "cuda_driver_version": "cuda_driver",
    "cupti_version": "cupti",
    "hip_runtime_version": "hip_runtime",
}
"""Keys of a trace, or of its distributedInfo, with this program's names."""


def read_kineto(stream: TraceStream) -> RankTrace:
    """One rank's collectives, kernels and named ranges.

    Raises BadInputError for a file that is no trace of torch.profiler, or does not state its rank.
    """
    begun = time.monotonic()
    events = KinetoEvents()
    for event in stream:
        events.add(event)
    said = stream.metadata
    distributed = said.get("distributedInfo")
    distributed = distributed if isinstance(distributed, dict) else {}
    world = _world(distributed, stream.path)
    unread: Counter[str] = Counter()
    on_gpu = bool(events.nccl or len(events.kernels))
    collectives = nccl_collectives(events, world, unread) + gloo_collectives(events, world, unread)
    if on_gpu:
        events.forget_operators()
        join_kernels(events)
        kernels = events.kernels
    else:
        kernels = operators_as_kernels(events)
    kernels.rank = world.rank
    backend = "nccl" if events.nccl or events.marks else "gloo" if events.gloo else ""
    return RankTrace(
        stream.path.name, TraceKind.KINETO, world.rank, world.size,
        backend or str(distributed.get("backend", "")), _device(said, events),
        str(said.get("host_name", "")), _origin_ns(said, events),
        _with_overlap(collectives, kernels), kernels,
        tuple(TracedRange(world.rank, r.name, r.start_s, r.time_s, r.thread) for r in events.ranges),
        stream.events, dict(unread), _named_groups(world),
        _versions(said, distributed), stream.cut, time.monotonic() - begun,
    )  # fmt: skip


def _world(distributed: Mapping[str, Any], path: Path) -> TracedWorld:
    """This rank, the number of ranks, and the groups; if need be, the name of the file gives the rank."""
    rank = whole(distributed.get("rank", -1))
    if rank < 0:
        named = _RANK.findall(path.name)
        if len(named) != 1:
            raise BadInputError(
                f"{path.name} does not say of which rank it is (no distributedInfo).",
                "write the rank into its name: trace_rank0.json.gz.",
            )
        rank = int(named[0])
    groups: dict[str, list[tuple[int, ...]]] = defaultdict(list)
    listed = distributed.get("pg_config")
    for one in listed if isinstance(listed, list) else []:
        if isinstance(one, dict) and isinstance(one.get("ranks"), list):
            ranks = tuple(whole(rank) for rank in one["ranks"])
            if ranks not in groups[str(one.get("pg_name", ""))]:
                groups[str(one.get("pg_name", ""))].append(ranks)
    size = whole(distributed.get("world_size", -1))
    if size > MOST_GPUS:
        raise over(path.name, "ranks (world_size)", MOST_GPUS, "copy it again")
    return TracedWorld(rank, size, {name: tuple(several) for name, several in groups.items()})


def _named_groups(world: TracedWorld) -> dict[str, tuple[int, ...]]:
    """Ranks of each group by its name; a second group with the same name is ``name#2``."""
    return {
        name if not number else f"{name}#{number + 1}": ranks
        for name, several in world.groups.items()
        for number, ranks in enumerate(several)
    }


def _device(said: Mapping[str, Any], events: KinetoEvents) -> str:
    """Name of the GPU on which the kernels ran; "" for a CPU."""
    listed = said.get("deviceProperties")
    names = {
        whole(one.get("id", -1)): str(one.get("name", ""))
        for one in (listed if isinstance(listed, list) else [])
        if isinstance(one, dict)
    }
    used = whole(events.nccl[0].args.get("device", -1)) if events.nccl else -1
    return names.get(used) or next(iter(names.values()), "")


def _versions(said: Mapping[str, Any], distributed: Mapping[str, Any]) -> dict[str, str]:
    found = {ours: str(said.get(key, distributed.get(key, ""))) for key, ours in _VERSIONS.items()}
    return {name: text for name, text in found.items() if text}


def _origin_ns(said: Mapping[str, Any], events: KinetoEvents) -> int:
    """Unix time of the trace's 0 s: its baseTimeNanoseconds; older traces count from 1970."""
    if events.origin_us is None:
        return 0
    base_ns = max(whole(said.get("baseTimeNanoseconds", 0)), 0)
    return base_ns + round(events.origin_us * _NS_PER_US)


def _with_overlap(
    collectives: Sequence[TracedCollective], kernels: KernelColumns
) -> tuple[TracedCollective, ...]:
    """The collectives, each with ``overlap_s``: seconds during which kernels of other streams ran too."""
    if not collectives or not len(kernels):
        return tuple(collectives)
    start = np.array([one.start_s for one in collectives])
    end = np.array([one.end_s for one in collectives])
    stream = np.array([one.stream for one in collectives])
    overlap = np.zeros(len(start))
    for own in np.unique(stream):
        mine, others = stream == own, kernels.stream != own
        began = kernels.start_s[others]
        overlap[mine] = busy_during(start[mine], end[mine], began, began + kernels.time_s[others])
    return tuple(
        replace(one, overlap_s=float(seconds)) if seconds > 0 else one
        for one, seconds in zip(collectives, overlap, strict=True)
    )
