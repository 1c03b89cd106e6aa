"""Common parts of GPU providers: buffers, patterns, and sums that a library only computes in place."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from calibrate import patterns
from calibrate.machine.libraries import install_torch
from calibrate.machine.local_gpus import find_gpus
from calibrate.operations import Availability, Operation, Place
from calibrate.patterns import BufferLayout
from calibrate.running.versions import PACKAGES, package_version
from perfmodel.errors import BadInputError, NoHardwareError
from perfmodel.schema.evidence import Clock
from perfmodel.schema.runs import Point, PointKind

CLOCKS = (Clock.EAGER, Clock.STREAM, Clock.GRAPH)
BYTES_A_PEER = 16
"""GPU libraries move words of 16 bytes, and nccl-tests rounds to them: smaller parts per peer are refused."""

Call = Callable[[Any, Any], None]


def torch_with_cuda(operations: tuple[str, ...]) -> Availability:
    """Whether PyTorch with CUDA and a GPU are here, to offer ``operations``; creates no CUDA context."""
    if not find_gpus():  # then no installation would help
        return Availability(False, "there is no NVIDIA GPU here")
    version = torch_version()
    if not version:
        return Availability(False, "torch is not installed", install_torch())
    if version.endswith("+cpu"):
        return Availability(False, f"torch {version} is built without CUDA", install_torch())
    if "rocm" in version:
        return Availability(False, f"torch {version} is built for ROCm: use rccl")
    return Availability(True, version=f"torch {version}", clocks=CLOCKS, operations=operations)


def torch_version() -> str:
    """Version of the torch package, with its build: ``2.8.0+rocm6.4``. Limits: not installed -> empty"""
    return package_version(PACKAGES["torch"])


class DeviceOperation(Operation):
    """A collective on GPU buffers whose addresses never change, so that one CUDA graph stays valid.

    send, recv  1-D tensors, at least as long as the layout needs
    in_place    whether the call replaces ``recv``, which first holds this rank's summand, by the sum
    """

    def __init__(
        self, layout: BufferLayout, call: Call, send: Any, recv: Any, *, in_place: bool = False
    ) -> None:
        self._layout, self._call, self._in_place = layout, call, in_place
        self._send, self._recv = send[: layout.send_elements], recv[: layout.recv_elements]
        self._salt = 0

    @property
    def bytes_sent(self) -> int:
        """Bytes that this rank sends to others in one call."""
        return self._layout.bytes_sent

    @property
    def payload_bytes(self) -> int:
        """Bytes of the buffer in use: whole elements per peer."""
        return self._layout.payload_bytes

    def prepare(self, salt: int) -> None:
        """Fill the input, poison the output."""
        self._salt = salt
        patterns.fill(self._send, patterns.send_pieces(self._layout, salt))
        self.before()

    def before(self) -> None:
        """Poison the output, so that an old result fails the check; in place: restore the rank's summand."""
        if self._in_place:
            self._recv.copy_(self._send)
        else:
            self._recv.fill_(patterns.POISON)
        self._calls = 0

    def run(self) -> None:
        """Run the call on the current stream."""
        self._calls += 1
        self._call(self._send, self._recv)

    def check(self) -> tuple[int, int]:
        """Compare output and input with the pattern: (wrong, compared) elements.

        A sum in place that ran more than once has summed sums: then all ranks first repeat the call here.
        """
        if self._in_place and self._calls != 1:
            self.before()
            self.run()
        wrong = patterns.count_wrong(self._recv, patterns.expected_pieces(self._layout, self._salt))
        wrong += patterns.count_wrong(self._send, patterns.send_pieces(self._layout, self._salt))
        return wrong, self._layout.recv_elements + self._layout.send_elements


class DeviceCollectives(ABC):
    """Base of GPU providers of collectives; subclasses implement ``_make``."""

    name = ""
    operations: tuple[str, ...] = ()

    def __init__(self) -> None:
        self._groups: dict[tuple[int, ...], Any] = {}
        self._rank = 0

    def operation(self, point: Point, ranks: Sequence[int]) -> DeviceOperation:
        """The operation that times the collective of ``point`` over ``ranks``.

        Limits: what the library does not offer, less than BYTES_A_PEER per peer -> BadInputError
        """
        if point.kind is not PointKind.COLLECTIVE or point.operation not in self.operations:
            raise BadInputError(
                f"{self.name} has no {point.operation}.", f"it has: {', '.join(self.operations)}."
            )
        if point.clock not in CLOCKS or point.variant != "default":
            what = f"clock {point.clock}" if point.variant == "default" else point.variant
            raise BadInputError(f"{self.name} has no {what} on a GPU.", f"clocks: {', '.join(CLOCKS)}.")
        one = patterns.layout(
            point.operation,
            point.payload_bytes,
            len(ranks),
            list(ranks).index(self._rank),
            bytes_a_peer=BYTES_A_PEER,
        )
        return self._make(one, tuple(ranks))

    def synchronize(self) -> None:
        """Wait until the GPU is idle."""
        import torch

        torch.cuda.synchronize()

    @abstractmethod
    def _make(self, one: BufferLayout, ranks: tuple[int, ...]) -> DeviceOperation:
        """The operation for a layout: the library's call, with its buffers."""

    def _group(self, ranks: Sequence[int]) -> Any:
        group = self._groups.get(tuple(ranks))
        if group is None:
            raise BadInputError(f"{self.name} has no group of ranks {list(ranks)}.", "open it on every rank.")
        return group


class Arena:
    """One send and one receive buffer that all operations share; buffers for each would not fit a GPU.

    empty  function that allocates: number of bytes -> 1-D uint8 tensor. Every rank must call it together if
           other ranks reach into that memory
    """

    def __init__(self, empty: Callable[[int], Any], bytes_each: int) -> None:
        self.bytes_each = bytes_each
        self.send, self.recv = empty(bytes_each), empty(bytes_each)

    def views(self, one: BufferLayout) -> tuple[Any, Any]:
        """(send, receive) views at the start of the buffers. Limits: too large -> BadInputError"""
        import torch

        if one.payload_bytes > self.bytes_each:
            raise BadInputError(
                f"{one.operation} of {one.payload_bytes} B needs as much symmetric memory.",
                f"{self.bytes_each} B are there.",
            )
        whole = self.bytes_each // patterns.ELEMENT_BYTES * patterns.ELEMENT_BYTES
        return self.send[:whole].view(torch.float32), self.recv[:whole].view(torch.float32)


def gpus_of_node(place: Place, address: Mapping[str, str]) -> int:
    """Number of different GPUs that the ranks of this node use together.

    Limits: ``address`` does not state it -> the GPUs that this rank sees (a launcher may show only its own)
    """
    import torch

    return int(address.get("gpus", 0)) or int(torch.cuda.device_count())


def require_own_gpus(place: Place, address: Mapping[str, str], why: str) -> None:
    """Raise NoHardwareError, with the reason ``why``, if ranks of this node would share a GPU."""
    gpus = gpus_of_node(place, address)
    if place.local_ranks > gpus:
        raise NoHardwareError(
            f"{place.local_ranks} ranks share {gpus} GPUs: {why}.", "start one rank per GPU."
        )


def arena_bytes() -> int:
    """Bytes of one buffer of an arena: a sixteenth of the GPU, equal on all ranks, at most 8 GiB."""
    import torch

    total: int = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    return min(total // 16, 8 * 2**30) // 4096 * 4096
