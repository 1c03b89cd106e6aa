"""What is measured, on which ranks, in which sizes; and what is refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from oracles.points import make_collective

from calibrate.operations import Availability
from calibrate.planning.kernel_cells import count_bytes, count_lookups
from calibrate.planning.measurement_plan import MeasurementPlan, Request, make_plan
from calibrate.planning.pass_cells import list_paper_points, list_paper_works
from calibrate.planning.world import World, describe_turns, group_ranks, list_shapes
from perfmodel.errors import BadInputError, NoHardwareError
from perfmodel.schema.evidence import COLLECTIVES, Clock
from perfmodel.schema.runs import LookupWork, Point, PointKind

LIBRARY = Availability(True, version="1", clocks=(Clock.EAGER, Clock.STREAM), operations=COLLECTIVES)
TORCH = Availability(True, version="3", clocks=(Clock.EAGER,))
NO_TORCH = Availability(False, "torch is not installed", "pip install torch==2.13.0")
OURS = {"torch": TORCH, "exchange": TORCH}
LOOK_UPS = {**OURS, "torchrec": TORCH, "one_sided": TORCH}


def cpu(ranks: int = 2, providers: dict[str, Availability] | None = None) -> World:
    return World(ranks, providers={"gloo": LIBRARY, **(providers or {})}, memory_bytes=2.0**33)


def gpus(ranks: int, nodes: int) -> World:
    return World(ranks, nodes, device="cuda", providers={"nccl": LIBRARY}, memory_bytes=2.0**36)


def list_gaps(plan: MeasurementPlan) -> list[tuple[str, str, str]]:
    return [(gap.what, gap.why, gap.install) for gap in plan.left_out]


def list_kinds(plan: MeasurementPlan) -> set[PointKind]:
    return {point.kind for point in plan.points}


def test_quick_on_two_ranks() -> None:
    plan = make_plan(Request("quick", ranks=[1, 2]), replace(cpu(), cores_per_node=2))
    assert plan.left_out[0].what == "1 rank"
    assert {(point.backend, point.clock) for point in plan.points} == {("gloo", Clock.EAGER)}
    expected = [128 * 2**k for k in range(17)]  # 128 B … 8 MiB
    for operation in COLLECTIVES:
        assert [p.payload_bytes for p in plan.points if p.operation == operation] == expected


def test_what_cannot_run_is_left_out_with_what_installs_it() -> None:
    plan = make_plan(Request("quick"), cpu(providers={"gloo": NO_TORCH, "torch": TORCH}))
    assert list_kinds(plan) == {PointKind.KERNEL}
    world = cpu(providers={"torch": NO_TORCH, "exchange": NO_TORCH})
    left = list_gaps(plan) + list_gaps(make_plan(Request("quick"), world))
    look_ups = Request("quick", only=["passes", "gloo"])
    left += list_gaps(make_plan(look_ups, cpu(providers={**OURS, "torchrec": NO_TORCH})))
    for group in ("gloo", "kernels", "composed", "passes:torchrec"):
        assert (group, NO_TORCH.why_not, NO_TORCH.install) in left
    for only in ("kernels", "composed:exchange", "passes:exchange"):
        with pytest.raises(NoHardwareError, match="torch is not installed") as caught:
            make_plan(Request("quick", only=[only]), world)
        assert (caught.value.next_step, caught.value.exit_code) == (NO_TORCH.install, 4)


def test_kernels_come_with_their_provider_only() -> None:
    assert list_kinds(make_plan(Request("quick"), cpu())) == {PointKind.COLLECTIVE}
    plan = make_plan(Request("quick"), cpu(providers=OURS))
    assert list_kinds(plan) == set(PointKind) - {PointKind.LOOKUP}
    assert {p.backend for p in plan.points if p.kind is PointKind.COMPOSED} == {"gloo"}
    alone = make_plan(Request("quick", ranks=[1]), World(1, providers={"torch": TORCH}, memory_bytes=2.0**33))
    assert list_kinds(alone) == {PointKind.KERNEL}
    assert [gap.what for gap in alone.left_out] == ["collectives"]


@pytest.mark.parametrize(
    ("world", "preset", "ranks", "shapes"),
    [
        (cpu(8), "quick", None, [(1, 2), (1, 8)]),
        (cpu(8), "standard", None, [(1, 2), (1, 4), (1, 8)]),
        (cpu(6), "standard", None, [(1, 2), (1, 4), (1, 6)]),
        (cpu(1), "standard", None, []),
        (gpus(16, 2), "quick", None, [(1, 2), (1, 8), (2, 1), (2, 8)]),
        (gpus(8, 4), "quick", None, [(1, 2), (4, 1), (4, 2)]),
        (gpus(16, 2), "quick", [2, 4, 16], [(1, 2), (1, 4), (2, 1), (2, 2), (2, 8)]),
        (gpus(16, 4), "quick", [5, 10], []),
    ],
)
def test_groups_of_the_presets(
    world: World, preset: str, ranks: list[int] | None, shapes: list[tuple[int, int]]
) -> None:
    assert list_shapes(world, preset, ranks) == shapes


def test_every_node_has_as_many_ranks() -> None:
    assert World(6, 3).ranks_per_node == 2
    with pytest.raises(BadInputError, match="not the same number on each node"):
        World(6, 4)


@pytest.mark.parametrize(
    ("shape", "ranks"),
    [
        ((8, 1, 8), [*range(8)]),
        ((4, 2, 2), [0, 1, 8, 9]),
        ((4, 4, 1), [0, 8, 16, 24]),
        ((3, 2, 2), [0, 1, 8]),
        ((10, 1, 10), None),
    ],
)
def test_which_ranks_take_part(shape: tuple[int, int, int], ranks: list[int] | None) -> None:
    count, nodes, per_node = shape
    more = {"nodes": nodes, "gpus_per_node": per_node, "payload_bytes": 1024}
    point = make_collective("all_reduce", count, backend="nccl", **more)
    if ranks is not None:
        assert group_ranks(point, gpus(32, 4)) == ranks
        return
    with pytest.raises(BadInputError, match="do not fit"):
        group_ranks(point, gpus(32, 4))


@pytest.mark.parametrize(
    ("only", "taken"),
    [
        (["gloo:all_to_all"], {("gloo", "all_to_all")}),
        (["gloo:all-to-all, gloo:broadcast"], {("gloo", "all_to_all"), ("gloo", "broadcast")}),
        (["gloo"], {("gloo", operation) for operation in COLLECTIVES}),
        (["kernels:copy"], {("", "copy")}),
        (["composed"], {("gloo", "row_wise")}),
    ],
)
def test_only(only: list[str], taken: set[tuple[str, str]]) -> None:
    plan = make_plan(Request("quick", only=only), cpu(providers=OURS))
    assert {(point.backend, point.operation) for point in plan.points} == taken


def test_the_papers_look_ups_that_fit_and_what_is_left_out() -> None:
    plan = make_plan(Request("quick", only=["passes"], grid="paper"), cpu(4, LOOK_UPS))
    assert list_kinds(plan) == {PointKind.LOOKUP}
    counts = Counter(point.implementation for point in plan.points)
    assert counts == {"torchrec": 27, "exchange": 27, "three": 54, "fused": 54}
    assert [gap.what for gap in plan.left_out] == [f"passes:{name} on 8" for name in counts]
    assert plan.left_out[0].why == "the grid has 8 GPUs, this job 4 ranks"
    only = make_plan(Request(only=["passes:exchange"], ranks=[1, 2], grid="paper"), cpu(2, LOOK_UPS))
    assert {p.gpus for p in only.points} == {1, 2} and len(only.points) == 180
    alone = make_plan(Request("quick", only=["passes"], ranks=[1]), cpu(1, LOOK_UPS))
    assert {p.gpus for p in alone.points} == {1}


def test_ranks_that_share_a_gpu_only_show_that_it_works() -> None:
    shared = replace(LIBRARY, functional_only="2 ranks share 1 GPU")
    providers = dict.fromkeys(("torch", "nccl", "exchange", "one_sided"), shared)
    world = World(2, device="cuda", providers=providers)
    requests = Request("quick", only=["passes:fused"]), Request(backends=["nccl"]), Request()
    for request, why in zip(requests, ("2 ranks share", "2 ranks share", "nothing can be"), strict=True):
        with pytest.raises(NoHardwareError, match=why):
            make_plan(request, world)
    plan = make_plan(Request("quick", only=["passes:fused"], oversubscribe=True), world)
    assert {(p.implementation, p.gpus) for p in plan.points} == {("fused", 2)}
    assert describe_turns(world) == "2 ranks share 1 GPU"
    assert describe_turns(World(2)) == describe_turns(World(2, cores_per_node=2)) == ""


def test_clocks_and_sizes_and_ranks_that_the_user_names() -> None:
    request = Request("quick", only=["gloo:all_to_all"], ranks=[3], sizes=[1024, 1000], clocks=[Clock.STREAM])
    plan = make_plan(request, cpu(4))
    assert {(p.payload_bytes, p.gpus, p.clock) for p in plan.points} == {
        (996, 3, Clock.STREAM),  # 1000 and 1024 in whole elements for each of 3 ranks
        (1020, 3, Clock.STREAM),
    }


@pytest.mark.parametrize(
    ("request_", "world", "message"),
    [
        (Request("fast"), cpu(4), "preset 'fast' is not known"),
        (Request(only=["ncl"]), cpu(4), "did you mean nccl"),
        (Request(only=["gloo:alltoall"]), cpu(4), "all_to_all"),
        (Request(only=["gloo"], backends=["nccl"]), cpu(4), "cannot be combined"),
        (Request(backends=["tcp"]), cpu(4), "backend 'tcp' is not known"),
        (Request(only=["kernels:"]), cpu(4), "--only kernels: names nothing after the colon"),
        (Request(only=["gloo:"]), cpu(4), "write --only gloo for all of it, or one of all_to_all"),
        (Request(only=["gloo"], clocks=[Clock.DEVICE]), cpu(), "gloo on the device clock"),
        (Request(only=["gloo"]), cpu(providers={"gloo": NO_TORCH}), "pip install torch"),
        (Request(), cpu(providers={"gloo": NO_TORCH}), "pip install torch"),
        (Request(ranks=[1]), cpu(2), "--ranks 1: this job has 2 ranks, and kernels run on all of them"),
        (Request(ranks=[2, 10**9]), cpu(4), "--ranks 1000000000: this job has 4 ranks"),
        (Request(ranks=[0]), cpu(4), "--ranks 0: this job has 4 ranks"),
        (Request(ranks=[5]), cpu(2), "counts from 2 to 2"),
        (Request(), World(2, cores_per_node=1), "use at most 1 rank, or"),
        (Request(ranks=[9]), gpus(16, 2), "cannot be spread evenly over nodes of 8 ranks"),
        (Request(only=["gloo:all_to_all"], sizes=[8], ranks=[4]), cpu(4), "the smallest size here is 16 B"),
        (Request(only=["gloo:broadcast"], sizes=[3]), cpu(4), "--sizes: 3 B is below one element of 4 B"),
        (Request(only=["gloo:broadcast"], sizes=[2**40]), cpu(4), "the largest size here is 1 GiB"),
        (
            Request(only=["nccl:all_to_all"], sizes=[64], ranks=[8]),
            gpus(8, 1),
            "64 B over 8 ranks is 8 B per peer, below NCCL's 16 B alignment",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_in_words(request_: Request, world: World, message: str) -> None:
    with pytest.raises((BadInputError, NoHardwareError)) as caught:
        make_plan(request_, world)
    assert message in str(caught.value)


def everything(ranks: int = 2, nodes: int = 1, device: str = "cpu") -> World:
    clocks = Clock.EAGER, Clock.STREAM
    offered = Availability(True, clocks=clocks, operations=("all_to_all", "reduce_scatter"))
    names = ("torch", "fbgemm", "perfmodel", "torchrec", "exchange", "one_sided", "gloo", "nccl")
    return World(ranks, nodes, device=device, providers=dict.fromkeys(names, offered), memory_bytes=8e9)


def count_table_bytes(point: Point) -> int:
    """Of all tables, in fp32."""
    assert point.work is not None
    return point.work.tables * point.work.rows * point.work.dim * 4


def test_bytes_of_a_kernel_are_counted_as_the_model_counts_them() -> None:
    """3 samples of 4 tables with 2.5 rows a bag: 30 rows of 8 columns, 12 bags in fp32, ids and offsets."""
    work = LookupWork(batch=3, tables=4, pooling=2.5, dim=8, rows=100)
    assert count_lookups(work) == 30 and count_lookups(LookupWork(batch=1, pooling=0)) == 1
    assert count_bytes("gather_pool", work, "fp32") == 30 * (8 * 4 + 8) + 12 * (4 * 8 + 8)
    assert count_bytes("gather_pool", work, "fp16") == 30 * (8 * 2 + 8) + 12 * (4 * 8 + 8)
    assert count_bytes("copy", work, "fp32") == 2 * 8


def test_the_paper_has_192_and_168_points() -> None:
    works = list_paper_works()
    assert len(works) == len(set(works)) == 90
    grids = Counter(pooling == 32 for _, _, pooling, _ in works)
    assert (4 * grids[False], 4 * grids[True]) == (192, 168)
    eight = everything(ranks=8, device="cuda")
    points = list_paper_points(eight, "torchrec", tenth=False)
    assert len(points) == len({point.key for point in points}) == 360
    assert all(count_table_bytes(p) / p.gpus <= 8e9 / 8 for p in points)
    assert all(p.work is not None and p.work.rows % p.gpus == 0 for p in points)
    fused = list_paper_points(eight, "fused", tenth=True)
    assert {p.gpus for p in fused} == {8}  # NVSHMEM: all ranks of the job
