"""Kernels and whole look-ups that are timed: exact, with all steps and the model's bytes; errors show."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracles.points import make_kernel, make_lookup, make_pass
from waiting import PATIENCE_S

torch = pytest.importorskip("torch")

from oracles.kernels.exchange import embed  # noqa: E402
from torch.distributed import HashStore  # noqa: E402

from calibrate import providers  # noqa: E402
from calibrate.cuda import kernel_launch, symmetric_worlds  # noqa: E402
from calibrate.cuda.exchange_memory import METHODS  # noqa: E402
from calibrate.cuda.row_wise_exchange import choose_access, kernels  # noqa: E402
from calibrate.cuda.symmetric_worlds import ALIGN_BYTES, LEAST_REGION_BYTES, SharedWorld  # noqa: E402
from calibrate.operations import Place  # noqa: E402
from calibrate.passes import id_sets, pattern_rows  # noqa: E402
from calibrate.passes.exchange_pass import STEPS, read_pass  # noqa: E402
from calibrate.passes.fbgemm_kernels import FbgemmKernels  # noqa: E402
from calibrate.passes.one_sided_pass import OneSidedPass  # noqa: E402
from calibrate.passes.own_kernels import OwnKernels  # noqa: E402
from calibrate.passes.pattern_rows import PatternTables  # noqa: E402
from calibrate.passes.torch_kernels import KernelOperation, TorchKernels  # noqa: E402
from calibrate.planning.measurement_plan import Request, make_plan  # noqa: E402
from calibrate.ranks.clocks import Cpu, Timer  # noqa: E402
from calibrate.ranks.launch import LOCALHOST, listen, serve_store  # noqa: E402
from calibrate.ranks.team import RankTeam  # noqa: E402
from perfmodel.errors import BadInputError  # noqa: E402
from perfmodel.model import exchanges as ex  # noqa: E402
from perfmodel.schema.evidence import Clock  # noqa: E402
from perfmodel.schema.runs import LookupWork, PointKind  # noqa: E402

WORK = LookupWork(batch=5, tables=3, pooling=2.5, dim=8, rows=40)


@pytest.fixture(scope="module", autouse=True)
def home(kernel_home: Path) -> Iterator[None]:
    """Where our own kernels are compiled to, once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERFMODEL_HOME", str(kernel_home))
        yield


def open_library(library: type[TorchKernels], monkeypatch: Any = None) -> TorchKernels:
    """A library; with ``monkeypatch`` it takes its tensors for a GPU's, with caches of 10 KB."""
    if library is FbgemmKernels:
        pytest.importorskip("fbgemm_gpu")
    opened = library()
    opened.open(Place(rank=0, ranks=1), {})
    if monkeypatch is not None:
        monkeypatch.setattr(id_sets, "COLD_BYTES", 10_000)
        opened._gpu = opened.tables.alone = True
    return opened


def make_gather(**fields: Any) -> Any:
    dtype = fields.pop("dtype", "fp32")
    return make_kernel("gather_pool", 1, dtype=dtype, work=WORK.model_copy(update=fields))


@pytest.mark.parametrize(
    ("gpu", "count", "is_copied"), [(False, 3, True), (False, 1, False), (True, 3, False)]
)
def test_ids_of_several_sets_arrive_in_one_buffer_of_a_cpu(gpu: bool, count: int, is_copied: bool) -> None:
    sets, read = [(torch.tensor([k]),) for k in range(count)], []
    kernel = KernelOperation(gpu, sets, lambda ids: read.append(ids[0]) or ids[0].clone(), lambda ids: ids[0])
    kernel.prepare(0)
    for call in range(1, 5):
        kernel.before()
        kernel.run()
        assert read[-1].item() == call % count and kernel.check() == (0, 1)
        assert (read[-1] is sets[call % count][0]) != is_copied
    assert len({id(ids) for ids in read}) == (1 if is_copied else count)


