"""Kernels that are timed by themselves: exact, as on a CPU and as on a GPU; a wrong result shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from calibrate import providers  # noqa: E402
from calibrate.operations import Place  # noqa: E402
from calibrate.passes import id_sets, lookup  # noqa: E402
from calibrate.passes.fbgemm_kernels import FbgemmKernels  # noqa: E402
from calibrate.passes.own_kernels import OwnKernels  # noqa: E402
from calibrate.passes.pattern_rows import PatternTables  # noqa: E402
from calibrate.passes.torch_kernels import TorchKernels  # noqa: E402
from calibrate.ranks.clocks import Cpu, Timer  # noqa: E402
from perfmodel.errors import BadInputError  # noqa: E402
from perfmodel.schema.evidence import Clock  # noqa: E402
from perfmodel.schema.runs import LookupWork, Point, PointKind  # noqa: E402

WORK = LookupWork(batch=5, tables=3, pooling=2.5, dim=8, rows=40)
LIBRARIES = (TorchKernels, FbgemmKernels, OwnKernels)


@pytest.fixture(scope="module", autouse=True)
def home(kernel_home: Path) -> Iterator[None]:
    """Where our own kernels are compiled to."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERFMODEL_HOME", str(kernel_home))
        yield


def make_point(operation: str, dtype: str = "fp32", **fields: Any) -> Point:
    common: dict[str, Any] = {"kind": PointKind.KERNEL, "clock": Clock.EAGER, "gpus": 1, "gpus_per_node": 1}
    work = WORK.model_copy(update=fields)
    return Point(operation=operation, dtype=dtype, work=work, **common)


def open_library(library: type[TorchKernels], monkeypatch: Any = None) -> TorchKernels:
    """A library; with ``monkeypatch`` it takes its tensors for a GPU's, with caches of 10 KB."""
    if library is FbgemmKernels:
        pytest.importorskip("fbgemm_gpu")
    opened = library()
    opened.open(Place(rank=0, ranks=1), {})
    if monkeypatch is not None:
        monkeypatch.setattr(id_sets, "COLD_BYTES", 10_000)
        opened._gpu = True
        opened.tables = PatternTables(opened._device, alone=True)
    return opened


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
    got = lookup.bucketize(torch.from_numpy(ids), torch.from_numpy(lengths), tables, block, owners)
    assert np.array_equal(got.ids, rows) and np.array_equal(got.lengths, sent)
    assert np.array_equal(got.counts, sent.sum(1))


@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("clock", [Clock.EAGER, Clock.STREAM])
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_look_ups_are_exact(
    library: type[TorchKernels], dtype: str, clock: Clock, gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Visits of another width in between: tables lie where they lay before, or elsewhere."""
    if gpu and library is FbgemmKernels:
        pytest.skip("FBGEMM takes no tensor of a CPU for a GPU's")
    opened = open_library(library, monkeypatch if gpu else None)
    shapes = ({"pooling": 3, "dim": 32}, {"pooling": 0.5, "dim": 16, "rows": 100})
    points = [make_point("gather_pool", dtype, **shape) for shape in shapes]
    operations = [opened.operation(point, [0]) for point in points]
    for salt in range(2):
        for operation, shape in zip(operations, shapes, strict=True):
            operation.prepare(salt)
            times = Timer(operation, clock, Cpu(), lambda: None).visit(20, [])
            assert (times.wrong, times.checked) == (0, 5 * 3 * shape["dim"])


def test_copies_are_exact_and_only_torchs_are_timed() -> None:
    operation = open_library(TorchKernels).operation(make_point("copy", dim=1000), [0])
    operation.run()
    assert operation.check() == (0, 1000)
    operation.prepare(3)
    assert operation.check() == (1000, 1000)  # nothing ran since the output was discarded
    with pytest.raises(BadInputError, match="has no kernel"):
        open_library(OwnKernels).operation(make_point("copy"), [0])


def test_a_wrong_row_shows() -> None:
    opened = open_library(TorchKernels)
    operation = opened.operation(make_point("gather_pool"), [0])
    operation.prepare(0)
    operation.before()
    operation.run()
    opened.tables.rows(0, 120, 8, "fp32")[:] += 1  # off by one: every element of a bag that is not empty
    operation.run()
    wrong, checked = operation.check()
    assert 0 < wrong < checked


def test_calls_on_a_gpu_read_other_ids_and_other_copies_of_small_tables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A table of 40 rows of 32 B; 10 000 B leave the cache before they recur: 8 copies."""
    opened = open_library(TorchKernels, monkeypatch)
    operation = opened.operation(make_point("gather_pool", batch=1, tables=1, pooling=1), [0])
    operation.prepare(0)
    read = [int(inputs[0][0]) // 40 for inputs in operation._sets]
    assert read[:9] == [0, 1, 2, 3, 4, 5, 6, 7, 0] and len(read) == 256


def test_our_own_kernels_are_timed_where_there_is_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """They run on a CPU too, slowly: that is for tests."""
    monkeypatch.setattr(providers, "find_gpus", lambda: [])
    assert "no NVIDIA GPU" in providers.describe("perfmodel").why_not
    monkeypatch.setattr(providers, "find_gpus", lambda: ["a GPU"])
    monkeypatch.setattr(providers, "find_version", lambda names: "2.13.0")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: 1)
    offered = providers.describe("perfmodel")
    assert offered.usable and offered.devices == ("cuda",) and offered.operations == OwnKernels.operations
    assert offered.version == f"perfmodel {providers.hash_kernels()}"
    for package in ("cuda.core", "cupy"):
        monkeypatch.setattr(
            "importlib.util.find_spec", lambda name, lost=package: None if lost in name else 1
        )
        offered = providers.describe("perfmodel")
        assert not offered.usable and package in offered.why_not and "cupy-cuda13x" in offered.install
