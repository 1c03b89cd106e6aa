"""Kernels of a trace, stored as columns of 70 bytes per kernel, so that a trace of gigabytes fits memory."""

from __future__ import annotations

from array import array
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, overload

import numpy as np

from perfmodel.schema.traces import KernelFamily, TracedKernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FAMILIES = tuple(KernelFamily)
_NONE = -1


class OperatorCall(NamedTuple):
    """The call of a PyTorch operator that launched a kernel, as far as the trace has it.

    op      name of the operator;  shapes  of its tensors
    scalars, types  texts of its other arguments, and of its arguments' types
    """

    op: str = ""
    shapes: tuple[tuple[int, ...], ...] = ()
    scalars: tuple[str, ...] = ()
    types: tuple[str, ...] = ()


NO_CALL = OperatorCall()


class KernelColumns(Sequence[TracedKernel]):
    """Kernels that are no collectives, as a sequence of TracedKernel.

    First ``add`` appends kernels; then one call of ``join`` adds their operators and launch times.
    """

    def __init__(self, rank: int = 0) -> None:
        self.rank = rank
        self._names: dict[str, int] = {}
        self._family: list[int] = []
        self._name, self._stream, self._correlation = array("i"), array("q"), array("q")
        self._external = array("q")
        self._start, self._time = array("d"), array("d")
        self._calls: list[OperatorCall] = [NO_CALL]
        self._calls_made: dict[int, int] = {}
        self._call: NDArray[np.int32] | None = None
        self._launch: NDArray[np.float64] | None = None
        self._queue: NDArray[np.float64] | None = None
        self._overlap: NDArray[np.float64] | None = None
        self._known: list[str] = []

    def add(
        self, name: str, family: KernelFamily, stream: int, start_s: float, time_s: float,
        correlation: int | None = None, external: int | None = None,
    ) -> None:  # fmt: skip
        """Append one kernel.

        family       kind of the kernel; kernels with the same name keep the family of the first
        correlation  number that its launch has too;  external  number of the operator that launched it
        """
        number = self._names.setdefault(name, len(self._names))
        if number == len(self._family):
            self._family.append(_FAMILIES.index(family))
        self._name.append(number)
        self._stream.append(stream)
        self._start.append(start_s)
        self._time.append(time_s)
        self._correlation.append(_NONE if correlation is None else correlation)
        self._external.append(_NONE if external is None else external)

    def has(self, name: str) -> bool:
        """Whether a kernel of this name was added, so that its family need not be determined again."""
        return name in self._names

    def __len__(self) -> int:
        return len(self._name)

    @property
    def start_s(self) -> NDArray[np.float64]:
        """Start of each kernel [s]."""
        return np.frombuffer(self._start, dtype=np.float64) if len(self) else np.empty(0)

    @property
    def time_s(self) -> NDArray[np.float64]:
        """Duration of each kernel [s]."""
        return np.frombuffer(self._time, dtype=np.float64) if len(self) else np.empty(0)

    @property
    def stream(self) -> NDArray[np.int64]:
        """Stream of each kernel."""
        return np.frombuffer(self._stream, dtype=np.int64) if len(self) else np.empty(0, dtype=np.int64)

    @property
    def correlation(self) -> NDArray[np.int64]:
        """Number that each kernel shares with its launch; -1 if it has none."""
        return np.frombuffer(self._correlation, dtype=np.int64) if len(self) else np.empty(0, dtype=np.int64)

    def wanted(self, operators: Container[int] = ()) -> Iterable[tuple[int, int, int]]:
        """(index, correlation, external id) of each kernel that belongs to an embedding pass.

        operators  ids of operators of such a pass: every kernel that they launched belongs to it
        """
        parts = {i for i, family in enumerate(self._family) if _FAMILIES[family] in EMBEDDING}
        for i, name in enumerate(self._name):
            if name in parts or self._external[i] in operators:
                yield i, self._correlation[i], self._external[i]

    def of_embedding(self) -> list[TracedKernel]:
        """The kernels of an embedding pass, recognised by their own name or by their operator's."""
        parts = {i for i, family in enumerate(self._family) if _FAMILIES[family] in EMBEDDING}
        called = self._call if self._call is not None else ()
        return [self[i] for i, call in enumerate(called) if call or self._name[i] in parts]

    def join(
        self,
        calls: Mapping[int, tuple[int, OperatorCall]],
        launch_s: NDArray[np.float64],
        queue_s: NDArray[np.float64],
        overlap_s: NDArray[np.float64],
    ) -> None:
        """Add operators and launch times to the kernels.

        calls      by index of a kernel: (number of the operator's call, the call)
        launch_s   time of each kernel's launch call [s];  queue_s  from its end to the kernel's start [s]
        overlap_s  time during which other streams were busy [s]
        """
        numbers: dict[OperatorCall, int] = {NO_CALL: 0}
        call = np.zeros(len(self), dtype=np.int32)
        for place, (made, one) in calls.items():
            self._calls_made[place] = made
            number = numbers.setdefault(one, len(numbers))
            if number == len(self._calls):
                self._calls.append(one)
            call[place] = number
        self._call, self._launch, self._queue, self._overlap = call, launch_s, queue_s, overlap_s
        self._known = list(self._names)

    @overload
    def __getitem__(self, index: int) -> TracedKernel: ...

    @overload
    def __getitem__(self, index: slice) -> list[TracedKernel]: ...

    def __getitem__(self, index: int | slice) -> TracedKernel | list[TracedKernel]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        if self._call is None or self._launch is None or self._queue is None or self._overlap is None:
            raise ValueError("kernels are read before they were joined")
        name, call = self._name[place], self._calls[self._call[place]]
        correlation = self._correlation[place]
        return TracedKernel(
            self.rank, self._known[name], _FAMILIES[self._family[name]], self._stream[place],
            self._start[place], self._time[place], None if correlation == _NONE else correlation,
            call.op, call.shapes, call.scalars,
            _maybe(self._launch[place]), _maybe(self._queue[place]), float(self._overlap[place]),
            call.types, self._calls_made.get(place),
        )  # fmt: skip