@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("library", [TorchKernels, FbgemmKernels, OwnKernels])
@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_look_ups_of_kernels_are_exact(
    library: type[TorchKernels], dtype: str, gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Visits of another width in between: tables lie where they lay before, or elsewhere."""
    if gpu and library is FbgemmKernels:
        pytest.skip("FBGEMM takes no tensor of a CPU for a GPU's")
    opened = open_library(library, monkeypatch if gpu else None)
    shapes = ({"pooling": 3, "dim": 32}, {"pooling": 0.5, "dim": 16, "rows": 100})
    operations = [opened.operation(make_gather(dtype=dtype, **shape), [0]) for shape in shapes]
    for salt, clock in enumerate((Clock.EAGER, Clock.STREAM)):
        for operation, shape in zip(operations, shapes, strict=True):
            operation.prepare(salt)
            times = Timer(operation, clock, Cpu(), lambda: None).visit(20, [])
            assert (times.wrong, times.checked) == (0, 5 * 3 * shape["dim"])
    held = [len(rows) for rows in opened.tables._kept.values()]
    assert gpu or library is FbgemmKernels or held == [3 * 40, 3 * 100]  # one copy, of both


def test_copies_are_exact_and_only_torchs_are_timed() -> None:
    work = LookupWork(batch=1, dim=1000)
    operation = open_library(TorchKernels).operation(make_kernel("copy", 1, work=work), [0])
    operation.prepare(0)
    operation.run()
    assert operation.check() == (0, 1000)
    operation.prepare(3)
    assert operation.check() == (1000, 1000)  # nothing ran since the output was discarded
    with pytest.raises(BadInputError, match="has no kernel"):
        open_library(OwnKernels).operation(make_kernel("copy", 1, work=work), [0])


def test_a_wrong_row_shows() -> None:
    opened = open_library(TorchKernels)
    operation = opened.operation(make_gather(), [0])
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
    operation = opened.operation(make_gather(batch=1, tables=1, pooling=1), [0])
    operation.prepare(0)
    copies = [int(inputs[0][0]) // 40 for inputs in operation._sets]
    assert copies[:9] == [0, 1, 2, 3, 4, 5, 6, 7, 0] and len(copies) == 256


def test_sets_of_ids_are_on_average_as_long_as_the_pooling_factor() -> None:
    work = LookupWork(batch=100, tables=3, pooling=2.5, dim=32, rows=1000)
    sets = id_sets.draw_sets(work, "fp32", 7)
    assert len(sets) == 256 and {len(id_set.ids) for id_set in sets} == {750}
    assert {int(id_set.lengths.sum()) for id_set in sets} == {750} and len(sets[0].lengths) == 300
    assert np.unique(np.concatenate([id_set.ids for id_set in sets])).tolist() == list(range(1000))
    lengths = np.stack([id_set.lengths for id_set in sets])  # any bag may be empty, and none is always
    assert lengths.any(axis=0).all() and not lengths.all(axis=0).any()
    assert (sets[0].ids == id_sets.draw_sets(work, "fp32", 7)[0].ids).all()
    with pytest.raises(BadInputError, match="cannot be checked exactly"):  # some bags are longer than 186
        id_sets.draw_sets(WORK.model_copy(update={"pooling": 180.5}), "fp16", 0)
    look_ups = WORK.model_copy(update={"batch": 1000, "tables": 8, "pooling": 4, "dim": 64})
    read_bytes = 1000 * 8 * 4 * 64 * 2  # by a set, in fp16
    assert id_sets.count_sets(look_ups, "fp16") == math.ceil(256 * 2**20 / read_bytes)


def test_pattern_rows_are_so_small_that_sums_are_exact() -> None:
    tables, numbers = PatternTables(torch.device("cpu")), torch.arange(5, 4005)
    rows = tables.rows(5, 4000, 40, "fp32")
    tables.rows(5, 40, 8, "fp32")
    assert tables.rows(5, 4000, 40, "fp32").data_ptr() == rows.data_ptr()  # as long as they do
    assert rows.abs().max() == pattern_rows.LARGEST and rows.abs().min() == 0
    assert rows[4000 - 5, 4] == 8 + -1 * 1  # by hand
    lengths = torch.tensor([0, 1, 2999, 1000])
    summed = torch.stack([part.sum(0) for part in rows.split(lengths.tolist())])
    assert torch.equal(pattern_rows.sum_bags(numbers, lengths, 40), summed)
    for dtype, longest in (("fp16", 186), ("fp32", 1_525_201)):
        pattern_rows.require_exact(dtype, longest)
        with pytest.raises(BadInputError, match=f"at most {longest} rows"):
            pattern_rows.require_exact(dtype, longest + 1)


WORKS = [
    (LookupWork(batch=16, tables=1, pooling=4, dim=8, rows=1000), "fp32"),
    (LookupWork(batch=33, tables=3, pooling=2.5, dim=12, rows=101), "fp32"),
    (LookupWork(batch=16, tables=2, pooling=0.5, dim=32, rows=64), "fp16"),
    (LookupWork(batch=64, tables=2, pooling=20, dim=16, rows=5000), "fp32"),
]


def test_bags_of_our_pass_are_exact_and_steps_add_up(team: RankTeam) -> None:
    for salt, (work, dtype) in enumerate(WORKS):
        point = make_pass(backend="gloo", implementation="exchange", work=work, dtype=dtype)
        seen = team.visit(point, [0, 1], 4, salt, PATIENCE_S)
        for times in seen:
            assert (times.wrong, times.checked) == (0, work.batch * work.tables * work.dim)
            assert tuple(times.steps_s) == STEPS
            spent = np.subtract(times.ends_s, times.starts_s)
            steps = np.sum([times.steps_s[name] for name in STEPS], axis=0)
            assert np.all((steps > 0) & (steps <= spent))
        check_bytes(work, 2, [times.bytes_sent for times in seen])
    lost = point.model_copy(update={"work": work.model_copy(update={"rows": 1})})
    with pytest.raises(BadInputError, match="rows over"):
        team.visit(lost, [0, 1], 1, 0, PATIENCE_S)


def check_bytes(work: LookupWork, G: int, sent: list[int]) -> None:
    """What the model counts, less what stays on the rank: 1/G of all but the ids, and the ids it owns.

    Owners are drawn: at least half of the ids that a mean rank sends.
    """
    bags = work.batch * work.tables
    counted = [ex.splits_bytes(G, 3, 8), ex.lengths_bytes(G, bags, 8)]
    counted.append(ex.bags_sent_bytes(G, bags, 1, work.dim * 4))
    away = float(sum(counted)) * (G - 1) / G
    ids = float(ex.ids_bytes(round(bags * work.pooling), 8))
    assert all(away + ids * (G - 1) / G / 2 <= sent_bytes <= away + ids for sent_bytes in sent)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"kind": PointKind.KERNEL}, "times whole passes"),
        ({"work": None}, "times whole passes"),
        ({"clock": Clock.STREAM}, "times whole passes"),
        ({"work": WORK.model_copy(update={"rows": 1})}, "1 rows over 2 ranks"),
        ({"work": WORK.model_copy(update={"id_bytes": 4})}, "ids of 4 bytes"),
        ({"work": WORK.model_copy(update={"rows": 2})}, ""),
    ],
)
def test_what_is_no_pass_is_refused(changes: dict[str, Any], said: str) -> None:
    point = make_pass(backend="gloo", implementation="exchange", work=WORK).model_copy(update=changes)
    if not said:
        assert read_pass(point, [0, 1], 1, "exchange")[0].index == 1
        return
    with pytest.raises(BadInputError, match=said):
        read_pass(point, [0, 1], 1, "exchange")


STAGES = {
    "exchange": {"bucketize", "all_to_all_splits", "all_to_all_lengths", "all_to_all_ids", "permute",
                 "gather_pool", "reduce_scatter"},
    "three": {"permute", "gather", "reduce"},
    "fused": {"permute", "fused"},
    "torchrec": set[str](),
}  # fmt: skip


@pytest.fixture(scope="module")
def one_sided() -> None:
    """The kernels of one-sided look-ups, before ranks load them."""
    offered = providers.describe("one_sided")
    if not offered.usable:
        pytest.skip(f"one-sided look-ups: {offered.why_not}")
    for method in METHODS:
        for dim in (12, 32):
            variant = kernels("fp32", choose_access(dim, "fp32", 16), method=method)
            kernel_launch.prebuild(list(variant.values()), torch.device("cpu"))


@pytest.mark.usefixtures("one_sided")
@pytest.mark.parametrize("implementation", list(STAGES))
def test_every_implementation_on_1_2_and_4_ranks(implementation: str, team: RankTeam) -> None:
    """The points of the plan whose works are smallest, as a calibration visits them."""
    if not team.world().providers.get(implementation, providers.describe("one_sided")).usable:
        pytest.skip(f"{implementation} is not installed")
    request = Request("quick", only=[f"passes:{implementation}"], grid="paper", oversubscribe=True)
    works = [(p, p.work) for p in make_plan(request, team.world()).points if p.work]
    least = min(work.batch * work.pooling for _, work in works)
    small = [(point, work) for point, work in works if work.batch * work.pooling == least]
    assert {point.gpus for point, _ in small} == {1, 2, 4}
    for salt, (point, work) in enumerate(small):
        for rank in team.visit(point, range(point.gpus), 2, salt, PATIENCE_S):
            assert (rank.wrong, rank.checked) == (0, work.batch * work.tables * work.dim)
            assert set(rank.steps_s) == (STAGES[implementation] if point.clock is Clock.EAGER else set())
            assert sum(map(sum, rank.steps_s.values())) <= sum(rank.ends_s) - sum(rank.starts_s) + 1e-6
            bags, away = work.batch * work.tables, (point.gpus - 1) / point.gpus
            least_bytes = away * bags * (4 * work.dim + 8 * work.pooling / 2)  # half of the ids at least
            assert rank.bytes_sent >= least_bytes * (implementation != "torchrec")
            if implementation in METHODS:  # bags and their ends to all others, and ids that they hold
                ids, rest = divmod(rank.bytes_sent - (point.gpus - 1) * bags * (4 + 4 * work.dim), 8)
                assert rest == 0 and 0 <= ids <= bags * work.pooling * (point.gpus > 1)


@pytest.mark.usefixtures("one_sided")
@pytest.mark.parametrize("method", ["three", "fused"])
def test_one_sided_bags_are_those_of_torch_and_a_wrong_one_shows(method: str) -> None:
    work = WORK.model_copy(update={"dim": 12})
    listening = listen(LOCALHOST, 0)
    address = {"host": LOCALHOST, "port": str(listening.getsockname()[1]), "run": f"look{method}"}
    served, provider = serve_store(listening, "job"), OneSidedPass()
    provider.open(Place(0, 1), address)
    provider.open_group([0])
    operation = provider.operation(make_lookup(1, implementation=method, work=work), [0])
    regions = set()
    for salt in range(2):  # the second exchange has the memory of the first
        operation.prepare(salt)
        regions.add(operation._exchange._memory.region.bases)
        operation.before()
        operation.run()
        tables = [operation._table.rows[40 * table :][:40] for table in range(3)]
        assert torch.equal(operation._bags.double(), embed(tables, operation._ids, operation._lengths))
        operation._bags[salt, 0, 0] += salt
        assert operation.check() == (salt, 5 * 3 * 12)
    assert len(regions) == 1
    provider.close()
    del served  # the store


def test_shared_memory_is_a_gigabyte_of_each_rank() -> None:
    world = SharedWorld(HashStore(), 0, 1)
    first = world.allocate(100)
    assert first.memory.tolist() == [0] * 100 and not next(iter(first.bases)) % ALIGN_BYTES
    world.reuses = True
    places = [world.allocate(count).bases for count in (100, LEAST_REGION_BYTES)]
    assert places[0] == places[1] != first.bases
    world.reuses = False
    world.allocate(2**30 - 256 - LEAST_REGION_BYTES)  # to the last byte
    with pytest.raises(BadInputError, match="do not fit the shared memory, of which 0 are left"):
        world.allocate(1)
    assert world.lost() == [] and symmetric_worlds._has_ended(2**30)  # no process has this number
