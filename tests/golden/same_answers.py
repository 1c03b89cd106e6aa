"""Every command's answer, and what both engines say of random cases: no change of structure touches them.

    python tests/golden/same_answers.py keep FOLDER      write the answers of this checkout
    python tests/golden/same_answers.py compare FOLDER   run them again; exit 1 where one differs
    python tests/golden/same_answers.py compare FOLDER '^plan'   only what the pattern matches

Words are equal to the letter, and so are numbers on a screen; numbers of data (JSON, CSV, pages, engines) are
equal to 1e-13. Not part of the test suite: the last digits of a number are those of one machine's libraries.
"""

from __future__ import annotations

import contextlib
import difflib
import io
import json
import math
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from golden.engine_cases import CASES, write_cases
from oracles.made_logs import line, new_log, write

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", NO_COLOR="1")

LINES = """
project --table-size 10TB
project --table-size 10TB --json
-v project --table-size 10TB
project --table-size 10TB --batch 4096 --tables 8 --json
project --table-size 10TB --machine h200-sxm-ib --backend best --json
project --table-size 10TB --set nvlink_domain_gpus=72 --set gpus_per_node=4 --json
project --table-size 10TB --set payload=fp16 --distribution zipf:1.05 --json
project --table-size 10TB --sharding sparse --backend nvshmem --machine h200-sxm-ib --json
project --table-size 10TB --sharding all
project --table-size 10TB --sharding all --json
project --table-size 10TB --sharding ub --distribution zipf:1.1 --json
project --model mlperf-dlrm-dcnv2 --gpus 16 --json
project --model mlperf-dlrm-dcnv2 --gpus 16 --sharding all --json
project --gpus 4 --set id_dtype=int32 --set dtype=fp16 --json
project --table-size 10Tb
collective --op all_to_all --size 1GiB --gpus 128
collective --op all --size 1MiB..64MiB --gpus 8,16 --machine h200-sxm-ib --json
collective --op all --size 16KiB..1GiB --gpus 2..1024 --json
collective --op all --size 64KiB --gpus 8 --machine h200-sxm-ib --backend nvshmem --json
collective --op all_reduce --size 1MiB..64MiB --gpus 16,72 --machine gb200-nvl72 --json
project --table-size 10TB --explain reduce-scatter
project --table-size 10TB --sharding row-wise --explain reduce-scatter --json
project --table-size 10TB --set payload=fp16 --sharding row-wise --explain convert-out --json
collective --op all_to_all --size 1GiB --gpus 128 --explain --json
plan --model two.csv --batch 8192 --plan two.json --explain gather --json
sweep --grid paper-1 --sharding row-wise --json
sweep --table-size 1TB..64TB --batch 128..4096 --dim 32,128 --json
sweep --model mlperf-dlrm-dcnv2,criteo-1tb --gpus 8..128 --batch 512..4096 --json
plan --model criteo-kaggle --gpus 8 --effort quick --json
plan --model criteo-kaggle --gpus 8 --effort quick
plan --model criteo-kaggle --gpus 8,16,32 --effort quick
plan --model criteo-kaggle --gpus 2 --objective throughput --dense dlrm-dcnv2 --effort quick --json
plan --model two.csv --batch 8192 --plan two.json --json
plan --model two.csv --batch 8192 --plan two.json --objective throughput --json
plan --model two.csv --batch 8192 --plan ub.json --json
chip plan --model criteo-kaggle --chip ascend-910 --distribution zipf:1.05 --json
show chips ascend-910 --json
validate
validate --paper
show calibrations
show h100-sxm-ib/nccl-2.29.2-stream --json
show h100-sxm-ib/nccl-2.29.2-stream
show machines
show machines h100-sxm-ib --json
report --out @page.html
report --model mlperf-dlrm-dcnv2 --gpus 16 --out @gpus.html
report --out @page.md
plan --model criteo-kaggle --gpus 8 --effort quick --out @plan.html
import all_gather.log --machine h200-sxm-ib --out @mine.json --json
import samples.csv --machine h200-sxm-ib --set gpus_per_node=8 --out @mine.json
check all_gather.log --machine h200-sxm-ib
plan --model two.csv --gpus 6 --batch 8192 --effort quick --out @plan.json --json
plan --model two.csv --gpus 6 --batch 8192 --effort quick --format torchrec --out @torchrec.json --json
plan --model two.csv --gpus 6 --batch 8192 --effort quick --only a=table-wise --only b=3d --json
plan --model two.csv --gpus 8 --batch 8192 --effort quick --set optimizer=adam --objective throughput --json
project --model two.csv --gpus 4 --batch 512 --objective training --json
"""
_WIDTHS = "80", "100"
_DATA = "--json", "--out", "--toml"
_TABLES = "name,rows,dim,pooling\na,10000000,16,60\nb,10000000,16,60\n"
_SAMPLES = "collective,gpus,payload_bytes,time_s\n" + "".join(
    f"all_gather,8,{2**power},{1e-5 + 2**power / 3e11}\n" for power in range(10, 31)
)
_PLANS = {"two.json": ("rb", "rb"), "ub.json": ("ub", "sparse")}


