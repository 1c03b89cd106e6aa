"""What is read of dumps of NCCL's inspector: the plugin's own examples, and what is counted as not read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_calls import called

from calibrate.importers.traces import is_trace, read_traces
from perfmodel.errors import BadInputError
from perfmodel.schema.trace_alignment import align, rank_skews

SAID = {"inspector_output_format_version": "v4.0", "git_rev": "", "rec_mechanism": "nccl_profiler_interface",
        "dump_timestamp_us": 1748030377748202, "hostname": "node-1", "pid": 1639453}  # fmt: skip


def line(rank: int, sn: int, time_us: int, name: str = "AllReduce", size: int = 2**20, **more: Any) -> str:
    """One collective of eight ranks, as the plugin writes it; its bandwidth by the plugin's own rule."""
    traffic = size * (8 if name in ("AllGather", "ReduceScatter") else 1)
    perf = {"coll": name, "coll_sn": sn, "coll_msg_size_bytes": size, "coll_exec_time_us": time_us,
            "coll_timing_source": "kernel_gpu", "coll_algobw_gbs": traffic / time_us / 1e3}  # fmt: skip
    header = {"id": "0x7f8c496ae9f661", "rank": rank, "n_ranks": 8, "nnodes": 1}
    return json.dumps({"header": header, "metadata": SAID, "coll_perf": {**perf, **more}}) + "\n"


def dump(folder: Path, rank: int, *lines: str) -> Path:
    path = folder / f"node-1-pid{rank}.log"
    path.write_text("".join(lines), encoding="utf-8")
    return path


def test_the_examples_of_its_own_page_agree_with_their_bandwidths(tmp_path: Path) -> None:
    """plugins/profiler/inspector/README.md of NCCL: 16 GiB in 61 974 us, and 8 x 2 GiB in 41 057 us."""
    path = dump(
        tmp_path, 2,
        line(2, 1407, 61974, "AllReduce", 17179869184, coll_algobw_gbs=277.210914),
        line(2, 1231, 41057, "ReduceScatter", 2147483648, coll_algobw_gbs=418.439467),
    )  # fmt: skip
    (found,) = read_traces([path])
    first, second = found.collectives
    assert (first.collective, first.payload_bytes, first.instance) == ("all_reduce", 17179869184, 1407)
    assert (second.payload_bytes, second.out_bytes) == (8 * 2147483648, 2147483648) and not found.unread


def test_collectives_of_all_ranks_are_put_together_by_their_numbers(tmp_path: Path) -> None:
    for rank in range(8):
        times = [60 if rank == 5 else 90 + rank for _ in range(10)]
        dump(tmp_path, rank, *(line(rank, sn, times[sn]) for sn in range(10)))
    traces = read_traces([tmp_path])
    aligned = align(traces)
    assert len(aligned.collectives) == 10 and all(one.complete for one in aligned.collectives)
    assert {one.time_s for one in aligned.collectives} == {60e-6}
    assert rank_skews(aligned.collectives)[0].rank == 5


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (line(0, 1, 50, coll_timing_source="collective_cpu"), "timed on the CPU"),
        (line(0, 1, 50, coll_algobw_gbs=1.0), "its bandwidth is not its bytes by its time"),
        (line(0, 1, 50, "AlltoAll"), "does not say how its bytes count"),
        (line(0, 1, 50).replace('"n_ranks": 8', '"n_ranks": 1'), "one rank"),
        (line(0, 1, 50).replace("coll_perf", "p2p_perf"), "send or receive"),
        (line(0, 1, 50)[:120], "a line that is cut"),
        ("{}\n", "none of the inspector's"),
    ],
)
def test_what_is_not_read_is_counted_by_its_reason(tmp_path: Path, text: str, reason: str) -> None:
    (found,) = read_traces([dump(tmp_path, 0, line(0, 0, 50), text)])
    ((why, count),) = found.unread.items()
    assert reason in why and count == 1 and len(found.collectives) == 1


def test_other_lines_are_no_dump(tmp_path: Path) -> None:
    log = dump(tmp_path, 0, "# nThread 1 nGpus 1\n")
    assert not is_trace(log)
    sends = dump(tmp_path, 1, line(0, 1, 50).replace("coll_perf", "p2p_perf"))
    with pytest.raises(BadInputError, match="holds no collective"):
        read_traces([sends])


def test_import_of_dumps_makes_a_calibration(tmp_path: Path) -> None:
    for rank in range(8):
        lines = [
            line(rank, 10 * i + j, 30 + 4**i + rank * j, size=2 ** (14 + 2 * i))
            for i in range(5)
            for j in range(4)
        ]
        dump(tmp_path, rank, *lines)
    words = ["--machine", "h100-sxm-ib", "--library-version", "2.28.3", "--json"]
    done = called("import", str(tmp_path), *words)
    assert done.code == 0, done.err
    found = json.loads(done.out)["calibration"]
    (curve,) = found["curves"]
    assert (found["clock"], found["library_version"], curve["collective"], curve["gpus"]) == (
        "trace",
        "2.28.3",
        "all_reduce",
        8,
    )
    assert curve["anchor_times_s"] == pytest.approx([1e-6 * (30 + 4**i) for i in range(5)])
