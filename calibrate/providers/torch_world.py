"""torch.distributed, joined once per process by all users, and its collectives: gloo, NCCL and RCCL."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from calibrate.machine.identity import read_cache_sizes
from calibrate.operations import Place
from calibrate.patterns import BufferLayout
from calibrate.providers.buffers import DEFAULT_L2_BYTES, Arena, Pool, compute_arena_bytes, count_rotating
from calibrate.providers.collective_calls import (
    Call,
    CollectiveOperation,
    CollectiveProvider,
    Take,
    count_shared_gpus,
)
from calibrate.ranks.launch import join_store
from perfmodel.errors import BadInputError, NoHardwareError
from perfmodel.schema.evidence import Clock
from perfmodel.schema.runs import Point

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

_TIMEOUT = timedelta(minutes=10)
SHARES_A_GPU_FROM = (2, 30)
"""The first NCCL that lets two ranks share one GPU: an experimental feature, for functional checks only."""

SHARE_VARIABLE = "NCCL_MULTI_RANK_GPU_ENABLE"


def join(place: Place, address: Mapping[str, str]) -> Any:
    """Join torch.distributed with this job as its default group; returns the module.

    address  host and port of the store of rank 0
    A CPU job uses gloo; a GPU job gloo for CPU tensors and NCCL for GPU tensors. Later calls change nothing.
    """
    import torch
    import torch.distributed as dist

    if dist.is_initialized():
        return dist
    if place.local_ranks == place.ranks:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    gpu = place.device == "cuda"
    if gpu:
        torch.cuda.set_device(place.local_rank % torch.cuda.device_count())
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if gpu else "gloo",
        store=join_store(address["host"], int(address["port"]), f"{address['run']}/torch"),
        rank=place.rank,
        world_size=place.ranks,
        timeout=_TIMEOUT,
    )
    return dist


def leave() -> None:
    """Leave torch.distributed, if this process is in it."""
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()


def find_device(place: Place) -> Any:
    """torch's device of a rank: the CPU, or the current GPU."""
    import torch

    if place.device == "cuda":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def make_group(dist: Any, ranks: Sequence[int], backend: str) -> Any:
    """Make a group of ``ranks``; called by every rank of the job, in the same order.

    Limits: ranks not in rising order -> BadInputError (torch sorts them, and parts would be mixed up)
    """
    if list(ranks) != sorted(ranks):
        raise BadInputError(
            f"torch makes no group in the order {list(ranks)}.", "give ranks in rising order."
        )
    return dist.new_group(list(ranks), backend=backend, timeout=_TIMEOUT)


def make_call(dist: Any, layout: BufferLayout, group: Any) -> Call:
    """The collective of a layout, as a function of (send, receive); an all-reduce sums in ``receive``."""
    if layout.operation == "broadcast":
        root, *_ = dist.get_process_group_ranks(group)
        return lambda send, recv: dist.broadcast(recv if layout.index else send, root, group=group)
    reduce_scatter, all_gather = find_scatter_and_gather(dist)
    calls: dict[str, Call] = {
        "all_to_all": lambda send, recv: dist.all_to_all_single(recv, send, group=group),
        "reduce_scatter": lambda send, recv: reduce_scatter(recv, send, group=group),
        "all_gather": lambda send, recv: all_gather(recv, send, group=group),
        "all_reduce": lambda _, recv: dist.all_reduce(recv, group=group),
    }
    return calls[layout.operation]


def find_scatter_and_gather(dist: Any) -> tuple[Any, Any]:
    """torch's (reduce-scatter, all-gather), called with (output, input); PyTorch 2.13 renamed them."""
    if hasattr(dist, "reduce_scatter_single"):
        return dist.reduce_scatter_single, dist.all_gather_single
    return dist.reduce_scatter_tensor, dist.all_gather_into_tensor


