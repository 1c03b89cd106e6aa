"""What a rank makes of the coordinator's messages: it takes its GPU, and ends when that is lost."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from oracles.points import make_kernel

from calibrate.operations import Availability
from calibrate.ranks import process
from calibrate.ranks.rank import RankServer
from perfmodel.errors import NoHardwareError
from perfmodel.schema.calibration import GPU_L2

PLACE = {"rank": 5, "ranks": 8, "node": 1, "local_rank": 1, "local_ranks": 4, "device": "cuda"}


def serve(*messages: dict[str, Any], load: Any = None) -> list[Any]:
    """What a rank answers, or the texts of its refusals, until the store is gone."""
    store = Mock(get=Mock(side_effect=[json.dumps({"number": 1, **message}) for message in messages]))
    store.wait.side_effect = [*messages, EOFError("the store is gone")]
    with suppress(EOFError):
        RankServer(store, 0, load, lambda name: Availability(True, devices=(name,))).serve()
    answers = [json.loads(setting.args[1]) for setting in store.set.call_args_list]
    return [answer["ok"] if "ok" in answer else answer["error"]["message"] for answer in answers]


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """torch.cuda with four GPUs; ``chosen`` is the current one."""
    cuda = SimpleNamespace(chosen=-1, device_count=lambda: 4, mem_get_info=lambda: (1000, 2000))
    cuda.set_device = lambda index: setattr(cuda, "chosen", index)
    cuda.current_device = lambda: cuda.chosen
    cuda.get_device_properties = lambda index: SimpleNamespace(
        name="NVIDIA H100", uuid=f"0000-{index}", L2_cache_size=52428800
    )
    torch = SimpleNamespace(__version__="2.13.0", version=SimpleNamespace(cuda="13.0"), cuda=cuda)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    return cuda


def welcome(**place: Any) -> dict[str, Any]:
    return {"do": "welcome", "places": [{**PLACE, **place}], "providers": ["cuda", "cpu"]}


@pytest.mark.parametrize(("gpus", "chosen"), [(4, 1), (1, 0)])
def test_a_rank_takes_the_gpu_of_its_place(gpus: int, chosen: int, cuda: SimpleNamespace) -> None:
    """One GPU is visible where the launcher gives each rank its own: it is number 0 there."""
    cuda.device_count = lambda: gpus
    (answer,) = serve(welcome())
    assert cuda.chosen == chosen
    assert (answer["uuid"], answer["memory_bytes"]) == (f"GPU-0000-{chosen}", 800)
    assert (answer["versions"]["cuda"], answer["versions"]["gpu"]) == ("13.0", "NVIDIA H100")
    assert GPU_L2 not in answer["versions"]
    (first,) = serve(welcome(rank=0))
    assert first["versions"][GPU_L2] == "52428800"
    assert first["providers"]["cuda"]["usable"] and not first["providers"]["cpu"]["usable"]


def test_without_a_gpu_or_what_was_prepared_a_rank_refuses(cuda: SimpleNamespace) -> None:
    cuda.device_count = lambda: 0
    no_gpu, nothing = serve(welcome(), {"do": "time", "calls": 1})
    assert no_gpu == "torch 2.13.0 sees no GPU on rank 5." and nothing == "nothing is prepared."


def test_a_rank_drops_what_it_keeps_beyond_half_of_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    library, point = Mock(), make_kernel("copy", 1, implementation="library").model_dump(mode="json")
    monkeypatch.setattr(process, "estimate_memory_bytes", lambda local_ranks: 1000.0)
    monkeypatch.setattr(process, "count_held_bytes", iter((501, 500, 501)).__next__)
    opening = welcome(device="cpu"), {"do": "open", "provider": "library", "address": {}}
    preparing = {"do": "prepare", "point": point, "group": [0], "salt": 1, "barrier": ""}
    assert serve(*opening, *[preparing] * 3, load=lambda name: library)[1:] == [None] * 4
    assert library.operation.call_count == 2  # made, kept, dropped and made again


def test_a_rank_whose_gpu_is_lost_ends_and_does_not_answer(cuda: SimpleNamespace) -> None:
    """Every later point would fail as well: the run ends, and goes on later."""

    def lose(*_: Any) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    messages = welcome(), {"do": "open", "provider": "library", "address": {}}
    cuda.synchronize = lambda: None  # the GPU works again
    provider = SimpleNamespace(open=lose)
    assert "illegal memory access" in serve(*messages, load=lambda name: provider)[1]
    cuda.synchronize = lose
    with pytest.raises(NoHardwareError, match="no longer answers"):
        serve(*messages, load=lambda name: provider)
