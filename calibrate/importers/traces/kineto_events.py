"""Events of a PyTorch profiler's trace, sorted by kind, and stored in little memory."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, TypeGuard

from calibrate.importers.traces.columns import EMBEDDING, KernelColumns
from calibrate.importers.traces.names import is_nccl_kernel, kernel_family
from perfmodel.schema.gate import MOST_CALLS, over, raised

US_PER_S = 1e6
PARAM_COMMS = "record_param_comms"
_CATEGORIES = {
    "operator": "cpu_op",
    "runtime": "cuda_runtime",
    "memcpy": "gpu_memcpy",
    "memset": "gpu_memset",
}
"""Names of categories in traces from before 2022, with today's names."""

_ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
_TOLD = (
    "Collective name", "In msg nelems", "Out msg nelems", "Group size", "dtype", "In split size",
    "Out split size", "Process Group Name", "Process Group ID", "Process Group Ranks", "device",
)  # fmt: skip
_HOST_KEYS = ("External id", "Seq", "Input Dims", "Input type", "Concrete Inputs", *_TOLD)
_LARGE = 2**62
_MOST_US = 1e18  # 30 000 years
_SHAPE_LEVELS = 4
_LAUNCHES = ("cuda_runtime", "cuda_driver", "hip_runtime")


class HostCall(NamedTuple):
    """A time span on a thread of the host: an operator, or an annotation such as ``nccl:all_reduce``."""

    name: str
    thread: int
    start_s: float
    time_s: float
    args: Mapping[str, Any]

    @property
    def end_s(self) -> float:
        """Its end [s]."""
        return self.start_s + self.time_s


class NcclKernel(NamedTuple):
    """A kernel of NCCL.

    correlation  number that its launch has too;  external  number of the host call that launched it
    sequence     number of the collective in its process group;  each is -1 if unknown
    args         the trace's description of the collective; kernels with equal descriptions share it
    """

    stream: int
    start_s: float
    time_s: float
    correlation: int = -1
    external: int = -1
    sequence: int = -1
    args: Mapping[str, Any] = MappingProxyType({})


