"""Grids of kernel cells and whole passes, and the ids that they look up."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from calibrate.operations import Availability
from calibrate.passes import id_sets
from calibrate.planning.kernel_cells import (
    ELEMENT_BYTES,
    EXTENTS,
    GIB,
    LOOKUPS,
    MIB,
    WORKING_SETS,
    _times,
    kernel_points,
    lookups,
    payload_bytes,
)
from calibrate.planning.pass_cells import composed_points, paper_points, paper_works
from calibrate.planning.world import World
from perfmodel.errors import BadInputError
from perfmodel.model import exchanges, kernels
from perfmodel.schema.evidence import Clock
from perfmodel.schema.runs import KERNELS, LookupWork

EVERYTHING = {
    name: Availability(True, operations=("all_to_all", "reduce_scatter"))
    for name in ("torch", "fbgemm", "perfmodel", "torchrec", "gloo", "nccl")
}


def world(ranks: int = 2, nodes: int = 1, device: str = "cpu", **others: object) -> World:
    arguments: dict[str, object] = {"providers": EVERYTHING, "memory_bytes": 8e9, **others}
    return World(ranks=ranks, nodes=nodes, device=device, **arguments)  # type: ignore[arg-type]


def test_payloads_are_the_models_bytes() -> None:
    # 2 tables of 3 samples of 4 rows of 8 fp16 elements over 5 ranks: 24 ids, 6 bags
    work = LookupWork(batch=3, tables=2, pooling=4, dim=8, rows=9, shards=5)
    assert payload_bytes("gather_pool", work, "fp16") == kernels.gather_bytes(24, 16, 8, 6, 40) == 816
    assert payload_bytes("bucketize", work, "fp16") == 24 * 8 + 5 * 6 * 8 == 432
    assert payload_bytes("partial_sum", work, "fp16") == exchanges.bag_sum_bytes(6, 5 * 48 * 4, 8, 4) == 1152
    assert payload_bytes("copy", LookupWork(batch=1, dim=100), "fp32") == 200
    assert payload_bytes("launch_floor", work, "fp32") == 0


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("preset", sorted(EXTENTS))
def test_grids_cover_what_the_model_has_constants_for(device: str, preset: str) -> None:
    points = kernel_points(world(device=device), preset)
    assert {point.operation for point in points} == set(KERNELS)
    assert len({point.key for point in points}) == len(points)
    assert points == kernel_points(world(device=device), preset)
    gathers = [p for p in points if p.operation == "gather_pool" and p.work is not None]
    assert {p.dtype for p in gathers} == {"fp32", "fp16"}
    assert {p.work.distribution for p in gathers if p.work} == {"uniform", "zipf:1.05", "one-row"}
    on_gpus = set(Clock) - {Clock.DEVICE}
    assert {p.clock for p in points} == ({Clock.EAGER} if device == "cpu" else on_gpus)
    most = 2**25 if device == "cpu" else 2**31
    assert max(p.payload_bytes for p in gathers) <= most * 1.01
    tables = [p.work.tables * p.work.rows * p.work.dim * 4 for p in gathers if p.work and p.dtype == "fp32"]
    assert max(tables) / min(tables) > 15


def test_quick_copies_stay_below_64_mib_and_tables_fit_the_memory() -> None:
    points = kernel_points(world(memory_bytes=2e8), "quick")
    copies = [p.payload_bytes for p in points if p.operation == "copy"]
    assert min(copies) == 2**16 and max(copies) <= 5e7
    for device, most in (("cpu", 2**26), ("cuda", 2**30)):  # a GPU's cache holds 64 MiB
        points_of_device = kernel_points(world(device=device), "quick")
        assert max(p.payload_bytes for p in points_of_device if p.operation == "copy") == most
    for point in points:
        if point.operation == "gather_pool" and point.work is not None:
            assert (
                point.work.rows * point.work.tables * point.work.dim * ELEMENT_BYTES[point.dtype] <= 2e8 / 8
            )


def test_whole_passes_half_held_out_over_every_library() -> None:
    points = composed_points(world(), "standard")
    ways = {(p.backend, p.implementation) for p in points}
    assert ways == {("gloo", "exchange"), ("gloo", "torchrec")}
    on_gpus = composed_points(world(device="cuda"), "standard")
    assert {(p.backend, p.implementation) for p in on_gpus} == {("nccl", "exchange"), ("nccl", "torchrec")}
    assert sum(p.held_out for p in points) * 2 == len(points)
    assert len({p.key for p in points}) == len(points)
    assert {p.dtype for p in points if p.held_out} == {p.dtype for p in points} == {"fp32", "fp16"}
    for point in points:
        assert point.work is not None and lookups(point.work) <= 2**17


def test_fbgemm_keeps_no_large_tables_on_a_gpu() -> None:
    """Each of its operations has its own: 8 GB take 250 MB at most, where torch's share one memory."""
    largest = {
        library: max(
            p.work.tables * p.work.rows * p.work.dim * 4
            for p in kernel_points(world(device="cuda"), "standard")
            if p.implementation == library and p.operation == "gather_pool" and p.work is not None
        )
        for library in ("torch", "fbgemm")
    }
    assert largest["fbgemm"] <= 8e9 / 32 < largest["torch"] <= 8e9 / 8