EMBEDDING = (
    KernelFamily.GATHER_POOL, KernelFamily.BACKWARD, KernelFamily.BUCKETIZE, KernelFamily.PERMUTE,
)  # fmt: skip
"""Families whose operators and shapes are needed."""


def _maybe(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def busy_during(
    start_s: NDArray[np.float64], end_s: NDArray[np.float64],
    other_start_s: NDArray[np.float64], other_end_s: NDArray[np.float64],
) -> NDArray[np.float64]:  # fmt: skip
    """For each span, the seconds during which at least one of the other spans runs.

    With [a_i, b_i] the union of the other spans, and F(x) its length before x, it is F(end) - F(start).
    Limits: no others -> 0;  others that cover a span -> its length;  others that touch it -> 0
    """
    if not len(other_start_s):
        return np.zeros(len(start_s))
    order = np.argsort(other_start_s, kind="stable")
    begin, reach = other_start_s[order], np.maximum.accumulate(other_end_s[order])
    first = np.concatenate([[True], begin[1:] > reach[:-1]])
    begin = begin[first]
    end = np.concatenate([reach[:-1][first[1:]], reach[-1:]])
    before = np.concatenate([[0.0], np.cumsum(end - begin)])

    def covered(at: NDArray[np.float64]) -> NDArray[np.float64]:
        place = np.searchsorted(begin, at, side="right")
        last = np.maximum(place - 1, 0)
        inside = np.minimum(at, end[last]) - begin[last]
        return np.where(place > 0, before[last] + inside, 0.0)

    overlap: NDArray[np.float64] = np.maximum(covered(end_s) - covered(start_s), 0.0)
    return overlap
