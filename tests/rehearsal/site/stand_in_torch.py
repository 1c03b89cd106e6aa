"""torch whose GPU is this CPU: tensors say that they are on it, graphs are recorded, times are made up.

What a GPU refuses while a graph is captured (a value on the host, a wait) is refused here as well.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

NAME = "NVIDIA H100 80GB HBM3 (rehearsal)"
UUID = "00000000-0000-0000-0000-000000000000"
MEMORY_BYTES = 2 * 10**9
"""What this GPU has: little, so that whatever is sized by it stays small."""

MULTIPROCESSORS = 2
SLOWER = 1e-3
"""Of a CPU's time, that the stand-in says it took."""

HOST_WAITS = ("_local_scalar_dense", "nonzero", "unique", "masked_select", "item", "is_nonzero")
REFUSED = "CUDA error: operation not permitted when stream is capturing"

capturing: list[list[Callable[[], None]]] = []
"""The graphs that are being captured, the innermost last."""

torch: Any = None
cpu: Any = None


def install(module: Any) -> None:
    """Give ``module``, the real torch, a GPU that is none."""
    global torch, cpu
    torch, cpu = module, module.device("cpu")
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class OnCpu(TorchFunctionMode):
        """Whatever is asked of the GPU is done by the CPU, and what is asked where it is says: the GPU."""

        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            owner = getattr(function, "__self__", None)
            if owner is module.Tensor.device:
                return here
            if owner is module.Tensor.is_cuda:
                return True
            if function is module.device:
                return function(*args, **kwargs)
            if getattr(function, "__name__", "") == "cuda":
                return args[0]
            args = tuple(_moved(one) for one in args)
            return function(*args, **{key: _moved(one) for key, one in kwargs.items()})

    class Recorder(TorchDispatchMode):
        """Every operation with its arguments and results, in order; the results stay alive."""

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if any(word in function.name() for word in HOST_WAITS):
                raise RuntimeError(REFUSED)
            results = function(*args, **kwargs)
            capturing[-1].append(lambda: _again(function, args, kwargs, results))
            return results

    here = module.device("cuda", 0)
    OnCpu().__enter__()
    run = threading.Thread.run

    def run_on_cpu(self: threading.Thread) -> None:
        with OnCpu():
            run(self)

    threading.Thread.run = run_on_cpu  # type: ignore[method-assign]

    @contextmanager
    def graph(made: Any, *_: Any, **__: Any) -> Iterator[None]:
        capturing.append([])
        try:
            with Recorder():
                yield
        finally:
            made.calls = capturing.pop()

    for name, value in _surface(graph).items():
        setattr(module.cuda, name, value)

    class Generator(module.Generator):  # type: ignore[misc]
        """Random numbers of the CPU."""

        def __new__(cls, device: Any = None) -> Any:
            return super().__new__(cls, cpu)

    module.Generator = Generator


def _moved(value: Any) -> Any:
    """An argument, but the GPU is the CPU."""
    if isinstance(value, torch.device):
        return cpu if value.type == "cuda" else value
    return cpu if isinstance(value, str) and value.split(":")[0] == "cuda" else value


def _again(function: Any, args: Any, kwargs: Any, results: Any) -> None:
    """Do an operation of a graph again, into the memory that it had."""
    schema = function._schema
    if function.is_view or any(one.alias_info for one in schema.returns):
        if schema.is_mutable:
            function(*args, **kwargs)
        return
    again = function(*args, **kwargs)
    pairs = zip(results, again, strict=True) if isinstance(results, tuple) else [(results, again)]
    for old, new in pairs:
        if isinstance(old, torch.Tensor):
            old.copy_(new)


class Graph:
    """A captured graph: what is done again, in order."""

    calls: list[Callable[[], None]]

    def replay(self) -> None:
        for call in self.calls:
            call()


class Event:
    """A moment of the stand-in; milliseconds between two are made up."""

    def __init__(self, enable_timing: bool = False) -> None:
        self.at_s = 0.0

    def record(self, stream: Any = None) -> None:
        self.at_s = time.perf_counter()

    def synchronize(self) -> None:
        synchronize()

    def elapsed_time(self, last: Event) -> float:
        return max(1e-6, (last.at_s - self.at_s) * 1e3 * SLOWER)


class Stream:
    """A stream of the stand-in, in which everything has happened when it was asked for."""

    cuda_stream = 0

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __cuda_stream__(self) -> tuple[int, int]:
        """Version of the protocol, and address."""
        return 0, self.cuda_stream

    def wait_stream(self, other: Any) -> None: ...

    def synchronize(self) -> None:
        synchronize()


def synchronize(device: Any = None) -> None:
    """Refused inside a graph, as on a GPU."""
    if capturing:
        raise RuntimeError(REFUSED)


def _surface(graph: Any) -> dict[str, Any]:
    """What the stand-in has of torch.cuda."""
    properties = SimpleNamespace(
        name=NAME,
        uuid=UUID,
        major=9,
        minor=0,
        total_memory=MEMORY_BYTES,
        multi_processor_count=MULTIPROCESSORS,
        L2_cache_size=50 * 2**20,
        shared_memory_per_block=48 * 1024,
        shared_memory_per_block_optin=227 * 1024,
        shared_memory_per_multiprocessor=228 * 1024,
        regs_per_multiprocessor=65536,
        max_threads_per_multi_processor=2048,
        warp_size=32,
    )
    stream = Stream()
    ignored = ("empty_cache", "set_device", "set_sync_debug_mode", "manual_seed", "manual_seed_all", "_sleep")
    nothing = {name: lambda *_: None for name in ignored}  # a function each: dynamo looks them up
    return nothing | {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "device": lambda device: nullcontext(),
        "get_device_name": lambda device=None: NAME,
        "get_device_capability": lambda device=None: (9, 0),
        "get_device_properties": lambda device=None: properties,
        "mem_get_info": lambda device=None: (MEMORY_BYTES, MEMORY_BYTES),
        "memory_reserved": lambda device=None: 0,
        "synchronize": synchronize,
        "current_stream": lambda device=None: stream,
        "Stream": Stream,
        "stream": lambda chosen: nullcontext(),
        "Event": Event,
        "CUDAGraph": Graph,
        "graph": graph,
        "nccl": SimpleNamespace(version=lambda: (2, 28, 9), is_available=lambda tensors: True),
    }
