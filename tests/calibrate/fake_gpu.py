"""A rank whose GPU is this CPU: torch with a ``cuda`` that records what is captured and does it again.

Runs as ``python tests/calibrate/fake_gpu.py``, started by ``start_ranks``. What a GPU refuses while
a graph is captured (reading a value on the host, searching for elements) is refused here as well.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any

import torch as real
from torch.utils._python_dispatch import TorchDispatchMode

GIGABYTES = 2
HOST_WAITS = ("_local_scalar_dense", "nonzero", "unique", "masked_select", "item", "is_nonzero")
REFUSED = "CUDA error: operation not permitted when stream is capturing"


class Recorder(TorchDispatchMode):
    """Every operation with its arguments and results, in order; the results stay alive."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, ...]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(word in function.name() for word in HOST_WAITS):
            raise RuntimeError(REFUSED)
        results = function(*args, **kwargs)
        self.calls.append((function, args, kwargs, results))
        return results

    def replay(self) -> None:
        for function, args, kwargs, results in self.calls:
            aliases, mutable = effects(function)
            if aliases:
                if mutable:
                    function(*args, **kwargs)
                continue
            again = function(*args, **kwargs)
            pairs = zip(results, again, strict=True) if isinstance(results, tuple) else [(results, again)]
            for old, new in pairs:
                if isinstance(old, real.Tensor):
                    old.copy_(new)


@cache
def effects(function: Any) -> tuple[bool, bool]:
    """Whether its results are memory of its arguments, and whether it writes to them."""
    schema = function._schema
    return function.is_view or any(one.alias_info for one in schema.returns), schema.is_mutable


class Event:
    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.at_s = time.perf_counter()

    def synchronize(self) -> None:
        assert capturing == []

    def elapsed_time(self, last: Event) -> float:
        return (last.at_s - self.at_s) * 1e3


capturing: list[Recorder] = []


def synchronize(device: Any = None) -> None:
    if capturing:
        raise RuntimeError(REFUSED)


@contextmanager
def graph(made: Any, stream: Any, capture_error_mode: str) -> Iterator[None]:
    recorder = Recorder()
    capturing.append(recorder)
    try:
        with recorder:
            yield
    finally:
        capturing.pop()
    made.replay = recorder.replay


class FakeTorch(ModuleType):
    """torch, but for ``device`` (every GPU is the CPU) and ``cuda``."""

    def __init__(self) -> None:
        super().__init__("torch")
        self.__spec__, self.__path__ = real.__spec__, real.__path__
        stream = SimpleNamespace(wait_stream=lambda other: None, cuda_stream=0)
        properties = SimpleNamespace(
            name="NVIDIA H200", uuid="0000-1", total_memory=GIGABYTES * 10**9, L2_cache_size=62914560
        )
        self.cuda = SimpleNamespace(
            device_count=lambda: 1,
            set_device=lambda index: None,
            current_device=lambda: 0,
            get_device_properties=lambda index: properties,
            mem_get_info=lambda: (GIGABYTES * 10**9, GIGABYTES * 10**9),
            empty_cache=lambda: None,
            memory_reserved=lambda: 0,
            synchronize=synchronize,
            current_stream=lambda: stream,
            Stream=lambda: stream,
            stream=lambda chosen: nullcontext(),
            set_stream=lambda chosen: None,
            Event=Event,
            CUDAGraph=SimpleNamespace,
            graph=graph,
            _sleep=lambda cycles: None,
        )

    @staticmethod
    def empty(*size: Any, pin_memory: bool = False, **kwargs: Any) -> Any:
        return real.empty(*size, **kwargs)

    @staticmethod
    def device(kind: str, index: int = 0) -> Any:
        return real.device("cpu")

    def __getattr__(self, name: str) -> Any:
        return getattr(real, name)


def spare_time() -> None:
    """One thread, as the rank has one core; and no torch._dynamo, which takes seconds to import."""
    real.set_num_threads(1)
    dispatch = Recorder.__torch_dispatch__.__wrapped__  # type: ignore[attr-defined]
    setattr(dispatch, "__dynamo_disable", dispatch)


if __name__ == "__main__":
    spare_time()
    with Recorder() as first:  # torch imports what it needs for that while it is still itself
        real.zeros(1)
    first.replay()
    sys.modules["torch"] = FakeTorch()
    from calibrate.passes import id_sets, torch_kernels
    from calibrate.ranks.rank import main

    id_sets.COLD_BYTES = torch_kernels.COLD_BYTES = 2**20  # this GPU's cache is small
    main()
