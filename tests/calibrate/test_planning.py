"""What is measured, on which ranks, in which sizes; and what is refused."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from calibrate.operations import Availability
from calibrate.passes.id_sets import draw_sets
from calibrate.planning.durations import estimate_points_s
from calibrate.planning.kernel_cells import GRIDS, count_lookups, list_kernel_points
from calibrate.planning.measurement_plan import MeasurementPlan, Request, make_plan
from calibrate.planning.pass_cells import list_model_passes, list_paper_points, list_paper_works
from calibrate.planning.world import World, describe_turns, group_ranks, list_shapes
from perfmodel.errors import BadInputError, NoHardwareError
from perfmodel.schema.evidence import COLLECTIVES, Clock
from perfmodel.schema.runs import KERNELS, LookupWork, Point, PointKind

LIBRARY = Availability(True, version="1", clocks=(Clock.EAGER, Clock.STREAM), operations=COLLECTIVES)
GPU = Availability(True, version="2", clocks=tuple(Clock), operations=COLLECTIVES)
TORCH = Availability(True, version="3", clocks=(Clock.EAGER,))


def cpu(ranks: int = 2, **more: Any) -> World:
    providers = {"gloo": LIBRARY} | more.pop("providers", {})
    return World(ranks, providers=providers, memory_bytes=2.0**33, **more)


def gpus(ranks: int, nodes: int) -> World:
    return World(ranks, nodes, device="cuda", providers={"nccl": GPU}, memory_bytes=2.0**36)


def collectives(plan: MeasurementPlan) -> list[Point]:
    return [point for point in plan.points if point.kind is PointKind.COLLECTIVE]


def payloads_of(plan: MeasurementPlan, operation: str) -> list[int]:
    return [point.payload_bytes for point in collectives(plan) if point.operation == operation]


def test_quick_on_two_ranks() -> None:
    plan = make_plan(Request("quick"), cpu())
    assert {point.backend for point in plan.points} == {"gloo"}
    assert {point.clock for point in plan.points} == {Clock.EAGER}
    expected = [128 * 2**k for k in range(17)]  # 128 B … 8 MiB
    assert payloads_of(plan, "all_to_all") == payloads_of(plan, "broadcast") == expected
    assert {point.operation for point in plan.points} == set(COLLECTIVES)


def test_a_library_that_cannot_run_is_left_out_with_what_installs_it() -> None:
    without = cpu(providers={"gloo": Availability(False, "no torch", "pip install torch"), "torch": TORCH})
    plan = make_plan(Request("quick"), without)
    assert {p.kind for p in plan.points} == {PointKind.KERNEL}
    left = {item.what: item for item in plan.left_out}
    assert (left["gloo"].why, left["gloo"].install) == ("no torch", "pip install torch")


def test_kernels_come_with_their_provider_only() -> None:
    assert all(p.kind is PointKind.COLLECTIVE for p in make_plan(Request("quick"), cpu()).points)
    plan = make_plan(Request("quick"), cpu(providers={"torch": TORCH, "exchange": TORCH}))
    assert {p.kind for p in plan.points} == set(PointKind) - {PointKind.LOOKUP}
    assert {p.backend for p in plan.points if p.kind is PointKind.COMPOSED} == {"gloo"}
    alone = make_plan(Request("quick"), World(1, providers={"torch": TORCH}, memory_bytes=2.0**33))
    assert {p.kind for p in alone.points} == {PointKind.KERNEL}
    assert "collectives" in {item.what for item in alone.left_out}


def test_rank_counts_of_the_presets() -> None:
    world = cpu(8)
    assert list_shapes(world, "quick") == [(1, 2), (1, 8)]
    assert list_shapes(world, "standard") == [(1, 2), (1, 4), (1, 8)]
    assert list_shapes(cpu(6), "standard") == [(1, 2), (1, 4), (1, 6)]
    assert list_shapes(cpu(1), "standard") == []


def test_which_ranks_take_part() -> None:
    world = gpus(32, 4)

    def ranks(count: int, nodes: int, per_node: int) -> list[int]:
        point = Point(
            kind=PointKind.COLLECTIVE, operation="all_reduce", backend="nccl", clock=Clock.STREAM,
            gpus=count, nodes=nodes, gpus_per_node=per_node, payload_bytes=1024,
        )  # fmt: skip
        return group_ranks(point, world)

    assert ranks(4, 1, 4) == [0, 1, 2, 3]
    assert ranks(4, 2, 2) == [0, 1, 8, 9]
    assert ranks(4, 4, 1) == [0, 8, 16, 24]
    assert ranks(3, 2, 2) == [0, 1, 8]
    with pytest.raises(BadInputError, match="do not fit"):
        ranks(10, 1, 10)


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
    plan = make_plan(Request("quick", only=only), cpu(providers={"torch": TORCH, "exchange": TORCH}))
    assert {(point.backend, point.operation) for point in plan.points} == taken


def test_the_papers_look_ups_that_fit_and_what_is_left_out() -> None:
    whole = {name: TORCH for name in ("torch", "exchange", "torchrec", "one_sided")}
    plan = make_plan(Request("quick", only=["passes"], grid="paper"), cpu(4, providers=whole))
    assert {point.kind for point in plan.points} == {PointKind.LOOKUP}
    counts = Counter(point.implementation for point in plan.points)
    assert counts == {"torchrec": 27, "exchange": 27, "three": 54, "fused": 54}
    assert [item.what for item in plan.left_out] == [
        f"passes:{name} on 8" for name in ("torchrec", "exchange", "three", "fused")
    ]
    assert plan.left_out[0].why == "the grid has 8 GPUs, this job 4 ranks"
    only = Request("standard", only=["passes:exchange"], ranks=[1, 2], grid="paper")
    assert {p.gpus for p in make_plan(only, cpu(2, providers=whole)).points} == {1, 2}
    assert len(make_plan(only, cpu(2, providers=whole)).points) == 180
    alone = make_plan(Request("quick", only=["passes"], ranks=[1]), cpu(1, providers=whole))
    assert {p.gpus for p in alone.points} == {1}
    assert not any(p.kind is PointKind.LOOKUP for p in make_plan(Request("quick"), cpu(2)).points)


def test_an_implementation_that_is_missing_is_named_with_what_installs_it() -> None:
    missing = {
        "torch": TORCH,
        "exchange": TORCH,
        "torchrec": Availability(False, "it is not here", "pip i t"),
    }
    plan = make_plan(Request("quick", only=["passes"]), cpu(2, providers=missing))
    assert {point.implementation for point in plan.points} == {"exchange"}
    assert ("passes:torchrec", "it is not here", "pip i t") in [
        (item.what, item.why, item.install) for item in plan.left_out
    ]
    with pytest.raises(NoHardwareError, match="passes:torchrec cannot be timed here: it is not") as caught:
        make_plan(Request("quick", only=["passes:torchrec"]), cpu(2, providers=missing))
    assert (caught.value.next_step, caught.value.exit_code) == ("pip i t", 4)


def test_ranks_that_share_a_gpu_only_show_that_look_ups_work() -> None:
    shared = Availability(True, functional_only="2 ranks share 1 GPU", clocks=tuple(Clock))
    providers = {name: shared for name in ("torch", "nccl", "exchange", "one_sided")}
    world = World(2, device="cuda", providers=providers)
    with pytest.raises(NoHardwareError, match="2 ranks share 1 GPU"):
        make_plan(Request("quick", only=["passes:fused"]), world)
    plan = make_plan(Request("quick", only=["passes:fused"], oversubscribe=True), world)
    assert {(p.implementation, p.gpus) for p in plan.points} == {("fused", 2)}
    assert describe_turns(world) == "2 ranks share 1 GPU"


def test_clocks_and_sizes_and_ranks_that_were_asked_for() -> None:
    request = Request("quick", only=["gloo:all_to_all"], ranks=[3], sizes=[1024, 1000], clocks=[Clock.STREAM])
    plan = make_plan(request, cpu(4))
    assert {(p.payload_bytes, p.gpus, p.clock) for p in plan.points} == {
        (996, 3, Clock.STREAM),  # 1000 and 1024 in whole elements for each of 3 ranks
        (1020, 3, Clock.STREAM),
    }
    device = Request(only=["gloo"], clocks=[Clock.DEVICE])
    with pytest.raises(NoHardwareError, match="gloo on the device clock"):
        make_plan(device, cpu())


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request("fast"), "preset 'fast' is not known"),
        (Request(only=["ncl"]), "did you mean nccl"),
        (Request(only=["gloo:alltoall"]), "all_to_all"),
        (Request(only=["gloo"], backends=["nccl"]), "cannot be combined"),
        (Request(backends=["tcp"]), "backend 'tcp' is not known"),
        (Request(only=["kernels:"]), "--only kernels: names nothing after the colon"),
        (Request(only=["gloo:"]), "write --only gloo for all of it, or one of all_to_all"),
        (Request(ranks=[1]), "--ranks 1: this job has 4 ranks, and kernels run on all of them"),
        (Request(ranks=[2, 10**9]), "--ranks 1000000000: this job has 4 ranks"),
        (Request(ranks=[5]), "counts from 2 to 4"),
        (Request(only=["gloo:all_to_all"], sizes=[8], ranks=[4]), "the smallest size here is 16 B"),
        (Request(only=["gloo:broadcast"], sizes=[3]), "below one element of 4 B"),
        (Request(only=["gloo:broadcast"], sizes=[2**40]), "the largest size here is 1 GiB"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_words(request_: Request, message: str) -> None:
    with pytest.raises(BadInputError) as caught:
        make_plan(request_, cpu(4))
    assert message in str(caught.value)


def test_nccl_sends_nothing_below_sixteen_bytes_a_peer() -> None:
    with pytest.raises(BadInputError) as caught:
        make_plan(Request(only=["nccl:all_to_all"], sizes=[64], ranks=[8]), gpus(8, 1))
    assert "64 B over 8 ranks is 8 B per peer, below NCCL's 16 B alignment" in caught.value.message
    assert caught.value.next_step == "the smallest size here is 128 B."


def test_what_was_asked_by_name_must_run_here() -> None:
    two_ranks_one_gpu = Availability(True, clocks=(Clock.STREAM,), functional_only="two ranks share GPU 0")
    world = World(2, device="cuda", providers={"nccl": two_ranks_one_gpu})
    with pytest.raises(NoHardwareError, match="two ranks share GPU 0"):
        make_plan(Request(backends=["nccl"]), world)
    with pytest.raises(NoHardwareError, match="nothing can be measured here"):
        make_plan(Request(), world)
    missing = cpu(providers={"gloo": Availability(False, "torch is missing", "pip install torch")})
    with pytest.raises(NoHardwareError) as caught:
        make_plan(Request(only=["gloo"]), missing)
    assert caught.value.next_step == "pip install torch"
    assert caught.value.exit_code == 4


def test_kernels_and_passes_without_torch_say_what_is_missing() -> None:
    missing = Availability(False, "torch is not installed", "pip install torch==2.13.0")
    world = cpu(providers={"torch": missing, "exchange": missing})
    left = [(item.what, item.why, item.install) for item in make_plan(Request("quick"), world).left_out]
    for group in ("kernels", "composed"):
        assert (group, "torch is not installed", "pip install torch==2.13.0") in left
    for only in ("kernels", "composed:exchange"):
        with pytest.raises(NoHardwareError, match="torch is not installed") as caught:
            make_plan(Request("quick", only=[only]), world)
        assert caught.value.next_step == "pip install torch==2.13.0"


def test_the_estimate_is_about_a_minute_for_quick_and_longer_for_more() -> None:
    world = cpu(providers={"torch": TORCH, "exchange": TORCH})
    quick, standard = (make_plan(Request(name), world) for name in ("quick", "standard"))
    assert 5 < estimate_points_s(quick.points, quick) < 60 < estimate_points_s(standard.points, standard)


EVERYTHING = {
    name: Availability(True, operations=("all_to_all", "reduce_scatter"))
    for name in ("torch", "fbgemm", "perfmodel", "torchrec", "gloo", "nccl")
}


def world(ranks: int = 2, nodes: int = 1, device: str = "cpu", **others: object) -> World:
    arguments: dict[str, object] = {"providers": EVERYTHING, "memory_bytes": 8e9, **others}
    return World(ranks=ranks, nodes=nodes, device=device, **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(("device", "preset"), GRIDS)
def test_grids_cover_what_the_model_has_constants_for(device: str, preset: str) -> None:
    points = list_kernel_points(world(device=device), preset)
    assert {point.operation for point in points} == set(KERNELS)
    assert len({point.key for point in points}) == len(points)
    assert points == list_kernel_points(world(device=device), preset)
    gathers = [p for p in points if p.operation == "gather_pool" and p.work is not None]
    assert {p.dtype for p in gathers} == {"fp32", "fp16"}
    assert {p.clock for p in points} == {Clock.EAGER, *([Clock.STREAM] if device == "cuda" else [])}
    most = 2**25 if device == "cpu" else 2**31
    assert max(p.payload_bytes for p in gathers) <= most * 1.01
    tables = [p.work.tables * p.work.rows * p.work.dim * 4 for p in gathers if p.work and p.dtype == "fp32"]
    assert max(tables) / min(tables) > 15


def test_whole_passes_half_held_out_over_every_library() -> None:
    points = list_model_passes(world(), "standard")
    ways = {(p.backend, p.implementation) for p in points}
    assert ways == {("gloo", "exchange"), ("gloo", "torchrec")}
    on_gpus = list_model_passes(world(device="cuda"), "standard")
    assert {(p.backend, p.implementation) for p in on_gpus} == {("nccl", "exchange"), ("nccl", "torchrec")}
    assert sum(p.held_out for p in points) * 2 == len(points)
    assert len({p.key for p in points}) == len(points)
    assert {p.dtype for p in points if p.held_out} == {p.dtype for p in points} == {"fp32", "fp16"}
    for point in points:
        assert point.work is not None and count_lookups(point.work) <= 2**17


def test_own_kernels_are_timed_on_gpus_beside_those_of_libraries() -> None:
    points = list_kernel_points(world(device="cuda"), "standard")
    assert {p.implementation for p in points} == {"torch", "fbgemm", "perfmodel"}
    cells = {
        name: {(p.operation, p.work, p.dtype, p.clock) for p in points if p.implementation == name}
        for name in ("torch", "perfmodel")
    }
    assert {cell[0] for cell in cells["torch"] - cells["perfmodel"]} == {"copy"}


def test_the_paper_has_192_and_168_points() -> None:
    works = list_paper_works()
    assert len(works) == len(set(works)) == 90
    assert [4 * len([work for work in works if (work[2] == 32) == second]) for second in (False, True)] == [
        192, 168,
    ]  # fmt: skip
    eight = world(ranks=8, device="cuda")
    points = list_paper_points(eight, "torchrec", tenth=False)
    assert len(points) == len({point.key for point in points}) == 360
    assert {(p.backend, p.clock, p.nodes) for p in points} == {("nccl", Clock.EAGER, 1)}
    assert [len(list_paper_points(eight, name, tenth=True)) for name in ("exchange", "three")] == [36, 18]
    fused = list_paper_points(eight, "fused", tenth=True)
    assert {p.gpus for p in fused} == {8}  # NVSHMEM: all ranks of the job
    for point in points:
        assert point.work is not None and point.work.rows % point.gpus == 0
        assert point.work.tables * point.work.rows / point.gpus * point.work.dim * 4 <= 8e9 / 8


def test_look_ups_on_cpus_are_smaller_and_take_the_ranks_that_are_there() -> None:
    points = list_paper_points(world(ranks=4), "fused", tenth=False)
    assert {p.gpus for p in points} == {1, 2, 4} and {p.backend for p in points} == {""}
    assert {p.work.batch for p in points if p.work} == {2, 4, 8, 16, 64}
    assert {p.gpus for p in list_paper_points(world(ranks=8, nodes=4), "torchrec", tenth=True)} == {
        1,
        2,
        4,
        8,
    }


def test_the_sets_of_ids_of_a_pass_are_on_average_as_long_as_its_pooling_factor() -> None:
    work = LookupWork(batch=100, tables=3, pooling=2.5, dim=32, rows=1000)
    sets = draw_sets(work, "fp32", 7)
    assert len(sets) == 256 and {len(id_set.ids) for id_set in sets} == {750}
    assert {int(id_set.lengths.sum()) for id_set in sets} == {750} and len(sets[0].lengths) == 300
    assert max(int(id_set.ids.max()) for id_set in sets) < 1000
    assert (sets[0].ids == draw_sets(work, "fp32", 7)[0].ids).all()
