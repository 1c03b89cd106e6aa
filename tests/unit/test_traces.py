"""What is read of traces of torch.profiler: real ones of gloo and NCCL, and each thing that can be wrong."""

from __future__ import annotations

import contextlib
import copy
import gzip
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_traces import HERE, host, kernel, nccl, trace, write

from calibrate.importers.traces import check_alignment, read_traces
from calibrate.importers.traces.columns import busy_during
from calibrate.importers.traces.kernel_samples import kernel_samples
from perfmodel.errors import BadInputError
from perfmodel.schema.trace_alignment import align, rank_skews
from perfmodel.schema.traces import KernelFamily, RankTrace


def read(folder: Path, *events: dict[str, Any], **more: Any) -> RankTrace:
    (found,) = read_traces([write(folder, trace(events, **more))])
    return found


@pytest.mark.parametrize(
    ("files", "ranks", "collectives", "slow"),
    [("row_wise_2", 2, 12, 1), ("table_row_wise_4", 4, 16, 2), ("dlrm_8", 8, 8, 7)],
)
def test_real_traces_are_read_whole_and_the_slow_rank_is_found(
    files: str, ranks: int, collectives: int, slow: int
) -> None:
    traces = read_traces(sorted(HERE.glob(f"{files}_rank*.json.gz")))
    assert [one.rank for one in traces] == list(range(ranks))
    assert [len(one.collectives) for one in traces] == [collectives] * ranks
    assert all(one.collectives and not one.unread and not one.cut for one in traces)
    aligned = align(traces)
    assert check_alignment(traces, aligned) == []
    assert all(one.complete for one in aligned.collectives)
    assert rank_skews(aligned.collectives)[0].rank == slow


def test_a_row_wise_step_has_the_exchanges_that_torchrec_makes() -> None:
    """2 tables of 32 columns, 256 samples a rank with 8 ids in each bag, 2 ranks."""
    first, _ = read_traces(sorted(HERE.glob("row_wise_2_rank*.json.gz")))
    step = [(one.collective, one.dtype, one.payload_bytes) for one in first.collectives[:6]]
    bags = 2 * 256 * 32 * 4 * 2
    dense = (2 * 32 * 32 + 32 + 32 + 1) * 4
    assert step == [
        ("all_to_all", "int64", 6 * 8), ("all_to_all", "int64", 2 * 256 * 2 * 8),
        ("all_to_all", "int64", 2 * 256 * 8 * 8), ("reduce_scatter", "float", bags),
        ("all_reduce", "float", dense), ("all_gather", "float", bags),
    ]  # fmt: skip
    ids = first.collectives[2]
    assert sum(ids.in_split) * 8 == ids.in_bytes and sum(ids.out_split) * 8 == ids.out_bytes
    assert Counter(one.family for one in first.kernels) == {
        KernelFamily.BUCKETIZE: 2, KernelFamily.PERMUTE: 2,
        KernelFamily.GATHER_POOL: 2, KernelFamily.BACKWARD: 2,
    }  # fmt: skip
    assert [one.step for one in first.ranges] == [0, 1]


def test_groups_of_equal_size_are_told_apart_by_their_workers() -> None:
    """Table-row-wise: bags are summed within a host of two ranks, and travel between hosts."""
    traces = read_traces(sorted(HERE.glob("table_row_wise_4_rank*.json.gz")))
    sets = {(one.collective, one.group_ranks) for one in traces[3].collectives if one.group_size == 2}
    assert sets == {("reduce_scatter", (2, 3)), ("all_gather", (2, 3)), ("all_to_all", (1, 3))}


def test_a_kernel_of_nccl_says_what_it_is(tmp_path: Path) -> None:
    uneven = {"In split size": "[100, 28]", "Out split size": "[60, 68]", "dtype": "Long"}
    found = read(
        tmp_path,
        nccl(100, 30), nccl(200, 40, "all_to_allv", 128, 128, Seq=8, **uneven),
        nccl(300, 50, "_reduce_scatter_base", 4096, 2048, dtype="BFloat16"),
    )  # fmt: skip
    gather, exchange, scatter = found.collectives
    assert (gather.collective, gather.payload_bytes, gather.group_ranks) == ("all_gather", 8192, (0, 1))
    assert gather.time_s == pytest.approx(30e-6)
    assert (exchange.in_split, exchange.in_bytes, exchange.dtype) == ((100, 28), 1024, "int64")
    assert (scatter.payload_bytes, scatter.out_bytes, scatter.dtype) == (8192, 4096, "bfloat16")
    assert (found.device, found.versions, found.backend) == (
        "NVIDIA H100 80GB HBM3",
        {"nccl": "2.21.5"},
        "nccl",
    )


