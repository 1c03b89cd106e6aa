"""Collectives as operations to time: patterns in, patterns out; and what libraries of them have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from calibrate import patterns
from calibrate.operations import Operation, Provider
from calibrate.patterns import BufferLayout
from perfmodel.errors import BadInputError
from perfmodel.schema.evidence import COLLECTIVES
from perfmodel.schema.runs import Point

GPU_BYTES_A_PEER = 16
"""GPU libraries move words of 16 bytes, and nccl-tests rounds to them: smaller parts per peer are refused."""

Call = Callable[[Any, Any], None]
"""One call of the library: (send buffer, receive buffer)."""

Take = Callable[[], tuple[Any, Any]]
"""Gives send buffers, rows of a numpy matrix or a list of one GPU tensor, and the receive buffer."""


class CollectiveOperation(Operation):
    """A collective whose send buffers are used in turn."""

    def __init__(self, layout: BufferLayout, call: Call, take: Take, *, in_place: bool = False) -> None:
        """call      the library's function of (send, receive)
        take      function that gives the buffers, valid until the next ``prepare``
        in_place  whether the call writes the sum into the receive buffer, where this rank's summand is first
        """
        self.layout = layout
        self._call = call
        self._take = take
        self._in_place = in_place

    @property
    def bytes_sent(self) -> int:
        """Bytes that this rank sends to others in one call."""
        return self.layout.bytes_sent

    def prepare(self, salt: int) -> None:
        """Fill every send buffer, poison the output."""
        self._salt = salt
        self._rows, self._recv = self._take()
        sent = patterns.send_pieces(self.layout, salt)
        if isinstance(self._rows, np.ndarray):
            patterns.fill_rows(self._rows, sent)
        else:
            patterns.fill(self._rows[0], sent)
        self._out = make_tensor(self._recv)
        self._use(0)

    def before(self) -> None:
        """Move to the next send buffer."""
        buffers = len(self._rows)
        self._use((self._row + 1) % buffers, poison=buffers == 1)

    def run(self) -> None:
        """Make the call; on a GPU, on the current stream."""
        self._calls += 1
        self._call(self._send, self._out)

    def check(self) -> tuple[int, int]:
        """(wrong, compared) elements of the output, and of the send buffer, which must be unchanged.

        A sum in place that ran more than once has summed sums: then all ranks first repeat the call here.
        """
        if self._in_place and self._calls != 1:
            self._use(self._row)
            self.run()
        received = patterns.list_expected_pieces(self.layout, self._salt)
        sent = patterns.send_pieces(self.layout, self._salt)
        wrong = patterns.count_wrong(self._recv, received, self._row)
        wrong += patterns.count_wrong(self._rows[self._row], sent, self._row)
        return wrong, self.layout.recv_elements + self.layout.send_elements

    def _use(self, row: int, *, poison: bool = True) -> None:
        """Send from this buffer next; the output gets the summand, or poison: no old result passes."""
        self._row = row
        self._calls = 0
        self._send = make_tensor(self._rows[row])
        if self._in_place:
            self._recv[...] = self._rows[row]
        elif poison:
            self._recv[...] = patterns.POISON


def make_tensor(buffer: Any) -> Any:
    """The buffer as a tensor; a numpy array shares its memory with the tensor."""
    import torch

    return buffer if isinstance(buffer, torch.Tensor) else torch.from_numpy(buffer)


class CollectiveProvider(Provider):
    """Base of the libraries; subclasses implement ``_make``, and fill ``_groups`` by the ranks of a group.

    bytes_a_peer  least bytes for each peer
    """

    name = ""
    operations = COLLECTIVES
    bytes_a_peer = GPU_BYTES_A_PEER

    def __init__(self) -> None:
        self._groups: dict[tuple[int, ...], Any] = {}
        self._rank: int

    def operation(self, point: Point, ranks: Sequence[int]) -> CollectiveOperation:
        """The operation that times the collective of ``point`` over ``ranks``.

        Limits: what the library does not offer, less than ``bytes_a_peer`` per peer -> BadInputError
        """
        if point.operation not in self.operations:
            raise BadInputError(
                f"{self.name} has no {point.operation}.", f"it has: {', '.join(self.operations)}."
            )
        index = list(ranks).index(self._rank)
        layout = patterns.layout(
            point.operation, point.payload_bytes, len(ranks), index, bytes_a_peer=self.bytes_a_peer
        )
        return self._make(layout, self.group(ranks), point)

    def group(self, ranks: Sequence[int]) -> Any:
        """The library's communicator of these ranks. Limits: it was not opened -> BadInputError"""
        group = self._groups.get(tuple(ranks))
        if group is None:
            raise BadInputError(f"{self.name} has no group of ranks {list(ranks)}.", "open it on every rank.")
        return group

    @abstractmethod
    def _make(self, layout: BufferLayout, group: Any, point: Point) -> CollectiveOperation:
        """The operation for a layout: the library's call in ``group``, its communicator, with buffers."""


def count_shared_gpus(ranks: int, address: Mapping[str, str]) -> int:
    """Number of different GPUs that the ``ranks`` of this node share; 0 if each has its own.

    Limits: ``address`` does not state it -> the GPUs that this rank sees (a launcher may show only its own)
    """
    import torch

    gpus = int(address.get("gpus", 0)) or int(torch.cuda.device_count())
    return gpus if ranks > gpus else 0
