"""Small whole files for every reader of the program, damaged at random, and tried on the readers."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from perfmodel.errors import PerfmodelError
from perfmodel.resources import data_path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

LONGEST_MESSAGE = 20_000
"""Characters of an error before it is cut to one screen."""

MOST_CPU_S = 40
"""Of one file: generous, since a busy machine is slower."""

ABSURD = (
    *("9" * 5_000, "1" + "0" * 400, str(2**63), "300000000", "-1e-400", "0x" + "F" * 9_000, "2001-99-99"),
    *("0", "-1", "1e308", "1e400", "1e-320", "-1e300", "nan", "NaN", "inf", "-Infinity", "9" * 30, "0x10"),
    *("true", "yes", "null", "None", '""', "[]", "{}", "1_000", "１２", "1,5", "\x1b[31m", "\x00", "\u202e"),
)
_JUNK = (b"\0" * 16, b"\xff\xfe", b"\n\n", b'"', b",", b"\x1b]0;x\x07", b"[" * 300, b"\r")
_PIECES = (b"A", b".a", b" ", b"[", b'{"a":', b"(", b"9", b"- ", b",", b"\n", b'\\"', b"\xc2\xb2", b"!!int ")
_WORD, _NUMBER = re.compile(rb"[A-Za-z_]+"), re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_VALUE = re.compile(rb'"[^"\n]*"|-?\d[\d.eE+-]*|\[[^\[\]]*\]|\{[^{}]*\}|true|false|null|\w+')


def damaged(content: bytes, dice: random.Random) -> bytes:
    """The content after one to three kinds of damage."""
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        content = dice.choice((change_bytes, change_bytes, change_lines, change_value, change_value))(
            content, dice
        )
    return content


def change_bytes(content: bytes, dice: random.Random) -> bytes:
    """Bytes cut, put over others, or put between: junk, what stands before, or a piece without end."""
    words, place = list(_WORD.finditer(content)), dice.randrange(len(content) + 1)
    if words and dice.random() < 0.3:
        place = dice.choice(words).end()
    before = content[max(0, place - dice.choice((3, 30, 300))) : place]
    long = dice.choice(_PIECES) * dice.choice((40, 400, 4_000, 40_000))
    new = dice.choice(
        (b"", b"", dice.randbytes(1), dice.randbytes(9), before, dice.choice(_JUNK), long, long)
    )
    return content[:place] + new + content[place + dice.choice((0, 0, 1, 3, 20, 200, len(content))) :]


def change_lines(content: bytes, dice: random.Random) -> bytes:
    """Two lines swapped, or one cut, put elsewhere too, or repeated."""
    lines = content.split(b"\n")
    line, other = dice.randrange(len(lines)), dice.randrange(len(lines))
    choice = dice.randrange(4)
    if choice == 0:
        lines[line], lines[other] = lines[other], lines[line]
    elif choice == 1:
        del lines[line]
    else:
        lines[other:other] = [lines[line]] * (1 if choice == 2 else dice.choice((10, 100, 1_000)))
    return b"\n".join(lines)


def change_value(content: bytes, dice: random.Random) -> bytes:
    """An absurd number, word, list or object, or one from elsewhere, in the place of another one."""
    values = list(dice.choice((_NUMBER, _VALUE)).finditer(content))
    if not values:
        return content
    value = dice.choice(values)
    new = dice.choice(values)[0] if dice.random() < 0.3 else dice.choice(ABSURD).encode()
    return content[: value.start()] + new + content[value.end() :]


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


def tried(reader: Reader, path: Path) -> tuple[str, str]:
    """What is wrong with how a reader takes a file, and the words of its refusal.

    Limits: an answer, or an error in words -> nothing is wrong
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            reader.read(path)
    except PerfmodelError as error:
        if len(said := str(error)) > LONGEST_MESSAGE:
            return f"a message of {len(said)} characters", said[:LONGEST_MESSAGE]
        return "" if error.exit_code in (2, 3) else f"exit code {error.exit_code}", said
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(where.filename).name}:{where.lineno}"
        return f"{type(error).__name__} at {place}: {str(error)[:100]}", ""
    return "", ""


