"""Small whole files for every reader of the program."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from perfmodel.resources import data_path


@dataclass(frozen=True)
class Reader:
    """One reader and the files that it is tried with.

    suffix   of the file that it reads
    whole    contents that it reads without an error
    """

    name: str
    suffix: str
    whole: tuple[bytes, ...]
    read: Callable[[Path], object]

    def written(self, content: bytes, folder: Path, stem: str = "x_rank0") -> Path:
        """A file of that content."""
        path = folder / f"{stem}{self.suffix}"
        path.write_bytes(content)
        return path


def all_readers() -> list[Reader]:
    """Every reader of files that users, other programs or machines wrote."""
    return [*list_our_files(), *list_tables(), *list_plans(), *list_logs()]


def list_our_files() -> list[Reader]:
    from perfmodel.schema.calibration import read_calibration
    from perfmodel.schema.machine import load_chip, read_machine
    from perfmodel.schema.priors import load_dense
    from perfmodel.schema.run_files import read_run
    from perfmodel.schema.samples import load_samples

    measured = data_path("measurements", "nccl").glob("*.csv")
    samples = min(measured, key=lambda path: path.stat().st_size).read_bytes().splitlines()[:8]
    return [
        Reader("machine", ".toml", (read_shipped("machines", "h100-sxm-ib.toml"),), read_machine),
        Reader("chip", ".toml", (read_shipped("chips", "h100-sxm.toml"),), load_chip),
        Reader(
            "dense layers", ".toml", (read_shipped("dense", "dlrm-dcnv2.toml"),), lambda p: load_dense(str(p))
        ),
        Reader("calibration", ".json", (make_calibration(),), read_calibration),
        Reader("run", ".jsonl", (run_lines(),), lambda p: read_run(p).collective_samples()),
        Reader("samples", ".csv", (b"\n".join(samples) + b"\n",), load_samples),
    ]


def list_tables() -> list[Reader]:
    from perfmodel.schema.table_files import read_tables
    from perfmodel.schema.workload import read_histogram

    tables = [
        {"name": "users", "rows": 1000, "dim": 32, "pooling": 3.5},
        {"name": "items", "rows": 9, "dim": 64},
    ]
    csv = b"name,rows,dim,pooling,dtype\nusers,1000,32,3.5,fp32\nitems,9,64,1,fp16\n"
    yaml = (
        b"tables:\n- {name: users, rows: 1000, dim: 32, pooling: 3.5}\n- name: items\n  rows: 9\n  dim: 64\n"
    )
    return [
        Reader("tables, CSV", ".csv", (csv,), read_tables),
        Reader("tables, JSON", ".json", (json.dumps({"tables": tables}).encode(),), read_tables),
        Reader("tables, YAML", ".yaml", (yaml,), read_tables),
        Reader("tables, TOML", ".toml", (read_shipped("models", "distemb-tiny.toml")[:3000],), read_tables),
        Reader("histogram", ".csv", (read_shipped("distributions", "reuse-medium.csv"),), read_histogram),
    ]


def list_plans() -> list[Reader]:
    from perfmodel.engine.tables import PlanTables
    from perfmodel.plan.choices.constraints import parse_rules
    from perfmodel.plan.files import read_any_plan, read_made_for, read_plan
    from perfmodel.schema.torchrec_plan import read_torchrec_plan
    from perfmodel.schema.workload import Table, TableSet

    model = PlanTables.load("criteo-kaggle")
    entries = [
        {"table": name, "exchange": "dp", "row_parts": 1, "col_parts": 1, "ranks": []} for name in model.names
    ]
    plan = {
        "schema_version": 1,
        "model": model.model,
        "tables_fingerprint": model.fingerprint,
        "gpus": 8,
        "domain_gpus": 8,
        "placements": entries,
    }
    table = {
        "table": "t",
        "rows": 8,
        "dim": 4,
        "element_bytes": 4,
        "pooling": 1.0,
        "sharding_type": "row_wise",
    }
    shards = {"ranks": [0, 1], "shard_sizes": [[4, 4], [4, 4]], "shard_offsets": [[0, 0], [4, 0]]}
    rates = ("hbm_bytes_per_s", "intra_bytes_per_s", "inter_bytes_per_s")
    torchrec = {
        "schema_version": 1,
        "kind": "torchrec-plan",
        "model": "m",
        "tables_fingerprint": "f",
        "gpus": 2,
        "gpus_per_node": 2,
        "domain_gpus": 2,
        "batch": 8,
        "topology": {"hbm_bytes": 10**9, **dict.fromkeys(rates, 1e9)},
        "tables": [{**table, "compute_kernel": "fused", **shards}],
    }
    rules = {"t0": {"sharding_types": ["row_wise"], "compute_kernels": ["fused"], "min_partition": 8}}
    few = PlanTables.of(TableSet("m", (Table("t", 8, 4, 1.0, "fp32"),)))
    record = {**torchrec, "tables_fingerprint": few.fingerprint}
    return [
        Reader("plan", ".json", (_text(plan),), lambda p: read_plan(p, model)),
        Reader("plan, what it is for", ".json", (_text(plan),), read_made_for),
        Reader("TorchRec plan", ".json", (_text(torchrec),), read_torchrec_plan),
        Reader("table rules", ".json", (_text(rules),), lambda p: parse_rules([str(p)])),
        Reader(
            "plan of any kind",
            ".json",
            (_text(record),),
            lambda p: read_any_plan(p, few, 8, lambda gpus: gpus),
        ),
    ]


def _text(document: object) -> bytes:
    return json.dumps(document, indent=1).encode()


def list_logs() -> list[Reader]:
    from calibrate.importers import import_logs

    def asked(path: Path) -> object:
        return import_logs([path], op="all_gather", gpus=8, gpus_per_node=8)

    rows = [f"nccl,2.29.2,H200,stream,all_gather,{2**k},8,8,{1e-5 + 2**k / 3e11},ok" for k in range(10, 14)]
    head = "backend,library_version,gpu,clock,collective,payload_bytes,gpus,gpus_per_node,time_s,flag"
    return [
        Reader("log, nccl-tests", ".log", (write_nccl_log(),), lambda p: import_logs([p])),
        Reader("log, nccl-tests, options", ".log", (write_nccl_log(),), asked),
        Reader("log, nccl-tests JSON", ".json", (write_nccl_json(),), lambda p: import_logs([p])),
        Reader("log, rccl-tests JSON", ".json", (_RCCL_JSON,), lambda p: import_logs([p], gpus_per_node=8)),
        Reader("log, NVSHMEM", ".log", (_NVSHMEM,), lambda p: import_logs([p])),
        Reader("log, CSV", ".csv", ("\n".join([head, *rows]).encode(),), lambda p: import_logs([p])),
    ]


def read_shipped(*parts: str) -> bytes:
    return data_path(*parts).read_bytes()


def make_calibration() -> bytes:
    """A shipped one with two of its cells."""
    record = json.loads(read_shipped("calibrations", "h100-sxm-ib", "nccl-2.29.2-stream.json"))
    return _text({**record, "curves": record["curves"][:2], "laws": record["laws"][:1]})


def run_lines(points: int = 3, visits: int = 3) -> bytes:
    """The file of a run whose points have so many visits each, and an end."""
    from perfmodel.schema.evidence import Clock
    from perfmodel.schema.runs import Finish, Point, PointKind, PointLine, RunHeader, Status, Visit

    stack = {"gloo": "5"}
    header = RunHeader(fingerprint="a" * 64, started_at="now", machine="m", stack=stack, ranks=2, nodes=1)
    lines: list[RunHeader | PointLine | Visit | Finish] = [header]
    for number in range(points):
        point = Point(
            kind=PointKind.COLLECTIVE,
            operation="all_to_all",
            backend="gloo",
            clock=Clock.EAGER,
            payload_bytes=1024 << number,
            gpus=2,
            gpus_per_node=2,
        )
        key, times = point.key, [1e-5, 1.1e-5, 1.2e-5]
        lines.append(PointLine(key=key, point=point))
        lines += [
            Visit(key=key, round=k, at="now", times_s=times, bytes_sent=512, checked=8)
            for k in range(1, visits + 1)
        ]
        lines.append(Finish(key=key, status=Status.OK, median_s=1.1e-5, visits=visits, calls=3 * visits))
    return b"".join(line.model_dump_json(exclude_none=True).encode() + b"\n" for line in lines)


_RCCL_JSON = b"\n".join(
    b'{"name":"AllReduce","nodes":1,"ranks":8,"ranksPerNode":8,"gpusPerRank":1,"size":%d,"type":"float",'
    b'"redop":"sum","inPlace":0,"time":61.3,"algBw":17.1,"busBw":29.9,"wrong":"0"}' % 2**k
    for k in (20, 21)
)


def write_nccl_log() -> bytes:
    """What nccl-tests prints of an all-gather on 8 GPUs."""
    ranks = [
        f"#  Rank  {r} Group  0 Pid {100 + r} on node-0 device  {r} [0000:0{r}:00] NVIDIA H200"
        for r in range(8)
    ]
    rows = []
    for k in range(10, 14):
        time_us, size = 10.0 + 2**k / 3e5, 2**k
        half = f"{time_us:.2f} {size / time_us / 1e3:.2f} {size / time_us / 1e3 * 7 / 8:.2f}"
        rows.append(f"{size:12d} {size // 4:10d} float none -1 {half} 0 {half} N/A")
    columns = "time algbw busbw #wrong"
    return "\n".join(
        [
            "# nccl-tests version 2.18.3 nccl-headers=22907 nccl-library=22907",
            "# Collective test starting: all_gather_perf",
            "# nThread 1 nGpus 1 minBytes 8 maxBytes 1024 step: 2(factor) iters: 20 graph: 0",
            *ranks,
            f"# size count type redop root {columns} {columns}",
            *rows,
            "# Out of bounds values : 0 OK",
            "# Avg bus bandwidth    : 100.0",
            "",
        ]
    ).encode()


def write_nccl_json() -> bytes:
    half = {"time": 80.0, "alg_bw": 100.0, "bus_bw": 87.5, "nwrong": 0.0}
    device = {"rank": 0, "group": 0, "hostname": "node-0", "device_info": "NVIDIA H200"}
    result = {"size": 8_000_000, "count": 2, "type": "float", "redop": "none"}
    result |= dict.fromkeys(("out_of_place", "in_place"), half)
    config = {"nthreads": 8, "ngpus": 1, "graph": 0, "devices": [device]}
    args = ["./build/all_gather_perf"]
    return _text({"version": 1, "args": args, "nccl_version": 22907, "config": config, "results": [result]})


_PES = "\n".join(f"mype: {p} mype_node: {p} device name: NVIDIA H200 bus id: {p}" for p in range(8))
_NVSHMEM = f"""NVSHMEM v3.4.5
{_PES}
min_size: 4, max_size: 4194304, step_factor: 2, use_graph: 0, use_mmap: 0
#alltoall_device
size(B)     count     type      scope     latency(us)       algbw(GB/s)   busbw(GB/s)
32          8         32-bit    block     4.000000          0.008         0.007
4000000     1000000   32-bit    block     40.000000         100.000       87.500
""".encode()