def test_sequence_numbers_are_taken_where_all_are_different(tmp_path: Path) -> None:
    one = read(tmp_path, nccl(1, 1, Seq=5), nccl(2, 1, Seq=6))
    assert [(c.instance, c.numbered) for c in one.collectives] == [(5, True), (6, True)]
    coalesced = read(tmp_path, nccl(1, 1, Seq=5), nccl(2, 1, Seq=5))
    assert [(c.instance, c.numbered) for c in coalesced.collectives] == [(0, False), (1, False)]


def test_older_traces_say_it_on_the_host(tmp_path: Path) -> None:
    """By External id; or by the range in which the kernel was launched, with the shape of the send buffer."""
    said = nccl(0, 0)["args"]
    by_id = read(
        tmp_path, host("record_param_comms", 10, 5, **{**said, "External id": 77}),
        kernel("ncclKernel_AllGather_RING", 20, 9, 20, **{"External id": 77, "correlation": 3}),
    )  # fmt: skip
    shapes = {"Input Dims": [[32, 32]], "Input type": ["float"]}
    by_range = read(
        tmp_path,
        host("nccl:_all_gather_base", 10, 5, "user_annotation", **shapes),
        host("cudaLaunchKernel", 12, 1, "cuda_runtime", correlation=3),
        kernel("ncclKernel_AllGather_RING", 20, 9, 20, **{"External id": 3, "correlation": 3}),
    )  # fmt: skip
    for found in (by_id, by_range):
        (one,) = found.collectives
        assert (one.collective, one.in_bytes, one.out_bytes, one.group_size) == ("all_gather", 4096, 8192, 2)
    assert by_range.collectives[0].launch_s == pytest.approx(2e-6)


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (nccl(1, 1, "barrier"), "barrier: no collective that is modelled"),
        (nccl(1, 1, dtype="ComplexFloat"), "datatype 'ComplexFloat' is not known"),
        (nccl(1, 1, **{"Group size": 1}), "one rank: nothing was sent"),
        (nccl(1, 1, sent=0, received=0), "no bytes"),
        (kernel("ncclDevKernel_SendRecv", 1, 1, 20, correlation=5), "its launch is not in the trace"),
    ],
)
def test_what_is_not_read_is_counted_by_its_reason(
    tmp_path: Path, event: dict[str, Any], reason: str
) -> None:
    found = read(tmp_path, nccl(0, 1), event, event)
    assert found.unread == {reason: 2} and len(found.collectives) == 1


def test_a_rank_that_only_receives_takes_part(tmp_path: Path) -> None:
    """Bags of whole tables: a rank without one sends nothing, and its collectives keep their numbers."""
    (one,) = read(tmp_path, nccl(0, 1, "all_to_allv", sent=0, received=4096)).collectives
    assert (one.in_bytes, one.out_bytes, one.payload_bytes) == (0, 4096 * 4, 0)


def test_elided_ranks_of_a_group_come_from_the_traces_own_list(tmp_path: Path) -> None:
    wide = {"Group size": 64, "Process Group Ranks": "[0, 1, ..., 126]", "Process Group Name": "5"}
    listed = [("0", list(range(128))), ("5", list(range(0, 128, 2)))]
    (one,) = read(tmp_path, nccl(0, 1, **wide), ranks=128, groups=listed).collectives
    assert one.group_ranks == tuple(range(0, 128, 2))
    twice = [*listed, ("5", list(range(1, 128, 2))), ("5", [0, 1])]
    found = read(tmp_path, nccl(0, 1, **wide), ranks=128, groups=twice)
    (one,) = found.collectives
    assert one.group_ranks == () and one.group_size == 64
    said = check_alignment([found], align([found]))
    assert "process groups of one name, told apart by their ranks: 5" in said


