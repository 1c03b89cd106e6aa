"""Importers: each known layout, each refusal, and arbitrary damage. The logs are made up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.made_logs import HEADER_NEW, HEADER_OLD, NVSHMEM, PES, line, new_log, write

from calibrate.importers import import_logs, read_text
from perfmodel.errors import BadInputError, PerfmodelError


def test_new_layout_gives_all_columns(tmp_path: Path) -> None:
    log = write(
        tmp_path,
        "run.log",
        new_log([line(8_000_000, 80.0, 16), line(16_000_000, 100.0, 16)], gpus=16, hosts=2),
    )
    result = import_logs([log])
    frame = result.samples
    assert result.unread == []
    assert len(frame) == 4  # two sizes, out of place and in place
    first = frame.iloc[0]
    assert (first.backend, first.library_version, first.gpu) == ("nccl", "2.29.7", "H200")
    assert (first.collective, first.clock, first.variant) == ("all_gather", "stream", "default")
    assert (first.payload_bytes, first.gpus, first.nodes, first.gpus_per_node) == (8_000_000, 16, 2, 8)
    whole = frame[["payload_bytes", "gpus", "nodes", "gpus_per_node"]]
    assert {kind.kind for kind in whole.dtypes} == {"i"}  # 2.0 nodes are no number of a samples file
    assert first.time_s == pytest.approx(80e-6)
    assert (first.datatype, bool(first.in_place)) == ("float", False)
    assert str(result.stack) == "nccl 2.29.7 · H200 · stream"


def test_old_layout_and_labels_of_launchers(tmp_path: Path) -> None:
    text = "\n".join(
        [
            "mpirun -np 4 ./build/all_reduce_perf -b 8 -e 1G",
            "# nThread 4 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) iters: 20 validation: 1",
            "#   Rank  0 Pid   1 on node-0 device  0 [0x07] NVIDIA A100-SXM4-80GB",
            "#   Rank  1 Pid   1 on node-0 device  1 [0x0b] NVIDIA A100-SXM4-80GB",
            "#   Rank  2 Pid   1 on node-0 device  2 [0x48] NVIDIA A100-SXM4-80GB",
            "#   Rank  3 Pid   1 on node-0 device  3 [0x4c] NVIDIA A100-SXM4-80GB",
            "NCCL version 2.8.4+cuda11.2",
            HEADER_OLD,
            " 4000000 1000000 float sum 40.00 100.00 150.00 2e-07 40.00 100.00 150.00 2e-07",
        ]
    )
    tagged = "\n".join("[1,0]<stdout>:" + row for row in text.splitlines())
    for name, content in (("plain.log", text), ("tagged.log", tagged)):
        result = import_logs([write(tmp_path, name, content)])
        assert list(result.samples.collective) == ["all_reduce", "all_reduce"], name
        assert list(result.samples.flag) == ["ok", "ok"], (
            "the old error column is a rounding error, not a count"
        )
        assert result.stack.library_version == "2.8.4"
        assert list(result.samples.gpus) == [4, 4]


def test_several_runs_in_one_file(tmp_path: Path) -> None:
    both = new_log([line(8_000_000, 80.0)], gpus=8) + "\n" + new_log([line(8_000_000, 40.0, 4)], gpus=4)
    frame = import_logs([write(tmp_path, "both.log", both)]).samples
    assert sorted(set(frame.gpus)) == [4, 8]
    assert frame[frame.gpus == 4].time_s.iloc[0] == pytest.approx(40e-6)


def test_graph_and_blocking_change_the_clock(tmp_path: Path) -> None:
    graph = new_log([line(8_000_000, 80.0)], graph=10)
    assert import_logs([write(tmp_path, "g.log", graph)]).stack.clock == "graph"
    blocking = new_log([line(8_000_000, 80.0)]).replace("#\n# Using", "# Blocking Enabled: wait\n#\n# Using")
    assert import_logs([write(tmp_path, "b.log", blocking)]).stack.clock == "eager"


def test_json_of_nccl_tests(tmp_path: Path) -> None:
    half = {"time": 80.0, "alg_bw": 100.0, "bus_bw": 87.5, "nwrong": 0.0}
    document = {
        "version": 1,
        "args": ["./build/all_gather_perf", "-J", "x.json"],
        "env": ["SECRET=hunter2"],
        "nccl_version": 22907,
        "config": {
            "nthreads": 8,
            "ngpus": 1,
            "graph": 0,
            "blocking_collectives": "false",
            "devices": [{"rank": 0, "group": 0, "hostname": "node-0", "device_info": "NVIDIA H200"}],
        },
        "results": [
            {
                "size": 8_000_000,
                "count": 2,
                "type": "float",
                "redop": "none",
                "out_of_place": half,
                "in_place": None,
            },
            {
                "size": 8_000_000,
                "count": 2,
                "type": "float",
                "redop": "none",
                "out_of_place": {"time": "nan"},
            },
        ],
    }
    result = import_logs([write(tmp_path, "x.json", json.dumps(document))])
    assert len(result.samples) == 1
    assert (result.samples.gpus.iloc[0], result.samples.gpus_per_node.iloc[0]) == (8, 8)
    assert result.samples.time_s.iloc[0] == pytest.approx(80e-6)
    assert [u.text for u in result.unread] == ["results[1].in_place", "results[1].out_of_place"]
    assert "hunter2" not in result.samples.to_csv()


def test_nvshmem_perftest_of_current_versions(tmp_path: Path) -> None:
    frame = import_logs([write(tmp_path, "a2a.log", NVSHMEM)]).samples
    assert list(frame.payload_bytes) == [32, 4_000_000]
    assert list(frame.variant) == ["device_block"] * 2
    assert set(frame.clock) == {"device"}
    assert set(frame.collective) == {"all_to_all"}
    assert frame.time_s.iloc[1] == pytest.approx(40e-6)
    assert (frame.backend[0], frame.library_version[0], frame.gpus[0]) == ("nvshmem", "3.4.5", 8)
    assert set(frame.gpus_per_node) == {8}  # mype_node counts up inside a node
    two = NVSHMEM
    for pe in range(4, 8):
        two = two.replace(f"mype_node: {pe} ", f"mype_node: {pe - 4} ")
    frame = import_logs([write(tmp_path, "two.log", two)]).samples
    assert (set(frame.gpus), set(frame.gpus_per_node), set(frame.nodes)) == ({8}, {4}, {2})


def test_nvshmem_sizes_for_one_peer_become_buffer_sizes(tmp_path: Path) -> None:
    text = NVSHMEM.replace("32          8  ", "4           1  ").replace(
        "0.008         0.007", "0.001  0.001"
    )
    frame = import_logs([write(tmp_path, "a2a.log", text)]).samples
    assert list(frame.payload_bytes) == [32, 32_000_000]
    assert set(frame.note) == {"size column is for one peer"}


def test_only_sum_is_kept(tmp_path: Path) -> None:
    text = f"""{PES}
