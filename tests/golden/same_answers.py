"""Every command's answer, kept and compared byte for byte: what a change of structure must not touch.

    python tests/golden/same_answers.py keep FOLDER      write the answers of this checkout
    python tests/golden/same_answers.py compare FOLDER   run them again; exit 1 where one byte differs

Not part of the test suite: the last digits of a number are those of one machine's libraries.
"""

from __future__ import annotations

import contextlib
import difflib
import io
import json
import os
import re
import shlex
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from made_logs import line, new_log, write

os.environ.update(COLUMNS="100", OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", NO_COLOR="1")

LINES = """
project --table-size 10TB
project --table-size 10TB --json
project --table-size 10TB --csv
project --table-size 10TB --batch 4096 --tables 8 --json
project --table-size 10TB --machine h200-sxm-ib --backend best --json
project --table-size 10TB --set nic_bytes_per_s=100GB/s --json
project --table-size 10TB --set nvlink_domain_gpus=72 --set gpus_per_node=4 --json
project --table-size 10TB --local-memory 10TB@3TB/s --json
project --table-size 10TB --payload fp16 --distribution zipf:1.05 --json
project --table-size 10TB --scenario nvlink-everywhere --json
project --table-size 10TB --reduction two-level --json
project --table-size 10TB --reduction sparse --backend nvshmem --machine h200-sxm-ib --json
project --table-size 10TB --sharding all
project --table-size 10TB --sharding all --json
project --table-size 10TB --sharding ub --alpha 1.1 --json
project --model mlperf-dlrm-dcnv2 --gpus 16 --json
project --model mlperf-dlrm-dcnv2 --gpus 16 --sharding all --json
project --gpus 4 --id-dtype int32 --dtype fp16 --json
project --table-size 10Tb
collective --op all_to_all --size 1GiB --gpus 128
collective --op all_to_all --size 1GiB --gpus 128 --json
collective --op all --size 1MiB..64MiB --gpus 8,16 --machine h200-sxm-ib --json
collective --op all --size 16KiB..1GiB --gpus 2..1024 --csv
collective --op all_gather --size 1GiB --gpus 64 --set nic_bytes_per_s=100GB/s --json
collective --op all --size 64KiB --gpus 8 --machine h200-sxm-ib --backend nvshmem --json
collective --op all_reduce --size 1MiB..64MiB --gpus 16,72 --machine gb200-nvl72 --json
collective --op all_to_all --size 64 --gpus 8
explain reduce-scatter --json
explain gather --table-size 10TB --dim 128 --json
explain all-to-all-ids --gpus 16 --machine h200-sxm-ib --json
explain all-to-all-rows --sharding ub --json
explain convert-out --payload fp16 --json
explain bucketize
explain rows --table-size 10TB --sharding ub
chip explain L1 --chip ascend-910 --rows 2000 --dim 128 --batch 4096 --pooling 4 --json
chip explain GM-UB --chip h100-sxm --rows 2000 --dim 64 --batch 1024 --pooling 8
sweep --grid paper-1 --csv
sweep --grid paper-2 --gpus 128 --scenario nvlink-everywhere --csv
sweep --table-size 1TB..64TB --batch 128..4096 --dim 32,128 --json
plan --model criteo-kaggle --gpus 8 --effort quick --json
plan --model criteo-kaggle --gpus 8 --effort quick
plan --model criteo-kaggle --gpus 2 --objective throughput --dense dlrm-dcnv2 --effort quick --json
plan --model two.csv --batch 8192 --plan two.json --json
plan --model two.csv --batch 8192 --plan two.json --objective throughput --csv
plan --model two.csv --batch 8192 --plan two.json --payload fp16
chip plan --model criteo-kaggle --chip ascend-910 --distribution zipf:1.05 --json
chip plan --model criteo-kaggle --chip h100-sxm
chip simulate --model criteo-kaggle --chip ascend-910 --batch 64 --json
chips
chips ascend-910 --json
chip ways --chip ascend-910
chip ways --chip h100-sxm --json
chips a100-sxm --toml
validate --json
validate --paper --json
validate --dlrm --json
calibrations
calibrations --json
show h100-sxm-ib/nccl-2.29.2-stream --json
show h100-sxm-ib/nccl-2.29.2-stream
machines
machines h100-sxm-ib --json
models --json
report --out @page.html
report --model mlperf-dlrm-dcnv2 --gpus 8,16 --batch 1024 --out @gpus.html
report --compare h100-sxm-ib h200-sxm-ib --out @compare.html
report --format markdown --out @page.md
plan --model criteo-kaggle --gpus 8 --effort quick --report @plan.html
chip plan --model criteo-kaggle --chip ascend-910 --report @chip.html
figure slowdown --out @slowdown.html --json
figure collectives-all-to-all --out @collectives.html
import all_gather.log --machine h200-sxm-ib --out @mine.json
doctor --help
"""
_TABLES = "name,rows,dim,pooling\na,10000000,16,60\nb,10000000,16,60\n"
_PLAN = {
    "schema_version": 1,
    "model": "two",
    "tables_fingerprint": "403447acdab3c688",
    "gpus": 6,
    "domain_gpus": 6,
    "placements": [
        {"table": name, "exchange": "rb", "row_parts": 3, "col_parts": 1, "ranks": ranks}
        for name, ranks in (("a", [0, 1, 2]), ("b", [3, 4, 5]))
    ],
}
_TIMES = re.compile(r'("(?:elapsed|search|seconds|cpu|wall)[a-z_]*": )[0-9.e+-]+')
_WORDS = re.compile(r"(packed in|looked at in|a search of) [\d.]+ m?s")


def answer(words: list[str], folder: Path) -> str:
    """What a command prints and writes, with its exit code; times that a search took are taken out."""
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
    return _WORDS.sub(r"\1 T", _TIMES.sub(r"\1T", text.replace(str(folder), "FOLDER")))


def _one(typed: str) -> tuple[str, str]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "two.csv").write_text(_TABLES, encoding="utf-8")
        (folder / "two.json").write_text(json.dumps(_PLAN), encoding="utf-8")
        write(folder, "all_gather.log", new_log([line(1 << k, 10 + 2**k / 1e5) for k in range(10, 31)]))
        os.chdir(folder)
        try:
            return typed, answer(shlex.split(typed), folder)
        except Exception as error:  # what a command raises is its answer
            return typed, f"raised {error!r}"


def _answers() -> dict[str, str]:
    with ProcessPoolExecutor(2) as pool:
        return dict(pool.map(_one, filter(None, LINES.splitlines())))


def main(verb: str, place: str) -> int:
    """Exit code."""
    folder, different = Path(place), 0
    folder.mkdir(parents=True, exist_ok=True)
    for i, (typed, text) in enumerate(_answers().items()):
        path = folder / (re.sub(r"[^A-Za-z0-9]+", "-", typed).strip("-")[:120] + ".txt")
        if verb == "keep":
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            different += 1
            before = path.read_text(encoding="utf-8") if path.exists() else ""
            lines = difflib.unified_diff(before.splitlines(), text.splitlines(), "before", "after", n=0)
            print(f"{i}: {typed}\n" + "\n".join(row[:300] for _, row in zip(range(12), lines, strict=False)))
    print(f"{len(LINES.splitlines()) - 1} command lines, {different} with another answer")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
