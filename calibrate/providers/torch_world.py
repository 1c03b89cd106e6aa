"""torch.distributed, joined once per process by all users (gloo, nccl, nvshmem, TorchRec)."""

from __future__ import annotations

import importlib.util
import os
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from calibrate.machine.libraries import install_torch
from calibrate.operations import Availability, Place, RawCollectives, Slots
from calibrate.patterns import BufferLayout
from calibrate.ranks.launch import join_store
from calibrate.running.versions import PACKAGES, package_version
from perfmodel.errors import BadInputError
from perfmodel.schema.evidence import Clock

_TIMEOUT = timedelta(minutes=10)


def torch_here(
    clocks: tuple[Clock, ...], operations: tuple[str, ...], devices: tuple[str, ...] = ("cpu", "cuda")
) -> Availability:
    """Availability of a provider that runs wherever PyTorch is installed; PyTorch is not imported."""
    if importlib.util.find_spec("torch") is None:
        return Availability(False, "torch is not installed", install_torch())
    version = f"torch {package_version(PACKAGES['torch'])}"
    return Availability(True, version=version, clocks=clocks, operations=operations, devices=devices)


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
    device = None
    if place.device == "cuda":
        device = torch.device("cuda", place.local_rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
    dist.init_process_group(
        "gloo" if device is None else "cpu:gloo,cuda:nccl",
        store=join_store(address["host"], int(address["port"]), f"{address['run']}/torch"),
        rank=place.rank,
        world_size=place.ranks,
        timeout=_TIMEOUT,
    )
    return dist


def device_of(place: Place) -> Any:
    """torch's device of a rank: the CPU, or the current GPU."""
    import torch

    if place.device == "cuda":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


class TorchCollectives(RawCollectives):
    """Common part of gloo and NCCL: torch.distributed on tensors, or on the memory of numpy arrays.

    backend  torch's name of the library;  _groups  torch's process group, by its ranks
    """

    backend = ""
    _dist: Any
    _rank: int
    _groups: dict[tuple[int, ...], Any]

    def open(self, place: Place, address: Mapping[str, str]) -> None:
        """Join torch.distributed; ``address`` as in ``join``."""
        self._dist, self._rank = join(place, address), place.rank

    def open_group(self, ranks: Sequence[int]) -> None:
        """Make a group for ``ranks``; every rank of the job calls this."""
        if tuple(ranks) not in self._groups:
            self._groups[tuple(ranks)] = new_group(self._dist, ranks, self.backend)

    def raw_all_to_all(self, send: Slots, recv: Slots, ranks: Sequence[int], *, equal: bool = False) -> None:
        """As in RawCollectives, by ``all_to_all_single``; equal parts need no counts."""
        counts = [] if equal else [list(recv.counts), list(send.counts)]
        into, out = tensor_of(recv.buffer), tensor_of(send.buffer)
        self._dist.all_to_all_single(into, out, *counts, group=self._group(ranks))

    def raw_reduce_scatter(self, send: Any, recv: Any, ranks: Sequence[int]) -> None:
        """As in RawCollectives, by torch's reduce-scatter of whole tensors."""
        reduce_scatter, _ = scatter_and_gather(self._dist)
        reduce_scatter(tensor_of(recv), tensor_of(send), group=self._group(ranks))

    def close(self) -> None:
        """Leave torch.distributed."""
        if self._groups:
            self._groups.clear()
            leave()

    @abstractmethod
    def _group(self, ranks: Sequence[int]) -> Any:
        """The open group of ``ranks``."""


def tensor_of(buffer: Any) -> Any:
    """The buffer as a tensor; a numpy array shares its memory with the tensor."""
    import torch

    return buffer if isinstance(buffer, torch.Tensor) else torch.from_numpy(buffer)


def new_group(dist: Any, ranks: Sequence[int], backend: str) -> Any:
    """Make a group of ``ranks``; called by every rank of the job, in the same order.

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


def calls(dist: Any, one: BufferLayout, group: Any) -> Callable[[Any, Any], None]:
    """The collective of a layout, as a function of (send, receive); an all-reduce sums in ``receive``."""
    if one.operation == "broadcast":
        root, first = one.index == 0, dist.get_process_group_ranks(group)[0]
        return lambda send, recv: dist.broadcast(send if root else recv, first, group=group)
    reduce_scatter, all_gather = scatter_and_gather(dist)
    known: dict[str, Callable[[Any, Any], None]] = {
        "all_to_all": lambda send, recv: dist.all_to_all_single(recv, send, group=group),
        "reduce_scatter": lambda send, recv: reduce_scatter(recv, send, group=group),
        "all_gather": lambda send, recv: all_gather(recv, send, group=group),
        "all_reduce": lambda _, recv: dist.all_reduce(recv, group=group),
    }
    return known[one.operation]


def scatter_and_gather(dist: Any) -> tuple[Any, Any]:
    """torch's (reduce-scatter, all-gather), called with (output, input); PyTorch 2.13 renamed them."""
    if hasattr(dist, "reduce_scatter_single"):
        return dist.reduce_scatter_single, dist.all_gather_single
    return dist.reduce_scatter_tensor, dist.all_gather_into_tensor
