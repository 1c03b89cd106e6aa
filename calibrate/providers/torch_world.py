"""torch.distributed, joined once a process by everyone who uses it (gloo, nccl, nvshmem, TorchRec)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from calibrate.operations import Place
from calibrate.patterns import BufferLayout
from perfmodel.errors import BadInputError

_TIMEOUT = timedelta(minutes=10)


def join(place: Place, address: Mapping[str, str]) -> Any:
    """torch.distributed with this job as its default group; returns the module.

    address  host and port of a store that rank 0 opens
    A CPU job uses gloo; a GPU job gloo for CPU tensors and NCCL for GPU tensors. Later calls change nothing.
    """
    import torch
    import torch.distributed as dist

    if dist.is_initialized():
        return dist
    if place.local_ranks == place.ranks:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    device = None
    if place.device == "cuda":
        device = torch.device("cuda", place.local_rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
    store = dist.TCPStore(
        address["host"], int(address["port"]), place.ranks, is_master=place.rank == 0, timeout=_TIMEOUT
    )
    dist.init_process_group(
        "gloo" if device is None else "cpu:gloo,cuda:nccl",
        store=dist.PrefixStore(f"perfmodel-{address['run']}", store),
        rank=place.rank,
        world_size=place.ranks,
        timeout=_TIMEOUT,
    )
    return dist


def new_group(dist: Any, ranks: Sequence[int], backend: str) -> Any:
    """A group of ``ranks``; called by every rank of the job, in the same order.

    Limits: ranks not in rising order -> BadInputError (torch sorts them, and parts would be mixed up)
    """
    if list(ranks) != sorted(ranks):
        raise BadInputError(
            f"torch makes no group in the order {list(ranks)}.", "give ranks in rising order."
        )
    return dist.new_group(list(ranks), backend=backend, timeout=_TIMEOUT)


def leave() -> None:
    """Leave torch.distributed, if this process is in it."""
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()


def calls(
    dist: Any, one: BufferLayout, variant: str, group: Any, ranks: Sequence[int]
) -> Callable[[Any, Any], None]:
    """The call for a layout, of (send, receive) tensors; an all-reduce is in place, in the receive tensor.

    ranks  global numbers of the members of ``group``, in their order
    """
    if one.operation == "all_to_all" and variant == "uneven":
        into, out = list(one.recv_counts), list(one.send_counts)
        return lambda send, recv: dist.all_to_all_single(recv, send, into, out, group=group)
    if one.operation == "broadcast":
        root = one.index == 0
        return lambda send, recv: dist.broadcast(send if root else recv, ranks[0], group=group)
    if one.operation == "sendrecv":
        after, ahead = ranks[(one.index + 1) % one.ranks], ranks[(one.index - 1) % one.ranks]
        return lambda send, recv: _ring_shift(dist, send, recv, after, ahead, group)
    reduce_scatter, all_gather = scatter_and_gather(dist)
    known: dict[str, Callable[[Any, Any], None]] = {
        "all_to_all": lambda send, recv: dist.all_to_all_single(recv, send, group=group),
        "reduce_scatter": lambda send, recv: reduce_scatter(recv, send, group=group),
        "all_gather": lambda send, recv: all_gather(recv, send, group=group),
        "all_reduce": lambda _, recv: dist.all_reduce(recv, group=group),
    }
    return known[one.operation]


def all_to_all(
    dist: Any,
    send: Any,
    send_counts: Sequence[int],
    recv: Any,
    recv_counts: Sequence[int],
    group: Any,
    equal: bool,
) -> None:
    """Exchange parts of 1-D tensors; counts in elements per peer, unused if all parts are ``equal``."""
    if equal:
        dist.all_to_all_single(recv, send, group=group)
    else:
        dist.all_to_all_single(recv, send, list(recv_counts), list(send_counts), group=group)


def scatter_and_gather(dist: Any) -> tuple[Any, Any]:
    """Reduce-scatter and all-gather of whole tensors, (output, input): PyTorch 2.13 renamed them."""
    if hasattr(dist, "reduce_scatter_single"):
        return dist.reduce_scatter_single, dist.all_gather_single
    return dist.reduce_scatter_tensor, dist.all_gather_into_tensor


def _ring_shift(dist: Any, send: Any, recv: Any, after: int, ahead: int, group: Any) -> None:
    both = [dist.P2POp(dist.isend, send, after, group), dist.P2POp(dist.irecv, recv, ahead, group)]
    for work in dist.batch_isend_irecv(both):
        work.wait()
