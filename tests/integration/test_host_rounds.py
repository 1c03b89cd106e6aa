"""Rounds of work of the host: as many calls as they say, results checked, a wrong one seen."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from calibrate.operations import Place  # noqa: E402
from calibrate.passes.host_calls import ROUNDS, HostRounds, python_calls  # noqa: E402
from calibrate.passes.torch_kernels import TorchKernels  # noqa: E402
from perfmodel.errors import BadInputError  # noqa: E402
from perfmodel.schema.evidence import Clock  # noqa: E402
from perfmodel.schema.runs import LookupWork, Point, PointKind  # noqa: E402

ON_CPUS = ("python_calls", "operator_calls", "kernel_calls")


class Seen(TorchDispatchMode):
    """Operators that PyTorch's dispatcher saw: all, and those that run no kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.all, self.bare = 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__name__.split(".")[0]
        self.all += 1
        self.bare += func.is_view or func.namespace == "profiler" or name in ("empty", "new_empty")
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("calls", [350, 1001])
def test_python_is_counted_and_calls_no_operator(calls: int) -> None:
    made = ROUNDS["python_calls"](calls, "cpu")
    with Seen() as seen:
        made.run()
    assert seen.all == 0
    assert made.calls == python_calls(made.run) == pytest.approx(calls, abs=3)


def test_operators_and_kernels_are_as_many_as_they_say() -> None:
    for name, calls, bare in (("operator_calls", 26, 26), ("kernel_calls", 12, 0)):
        made = ROUNDS[name](calls, "cpu")
        with Seen() as seen, torch.no_grad():
            made.run()
        assert (made.calls, seen.all, seen.bare) == (calls, calls, bare)
        assert python_calls(made.run) < calls  # a function around each cycle, and no more


def operation(name: str, calls: int = 26) -> Any:
    provider = TorchKernels()
    provider.open(Place(0, 1), {})
    point = Point(
        kind=PointKind.KERNEL,
        operation=name,
        clock=Clock.EAGER,
        gpus=1,
        gpus_per_node=1,
        implementation="torch",
        work=LookupWork(batch=calls),
    )
    return provider.operation(point, [0])


@pytest.mark.parametrize("name", ON_CPUS)
def test_a_round_is_checked(name: str) -> None:
    one = operation(name)
    one.prepare(1)
    assert one.check()[0] > 0  # nothing ran
    one.before()
    one.run()
    wrong, checked = one.check()
    assert wrong == 0 < checked
    assert dict(one.steps_s()) == {} and one.bytes_sent == 0
    one._found = one._found + 1
    assert one.check() == (checked, checked)


def test_graphs_are_of_gpus() -> None:
    with pytest.raises(BadInputError, match="no CUDA graphs on a CPU"):
        HostRounds("graph_calls", LookupWork(batch=1), torch.device("cpu"), gpu=False)
