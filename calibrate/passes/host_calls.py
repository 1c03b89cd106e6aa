"""Times the host work of a pass, one kind at a time: Python, operators, kernel launches, CUDA graphs.

A pass mixes all kinds, so that the code of one leaves the processor's caches before it runs again: in a tight
loop an operator takes only a third of its time in a pass. So before each timed round of one kind, rounds of
the other kinds run untimed. The number of calls in a round is counted, not assumed.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

from calibrate.operations import Operation
from perfmodel.errors import BadInputError
from perfmodel.schema.runs import LookupWork

Call = Callable[[], Any]

INSIDE_OPERATORS = ("torch/_ops.py",)
"""Files of Python code that belongs to the call of an operator."""

_TENSOR = (4, 8)


def python_calls(run: Call) -> int:
    """Number of Python function calls that ``run`` makes, without calls in ``INSIDE_OPERATORS``."""
    found = depth = 0

    def saw(frame: FrameType, event: str, _: Any) -> None:
        nonlocal found, depth
        if event == "call":
            if depth or frame.f_code.co_filename.replace("\\", "/").endswith(INSIDE_OPERATORS):
                depth += 1
            else:
                found += 1
        elif event == "return" and depth:
            depth -= 1

    before = sys.getprofile()
    sys.setprofile(saw)
    try:
        run()
    finally:
        sys.setprofile(before)
    return found - 1  # the call of ``run`` itself


@dataclass(frozen=True)
class Round:
    """A round of host work of one kind.

    run       does the work and returns a tensor, which must equal ``expected``
    calls     number of calls (of Python functions, operators, kernels or graphs) that ``run`` makes
    """

    run: Call
    expected: Any
    calls: int


def python_round(calls: int, device: Any) -> Round:
    """About ``calls`` Python calls without operators: modules, trees of tensors, parameters, signatures."""
    import torch

    x = torch.arange(4.0, device=device)
    modules = torch.nn.Sequential(*[torch.nn.Identity() for _ in range(8)])
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    one = torch.nn.Identity()
    signature = inspect.signature(torch.nn.functional.embedding_bag)
    tree = {"bags": [x, {"ids": (x, x)}], "lengths": x}
    flatten, unflatten = torch.utils._pytree.tree_flatten, torch.utils._pytree.tree_unflatten
    items: list[Call] = [
        lambda: modules(x),
        lambda: unflatten(*flatten(tree)),
        lambda: list(layer.named_parameters()),
        lambda: layer.train(False),
        lambda: signature.bind(x, x, x, None, False).arguments,
    ]
    counts = [python_calls(lambda item=item: item()) for item in items]  # type: ignore[misc]
    single = python_calls(lambda: one(x))
    chosen: list[Call] = []
    left, at = calls, 0
    while left >= max(counts):
        chosen.append(items[at % len(items)])
        left -= counts[at % len(items)]
        at += 1
    rest = round(left / single)

    def run() -> Any:
        for item in chosen:
            item()
        value = x
        for _ in range(rest):
            value = one(value)
        return value

    return Round(run, x.clone(), calls - left + rest * single)


def operator_round(calls: int, device: Any) -> Round:
    """About ``calls`` operators that launch no kernel: annotations, views, new buffers, as in TorchRec."""
    import torch

    rows, columns = _TENSOR
    x = torch.arange(float(rows * columns), device=device).view(rows, columns)
    small = torch.arange(4.0, device=device)
    enter = torch.ops.profiler._record_function_enter_new
    leave = torch.ops.profiler._record_function_exit._RecordFunction

    def one_of_each() -> Any:
        """Call ``OPERATORS_OF_EACH`` operators."""
        first, second = enter("pass", None), enter("step", None)
        flat = x.view(rows * columns)
        torch.empty(rows, device=device)
        turned = flat.view(columns, rows).permute(1, 0)
        leave(second)
        turned.new_empty(3)
        part = small.split(2)[0]
        third = enter("wait", None)
        part.view(1, 2)
        leave(third)
        leave(first)
        return flat

    def run() -> Any:
        for _ in range(rounds):
            flat = one_of_each()
        return flat

    rounds = max(1, round(calls / OPERATORS_OF_EACH))
    return Round(run, x.view(-1).clone(), rounds * OPERATORS_OF_EACH)


OPERATORS_OF_EACH = 13
"""Operators per cycle of ``operator_round``, as PyTorch's dispatcher counts them."""


def kernel_round(calls: int, device: Any) -> Round:
    """A round of about ``calls`` operators that launch one small kernel each, as in TorchRec's pass."""
    import torch

    x = torch.ones(4, 8, device=device)
    ids = torch.arange(8, device=device)

    def cycle(total: Any) -> Any:
        """Run ``KERNELS_OF_EACH`` kernels."""
        sums = x.sum(0)
        both = torch.stack((sums, total))
        offsets = torch.cumsum(ids, 0)
        both.index_select(1, ids)
        offsets.copy_(ids)
        return torch.zeros_like(sums)

    start = torch.zeros(8, device=device)

    def run() -> Any:
        total = start
        for _ in range(rounds):
            total = cycle(total)
        return total

    rounds = max(1, round(calls / KERNELS_OF_EACH))
    return Round(run, start.clone(), rounds * KERNELS_OF_EACH)


KERNELS_OF_EACH = 6
"""Kernels per cycle of ``kernel_round``."""


def graph_round(calls: int, device: Any) -> Round:
    """A round of ``calls`` replays of a CUDA graph that holds one small kernel; needs a GPU."""
    import torch

    x, out = torch.arange(8.0, device=device), torch.zeros(8, device=device)
    torch.add(x, 1, out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.Stream(), capture_error_mode="thread_local"):
        torch.add(x, 1, out=out)
    torch.cuda.synchronize()

    def run() -> Any:
        for _ in range(calls):
            graph.replay()
        return out

    return Round(run, x + 1, calls)


ROUNDS: Mapping[str, Callable[[int, Any], Round]] = {
    "python_calls": python_round,
    "operator_calls": operator_round,
    "kernel_calls": kernel_round,
    "graph_calls": graph_round,
}
_BESIDE = {"python_calls": 300, "operator_calls": 52, "kernel_calls": 12}
"""Untimed work of the other kinds before a timed round: about half of TorchRec's row-wise pass."""


class HostRounds(Operation):
    """Times rounds of one kind of host work; before each, rounds of the other kinds run untimed.

    Limits: CUDA graphs on a CPU -> BadInputError
    """

    bytes_sent = 0

    def __init__(self, operation: str, work: LookupWork, device: Any, *, gpu: bool) -> None:
        if operation == "graph_calls" and not gpu:
            raise BadInputError("there are no CUDA graphs on a CPU.", "leave graph_calls out.")
        self._timed = ROUNDS[operation](work.batch, device)
        self._others = [ROUNDS[name](count, device) for name, count in _BESIDE.items() if name != operation]
        self._found: Any = None

    def prepare(self, salt: int) -> None:
        """Discard the last result."""
        self._found = None

    def before(self) -> None:
        """Run the other kinds of work."""
        for other in self._others:
            other.run()

    def run(self) -> None:
        """Run the round."""
        self._found = self._timed.run()

    def check(self) -> tuple[int, int]:
        """(wrong, checked) elements of the result."""
        expected = self._timed.expected
        if self._found is None:
            return int(expected.numel()), int(expected.numel())
        return int((self._found != expected).sum()), int(expected.numel())