def test_compute_beside_a_collective_marks_both(tmp_path: Path) -> None:
    found = read(
        tmp_path, nccl(100, 50), kernel("gemm", 130, 40, 7), nccl(300, 50), kernel("gemm", 350, 5, 7)
    )
    assert [one.overlapped for one in found.collectives] == [True, False]
    assert found.collectives[0].overlap_s == pytest.approx(20e-6)
    assert [one.overlap_s for one in found.kernels] == pytest.approx([20e-6, 0])


def test_overlap_agrees_with_counting_every_moment() -> None:
    draw = np.random.default_rng(1)
    starts, others = draw.integers(0, 300, 40), draw.integers(0, 300, 30)
    ends, other_ends = starts + draw.integers(0, 40, 40), others + draw.integers(0, 25, 30)
    busy = np.zeros(400)
    for a, b in zip(others, other_ends, strict=True):
        busy[a:b] = 1
    counted = [busy[a:b].sum() for a, b in zip(starts, ends, strict=True)]
    assert busy_during(starts * 1.0, ends * 1.0, others * 1.0, other_ends * 1.0) == pytest.approx(counted)


def test_a_kernel_has_its_operator_its_launch_and_its_wait_in_the_queue(tmp_path: Path) -> None:
    forward = "void split_embedding_codegen_forward_unweighted_kernel<float, float>"
    found = read(
        tmp_path,
        host("fbgemm::split_embedding_codegen_lookup_sgd_function", 10, 30,
             **{"External id": 5, "Input Dims": [[640], [0], [[8, 4]]], "Concrete Inputs": ["", "", "1"]}),
        host("cudaLaunchKernel", 20, 4, "cuda_runtime", correlation=9),
        kernel(forward, 40, 6, 7, **{"External id": 5, "correlation": 9}),
    )  # fmt: skip
    (one,) = found.kernels
    assert one.family is KernelFamily.GATHER_POOL and one.op.startswith("fbgemm::split")
    assert one.shapes == ((640,), (0,), (8, 4)) and one.scalars == ("", "", "1")
    assert (one.launch_s, one.queue_s) == (pytest.approx(4e-6), pytest.approx(16e-6))


@pytest.mark.parametrize("name", ["trace_rank0.json", "trace_rank0.json.gz"])
def test_a_cut_trace_is_read_up_to_where_it_is_cut(tmp_path: Path, name: str) -> None:
    events = [nccl(10 * i, 5 + i % 3, note="x" * (i % 50)) for i in range(3000)]
    path = write(tmp_path, trace(events), name)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    (found,) = read_traces([path])
    assert found.cut and 500 < len(found.collectives) < 2900


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is not a trace"),
        (b'{"answer": 42}', "is not a trace"),
        (b"[1, 2, 3]", "is not a trace"),
        (
            b'{"distributedInfo": {"rank": 0}, "traceEvents": [{"ph": "X"}, nonsense]}',
            "is not JSON after event 1",
        ),
        (b'{"traceEvents": []}', "does not say of which rank it is"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "some.json"
    path.write_bytes(content)
    with pytest.raises(BadInputError, match=says):
        read_traces([path])


def test_a_rank_is_taken_from_the_name_where_the_trace_lacks_it(tmp_path: Path) -> None:
    document = trace([nccl(1, 1)])
    del document["distributedInfo"]
    (found,) = read_traces([write(tmp_path, document, "worker3_step_12.pt.trace.json")])
    assert found.rank == 3


def two(folder: Path, first: Any, second: Any) -> list[Path]:
    return [write(folder, first, "a.json"), write(folder, second, "b.json")]


@pytest.mark.parametrize(
    ("second", "says"),
    [
        (trace([nccl(1, 1)], rank=0), "both of rank 0"),
        (trace([nccl(1, 1)], rank=1, ranks=4), "different runs: ranks in all 2 and 4"),
        (
            trace([nccl(1, 1)], rank=1, deviceProperties=[{"id": 0, "name": "Tesla V100"}]),
            "different runs: GPU",
        ),
    ],
)
def test_ranks_of_different_runs_are_refused(tmp_path: Path, second: Any, says: str) -> None:
    with pytest.raises(BadInputError, match=says):
        read_traces(two(tmp_path, trace([nccl(1, 1)]), second))


def ends(shift_us: float, uneven: float) -> list[dict[str, Any]]:
    """40 collectives, 5 ms apart give or take a share; another share is of another run."""
    draw = np.random.default_rng(int(100 * uneven))
    at = np.cumsum(5000 * (1 + uneven * draw.uniform(-1, 1, 40)))
    return [nccl(float(t) + shift_us, 40.0) for t in at]


def test_clocks_that_are_minutes_apart_are_said(tmp_path: Path) -> None:
    traces = read_traces(two(tmp_path, trace(ends(0, 0)), trace(ends(240e6, 0), rank=1)))
    (said,) = check_alignment(traces, align(traces))
    assert said == "the clock of rank 1 is 240 s ahead of that of rank 0: only durations are compared"


def test_traces_of_other_steps_are_refused(tmp_path: Path) -> None:
    """The same collectives, but not at the same moments, whatever the clocks."""
    other = read_traces(two(tmp_path, trace(ends(0, 0)), trace(ends(240e6, 0.2), rank=1)))
    with pytest.raises(BadInputError, match="not of the same steps"):
        check_alignment(other, align(other))
    same_host = two(
        tmp_path, trace(ends(0, 0), host_name="n1"), trace(ends(240e6, 0), rank=1, host_name="n1")
    )
    traces = read_traces(same_host)
    with pytest.raises(BadInputError, match="not of the same steps"):
        check_alignment(traces, align(traces))


def test_two_groups_of_one_name_are_told_apart_by_their_ranks(tmp_path: Path) -> None:
    one, other = [("1", [0, 1])], [("1", [0, 2])]
    first = trace([nccl(1, 1, **{"Process Group Name": "1"})], ranks=3, groups=one)
    mine = {"Process Group Name": "1", "Process Group Ranks": "[0, 2]"}
    second = trace([nccl(1, 1, **mine)], rank=2, ranks=3, groups=other)
    traces = read_traces(two(tmp_path, first, second))
    aligned = align(traces)
    assert len(aligned.collectives) == 2
    said = check_alignment(traces, aligned)
    assert "process groups of one name, told apart by their ranks: 1" in said
    assert "no trace of rank 1 of 3 ranks: waits for them are inside the others' times" in said


def test_a_folder_is_all_its_traces_and_one_without_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="holds no trace"):
        read_traces([tmp_path])
    two(tmp_path, trace([nccl(1, 1)]), trace([nccl(1, 1)], rank=1))
    assert [one.rank for one in read_traces([tmp_path])] == [0, 1]


