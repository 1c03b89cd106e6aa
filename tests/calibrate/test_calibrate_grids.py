"""Grids of kernel cells and whole passes, and the ids that they look up."""

from __future__ import annotations

import pytest

from calibrate.operations import Availability
from calibrate.passes.id_sets import draw_sets
from calibrate.planning.kernel_cells import GRIDS, count_lookups, list_kernel_points
from calibrate.planning.pass_cells import list_model_passes, list_paper_points, list_paper_works
from calibrate.planning.world import World
from perfmodel.schema.evidence import Clock
from perfmodel.schema.runs import KERNELS, LookupWork

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