def test_whole_passes_take_whole_nodes() -> None:
    points = composed_points(world(ranks=24, nodes=3), "standard")
    assert {(p.gpus, p.nodes, p.gpus_per_node) for p in points} == {
        (2, 1, 2), (4, 1, 4), (8, 1, 8), (16, 2, 8), (24, 3, 8),
    }  # fmt: skip
    assert {p.gpus for p in composed_points(world(ranks=24, nodes=3), "quick")} == {24}


def test_nothing_without_torch_or_without_peers() -> None:
    assert kernel_points(world(providers={"gloo": EVERYTHING["gloo"]}), "quick") == []
    assert composed_points(world(providers={"gloo": EVERYTHING["gloo"]}), "quick") == []
    assert composed_points(world(ranks=1), "quick") == []
    missing = {**EVERYTHING, "fbgemm": Availability(False, "not installed")}
    assert {p.implementation for p in kernel_points(world(providers=missing), "standard")} == {"torch"}
    assert {p.implementation for p in kernel_points(world(), "standard")} == {"torch", "fbgemm"}
    assert {p.implementation for p in kernel_points(world(), "quick")} == {"torch"}


def test_own_kernels_are_timed_on_gpus_beside_those_of_libraries() -> None:
    points = kernel_points(world(device="cuda"), "standard")
    assert {p.implementation for p in points} == {"torch", "fbgemm", "perfmodel"}
    cells = {
        name: {(p.operation, p.work, p.dtype, p.clock) for p in points if p.implementation == name}
        for name in ("torch", "perfmodel")
    }
    assert {cell[0] for cell in cells["torch"] - cells["perfmodel"]} == {
        "bucketize", "partial_sum", "copy", "launch_floor"
    }  # fmt: skip
    assert cells["perfmodel"] < cells["torch"]