def test_reading_tells_how_far_it_is(tmp_path: Path) -> None:
    path = write(tmp_path, trace([nccl(i, 1) for i in range(50)]), "trace_rank0.json.gz")
    told: list[tuple[str, int, int]] = []
    read_traces([path], lambda *words: told.append(words))
    assert told[-1] == (path.name, path.stat().st_size, path.stat().st_size)
    json.loads(gzip.decompress(path.read_bytes()))


JUNK = (None, True, -1, 2**70, 1e308, "x", "[0, 1, ..., 5]", [], {}, [[]], [None], {"a": 1}, [[1, [2]]])


def changed(document: Any, draw: random.Random) -> Any:
    """The document with something else, or nothing, at one to six places."""
    for _ in range(draw.randint(1, 6)):
        node = document
        while isinstance(node, (dict, list)) and node:
            key = draw.choice(list(node) if isinstance(node, dict) else range(len(node)))
            if isinstance(node[key], (dict, list)) and node[key] and draw.random() < 0.85:
                node = node[key]
                continue
            if draw.random() < 0.7:
                node[key] = copy.deepcopy(draw.choice(JUNK))
            else:
                del node[key]
            break
    return document


@pytest.mark.parametrize("file", ["dlrm_8_rank0", "resnet_2_rank0", "row_wise_2_rank0"])
def test_whatever_stands_in_a_trace_it_is_read_or_refused(tmp_path: Path, file: str) -> None:
    text = gzip.decompress((HERE / f"{file}.json.gz").read_bytes())
    for seed in range(40):
        path = write(tmp_path, changed(json.loads(text), random.Random(seed)))
        with contextlib.suppress(BadInputError):
            (found,) = read_traces([path])
            assert len(list(found.kernels)) == len(found.kernels)
            kernel_samples([found])
            align([found])


def test_a_database_is_refused_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "report.sqlite"
    path.write_bytes(b"SQLite format 3\0" + bytes(200))
    with pytest.raises(BadInputError, match="nsys export"):
        read_traces([path])
