"""`perfmodel import` of traces: samples with a clock of their own, who waits for whom, what is kept apart."""

from __future__ import annotations

import gzip
import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_calls import called
from made_traces import HERE, host, kernel, nccl, trace, write

from calibrate.importers.traces import read_traces
from calibrate.importers.traces.kernel_samples import kernel_samples
from calibrate.importers.traces.samples import WAITED, TraceSamples, traced_samples
from perfmodel.errors import BadInputError
from perfmodel.fit.traced import MOST_SIZES, fewer_sizes
from perfmodel.resources import data_path
from perfmodel.schema.calibration import load_calibration
from perfmodel.schema.home import HOME_VARIABLE, SAMPLES_NAME
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
    assert "60 of 60" in done.out
    assert done.out.index("Calibration ") < done.out.index("Who waits for whom")
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


def gloo_ranks(folder: Path) -> None:
    for path in HERE.glob("table_row_wise_4_*"):
        (folder / path.name).write_bytes(path.read_bytes())


def cpu_machine(folder: Path) -> Path:
    """A shipped machine file with the library that calibrate writes for CPUs."""
    text = data_path("machines", "h100-sxm-ib.toml").read_text(encoding="utf-8")
    text = text.replace('name = "h100-sxm-ib"', 'name = "cpu-four"')
    text = re.sub(r"^\[defaults\]\n(?:\w+ = .*\n)*", "", text, flags=re.MULTILINE)
    path = folder / "machine.toml"
    path.write_text(text.replace("\n[", '\n[defaults]\nbackend = "gloo"\n\n[', 1), encoding="utf-8")
    return path


def test_traces_of_cpus_are_refused_for_a_machine_of_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))
    gloo_ranks(tmp_path)
    words = ("import", str(tmp_path), "--machine", "h200-sxm-ib", "--out", str(tmp_path / "mine.json"))
    refused = called(*words)
    assert refused.code == 2 and "the traces are of CPUs (gloo" in refused.err
    assert "perfmodel calibrate --quick --backend gloo" in refused.err and "--force" in refused.err
    run = tmp_path / "home" / "runs" / "cpu-four-01234567"
    run.mkdir(parents=True)
    (run / SAMPLES_NAME).touch()
    machine = cpu_machine(run)
    assert f"--machine {machine}" in called(*words).err
    forced = called(*words, "--force")
    assert forced.code == 0 and "warning: the traces are of CPUs (gloo" in forced.err


def test_traces_of_cpus_go_in_with_the_machine_of_the_cpus(tmp_path: Path) -> None:
    gloo_ranks(tmp_path)
    machine, out = cpu_machine(tmp_path), tmp_path / "mine.json"
    traces = [str(path) for path in sorted(tmp_path.glob("*.gz"))]
    done = called("import", *traces, "--machine", str(machine), "--out", str(out))
    assert done.code == 0 and "rank 2 causes" in done.out
    assert "GPU:" not in done.err
    assert load_calibration(str(out)).note == (
        "imported from 4 traces, table_row_wise_4_rank0 to table_row_wise_4_rank3"
    )
    line = done.err.split("next:\n")[1].strip()
    answer = called(*shlex.split(line)[1:], "--sharding", "row-wise")
    assert answer.code == 0, answer.err
    assert "timed on this machine" not in answer.out and "too few look-ups to know a rate" in answer.out
    assert "not the calibration's own" not in called("show", str(out), "--check").out


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
    assert done.code == 2 and "their times cannot be compared" in done.err


def test_a_trace_without_communication_says_so(tmp_path: Path) -> None:
    path = write(tmp_path, trace([kernel("gemm", 1, 5)]))
    done = called("import", str(path), "--machine", "h100-sxm-ib")
    assert done.code == 2 and "no communication in trace_rank0.json" in done.err
    with pytest.raises(BadInputError, match="no collective in these traces can be used"):
        samples([path])


def test_look_ups_say_what_they_looked_up() -> None:
    """TorchRec row-wise: a rank looks up half of the ids of 2 x 256 samples, in half of 20 000 rows."""
    frame, left_out = kernel_samples(read_traces(sorted(HERE.glob("row_wise_2_*"))))
    gathers, buckets = (frame[frame["operation"] == name] for name in ("gather_pool", "bucketize"))
    assert left_out == {} and len(gathers) == 4
    fixed = gathers[
        ["batch", "tables", "dim", "rows", "id_bytes", "dtype", "implementation"]
    ].drop_duplicates()
    assert fixed.to_numpy().tolist() == [[512, 2, 32, 10_000, 8, "fp32", "fbgemm"]]
    assert gathers["pooling"].between(3.8, 4.2).all()
    (bucket,) = buckets.to_dict("records")
    assert (bucket["batch"], bucket["tables"], bucket["pooling"], bucket["shards"]) == (256, 2, 8, 2)
    assert bucket["calls"] == 4


def test_columns_that_a_trace_lacks_come_from_the_model() -> None:
    traces = read_traces(sorted(HERE.glob("dlrm_8_*")))
    without, left_out = kernel_samples(traces)
    assert without.empty and left_out == {"the columns of its tables are not recorded: give --model": 16}
    frame, left_out = kernel_samples(traces, dim=64)
    assert set(frame["dim"]) == {64} and set(frame["tables"]) == {2, 3}
    assert left_out == {"work of another stream ran beside it": 7}