@pytest.mark.parametrize(("alpha", "rows"), [(1.05, 100), (1.0, 10**6), (1.2, 10**8)])
def test_zipf_draws_follow_the_law(alpha: float, rows: int) -> None:
    drawn = id_sets.draw_ids(200_000, rows, f"zipf:{alpha}", np.random.default_rng(1))
    assert drawn.min() >= 0 and drawn.max() < rows
    counts = np.sort(np.unique(drawn, return_counts=True)[1])[::-1] / 200_000
    head = np.arange(1, min(rows, 10**6) + 1, dtype=float)
    total = np.sum(head**-alpha)
    if rows > head.size:  # the rest as an integral, right to 12 digits
        total += (head[-1] + 0.5) ** (1 - alpha) / (alpha - 1) - (rows + 0.5) ** (1 - alpha) / (alpha - 1)
    assert counts[0] == pytest.approx(1 / total, rel=0.03)
    assert counts[1] == pytest.approx(2**-alpha / total, rel=0.05)
    halves = np.mean(drawn < rows // 2)
    assert 0.1 < halves < 0.9  # popular rows are not all at one end, which one rank would own


def test_other_distributions() -> None:
    rng = np.random.default_rng(0)
    assert set(id_sets.draw_ids(10, 100, "one-row", rng)) == {50}
    assert len(set(id_sets.draw_ids(10_000, 16, "uniform", rng))) == 16
    for wrong in ("normal", "zipf", "zipf:-1", "zipf:nan", "zipf:inf"):
        with pytest.raises(BadInputError, match="unknown distribution"):
            id_sets.draw_ids(1, 1, wrong, rng)


def test_bag_lengths() -> None:
    rng = np.random.default_rng(0)
    assert id_sets.bag_lengths(3, 2.0, rng).tolist() == [2, 2, 2]
    lengths = id_sets.bag_lengths(10_000, 0.5, rng)
    assert lengths.sum() == 5000
    assert np.mean(lengths == 0) == pytest.approx(np.exp(-0.5), rel=0.03)


def test_every_set_has_the_same_number_of_ids_and_enough_rows_are_touched() -> None:
    work = LookupWork(batch=16, tables=2, pooling=4.5, dim=32, rows=10**6)
    sets = id_sets.draw_sets(work, "fp32", seed=3)
    assert {one.ids.size for one in sets} == {lookups(work)} == {144}
    assert all(one.lengths.size == 32 and one.lengths.sum() == 144 for one in sets)
    assert len(sets) == 256
    big = LookupWork(batch=4096, tables=4, pooling=8, dim=128, rows=10**6)
    assert id_sets.set_count(big, "fp32") == 4  # 64 MiB a set
    assert np.array_equal(sets[5].ids, id_sets.draw_sets(work, "fp32", seed=3)[5].ids)
    assert not np.array_equal(sets[5].ids, id_sets.draw_sets(work, "fp32", seed=4)[5].ids)


@pytest.mark.parametrize("key", sorted(WORKING_SETS))
def test_working_sets_rise_from_the_cache_to_the_memory_in_even_steps(key: tuple[str, str]) -> None:
    sizes = WORKING_SETS[key]
    steps = [large / small for small, large in pairwise(sizes)]
    assert all(2 < step <= 16 for step in steps) and all(size.bit_count() == 1 for size in sizes)
    least, most = (8 * MIB, 32 * GIB) if key[0] == "cuda" else (MIB, GIB)
    assert least <= sizes[0] <= 16 * MIB and sizes[-1] <= most
    coarser = {"standard": "quick", "rigorous": "standard"}.get(key[1])
    assert not coarser or sizes[-1] >= WORKING_SETS[key[0], coarser][-1]


@pytest.mark.parametrize("memory_bytes", [32, 31])
def test_fbgemms_tables_take_a_32nd_of_the_memory_at_most(memory_bytes: int) -> None:
    """Each cell has tables of its own there: those of exactly a 32nd are timed, larger ones are not."""
    own = world(device="cuda", memory_bytes=memory_bytes * 1e9)
    largest = LookupWork(batch=1, tables=1, pooling=1, dim=25, rows=10**7)  # of 1 GB
    assert _times("fbgemm", own, "gather_pool", largest) == (memory_bytes == 32)
    assert _times("torch", own, "gather_pool", largest)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("preset", sorted(EXTENTS))
def test_streams_have_the_ids_that_they_say(device: str, preset: str) -> None:
    """From the least to the most in equal ratios, to whole samples, one at the least."""
    low, high = LOOKUPS[device]
    points = kernel_points(world(device=device), preset)
    works = list(dict.fromkeys(p.work for p in points if p.operation == "bucketize" and p.work is not None))
    assert len(works) == EXTENTS[preset].stream_cells
    assert {work.shards for work in works} == ({2} if device == "cpu" else {2, 8, 64})  # to so many ranks
    for index, work in enumerate(works):
        wanted, of_sample = low * (high / low) ** (index / (len(works) - 1)), work.tables * work.pooling
        assert abs(lookups(work) - wanted) <= 0.5 * of_sample + 1 or work.batch == 1


def test_the_paper_has_192_and_168_points() -> None:
    works = paper_works()
    assert len(works) == len(set(works)) == 90
    assert [4 * len([work for work in works if (work[2] == 32) == second]) for second in (False, True)] == [
        192, 168,
    ]  # fmt: skip
    eight = world(ranks=8, device="cuda")
    points = paper_points(eight, "torchrec", tenth=False)
    assert len(points) == len({point.key for point in points}) == 360
    assert {(p.backend, p.clock, p.nodes) for p in points} == {("nccl", Clock.EAGER, 1)}
    assert [len(paper_points(eight, name, tenth=True)) for name in ("exchange", "three")] == [36, 18]
    assert {p.gpus for p in paper_points(eight, "fused", tenth=True)} == {8}  # NVSHMEM: all ranks of the job
    for point in points:
        assert point.work is not None and point.work.rows % point.gpus == 0
        assert point.work.tables * point.work.rows / point.gpus * point.work.dim * 4 <= 8e9 / 8


def test_look_ups_on_cpus_are_smaller_and_take_the_ranks_that_are_there() -> None:
    points = paper_points(world(ranks=4), "fused", tenth=False)
    assert {p.gpus for p in points} == {1, 2, 4} and {p.backend for p in points} == {""}
    assert {p.work.batch for p in points if p.work} == {2, 4, 8, 16, 64}
    assert {p.gpus for p in paper_points(world(ranks=8, nodes=4), "torchrec", tenth=True)} == {1, 2, 4, 8}