def make_plan(exchanges: tuple[str, str]) -> dict[str, object]:
    """Two tables, each in three parts by rows."""
    return {
        "schema_version": 1,
        "model": "two",
        "tables_fingerprint": "403447acdab3c688",
        "gpus": 6,
        "domain_gpus": 6,
        "placements": [
            {"table": name, "exchange": exchange, "row_parts": 3, "col_parts": 1, "ranks": ranks}
            for name, exchange, ranks in zip("ab", exchanges, ([0, 1, 2], [3, 4, 5]), strict=True)
        ],
    }


_NUMBER = re.compile(r"-?\d+\.?\d*(?:e[+-]?\d+)?")
_SAME = 1e-13
_MOST_SHOWN = 12


def run_command(words: list[str], folder: Path) -> str:
    """What a command prints and writes, with its exit code."""
    from perfmodel.cli import run

    files = [word[1:] for word in words if word.startswith("@")]
    words = [str(folder / word[1:]) if word.startswith("@") else word for word in words]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(words)
    text = f"exit {code}\n{out.getvalue()}\n--- stderr\n{err.getvalue()}"
    for name in files:
        path = folder / name
        text += f"\n--- {name}\n" + (path.read_text(encoding="utf-8") if path.exists() else "not written")
    return re.sub(r'"(git|fingerprint)": "\w+"', "", text.replace(str(folder), "FOLDER"))


def run_in_folder(typed: str, width: str) -> str:
    os.environ["COLUMNS"] = width
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "two.csv").write_text(_TABLES, encoding="utf-8")
        for plan, exchanges in _PLANS.items():
            (folder / plan).write_text(json.dumps(make_plan(exchanges)), encoding="utf-8")
        (folder / "samples.csv").write_text(_SAMPLES, encoding="utf-8")
        write(folder, "all_gather.log", new_log([line(1 << k, 10 + 2**k / 1e5) for k in range(10, 31)]))
        os.chdir(folder)
        return run_command(shlex.split(typed), folder)


def answer_one(question: tuple[str, str]) -> tuple[str, str]:
    """The answer's file name, and the answer."""
    typed, width = question
    name = re.sub(r"[^A-Za-z0-9]+", "-", typed).strip("-")[:120] + (f"-{width}" if width else "") + ".txt"
    try:
        return name, write_cases(typed) if typed in CASES else run_in_folder(typed, width or _WIDTHS[-1])
    except Exception as error:  # what a command raises is its answer
        return name, f"raised {error!r}"


def list_questions() -> Iterator[tuple[str, str]]:
    """What is asked, and how wide the screen is; data has no width."""
    yield from ((engine, "") for engine in CASES)
    for typed in filter(None, LINES.splitlines()):
        data = not set(_DATA).isdisjoint(typed.split())
        yield from ((typed, width) for width in ([""] if data else _WIDTHS))


def is_alike(before: str, after: str, *, data: bool) -> bool:
    """Whether two lines say the same: words to the letter, numbers of data to 13 digits."""
    if before == after:
        return True
    if not data or _NUMBER.sub("#", before) != _NUMBER.sub("#", after):
        return False
    pairs = zip(_NUMBER.findall(before), _NUMBER.findall(after), strict=True)
    return all(math.isclose(float(a), float(b), rel_tol=_SAME) for a, b in pairs)


def list_differences(before: str, after: str, *, data: bool) -> list[str]:
    old, new = before.splitlines(), after.splitlines()
    if len(old) == len(new) and all(is_alike(a, b, data=data) for a, b in zip(old, new, strict=True)):
        return []
    return list(difflib.unified_diff(old, new, "before", "after", n=0, lineterm=""))


def main(verb: str, place: str, only: str = "") -> int:
    """Exit code; ``only`` is a pattern of the commands that are asked."""
    folder, different, questions = Path(place).absolute(), 0, list(list_questions())
    if only:
        questions = [question for question in questions if re.search(only, question[0])]
    folder.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(2) as pool:
        for (typed, width), (name, text) in zip(questions, pool.map(answer_one, questions), strict=True):
            path = folder / name
            if verb == "keep":
                path.write_text(text, encoding="utf-8")
                continue
            before = path.read_text(encoding="utf-8") if path.exists() else ""
            lines = list_differences(before, text, data=not width)
            different += bool(lines)
            if lines:
                print(f"{typed} {width}", *(row[:300] for row in lines[:_MOST_SHOWN]), sep="\n")
    print(f"{len(questions)} answers, {different} differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