def test_kernels_of_traces_are_fitted(tmp_path: Path) -> None:
    """40 look-ups of 5 us and 1 us a 2 MB of rows that miss every cache."""
    types = ["float", "long int", "int", "", "", "long int", "", "long int", "long int"]
    events = [nccl(1.0, 20.0)]
    lookup = "fbgemm::dense_embedding_codegen_lookup_function"
    forward = "dense_embedding_codegen_forward_unweighted_kernel"
    for i in range(40):
        ids = 65536 * (1 + i % 10)
        dims = [[512_000_000], [2], [3], [], [], [3], [], [ids], [8193]]
        said = {"External id": i, "Input Dims": dims, "Input type": types}
        scalars = ["", "", "", "256", "128", "", "31", "", ""]
        at = 1000.0 * (i + 1)
        events += [
            host(lookup, at, 50, **said, **{"Concrete Inputs": scalars}),
            kernel(forward, at + 60, 5 + ids * 512 / 2e6, 7, **{"External id": i}),
        ]  # fmt: skip
    path = write(tmp_path, trace(events))
    out = tmp_path / "mine.json"
    done = called("import", str(path), "--machine", "h100-sxm-ib", "--out", str(out))
    assert done.code == 0, done.err
    fitted = load_calibration(out).kernels
    assert fitted is not None and fitted.implementation == "fbgemm" and str(fitted.clock) == "trace"
    assert fitted.fits["gather_pool"].loo_p90 == pytest.approx(0, abs=0.02)
    assert fitted.fits["gather_pool"].sample_count == 10  # works, of four calls each


def test_model_is_for_traces_with_tables_of_one_width(tmp_path: Path) -> None:
    log = tmp_path / "all_gather.log"
    log.write_text("# nThread 1\n", encoding="utf-8")
    assert "--model is for traces" in called("import", str(log), "--model", "criteo-kaggle").err
    tables = tmp_path / "two.csv"
    tables.write_text("name,rows,dim,pooling\na,100,32,1\nb,100,64,1\n", encoding="utf-8")
    done = called(
        "import", *map(str, two_ranks(tmp_path)), "--machine", "h100-sxm-ib", "--model", str(tables)
    )
    assert done.code == 2 and "32 to 64 columns" in " ".join(done.err.split())


def test_what_the_host_takes_for_launches_is_said(tmp_path: Path) -> None:
    """Of four launches of 4 us, three kernels begin 2 us later, and one 50 us later."""
    events = [nccl(1.0, 20.0)]
    for i, wait in enumerate((2, 2, 50, 2)):
        events += [
            host("cudaLaunchKernel", 100.0 * i, 4, "cuda_runtime", correlation=i + 1),
            kernel("dense_embedding_codegen_forward", 100.0 * i + 4 + wait, 9, 7, correlation=i + 1),
        ]
    found = samples([write(tmp_path, trace(events))]).host
    assert found is not None and (found.kernels, found.dry) == (4, 3)
    assert (found.launch_s, found.queue_s) == (pytest.approx(4e-6), pytest.approx(2e-6))


def test_the_band_of_one_rank_alone_is_wider(tmp_path: Path) -> None:
    paths, spreads = two_ranks(tmp_path), []
    for number, some in enumerate((paths, paths[:1])):
        out = tmp_path / f"{number}.json"
        done = called("import", *map(str, some), "--machine", "h100-sxm-ib", "--out", str(out))
        assert done.code == 0, done.err
        (curve,) = load_calibration(out).curves
        spreads.append(curve.anchor_log_sd)
    assert spreads[1] > spreads[0] + 0.3


def test_a_trace_cut_in_its_head_is_called_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    whole = Path(__file__).parent / "traces" / "table_row_wise_4_rank0.json.gz"
    (tmp_path / "trunc.json.gz").write_bytes(whole.read_bytes()[:700])
    done = called("import", str(tmp_path / "trunc.json.gz"), "--machine", "h100-sxm-ib")
    assert done.code == 2 and "trunc.json.gz is cut" in " ".join(done.err.split())
    assert "copy it again" in done.err
    assert max(map(len, done.err.splitlines())) <= 60


def test_of_a_file_of_no_known_format_all_formats_are_named(tmp_path: Path) -> None:
    (tmp_path / "bin.dat").write_bytes(bytes(range(256)) * 8)
    done = called("import", str(tmp_path / "bin.dat"), "--machine", "h100-sxm-ib")
    assert done.code == 2 and "traces of torch.profiler (.json, .json.gz)" in " ".join(done.err.split())


def test_the_tables_of_an_import_name_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    traces = sorted((Path(__file__).parent / "traces").glob("table_row_wise_4_rank*"))
    done = called("import", *map(str, traces), "--machine", "h100-sxm-ib", "--force")
    text = " ".join(done.out.split())
    assert " read in " in text and " took " not in text
    assert "63.2 % of the longest wait of each collective, summed over the trace" in text
    assert "fbgemm" in done.out and max(map(len, done.out.splitlines())) <= 60