#device_reduction
size(B)     count     type      redop     scope     latency(us)       algbw(GB/s)   busbw(GB/s)
4000000     1000000   int32     sum       b         40.000000         100.000       175.000
4000000     1000000   int32     xor       b         40.000000         100.000       175.000
"""
    result = import_logs([write(tmp_path, "r.log", text)])
    assert len(result.samples) == 1
    assert "reduction 'xor'" in result.unread[0].reason


def test_csv_in_our_format(tmp_path: Path) -> None:
    text = "collective,payload_bytes,gpus,gpus_per_node,time_s,clock\nall_to_all,1024,16,8,2e-5,graph\n"
    result = import_logs([write(tmp_path, "mine.csv", text)])
    assert result.samples.time_s.iloc[0] == pytest.approx(2e-5)
    assert (result.samples.nodes.iloc[0], result.stack.clock) == (2, "graph")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (line(8_000_000, 80.0).replace("80.00", "nan", 1), "finite"),
        (line(8_000_000, 80.0).replace("80.00", "0.00", 1), "positive"),
        (line(8_000_000, 80.0).replace("80.00", "-80.0", 1), "positive"),
        (line(8_000_000, 80.0).replace("80.00", "40.00", 1), "columns do not agree"),
        ("0 0 float none -1 8.00 0.00 0.00 0 8.00 0.00 0.00 0", "0 bytes"),
        (" ".join(line(8_000_000, 80.0).split()[:9]), "cut short"),
        (line(8_000_000, 80.0, gpus=4), "wrong collective or wrong number of GPUs"),
        (line(8_000_000, 80.0).replace("none", "prod"), "only sum"),
    ],
)
def test_each_bad_row_is_reported_and_the_good_one_kept(tmp_path: Path, row: str, reason: str) -> None:
    log = write(tmp_path, "bad.log", new_log([line(16_000_000, 100.0), row]))
    result = import_logs([log])
    assert 16_000_000 in set(result.samples.payload_bytes)
    assert any(reason in u.reason for u in result.unread), result.unread
    assert all(u.file == "bad.log" and u.line_no == 19 for u in result.unread)


def test_bandwidths_are_checked_under_a_damaged_head(tmp_path: Path) -> None:
    text = new_log([line(8_000_000, 80.0, gpus=4)]).replace(
        "busbw  #wrong     time", "bu!bw  #wrong     time"
    )
    with pytest.raises(BadInputError, match="wrong number of GPUs"):
        import_logs([write(tmp_path, "x.log", text)])


def test_a_column_that_stands_twice_is_named(tmp_path: Path) -> None:
    head, row = "collective,payload_bytes,gpus,time_s,time_s", "all_gather,1024,8,1e-5,2e-5"
    result = import_logs([write(tmp_path, "x.csv", f"{head}\n{row}\n")], gpus_per_node=8)
    assert list(result.samples.time_s) == [2e-5]
    assert "'time_s' stands twice" in result.unread[0].reason


def test_wrong_results_and_duplicates_are_flagged(tmp_path: Path) -> None:
    rows = [line(8_000_000, 80.0, wrong="3"), line(16_000_000, 100.0), line(16_000_000, 100.0)]
    result = import_logs([write(tmp_path, "x.log", new_log(rows))])
    out_of_place = result.samples[~result.samples.in_place]
    assert list(out_of_place.flag) == ["wrong", "ok", "duplicate"]
    assert any("duplicate" in w for w in result.warnings)


def test_different_stacks_are_refused_by_name(tmp_path: Path) -> None:
    old = write(tmp_path, "old.log", new_log([line(8_000_000, 80.0)], code=22703))
    new = write(tmp_path, "new.log", new_log([line(8_000_000, 70.0)], code=22907))
    with pytest.raises(BadInputError) as caught:
        import_logs([old, new])
    assert "nccl 2.27.3 · H200 · stream" in caught.value.message
    assert "nccl 2.29.7 · H200 · stream" in caught.value.message
    assert "one by one" in caught.value.next_step


def test_layout_that_contradicts_the_option_is_refused(tmp_path: Path) -> None:
    log = write(tmp_path, "x.log", new_log([line(8_000_000, 80.0, 16)], gpus=16, hosts=2))
    with pytest.raises(BadInputError, match="--set gpus_per_node=4, but the log says 8"):
        import_logs([log], gpus_per_node=4)
    with pytest.raises(BadInputError, match="--op"):
        import_logs([log], op="all_reduce")


def test_uneven_nodes_shared_gpus_and_single_ranks_are_refused(tmp_path: Path) -> None:
    good = new_log([line(8_000_000, 80.0)])
    for damage, reason in (
        (good.replace("node-0 device  7", "node-1 device  0"), "unevenly"),
        (good.replace("[0000:07:00]", "[0000:06:00]"), "share one GPU"),
        (good.replace("Rank  7 Group  0", "Rank  7 Group  1"), "several communicators"),
        (new_log([line(8_000_000, 80.0)], gpus=1), "one rank"),
        (new_log([line(8_000_000, 80.0)], op="hypercube"), "none of"),
    ):
        with pytest.raises(BadInputError, match=reason):
            import_logs([write(tmp_path, "bad.log", damage)])


def test_a_log_without_ranks_needs_options(tmp_path: Path) -> None:
    log = write(tmp_path, "alltoall_h200.log", "\n".join([HEADER_NEW, line(8_000_000, 80.0)]))
    with pytest.raises(BadInputError, match="how many GPUs"):
        import_logs([log])
    with pytest.raises(BadInputError, match="how many nodes"):
        import_logs([log], gpus=8)
    nodes = [import_logs([log], gpus=8, gpus_per_node=count).samples.nodes[0] for count in (8, 4, 8)]
    assert nodes == [1, 2, 1]
    assert import_logs([log], gpus=8, gpus_per_node=8).samples.collective[0] == "all_to_all"


def test_nothing_to_read_is_one_error(tmp_path: Path) -> None:
    for name, text in (("empty.log", ""), ("words.txt", "hello\nworld 12\n"), ("cut.json", '{"results": [')):
        with pytest.raises(BadInputError, match="no sample"):
            import_logs([write(tmp_path, name, text)])
    with pytest.raises(BadInputError, match="No such file"):
        import_logs([tmp_path / "missing.log"])
    with pytest.raises(BadInputError, match="folder"):
        import_logs([tmp_path])
    with pytest.raises(BadInputError, match="no log"):
        import_logs([])


GOOD_TEXTS = [new_log([line(8_000_000, 80.0), line(16_000_000, 90.0)]), NVSHMEM]


@settings(max_examples=60)
@given(data=st.data())
def test_damaged_logs_never_raise_anything_else(tmp_path: Path, data: st.DataObject) -> None:
    good = data.draw(st.sampled_from(GOOD_TEXTS))
    cut = good[: data.draw(st.integers(0, len(good)))]
    at = data.draw(st.integers(0, len(cut)))
    content = cut[:at].encode() + data.draw(st.binary(max_size=20)) + cut[at:].encode()
    path = tmp_path / "fuzz.log"
    path.write_bytes(content)
    try:
        frame = import_logs([path], gpus_per_node=data.draw(st.sampled_from([None, 8]))).samples
    except PerfmodelError:
        return
    assert (frame.time_s > 0).all()
    assert (frame.payload_bytes > 0).all()


_TOKENS = st.sampled_from(
    [
        "#",
        "size",
        "time",
        "busbw",
        "8",
        "16",
        "nan",
        "inf",
        "-1",
        "1e999",
        "0.00",
        "|",
        "\n",
        "\n",
        "Rank",
        "{",
        "}",
        '{"results": [{"size": 1}]}',
        ",",
        "collective,payload_bytes,gpus,time_s",
        '{"redop":"sum", "inPlace":0, "busBw":1}\n',
        '"results":[',
        "latency(us)",
        "size(B)",
        "#alltoall_device\n",
        "all_gather",
        "9" * 30,
        "\x00",
        "²",
        "٣",
    ]
)


@settings(max_examples=80)
@given(
    st.one_of(st.text(max_size=300), st.lists(_TOKENS, max_size=60).map(" ".join)),
    st.sampled_from(["a.log", "a.csv"]),
)
def test_arbitrary_text_never_raises(text: str, name: str) -> None:
    reading = read_text(text, name)
    assert all(u.reason for u in reading.unread)
