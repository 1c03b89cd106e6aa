"""Kernel cells: every kernel of every library gives what a plain loop gives, and a wrong result shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from calibrate.operations import Place  # noqa: E402
from calibrate.passes import lookup, own_kernels, torch_kernels  # noqa: E402
from calibrate.passes.fbgemm_kernels import FbgemmKernels  # noqa: E402
from calibrate.passes.own_kernels import OwnKernels  # noqa: E402
from calibrate.passes.torch_kernels import TorchKernels  # noqa: E402
from calibrate.providers import collectives  # noqa: E402
from perfmodel.errors import BadInputError  # noqa: E402
from perfmodel.schema.evidence import Clock  # noqa: E402
from perfmodel.schema.runs import LookupWork, Point, PointKind  # noqa: E402

WORK = LookupWork(batch=5, tables=3, pooling=2.5, dim=8, rows=40, shards=4)
IDS, LENGTHS = [7, 0, 9, 3, 8], [2, 0, 1, 2]


@pytest.fixture(scope="module", autouse=True)
def home(kernel_home: Path) -> Iterator[None]:
    """Where our own kernels are compiled to."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERFMODEL_HOME", str(kernel_home))
        yield


def point(operation: str, work: LookupWork, dtype: str = "fp32") -> Point:
    return Point(
        kind=PointKind.KERNEL,
        operation=operation,
        clock=Clock.EAGER,
        gpus=1,
        gpus_per_node=1,
        dtype=dtype,
        work=work,
    )


def opened(library: type[TorchKernels]) -> TorchKernels:
    if library is FbgemmKernels:
        pytest.importorskip("fbgemm_gpu")
    made = library()
    made.open(Place(rank=0, ranks=1), {})
    return made


@pytest.mark.parametrize(("tables", "owners"), [(1, 2), (3, 4), (2, 300)])
def test_bucketize_equals_a_numpy_sort(tables: int, owners: int) -> None:
    rng = np.random.default_rng(tables)
    lengths = rng.integers(0, 4, tables * 6)
    ids = rng.integers(0, 1000, lengths.sum())
    block = -(-1000 // owners)
    bag = np.repeat(np.arange(lengths.size), lengths)
    order = np.lexsort((np.arange(ids.size), ids // block))
    rows = (ids % block + bag // 6 * block)[order]
    sent = np.zeros((owners, lengths.size), int)
    np.add.at(sent, (ids // block, bag), 1)
    given = torch.from_numpy(ids), torch.from_numpy(lengths), tables, block, owners
    got = lookup.bucketize(*given)
    for ids_got, lengths_got in ((got.ids, got.lengths), torch_kernels.bucketized(*given)):
        assert np.array_equal(ids_got, rows) and np.array_equal(lengths_got, sent)
    assert np.array_equal(got.counts, sent.sum(1))


@pytest.mark.parametrize("library", [TorchKernels, FbgemmKernels, OwnKernels])
@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_gathers_are_exact(library: type[TorchKernels], dtype: str) -> None:
    made = opened(library)
    for pooling, distribution in ((2.5, "uniform"), (3, "zipf:1.05"), (0.5, "one-row")):
        work = WORK.model_copy(update={"pooling": pooling, "distribution": distribution, "dim": 32})
        operation = made.operation(point("gather_pool", work, dtype), [0])
        for salt in range(3):
            operation.prepare(salt)
            operation.before()
            operation.run()
            assert operation.check() == (0, 5 * 3 * 32)


@pytest.mark.parametrize("library", [TorchKernels, FbgemmKernels, OwnKernels])
@pytest.mark.parametrize("kernel", ["bucketize", "partial_sum", "copy", "launch_floor"])
def test_other_kernels_are_exact(library: type[TorchKernels], kernel: str) -> None:
    made = opened(library)
    if kernel not in made.operations:
        with pytest.raises(BadInputError, match="has no kernel"):
            made.operation(point(kernel, WORK), [0])
        return
    operation = made.operation(point(kernel, WORK), [0])
    operation.prepare(1)
    for _ in range(3):
        operation.before()
        operation.run()
    wrong, checked = operation.check()
    assert wrong == 0 and checked > 0


def test_our_own_kernels_are_timed_where_there_is_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """They run on a CPU too, slowly: that is for tests."""
    monkeypatch.setattr(collectives, "find_gpus", lambda: [])
    assert "no NVIDIA GPU" in own_kernels.availability().why_not
    monkeypatch.setattr(collectives, "find_gpus", lambda: ["a GPU"])
    monkeypatch.setattr(collectives, "torch_version", lambda: "2.13.0")
    monkeypatch.setattr(own_kernels.importlib.util, "find_spec", lambda name: 1)
    found = own_kernels.availability()
    assert found.usable and found.devices == ("cuda",) and found.operations == OwnKernels.operations
    assert found.version == f"perfmodel {own_kernels.version()}"
    for package, name in (("cuda", "cuda-core"), ("cupy", "CuPy")):
        monkeypatch.setattr(
            own_kernels.importlib.util, "find_spec", lambda name, lost=package: None if lost in name else 1
        )
        found = own_kernels.availability()
        assert not found.usable and name in found.why_not and "cupy-cuda13x" in found.install


def test_a_wrong_row_and_a_missing_call_show() -> None:
    made = opened(TorchKernels)
    operation = made.operation(point("gather_pool", WORK), [0])
    operation.prepare(0)
    operation.before()
    operation.run()
    made.tables.rows(0, 120, 8, "fp32")[:] += 1  # off by one: every element of a bag that is not empty
    operation.run()
    wrong, checked = operation.check()
    assert 0 < wrong < checked
    idle = made.operation(point("copy", LookupWork(batch=1, dim=1000)), [0])
    idle.run()
    idle.prepare(3)
    assert idle.check() == (1000, 1000)  # nothing ran since the outputs were forgotten


def test_graphs_are_timed_where_there_is_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    from calibrate.machine.local_gpus import LocalGpu
    from calibrate.passes import torch_kernels

    monkeypatch.setattr(torch_kernels, "find_gpus", lambda: ())
    assert [str(clock) for clock in torch_kernels.torch_availability().clocks] == ["eager", "stream"]
    monkeypatch.setattr(torch_kernels, "find_gpus", lambda: (LocalGpu(0, "H100"),))
    assert "graph" in torch_kernels.torch_availability().clocks