class Took(NamedTuple):
    """What one file took: what was wrong, the words of its refusal, memory that it added, CPU seconds."""

    wrong: str
    said: str
    peak_bytes: float
    cpu_s: float


def limited(reader: Reader, content: bytes, folder: Path) -> Took:
    """One file read in a process of its own, which may use ``MOST_CPU_S`` of a CPU."""
    path = reader.written(content, folder)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_S, MOST_CPU_S))
        Path("/proc/self/clear_refs").write_text("5")  # the peak from here on
        before = _memory("VmRSS")
        result = tried(reader, path)
        os.write(writing, json.dumps([*result, _memory("VmHWM") - before]).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        raw = stream.read()
    _, status, used = os.wait4(child, 0)
    cpu_s = used.ru_utime + used.ru_stime
    if not raw:
        return Took(f"ended by signal {status}: {MOST_CPU_S} s of a CPU?", "", 0.0, cpu_s)
    return Took(*json.loads(raw), cpu_s)


def _memory(line: str) -> float:
    """Bytes of this process, by a line of Linux's account of it."""
    match = re.search(rf"{line}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return 1024.0 * int(match[1]) if match else 0.0


def failures(readers: list[Reader], tries: int, seed: int, folder: Path) -> Iterator[tuple[str, str, bytes]]:
    """Of so many damaged files, dealt to the readers in turn: reader, what was wrong, and the file."""
    for number in range(tries):
        reader = readers[number % len(readers)]
        dice = random.Random(f"{seed}:{number}")
        content = damaged(dice.choice(reader.whole), dice)
        path = reader.written(content, folder)
        if wrong := tried(reader, path)[0]:
            yield reader.name, wrong, path.read_bytes()


def all_readers() -> list[Reader]:
    """Every reader of files that users, other programs or machines wrote."""
    return [*list_our_files(), *list_tables(), *list_plans(), *list_logs()]


def list_our_files() -> list[Reader]:
    from perfmodel.schema.calibration import read_calibration
    from perfmodel.schema.gate import read_text
    from perfmodel.schema.machine import load_chip, read_machine
    from perfmodel.schema.priors import load_dense
    from perfmodel.schema.run_files import read_run
    from perfmodel.schema.samples import parse_samples

    measured = data_path("measurements", "nccl").glob("*.csv")
    samples = min(measured, key=lambda path: path.stat().st_size).read_bytes().splitlines()[:8]
    dense = read_shipped("dense", "dlrm-dcnv2.toml")
    return [
        Reader("machine", ".toml", (read_shipped("machines", "h100-sxm-ib.toml"),), read_machine),
        Reader("chip", ".toml", (read_shipped("chips", "h100-sxm.toml"),), load_chip),
        Reader("dense layers", ".toml", (dense,), lambda p: load_dense(str(p))),
        Reader("calibration", ".json", (make_calibration(),), read_calibration),
        Reader("run", ".jsonl", (run_lines(),), lambda p: read_run(p).collective_samples()),
        Reader(
            "samples", ".csv", (b"\n".join(samples) + b"\n",), lambda p: parse_samples(read_text(p, "x"), "x")
        ),
    ]


def list_tables() -> list[Reader]:
    from perfmodel.schema.table_files import read_tables
    from perfmodel.schema.workload import read_histogram

    users = {"name": "users", "rows": 1000, "dim": 32, "pooling": 3.5}
    tables = [users, {"name": "items", "rows": 9, "dim": 64}]
    csv = b"name,rows,dim,pooling,dtype\nusers,1000,32,3.5,fp32\nitems,9,64,1,fp16\n"
    yaml = b"tables:\n- {name: users, rows: 1000, dim: 32, pooling: 3.5}\n- name: x\n  rows: 9\n  dim: 64\n"
    return [
        Reader("tables, CSV", ".csv", (csv,), read_tables),
        Reader("tables, JSON", ".json", (json.dumps({"tables": tables}).encode(),), read_tables),
        Reader("tables, YAML", ".yaml", (yaml,), read_tables),
        Reader("tables, TOML", ".toml", (read_shipped("models", "distemb-tiny.toml")[:3000],), read_tables),
        Reader("histogram", ".csv", (read_shipped("distributions", "reuse-medium.csv"),), read_histogram),
    ]


def list_plans() -> list[Reader]:
    from dealt_plan import uniform_plan

    from perfmodel.engine.cost import Evaluator
    from perfmodel.engine.tables import PlanTables
    from perfmodel.plan.choices.constraints import parse_rules
    from perfmodel.plan.plan_files import plan_record, read_any_plan, read_made_for, read_plan
    from perfmodel.plan.torchrec import build_torchrec_plan
    from perfmodel.schema.torchrec_plan import read_torchrec_plan
    from perfmodel.schema.workload import Table, TableSet

    model, few = PlanTables.load("criteo-kaggle"), PlanTables.of(TableSet("m", (Table("t", 8, 4, 1.0),)))
    plan = _text(plan_record(uniform_plan(model, "data-parallel", 8, 8)))
    evaluator = Evaluator.on("h100-sxm-ib", few, 8, 2)
    torchrec = _text(build_torchrec_plan(evaluator, uniform_plan(few, "row-wise", 2, 2)).model_dump())
    rules = {"t0": {"sharding_types": ["row_wise"], "compute_kernels": ["fused"], "min_partition": 8}}

    def read_plan_of_any_kind(path: Path) -> object:
        return read_any_plan(path, few, 8, lambda gpus: gpus)

    return [
        Reader("plan", ".json", (plan,), lambda p: read_plan(p, model)),
        Reader("plan, what it is for", ".json", (plan,), read_made_for),
        Reader("TorchRec plan", ".json", (torchrec,), read_torchrec_plan),
        Reader("table rules", ".json", (_text(rules),), lambda p: parse_rules([str(p)])),
        Reader("plan of any kind", ".json", (torchrec,), read_plan_of_any_kind),
    ]


def _text(document: object) -> bytes:
    return json.dumps(document, indent=1).encode()


def list_logs() -> list[Reader]:
    from oracles.made_logs import NVSHMEM, line, new_log

    from calibrate.importers.merge import import_logs

    def asked(path: Path) -> object:
        return import_logs([path], op="all_gather", gpus=8, gpus_per_node=8)

    nccl = new_log([line(2**k, 10.0 + 2**k / 3e5) for k in range(10, 14)]).encode()
    rows = [f"nccl,2.29.2,H200,stream,all_gather,{2**k},8,8,{1e-5 + 2**k / 3e11},ok" for k in range(10, 14)]
    head = "backend,library_version,gpu,clock,collective,payload_bytes,gpus,gpus_per_node,time_s,flag"
    return [
        Reader("log, nccl-tests", ".log", (nccl,), lambda p: import_logs([p])),
        Reader("log, nccl-tests, options", ".log", (nccl,), asked),
        Reader("log, nccl-tests JSON", ".json", (write_nccl_json(),), lambda p: import_logs([p])),
        Reader("log, rccl-tests JSON", ".json", (_RCCL_JSON,), lambda p: import_logs([p], gpus_per_node=8)),
        Reader("log, NVSHMEM", ".log", (NVSHMEM.encode(),), lambda p: import_logs([p])),
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
        where = {"backend": "gloo", "clock": Clock.EAGER, "gpus": 2, "gpus_per_node": 2}
        what = {"kind": PointKind.COLLECTIVE, "operation": "all_to_all", "payload_bytes": 1024 << number}
        point = Point.model_validate({**what, **where})
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


def write_nccl_json() -> bytes:
    half = {"time": 80.0, "alg_bw": 100.0, "bus_bw": 87.5, "nwrong": 0.0}
    device = {"rank": 0, "group": 0, "hostname": "node-0", "device_info": "NVIDIA H200"}
    result = {"size": 8_000_000, "count": 2, "type": "float", "redop": "none"}
    result |= dict.fromkeys(("out_of_place", "in_place"), half)
    config = {"nthreads": 8, "ngpus": 1, "graph": 0, "devices": [device]}
    args = ["./build/all_gather_perf"]
    return _text({"version": 1, "args": args, "nccl_version": 22907, "config": config, "results": [result]})
