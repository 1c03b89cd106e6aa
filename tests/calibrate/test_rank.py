"""What a rank makes of the coordinator's messages: its GPU, its libraries, what it keeps ready."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from calibrate.operations import Availability, Place
from calibrate.ranks.rank import RankServer
from perfmodel.errors import NoHardwareError
from perfmodel.schema.calibration import GPU_L2
from perfmodel.schema.evidence import Clock
from perfmodel.schema.runs import Point

PLACE = {"rank": 5, "ranks": 8, "node": 1, "local_rank": 1, "local_ranks": 4, "device": "cuda"}


class FakeStore:
    """Hands out messages; ``answers`` are results, or texts of refusals."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self.answers: list[Any] = []
        self._messages = list(messages)

    def wait(self, keys: Sequence[str], timeout: object) -> None:
        if not self._messages:
            raise EOFError("the store is gone")

    def get(self, key: str) -> str:
        return json.dumps({"number": 1, **self._messages.pop(0)})

    def delete_key(self, key: str) -> None: ...

    def set(self, key: str, text: str) -> None:
        answer = json.loads(text)
        error = answer.get("error", {})
        self.answers.append(answer.get("ok") if not error else f"{error['kind']}: {error['message']}")


class FakeOperation:
    bytes_sent = 8

    def __init__(self) -> None:
        self.salts: list[int] = []

    def prepare(self, salt: int) -> None:
        self.salts.append(salt)

    def before(self) -> None: ...

    def run(self) -> None: ...

    def check(self) -> tuple[int, int]:
        return 0, self.salts[-1]

    def steps_s(self) -> Mapping[str, float]:
        return {}


class FakeProvider:
    """A library, or a whole pass that is told which libraries are open."""

    def __init__(self, name: str, made: list[FakeOperation]) -> None:
        self.name, self.made, self.opened = name, made, False
        if name == "exchange":
            self.use = lambda libraries: made.append(libraries)

    def open(self, place: Place, address: Mapping[str, str]) -> None:
        self.opened = True

    def open_group(self, ranks: Sequence[int]) -> None: ...

    def operation(self, point: Point, ranks: Sequence[int]) -> FakeOperation:
        self.made.append(FakeOperation())
        return self.made[-1]

    def barrier(self, ranks: Sequence[int]) -> None: ...

    def close(self) -> None:
        self.opened = False


def fake_torch(gpus: int) -> Any:
    """torch with this many GPUs; ``chosen`` is the current one."""
    cuda = SimpleNamespace(chosen=-1)
    cuda.device_count = lambda: gpus
    cuda.set_device = lambda index: setattr(cuda, "chosen", index)
    cuda.current_device = lambda: cuda.chosen
    cuda.get_device_properties = lambda index: SimpleNamespace(
        name="NVIDIA H100", uuid=f"0000-{index}", L2_cache_size=52428800
    )
    cuda.mem_get_info = lambda: (1000, 2000)
    cuda.memory_allocated = lambda: 10
    return SimpleNamespace(__version__="2.13.0", version=SimpleNamespace(cuda="13.0"), cuda=cuda)


def serve(*messages: dict[str, Any], load: Any = None, available: Availability | None = None) -> list[Any]:
    """Answers of a rank to messages, after which its store is gone."""
    store = FakeStore(*messages)
    usable = available or Availability(True, version="1", clocks=(Clock.EAGER,))
    with suppress(EOFError):
        RankServer(store, 0, load, lambda name: usable).serve()
    return store.answers


def welcome(**more: Any) -> dict[str, Any]:
    return {"do": "welcome", "places": [PLACE], "cpus": [[]], "providers": [], **more}


@pytest.mark.parametrize(("gpus", "chosen"), [(4, 1), (1, 0)])
def test_a_rank_takes_the_gpu_of_its_place(gpus: int, chosen: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One GPU is visible where the launcher gives each rank its own: it is number 0 there."""
    torch = fake_torch(gpus)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    (answer,) = serve(welcome())
    assert torch.cuda.chosen == chosen
    assert (answer["uuid"], answer["memory_bytes"]) == (f"GPU-0000-{chosen}", 800)
    assert (answer["versions"]["cuda"], answer["versions"]["gpu"]) == ("13.0", "NVIDIA H100")
    assert GPU_L2 not in answer["versions"]
    (first,) = serve(welcome(places=[{**PLACE, "rank": 0}]))
    assert first["versions"][GPU_L2] == "52428800"


def test_a_rank_whose_gpu_is_lost_ends_and_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every later point would fail as well: the run ends, and goes on later."""
    torch = fake_torch(1)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "pynvml", None)

    def lost(*_: Any) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def load(name: str) -> Any:
        provider = FakeProvider(name, [])
        provider.open = lost  # type: ignore[method-assign]
        return provider

    opening = {"do": "open", "provider": "library", "address": {}}
    torch.cuda.synchronize = lambda: None  # the GPU works again
    assert "illegal memory access" in serve(welcome(), opening, load=load)[1]
    torch.cuda.synchronize = lost
    with pytest.raises(NoHardwareError, match="no longer answers"):
        serve(welcome(), opening, load=load)
