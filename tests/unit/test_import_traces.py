"""`perfmodel import` of traces: samples with a clock of their own, who waits for whom, what is kept apart."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_calls import called
from made_traces import HERE, kernel, nccl, trace, write

from calibrate.importers.traces import read_traces
from calibrate.importers.traces.samples import WAITED, TraceSamples, traced_samples
from perfmodel.errors import BadInputError
from perfmodel.fit.traced import MOST_SIZES, fewer_sizes
from perfmodel.schema.calibration import load_calibration
from perfmodel.schema.samples import load_samples

ARRIVALS_US = np.random.default_rng(5).uniform(0, 300, size=(2, 60))


def exchanges(rank: int, sizes: list[int], **more: Any) -> list[dict[str, Any]]:
    """60 all-gathers a rank; each takes 10 us and 1 us a KiB after the later of two arrivals."""
    events = []
    for i, arrival in enumerate(ARRIVALS_US[rank]):
        size = sizes[i % len(sizes)]
        end = 1000.0 * i + ARRIVALS_US[:, i].max() + 10 + size / 1024
        start = 1000.0 * i + float(arrival)
        events.append(nccl(start, end - start, sent=size // 8, received=size // 4, **more))
    return events


def two_ranks(folder: Path, **more: Any) -> list[Path]:
    sizes = [2**n for n in range(10, 16)]
    return [
        write(folder, trace(exchanges(rank, sizes, **more), rank=rank), f"rank{rank}.json.gz")
        for rank in range(2)
    ]


def samples(paths: list[Path], per_node: int = 8) -> TraceSamples:
    return traced_samples(read_traces(paths), "h100-sxm-ib", lambda: per_node)


def test_the_times_are_those_after_the_last_arrival(tmp_path: Path) -> None:
    frame = samples(two_ranks(tmp_path)).samples
    assert len(frame) == 60 and set(frame["clock"]) == {"trace"} and set(frame["flag"]) == {"ok"}
    assert frame["time_s"].to_numpy() == pytest.approx(1e-6 * (10 + frame["payload_bytes"].to_numpy() / 1024))


def test_one_rank_alone_keeps_the_shortest_and_widens_the_band(tmp_path: Path) -> None:
    paths = two_ranks(tmp_path)
    alone, both = samples(paths[:1]), samples(paths)
    kept = alone.samples[alone.samples["flag"] == "ok"]
    assert set(alone.samples["flag"]) == {"ok", WAITED} and 12 <= len(kept) < 40
    truth = 1e-6 * (10 + kept["payload_bytes"].to_numpy() / 1024)
    assert kept["time_s"].to_numpy() == pytest.approx(truth)  # in a fifth of them it came last itself
    assert alone.widened[("all_gather", 2)] > 0.3 and not both.widened
    assert any("inside its times" in text for text in alone.warnings)


def test_what_compute_runs_beside_is_kept_apart(tmp_path: Path) -> None:
    paths = two_ranks(tmp_path)
    document = json.loads(gzip.decompress(paths[0].read_bytes()))
    slowed = document["traceEvents"][7]
    document["traceEvents"].append(kernel("gemm", slowed["ts"], slowed["dur"], 7))
    found = samples([write(tmp_path, document, "rank0.json.gz"), paths[1]])
    assert list(found.samples["variant"]).count("overlapped") == 1
    assert any("compute ran beside them" in text for text in found.warnings)


def test_an_uneven_all_to_all_counts_the_rank_that_sends_most(tmp_path: Path) -> None:
    def one(rank: int, split: str, sent: int) -> dict[str, Any]:
        said = {"In split size": split, "Out split size": split}
        return trace([nccl(0, 20, "all_to_allv", sent, sent, **said)], rank=rank)

    paths = [
        write(tmp_path, one(0, "[900, 100]", 1000), "a.json"),
        write(tmp_path, one(1, "[50, 50]", 100), "b.json"),
    ]
    (row,) = samples(paths).samples.to_dict("records")
    assert (row["variant"], row["payload_bytes"]) == ("uneven", 4000)


def test_nodes_come_from_the_hosts_that_the_traces_name(tmp_path: Path) -> None:
    for hosts, nodes in ((("a", "a"), 1), (("a", "b"), 2)):
        paths = [
            write(tmp_path, trace([nccl(0, 20)], rank=rank, host_name=hosts[rank]), f"rank{rank}.json")
            for rank in range(2)
        ]
        assert list(samples(paths).samples["nodes"]) == [nodes]
    unnamed = [write(tmp_path, trace([nccl(0, 20)], rank=rank), f"rank{rank}.json") for rank in range(2)]
    assert list(samples(unnamed, per_node=1).samples["nodes"]) == [2]


def test_many_sizes_become_few_and_keep_their_times() -> None:
    frame = load_samples()
    cell = frame[(frame["collective"] == "all_to_all") & (frame["gpus"] == 8)].head(40)
    many = cell.loc[cell.index.repeat(10)].reset_index(drop=True)
    many["payload_bytes"] = np.linspace(10_000, 20_000, len(many)).astype(int)
    many[["gpus_per_node", "nodes"]] = 8, 1
    few = fewer_sizes(many)
    assert few["payload_bytes"].nunique() <= 10 < MOST_SIZES < many["payload_bytes"].nunique()
    assert (np.abs(np.log2(few["payload_bytes"] / many["payload_bytes"])) < 1 / 8).all()
    assert list(few["time_s"]) == list(many["time_s"])
    assert fewer_sizes(cell) is cell


def test_import_makes_an_ordinary_calibration(tmp_path: Path) -> None:
    paths = two_ranks(tmp_path)
    out = tmp_path / "mine.json"
    done = called("import", *map(str, paths), "--machine", "h100-sxm-ib", "--out", str(out))
    assert done.code == 0, done.err
    assert "60 of 60" in done.out and "Who waits for whom" in done.out
    made = load_calibration(str(out))
    (curve,) = made.curves
    assert (str(made.clock), made.library_version) == ("trace", "2.21.5")
    assert (curve.collective, curve.gpus) == ("all_gather", 2)
    asked = ["collective", "--op", "all_gather", "--size", "8KiB", "--gpus", "2", "--machine", "h100-sxm-ib"]
    answer = called(*asked, "--calibration", str(out), "--json")
    row = json.loads(answer.out)
    assert row["evidence"] == "measured" and row["time_s"] == pytest.approx(18e-6, rel=0.02)


def test_json_holds_traces_and_skew(tmp_path: Path) -> None:
    done = called("import", *map(str, two_ranks(tmp_path)), "--machine", "h100-sxm-ib", "--json")
    found = json.loads(done.out)
    assert [one["collectives"] for one in found["traces"]] == [60, 60]
    assert {one["rank"] for one in found["skew"]} == {0, 1}
    assert sum(one["last"] for one in found["skew"]) == 60


def test_a_folder_of_gloo_traces_is_imported_with_its_slow_rank(tmp_path: Path) -> None:
    for path in HERE.glob("table_row_wise_4_*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    done = called("import", str(tmp_path), "--machine", "h100-sxm-ib")
    assert done.code == 0 and "rank 2 causes" in done.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--op", "all_reduce"], "--op is for logs"),
        (["--clock", "stream"], "--clock is for logs"),
        (["--gpus-per-node", "0"], "not a number of GPUs"),
    ],
)
def test_options_of_logs_are_refused(tmp_path: Path, words: list[str], says: str) -> None:
    done = called("import", *map(str, two_ranks(tmp_path)), "--machine", "h100-sxm-ib", *words)
    assert done.code == 2 and says in done.err


def test_traces_and_logs_are_not_mixed(tmp_path: Path) -> None:
    log = tmp_path / "all_gather.log"
    log.write_text("# nThread 1\n", encoding="utf-8")
    done = called("import", str(log), *map(str, two_ranks(tmp_path)), "--machine", "h100-sxm-ib")
    assert done.code == 2 and "times of both are not comparable" in done.err


def test_a_trace_without_communication_says_so(tmp_path: Path) -> None:
    path = write(tmp_path, trace([kernel("gemm", 1, 5)]))
    done = called("import", str(path), "--machine", "h100-sxm-ib")
    assert done.code == 2 and "no communication in trace_rank0.json" in done.err
    with pytest.raises(BadInputError, match="no collective in these traces can be used"):
        samples([path])