class TorchCollectives(CollectiveProvider):
    """Common part of gloo and NCCL. backend  torch's name of the library"""

    backend = ""

    def open(self, place: Place, address: Mapping[str, str]) -> None:
        """Join torch.distributed; ``address`` as in ``join``."""
        self._dist = join(place, address)
        self._rank = place.rank

    def open_group(self, ranks: Sequence[int]) -> None:
        """Make a group for ``ranks``; every rank of the job calls this."""
        if tuple(ranks) not in self._groups:
            self._groups[tuple(ranks)] = make_group(self._dist, ranks, self.backend)

    def close(self) -> None:
        """Leave torch.distributed."""
        if self._groups:
            self._groups.clear()
            leave()

    def _time(self, layout: BufferLayout, group: ProcessGroup, take: Take) -> CollectiveOperation:
        """The operation of torch's call, which sums an all-reduce in place."""
        call = make_call(self._dist, layout, group)
        return CollectiveOperation(layout, call, take, in_place=layout.operation == "all_reduce")


class Gloo(TorchCollectives):
    """Collectives of gloo over TCP on CPU tensors that share memory with the numpy buffers."""

    name = backend = "gloo"
    bytes_a_peer = 0

    def __init__(self) -> None:
        super().__init__()
        self._pool = Pool()
        self._l2 = read_cache_sizes().get("L2", DEFAULT_L2_BYTES)

    def barrier(self, ranks: Sequence[int]) -> None:
        """gloo's barrier."""
        self._dist.barrier(group=self.group(ranks))

    def _make(self, layout: BufferLayout, group: Any, point: Point) -> CollectiveOperation:
        """As in the base class. Single calls rotate send buffers: none finds its data in the L2 cache."""
        rotating = count_rotating(layout.sender_bytes, self._l2) if point.clock is Clock.EAGER else 1

        def take() -> tuple[Any, Any]:
            send = self._pool.rows("send", rotating, layout.send_elements)
            (recv,) = self._pool.rows("recv", 1, layout.recv_elements)
            return send, recv

        return self._time(layout, group, take)


class Nccl(TorchCollectives):
    """Collectives of NCCL on CUDA tensors, as TorchRec calls them. An all-reduce overwrites its input."""

    name = backend = "nccl"

    def open(self, place: Place, address: Mapping[str, str]) -> None:
        """Join torch.distributed; ``address`` as in ``join``.

        Limits: more ranks than GPUs on a node with NCCL below 2.30 -> NoHardwareError
        """
        import torch

        if gpus := count_shared_gpus(place.local_ranks, address):
            share_gpu(tuple(torch.cuda.nccl.version()), place.local_ranks, gpus)
        super().open(place, address)
        self._token = torch.zeros((), device="cuda")
        self._arena: Arena | None = None

    def open_group(self, ranks: Sequence[int]) -> None:
        """Make an NCCL communicator for ``ranks``; every rank of the job calls this."""
        super().open_group(ranks)
        if self._rank in ranks:  # the first call makes the communicator
            self.barrier(ranks)

    def barrier(self, ranks: Sequence[int]) -> None:
        """An all-reduce of one element, and a wait for it."""
        import torch

        self._dist.all_reduce(self._token, group=self.group(ranks))
        torch.cuda.synchronize()

    def close(self) -> None:
        """Leave torch.distributed."""
        self._arena = None
        super().close()

    def _make(self, layout: BufferLayout, group: Any, point: Point) -> CollectiveOperation:
        """The operation on the shared buffers if they are large enough, else on new buffers."""
        import torch

        empty = partial(torch.empty, dtype=torch.uint8, device="cuda")
        if self._arena is None:
            self._arena = Arena(empty, compute_arena_bytes())
        large = layout.payload_bytes > self._arena.bytes_each
        send, recv = (Arena(empty, layout.payload_bytes) if large else self._arena).views(layout)
        return self._time(layout, group, lambda: ([send], recv))


class Rccl(Nccl):
    """Collectives of RCCL on AMD GPUs: a PyTorch built for ROCm provides it under NCCL's name."""

    name = "rccl"


def share_gpu(version: tuple[int, ...], ranks: int, gpus: int) -> None:
    """Let ranks share GPUs if NCCL supports it; the times are then no calibration.

    Limits: NCCL below 2.30 -> NoHardwareError
    """
    if version[:2] < SHARES_A_GPU_FROM:
        name = ".".join(map(str, version))
        raise NoHardwareError(
            f"{ranks} ranks share {gpus} GPU{'s' if gpus > 1 else ''}, and NCCL {name} cannot do that.",
            f"start one rank per GPU; NCCL 2.30 can share one ({SHARE_VARIABLE}=1) as a functional check.",
        )
    os.environ[SHARE_VARIABLE] = "1"
