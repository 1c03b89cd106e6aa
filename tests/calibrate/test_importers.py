"""Importers: each known layout, each refusal, logs as people print them, and arbitrary damage."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_calls import called
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.made_logs import HEADER_NEW, HEADER_OLD, NVSHMEM, PES, line, new_log, write
from recorded import assert_recorded

from calibrate.importers import logged_rows as logged
from calibrate.importers.merge import ImportResult, import_logs, read_text
from perfmodel.errors import BadInputError, PerfmodelError
from perfmodel.schema.calibration import read_calibration

LOGS = Path(__file__).parent / "logs"
H200 = ("--machine", "h200-sxm-ib")
GOOD = line(8_000_000, 80.0)
ROWS = [line(2**k, 10.0 + 2**k / 350e3) for k in range(10, 27)]
"""Times of an H200 node: 10 us, and 350 GB/s."""
CSV_HEAD = "collective,payload_bytes,gpus,gpus_per_node,time_s"
Read = Callable[..., ImportResult]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """The import of one log with this text."""
    return lambda text, name="x.log", **options: import_logs([write(tmp_path, name, text)], **options)


def test_new_layout_gives_all_columns(read: Read) -> None:
    rows = [line(8_000_000, 80.0, 16), line(16_000_000, 100.0, 16)]
    result = read(new_log(rows, gpus=16, hosts=2))
    frame = result.samples
    assert result.unread == []
    assert len(frame) == 4  # two sizes, out of place and in place
    first = frame.iloc[0]
    assert (first.payload_bytes, first.gpus, first.nodes, first.gpus_per_node) == (8_000_000, 16, 2, 8)
    counts = frame[["payload_bytes", "gpus", "nodes", "gpus_per_node"]]
    assert {kind.kind for kind in counts.dtypes} == {"i"}  # 2.0 nodes are no number of a samples file
    assert first.time_s == pytest.approx(80e-6)
    assert str(result.stack) == "nccl 2.29.7 · H200 · stream"


OLD = "\n".join(
    [
        "mpirun -np 4 ./build/all_reduce_perf -b 8 -e 1G",
        "# nThread 4 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) iters: 20 validation: 1",
        *(f"#   Rank  {r} Pid   1 on node-0 device  {r} [0x0{r}] NVIDIA A100-SXM4-80GB" for r in range(4)),
        "NCCL version 2.8.4+cuda11.2",
        HEADER_OLD,
        " 4000000 1000000 float sum 40.00 100.00 150.00 2e-07 40.00 100.00 150.00 2e-07",
    ]
)


@pytest.mark.parametrize("label", ["", "[1,0]<stdout>:"])
def test_old_layout_whose_error_is_a_rounding_error_and_no_count(read: Read, label: str) -> None:
    result = read("\n".join(label + row for row in OLD.splitlines()))
    frame = result.samples
    assert list(frame.collective) == ["all_reduce"] * 2 and list(frame.flag) == ["ok"] * 2
    assert result.stack.library_version == "2.8.4" and list(frame.gpus) == [4, 4]
    assert result.cut == ["x.log"]  # no line says that the run ended


def test_a_blank_reduction_is_none_and_rows_need_a_head(read: Read) -> None:
    result = import_logs([LOGS / "blank_redop_alltoall.log"])
    assert len(result.samples) > 0 and result.unread == []
    result = read(f"8000000 2000000 float 80.00 100.00 87.50\n{new_log([GOOD])}")
    assert [u.reason for u in result.unread] == ["no header with the columns size and time before it"]


def test_json_of_nccl_tests(read: Read) -> None:
    half = {"time": 80.0, "alg_bw": 100.0, "bus_bw": 87.5, "nwrong": 0.0}
    row = {"size": 8_000_000, "count": 2, "type": "float", "redop": "none"}
    device = {"rank": 0, "group": 0, "hostname": "node-0", "device_info": "NVIDIA H200"}
    config = {"nthreads": 8, "ngpus": 1, "graph": 0, "blocking_collectives": "false", "devices": [device]}
    head = {"version": 1, "args": ["./build/all_gather_perf"], "env": ["SECRET=hunter2"], "config": config}
    halves = {"out_of_place": half, "in_place": None}, {"out_of_place": {"time": "nan"}}
    results = [{**row, **of_row} for of_row in halves]
    result = read(json.dumps({**head, "nccl_version": 22907, "results": results}), "x.json")
    (sample,) = result.samples.itertuples()
    assert (sample.gpus, sample.gpus_per_node, sample.time_s) == (8, 8, pytest.approx(80e-6))
    assert [u.text for u in result.unread] == ["results[1].in_place", "results[1].out_of_place"]
    assert "hunter2" not in result.samples.to_csv()
    config["devices"] = [{**device, "rank": rank} for rank in range(8)]  # an entry a rank
    (sample,) = read(json.dumps({**head, "nccl_version": 22907, "results": results}), "y.json").samples.gpus
    assert sample == 8
    config |= {"nthreads": 4, "devices": [{**device, "rank": rank} for rank in (0, 4)]}
    changes = {"graph": 1}, {"blocking_collectives": "true"}, {"ngpus": 0}, {"ngpus": 4, "nthreads": 0}
    said = "graph ok", "eager ok", "stream ok", "stream single-process"
    for change, words in zip(changes, said, strict=True):
        head["config"] = config | change
        (sample,) = read(json.dumps({**head, "results": results[:1]}), "z.json").samples.itertuples()
        assert f"{sample.clock} {sample.flag}" == words
    head["config"] = config | {"ngpus": 2**16, "nthreads": 2**16}  # more ranks than memory has room for
    with pytest.raises(BadInputError, match=r"z\.json"):
        read(json.dumps({**head, "results": results[:1]}), "z.json")


def record(ranks: str) -> str:
    """A line of rccl-tests."""
    rest = '"size":1048576, "type":"float", "redop":"sum", "inPlace":1, "time":61.3, "algBw":17.1, "busBw":30'
    return f'{{"name":"AllReduce", {ranks}, {rest}, "wrong":"0"}},'


def nvshmem(*rows: str, job: str = "alltoall_device", pes: str = PES, size: str = "4, use_graph: 0") -> str:
    """A table of sizes, counts and times."""
    cells = [f"{row.partition(' ')[0]} 1 32-bit {row.partition(' ')[2]} 0.1 0.1" for row in rows]
    head = "size(B) count type scope latency(us) algbw(GB/s) busbw(GB/s)"
    return "\n".join([pes, f"min_size: {size}", f"#{job}", head, *cells])


HALVES = [{"time": 9, "alg_bw": 1, "bus_bw": 0.5, "nwrong": wrong} for wrong in (None, 0, 1)]
RESULTS = [{"size": 1024, "out_of_place": HALVES[0], "in_place": HALVES[2]}, {"out_of_place": HALVES[1]}, 5]
PROCESSES = [{"rank": rank, "hostname": "a", "device_info": "X"} for rank in (0, 4)]
NEW, FOUR = new_log([GOOD]), new_log([line(8_000_000, 40.0, 4)], gpus=4)
OF_RANKS = ['"gpus":8', *(f'"nodes":{n}, "ranks":4, "gpusPerRank":{g}' for n, g in ((1, 1), (1, 2), (2, 1)))]
READ: dict[str, str] = {
    "rccl": "[" + "\n".join([*map(record, OF_RANKS), '{"name": 3}]']),
    "damaged": '{"results": [\n{"size":\n',
    "deep": '{"a":' * 10**5,
    "json": json.dumps({"args": [], "results": RESULTS, "config": {"nthreads": 4, "devices": PROCESSES}}),
    "on_stream": nvshmem("32 block 4", "64 x 4", job="alltoall_on_stream", size="8, use_graph: 1"),
    "nvshmem": nvshmem("32 b 4", "64", "0 b 4", job="fcollect", size="x") + "\n64 2 32-bit b 4 0.1 0.1",
    "two": "\n".join(nvshmem("64 b 4", pes="\n".join(PES.split("\n")[:count])) for count in (8, 2)),
    "perftest": re.sub(r"(mype: [4-7] mype_node: )\d", lambda m: f"{m[1]}{int(m[0][-1]) - 4}", NVSHMEM),
    "headless": "gpus,time_s\n8,1e-5\n",
    "runs": "\n".join([*(new_log([], op="all_reduce"), NEW.replace("nGpus 1", "nGpus 2")), FOUR]),
    "graph": new_log([f"{GOOD} 2026-01-31 10:00:00"], graph=1).replace(HEADER_NEW, f"{HEADER_NEW} timestamp"),
    "blocking": NEW.replace("#\n# Using", "# Blocking Enabled: wait\n#\n# Using"),
    "csv": "\n".join(
        [
            f"{CSV_HEAD},nodes,in_place,backend,clock,flag,note".replace(",", ", "),
            'all_gather,1024.0,16,,1e-5,2,yes,NCCL,Graph,Noisy, "my\nown"',
            "all_gather,1024,16,4,1e-5,3,1,,,,",
            "all_gather,1024,2,,1e-5,0,true,nccl,eager,ok,",
            "all_gather,1024,1,,1e-5,2,no,nccl,eager,ok,",
            "all_gather,1024,8,,1e-5,3,no,tcp,eager,ok,",
            "all_gather,1024,8,,1e-5,3,no,,sundial,ok,",
            ",,,,,,,,,,",
            "all_gather,1024,8,,1e-5,3,no,,,,,",
        ]
    ),
}


@pytest.mark.parametrize("name", READ)
def test_every_field_is_read(name: str) -> None:
    reading = read_text(READ[name], "x.log")
    rows = [[r.run.operation, *vars(r.run).values(), *[*vars(r).values()][2:]] for r in reading.rows]
    unread = [[line.place, line.text, line.reason] for line in reading.unread]
    assert_recorded(f"read {name}", json.loads(json.dumps([rows, unread, reading.cut])))


@pytest.mark.parametrize(("least", "first", "peers"), [(4, 4, 8), (1024, 128, 8), (4, 32, 1)])
def test_nvshmem_sizes_for_a_peer_become_buffer_sizes(read: Read, least: int, first: int, peers: int) -> None:
    row = f"{first} 8 32-bit block 4.0 {first / 4e3:.3f} {first * 0.875 / 4e3:.3f}\n"
    text = re.sub(r"32 +8 .*\n", row, NVSHMEM).replace("min_size: 4,", f"min_size: {least},")
    frame = read(text).samples
    assert list(frame.payload_bytes) == [peers * first, peers * 4_000_000]
    assert set(frame.note) == {"size column is for one peer" if peers > 1 else ""}


def test_csv_in_our_format(read: Read) -> None:
    result = read(f"{CSV_HEAD},clock\nbroadcast,1,16,8,2e-5,graph\n", "mine.csv")
    assert (result.samples.nodes.iloc[0], result.stack.clock) == (2, "graph")
    result = read(f"{CSV_HEAD},time_s\nall_gather,1024,8,8,1e-5,2e-5\nall_gather,2048\n", "x.csv")
    assert list(result.samples.time_s) == [2e-5]
    reasons = [u.reason.partition(":")[0] for u in result.unread]
    assert reasons == ["the column 'time_s' stands twice", "2 fields under 6 columns"]


FLAGS = ("outlier", "overlapped")


def test_flagged_rows_are_kept_with_their_flag_and_fitted_by_nothing(tmp_path: Path) -> None:
    """Flagged rows take thirty times as long."""
    head, rows = f"backend,library_version,gpu,{CSV_HEAD},flag", [[], []]
    for k in range(10, 31):
        time_s, cell = (10.0 + 2**k / 400e3) * 1e-6, f"nccl,2.29.7,NVIDIA H200,all_gather,{2**k},8,8"
        rows[0].append(f"{cell},{time_s:.9g},ok")
        rows[1] += [f"{cell},{30 * time_s:.9g},{flag}" for flag in FLAGS]
    laws = []
    for name, kept in (("clean", rows[0]), ("mixed", rows[0] + rows[1])):
        (tmp_path / name).mkdir()
        log = write(tmp_path / name, "x.csv", "\n".join([head, *kept]))
        result = called("import", str(log), *H200, "--out", str(log.with_suffix(".json")))
        assert result.code == 0, result.err
        assert [f"21 rows marked '{flag}'" in result.err for flag in FLAGS] == [name == "mixed"] * 2
        document = json.loads(log.with_suffix(".json").read_text())
        laws.append([document[key] for key in ("curves", "laws", "sample_count")])
    assert laws[0] == laws[1]
    again = import_logs([tmp_path / "mixed" / "x.samples.csv"]).samples
    assert again.flag.value_counts().to_dict() == {"ok": 21, **dict.fromkeys(FLAGS, 21)}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (GOOD.replace("80.00", "nan", 1), "finite"),
        (GOOD.replace("80.00", "x", 1).replace("100.00", "y", 1), "the time 'x' is not a number"),
        (GOOD.replace("80.00", "0.00", 1), "positive"),
        (GOOD.replace("80.00", "-80.0", 1), "positive"),
        (GOOD.replace("80.00", "40.00", 1), "columns do not agree"),
        ("0 0 float none -1 8.00 0.00 0.00 0 8.00 0.00 0.00 0", "0 bytes"),
        (" ".join(GOOD.split()[:9]), "cut short"),
        (line(8_000_000, 80.0, gpus=4), "wrong collective or wrong number of GPUs"),
        (GOOD.replace("none", "prod"), "only sum"),
        (line(8_000_000, 2e11), "the time must be from"),
        (line(2 * 10**15, 1e10), "the size must be from"),
        (line(10**12, 0.01), "size/time must be from"),
    ],
)
def test_each_bad_row_is_reported_and_the_good_one_kept(read: Read, row: str, reason: str) -> None:
    result = read(new_log([line(16_000_000, 100.0), row]))
    assert 16_000_000 in set(result.samples.payload_bytes)
    assert any(reason in u.reason for u in result.unread), result.unread
    assert all(u.file == "x.log" and u.line_no == 19 for u in result.unread)


def test_a_row_has_a_size_first_and_numbers_after_it() -> None:
    texts = "16 32 a b", "16 8 4 2", "+16 n/a x 1", "16 8 4", "16 a b 8 c", "a 16 8 4", "1 of 8 of us"
    assert [logged.looks_like_row(text.split()) for text in texts] == [True] * 3 + [False] * 4
    assert logged.clip("x" * 160) == "x" * 160 and logged.clip("x" * 161) == "x" * 159 + "…"
    assert logged.parse_bytes("9" * 18) == 10**18 - 1 and logged.parse_bytes("9" * 19) is None


@pytest.mark.parametrize("text", ["1.0 0.95 0.83", "1.0 1.05 0.92", "1.0 1.00 0.88", "0.01 100.00 87.59"])
@pytest.mark.parametrize("agree", [True, False])
def test_bandwidths_agree_within_their_rounding(text: str, agree: bool) -> None:
    """1000 bytes in 1.0 us are 0.952 to 1.053 GB/s; of 100 GB/s a thousandth is 0.1."""
    beyond = {"0.95": "0.94", "1.05": "1.06", "0.88": "0.89", "87.59": "87.60"}
    texts = text.split() if agree else [beyond.get(cell, cell) for cell in text.split()]
    cells = {"size": "1000", **dict(zip(("time", "algbw", "busbw"), texts, strict=True))}
    row = logged.parse_row(
        logged.LoggedRun(operation_text="all_gather", gpus=8), cells, logged.LogLine("", 1, "")
    )
    assert isinstance(row, logged.LoggedRow) and bool(logged.why_unusable(row)) != agree
    assert logged.why_unusable(replace(row, run=replace(row.run, gpus=2)))


def test_wrong_results_and_duplicates_are_flagged(read: Read) -> None:
    rows = [line(8_000_000, 80.0, wrong="3"), line(16_000_000, 100.0), line(16_000_000, 100.0)]
    result = read(new_log(rows))
    assert list(result.samples[~result.samples.in_place].flag) == ["wrong", "ok", "duplicate"]
    assert any("duplicate" in text for text in result.warnings)


@pytest.mark.parametrize("cell", ["12x", "0?", "-", "[0]"])
def test_a_check_that_cannot_be_read_is_no_unchecked_result(read: Read, cell: str) -> None:
    frame = read(new_log([*ROWS, line(2**27, 400.0, wrong=cell)])).samples
    assert list(frame.flag[frame.payload_bytes == 2**27]) == ["unread-check", "ok"]


def test_check_says_which_results_are_wrong_or_unread(tmp_path: Path) -> None:
    """The first log has a label inside its row of wrong results."""
    result = called("check", str(LOGS / "label_wrong.log"), "--op", "all_reduce")
    assert result.code == 6 and "wrong results" in result.out
    log = write(tmp_path, "x.log", new_log([*ROWS, line(2**27, 400.0, wrong="12x")]))
    result = called("check", str(log), *H200, "--json")
    assert result.code == 6
    assert [curve["wrong_bytes"] for curve in json.loads(result.out)["curves"]] == [[2**27]]
    assert "#wrong at 128 MiB" in called("check", str(log), *H200).out


LABELLED = new_log([GOOD])
BARE = "\n".join([HEADER_NEW, GOOD])
TWO_NODES = new_log([line(8_000_000, 80.0, 16)], gpus=16, hosts=2)


@pytest.mark.parametrize(
    ("text", "options", "reason"),
    [
        (TWO_NODES, {"gpus_per_node": 4}, "--set gpus_per_node=4, but the log says 8"),
        (TWO_NODES, {"op": "all_reduce"}, "--op"),
        (LABELLED.replace("node-0 device  7", "node-1 device  0"), {}, "unevenly"),
        (LABELLED.replace("[0000:07:00]", "[0000:06:00]"), {}, "share one GPU"),
        (LABELLED.replace("Rank  7 Group  0", "Rank  7 Group  1"), {}, "several communicators"),
        (new_log([GOOD], gpus=1), {}, "one rank"),
        (new_log([GOOD], op="hypercube"), {}, "none of"),
        (new_log([line(8_000_000, 80.0, 4)]).replace("busbw  #", "bu!bw  #", 1), {}, "wrong number of GPUs"),
        (BARE, {}, "how many GPUs"),
        (LABELLED.replace("Rank  3 ", "rank  3 "), {}, "how many GPUs"),
        (BARE, {"gpus": 8}, "how many nodes"),
        (NVSHMEM.replace("mype: 3 ", "of 3 "), {}, "how many GPUs"),  # the log of some PEs only
        (NVSHMEM.replace("mype_node: 7 ", "mype_node: 2 "), {}, "unevenly"),
        ("", {}, "no sample"),
        ("hello\nworld 12\n", {}, "no sample"),
        ('{"results": [', {}, "no sample"),
    ],
)
def test_a_log_of_which_nothing_can_be_used_is_refused(
    read: Read, text: str, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(BadInputError, match=reason):
        read(text, "alltoall_h200.log" if text is BARE else "x.log", **options)


def test_what_a_log_does_not_say_can_be_given(read: Read, tmp_path: Path) -> None:
    given = {"gpus": 8, "library_version": "9.9"}
    frames = [read(BARE, "alltoall_h200.log", gpus_per_node=count, **given).samples for count in (8, 4)]
    assert [(frame.nodes[0], frame.library_version[0]) for frame in frames] == [(1, "9.9"), (2, "9.9")]
    assert frames[0].collective[0] == "all_to_all"
    for paths, reason in (([tmp_path / "missing"], "No such file"), ([tmp_path], "folder"), ([], "no log")):
        with pytest.raises(BadInputError, match=reason):
            import_logs(paths)


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("infinite_time.csv", H200, "the time is not a finite number"),
        (
            "bus_above_algorithm.log",
            (*H200, "--op", "all_gather", "--gpus", "8", "--set", "gpus_per_node=8"),
            "busbw/algbw is 1.13",
        ),
        ("huge_times.csv", H200, "the time must be from 1.00 ns to 100 000 s, not 1e+300 s"),
        ("short_time.csv", ("--machine", "a100-sxm-ib"), "the time must be from 1.00 ns"),
        ("short_time_of_large.csv", ("--machine", "a100-sxm-ib"), "the time must be from 1.00 ns"),
    ],
)
def test_times_that_cannot_be_are_named(name: str, options: tuple[str, ...], reason: str) -> None:
    result = called("import", str(LOGS / name), *options)
    assert result.code == 0, result.err
    assert reason in " ".join(result.err.split())
    assert "RuntimeWarning" not in result.err


def test_times_that_no_law_fits_are_refused_and_rates_that_nothing_has_doubted(tmp_path: Path) -> None:
    """1 GiB in 10 us is 107 TB/s: sixty times the fastest links."""
    rows = {
        "slow.csv": [f"all_to_all,{2**k},8,8,{1e4 * 1.2**k}" for k in range(1, 10)],
        "fast.csv": [f"all_gather,{2**k},8,8,{1e-5}" for k in range(20, 31)],
    }
    slow, fast = (write(tmp_path, name, "\n".join([CSV_HEAD, *cells])) for name, cells in rows.items())
    refused = called("import", str(slow), *H200)
    assert refused.code == 2 and "no curve or law fits these samples" in refused.err
    assert "pydantic" not in refused.err and "errors.pydantic.dev" not in refused.err
    taken = called("import", str(fast), *H200, "--out", str(tmp_path / "fast.json"))
    assert taken.code == 0
    assert "107 TB/s is more than ten times any product's value" in " ".join(taken.err.split())
    assert read_calibration(tmp_path / "fast.json").sample_count == 11


def test_a_cut_log_is_no_complete_calibration(read: Read, tmp_path: Path) -> None:
    log = new_log(ROWS)
    assert read(log).cut == []
    result = read(log[: log.index("# Out of bounds")], "cut.log")
    assert result.cut == ["cut.log"]
    assert result.warnings == ["cut.log: cut before the end of the run; what follows is missing"]
    assert read(log[: log.index(ROWS[-1]) + 60] + "\n", "row.log").cut == ["row.log"]
    shown = called("import", str(tmp_path / "cut.log"), *H200)
    assert ", partial" in shown.out and ", complete" not in shown.out


def test_escapes_of_a_log_reach_nothing() -> None:
    result = called("import", str(LOGS / "escapes.log"), *H200)
    assert result.code == 2 and "the ranks run on different GPUs" in result.err
    assert "\x1b" not in result.err + result.out


def test_the_line_above_the_head_names_the_halves_of_which_one_may_be_blank(read: Read) -> None:
    """MSCCL++ prints the second log: in place first, and nothing there."""
    frame = import_logs([LOGS / "in_place_only_all_reduce.log"]).samples
    assert len(frame) == 21 and frame.in_place.all()
    half = "     time   algbw   busbw  #wrong"
    lines = [f"# {'in-place':>42} {'out-of-place':>31}", f"#       size         count{half}{half}"]
    for size in (2**k for k in range(12, 22)):
        time_us = round(8 + size / 1e5, 2)
        rates = f"{size / time_us / 1e3:8.2f}{size / time_us / 1e3 * 7 / 8:8.2f}"
        lines.append(f"{size:>12}{size // 4:>14}{' ' * len(half)}{time_us:9.2f}{rates}      0")
    result = read("\n".join(lines), op="all_to_all", gpus=8, gpus_per_node=8)
    assert not result.unread and len(result.samples) == 10 and not result.samples.in_place.any()


def test_the_parts_of_a_broken_row_are_named(read: Read) -> None:
    start = GOOD.index("-1") + 2
    broken = [GOOD[:start] + "node-0:1:2 [0] NCCL WARN NET/IB : port error", GOOD[start:]]
    result = read(new_log([*ROWS, *broken]))
    assert len(result.samples) == 2 * len(ROWS)
    assert [u.reason for u in result.unread] == ["part of a row that other output broke"] * 2
    other = ["12 host 34.5", "1.5 GB 2.5", "node-1 2.5 3.5", "1.5 2.5"]  # no start of a row, and no end
    assert not read(new_log([*ROWS, *other])).unread
    (ends,) = read(new_log([*ROWS, "12.5 100 87 0"])).unread
    assert ends.reason == "part of a row that other output broke"


@pytest.mark.parametrize(
    "label",
    [
        "launcher-1  | ",
        "[pod/nccl-test-launcher-abcde/launcher] ",
        "2025-03-14T10:00:00.123456789Z ",
        "[1,0][node-1:4711]<stdout>: ",
        "[0]<stdout>: ",
        "Mar 14 10:00:00 node-1 srun[4711]: ",
        "INFO:root:",
        "(RayTrainWorker pid=4711, ip=10.0.0.1) ",
    ],
)
def test_what_stands_before_the_head_of_a_table_is_a_label(read: Read, label: str) -> None:
    rows = new_log(ROWS).splitlines()
    rows.insert(-6, "node-0:100:200 [0] NCCL WARN NET/IB : Got async event : port error")
    labels = [label.replace("4711", f"{4711 + n}").replace("00.1", f"{n % 60:02d}.1") for n in range(99)]
    lines = [row if "WARN" in row else before + row for before, row in zip(labels, rows, strict=False)]
    result = read("\n".join(lines))
    assert len(result.samples) == 2 * len(ROWS)
    assert (result.stack.gpu, result.stack.library_version) == ("H200", "2.29.7")
    assert (result.cut, result.unread) == ([], [])


def test_settings_that_a_log_states_are_repeated_with_what_they_cost(tmp_path: Path) -> None:
    log = str(LOGS / "settings_alltoall.log")
    stated = json.loads(called("check", log, "--json").out)["stated"]
    assert [fact["name"] for fact in stated] == ["NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1"]
    text = " ".join(called("check", log).out.split())
    assert all(f"says {fact['name']}: {fact['words']}" in text for fact in stated)
    settings = (("ALGO", "Ring"), ("IB_DISABLE", "0"), ("PROTO", "^LL128"))
    healthy = [f"a:1:1 [0] NCCL INFO NCCL_{name} set by environment to {value}" for name, value in settings]
    log = str(write(tmp_path, "x.log", "\n".join([*healthy, new_log(ROWS)])))
    stated = json.loads(called("check", log, *H200, "--json").out)["stated"]
    assert {fact["name"] for fact in stated} >= {"NCCL_ALGO=Ring", "NCCL_PROTO=^LL128"}


def test_a_cut_list_of_ranks_is_no_obstacle_where_options_say_what_it_lacks() -> None:
    log = str(LOGS / "cut_ranks_all_reduce.log")
    frame = import_logs([log], gpus=72, gpus_per_node=4).samples
    assert set(frame.gpus) == {72} and set(frame.gpus_per_node) == {4}
    refused = called("check", log)
    assert refused.code == 2 and "give --gpus" in refused.err
    wrong = called("check", log, "--gpus", "36", "--set", "gpus_per_node=4")
    assert wrong.code == 2 and "wrong number of GPUs" in wrong.err


@settings(max_examples=60)
@given(data=st.data())
def test_damaged_logs_never_raise_anything_else(tmp_path: Path, data: st.DataObject) -> None:
    good = data.draw(st.sampled_from([new_log([GOOD, line(16_000_000, 90.0)]), NVSHMEM]))
    start = good[: data.draw(st.integers(0, len(good)))]
    place = data.draw(st.integers(0, len(start)))
    path = tmp_path / "fuzz.log"
    path.write_bytes(start[:place].encode() + data.draw(st.binary(max_size=20)) + start[place:].encode())
    try:
        frame = import_logs([path], gpus_per_node=data.draw(st.sampled_from([None, 8]))).samples
    except PerfmodelError:
        return
    assert (frame.time_s > 0).all() and (frame.payload_bytes > 0).all()


WORDS = '# size time busbw 8 16 nan inf -1 1e999 0.00 | Rank { } , "results":[ latency(us) size(B)'
TOKENS = WORDS.split()
TOKENS += ["all_gather", "9" * 30, "\x00", "²", "٣", "\n", "\n", "#alltoall_device\n", "collective,time_s"]
TOKENS += ['{"results": [{"size": 1}]}', '{"redop":"sum", "inPlace":0, "busBw":1}\n', CSV_HEAD]
TEXTS = st.text(max_size=300) | st.lists(st.sampled_from(TOKENS), max_size=60).map(" ".join)


@settings(max_examples=80)
@given(text=TEXTS, name=st.sampled_from(["a.log", "a.csv"]))
def test_arbitrary_text_never_raises(text: str, name: str) -> None:
    assert all(u.reason for u in read_text(text, name).unread)