@dataclass
class KinetoEvents:
    """The events of one trace that matter here, by kind, in the order in which they were read.

    origin_us     the first event's time on the trace's clock, which counts as 0 s
    launch_*      columns of the host's launches; an entry of each belongs to one launch
    operator_*    columns of the host's operators; ``operator_name`` has numbers from ``operator_names``
    malformed     number of events that could not be read
    nccl, kernels, ranges  kernels of NCCL, other kernels, named ranges;  c10d  operators of torch.distributed
    told          descriptions of collectives, each stored once
    """

    origin_us: float | None = None
    nccl: list[NcclKernel] = field(default_factory=list)
    kernels: KernelColumns = field(default_factory=KernelColumns)
    comms: list[HostCall] = field(default_factory=list)  # record_param_comms
    marks: list[HostCall] = field(default_factory=list)  # nccl:… annotations
    gloo: list[HostCall] = field(default_factory=list)  # gloo:… annotations, on its workers
    c10d: list[HostCall] = field(default_factory=list)
    embedding: dict[int, HostCall] = field(default_factory=dict)  # operators of an embedding pass, by id
    ranges: list[HostCall] = field(default_factory=list)
    launch_correlation: array[int] = field(default_factory=lambda: array("q"))
    launch_start: array[float] = field(default_factory=lambda: array("d"))
    launch_time: array[float] = field(default_factory=lambda: array("d"))
    launch_thread: array[int] = field(default_factory=lambda: array("q"))
    operator_names: dict[str, int] = field(default_factory=dict)
    operator_name: array[int] = field(default_factory=lambda: array("i"))
    operator_thread: array[int] = field(default_factory=lambda: array("q"))
    operator_id: array[int] = field(default_factory=lambda: array("q"))
    operator_start: array[float] = field(default_factory=lambda: array("d"))
    operator_time: array[float] = field(default_factory=lambda: array("d"))
    told: dict[object, Mapping[str, Any]] = field(default_factory=dict)
    malformed: int = 0

    def add(self, event: Mapping[str, Any]) -> None:
        """Add one event of any kind; irrelevant events are dropped, malformed ones are counted."""
        if event.get("ph") != "X":
            return
        category = event.get("cat")
        category = category.lower() if isinstance(category, str) else ""
        category = _CATEGORIES.get(category, category)
        name, at_us, time_us = event.get("name"), event.get("ts"), event.get("dur", 0)
        if not isinstance(name, str) or not is_time(at_us) or not is_time(time_us):
            self.malformed += 1
            return
        args = event.get("args")
        args = args if isinstance(args, dict) else {}
        if self.origin_us is None:
            self.origin_us = float(at_us)
        start_s = (at_us - self.origin_us) / US_PER_S
        time_s = max(float(time_us), 0.0) / US_PER_S
        if category in _ON_GPU:
            self._on_gpu(name, category, start_s, time_s, args, event)
        elif category in _LAUNCHES:
            self._launch(start_s, time_s, args, event)
        elif category == "cpu_op":
            self._operator(name, whole(event.get("tid")), start_s, time_s, args)
        elif category == "user_annotation":
            self._annotation(HostCall(name, whole(event.get("tid")), start_s, time_s, args))
        calls = self.comms, self.marks, self.gloo, self.c10d, self.ranges
        known = len(self.nccl) + len(self.embedding) + sum(map(len, calls))
        if known > MOST_CALLS and known > (most := raised(MOST_CALLS)):
            what = "collectives, ranges and look-ups"
            raise over("the trace", what, most, "trace fewer steps", fixed=False)

    def forget_operators(self) -> None:
        """Free the columns of operators, not needed with a GPU's kernels; ``embedding`` is kept."""
        for column in (self.operator_name, self.operator_thread, self.operator_id):
            del column[:]
        for times in (self.operator_start, self.operator_time):
            del times[:]

    def _on_gpu(
        self, name: str, category: str, start_s: float, time_s: float,
        args: Mapping[str, Any], event: Mapping[str, Any],
    ) -> None:  # fmt: skip
        stream = whole(args.get("stream", event.get("tid")))
        correlation, external = whole(args.get("correlation", -1)), whole(args.get("External id", -1))
        if category == "kernel" and is_nccl_kernel(name):
            sequence = whole(args.get("Seq", -1))
            told = self._shared(args)
            self.nccl.append(NcclKernel(stream, start_s, time_s, correlation, external, sequence, told))
            return
        family = kernel_family(name, category)  # names are few: repeated names need no look-up
        self.kernels.add(name, family, stream, start_s, time_s, correlation, external)

    def _shared(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        """The description of a collective. Equal descriptions, of which there are many, are stored once."""
        values = tuple(_plain(args.get(key)) for key in _TOLD)
        told = {key: value for key, value in zip(_TOLD, values, strict=True) if value is not None}
        try:
            return self.told.setdefault(values, told)
        except TypeError:  # a list, where text is usual
            return self.told.setdefault(str(values), told)

    def _launch(
        self, start_s: float, time_s: float, args: Mapping[str, Any], event: Mapping[str, Any]
    ) -> None:
        correlation = whole(args.get("correlation", 0))
        if correlation > 0:
            self.launch_correlation.append(correlation)
            self.launch_start.append(start_s)
            self.launch_time.append(time_s)
            self.launch_thread.append(whole(event.get("tid")))

    def _operator(
        self, name: str, thread: int, start_s: float, time_s: float, args: Mapping[str, Any]
    ) -> None:
        if name == PARAM_COMMS:
            self.comms.append(HostCall(name, thread, start_s, time_s, _kept(args)))
            return
        if name.startswith("c10d::"):
            self.c10d.append(HostCall(name, thread, start_s, time_s, _kept(args)))
            return
        identity = whole(args.get("External id", -1))
        if kernel_family(name) in EMBEDDING:
            place = identity if identity >= 0 else -2 - len(self.embedding)
            self.embedding[place] = HostCall(name, thread, start_s, time_s, _kept(args))
        self.operator_name.append(self.operator_names.setdefault(name, len(self.operator_names)))
        self.operator_thread.append(thread)
        self.operator_id.append(identity)
        self.operator_start.append(start_s)
        self.operator_time.append(time_s)

    def _annotation(self, call: HostCall) -> None:
        call = call._replace(args=_kept(call.args))
        if call.name.startswith("gloo:"):
            self.gloo.append(call)
        elif call.name.startswith("nccl:"):
            self.marks.append(call)
        else:
            self.ranges.append(call._replace(args={}))


def _kept(args: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a host's event that are used here."""
    return {key: _plain(args[key]) for key in _HOST_KEYS if key in args}


def _plain(value: object, levels: int = _SHAPE_LEVELS) -> Any:
    """``value`` if it is a text, a number or lists of them, nested at most ``levels`` deep; else None."""
    if isinstance(value, list):
        return [_plain(one, levels - 1) for one in value] if levels else None
    if isinstance(value, int) and abs(value) >= _LARGE:
        return None
    return value if isinstance(value, (str, int, float)) else None


def is_time(value: object) -> TypeGuard[float]:
    """Whether ``value`` is a number that can be a time or a rate in a trace."""
    return isinstance(value, (int, float)) and abs(value) <= _MOST_US


def whole(value: object) -> int:
    """``value`` as an integer; -1 if it is none (in a trace, threads may have names instead of numbers)."""
    if isinstance(value, bool):
        return -1
    if isinstance(value, int):
        return value if abs(value) < _LARGE else -1
    if isinstance(value, str) and value.isascii() and value.removeprefix("-").isdigit():
        return int(value) if len(value) < 19 else -1
    return -1
