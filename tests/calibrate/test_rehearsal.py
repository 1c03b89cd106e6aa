"""Parts of a session on a GPU with a stand-in for it, in processes of their own, ending in one archive.

The whole of it, in an environment with exactly the first machine's packages:
``python benchmarks/one_gpu.py --out results --rehearse`` (requirements/gpu-machine.txt).
"""

from __future__ import annotations

import csv
import shutil
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import gpu_needs
import one_gpu
import pytest

pytest.importorskip("torch")
pytest.importorskip("cuda.bindings.nvrtc")
if shutil.which("g++") is None:
    pytest.skip("NOT REHEARSED: kernels are built with g++", allow_module_level=True)


MOST_S = 300.0
"""Of a part, however busy this machine is."""


def parts_of(asked: one_gpu.Asked) -> one_gpu.Groups:
    """The smoke test, a file of tests, and gather and pool of one cell."""
    opening = list(one_gpu.opening(asked))
    yield tuple(replace(part, most_s=MOST_S) for part in opening[1])
    tests = one_gpu.tests(asked, "collectives")
    plain = tuple(word for word in tests.command if not word.startswith("--timeout"))
    yield (one_gpu.Part(tests.name, plain, MOST_S),)
    words = ("--scale", "200000", "--minutes", "0.001", "--rows", "1000000", "--report")
    yield asked.benchmark("gather", MOST_S, "--out", f"{asked.results}/gather.csv", *words)


def test_a_session_with_a_stand_in_ends_in_one_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every answer says that it is a rehearsal's, in its name or in each of its lines."""
    monkeypatch.setattr(one_gpu, "WORK", tmp_path / "work")
    monkeypatch.setattr(gpu_needs, "WHEELS", tmp_path / "none")
    monkeypatch.setitem(one_gpu.SITTINGS, "first", parts_of)
    code = one_gpu.main_of(["--out", str(tmp_path / "out"), "--rehearse", "--seconds", f"{6 * MOST_S:.0f}"])
    told = capsys.readouterr().out
    assert code == 0, told
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["rehearsal-first.tar.gz"]
    with tarfile.open(tmp_path / "out" / "rehearsal-first.tar.gz") as made:
        made.extractall(tmp_path / "seen", filter="data")
    results = tmp_path / "seen" / "rehearsal-first"
    assert "bags are torch's: True; in a graph: True" in (results / "smoke.txt").read_text()
    with (results / "gather.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert rows and all(row["gpu"].endswith("(rehearsal)") for row in rows)
    assert not list(results.rglob("*.cubin")) and list((tmp_path / "work").rglob("*.cubin"))


def test_what_a_gpu_refuses_the_stand_in_refuses(kernel_home: Path) -> None:
    """A value on the host inside a graph, more shared memory than leave was given for, a grid of nothing."""
    import os
    import subprocess

    program = r"""
import torch, numpy as np, cupy
from calibrate.cuda import launch
from calibrate.cuda.kernel import Kernel
seen = []
one = torch.ones(3, device="cuda")
assert one.device == torch.device("cuda", 0) and one.is_cuda
def refused(call):
    try:
        call()
    except (RuntimeError, ValueError, TypeError) as error:
        seen.append(str(error).split(":")[0])
def inside():
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        one.sum().item()
gpu = torch.device("cuda")
kernel = launch.gpu_function(Kernel("unique.cu", "pm::clear_slots<pm::u32, pm::u32>"), gpu)
refused(inside)
with cupy.cuda.Device(0), cupy.cuda.Stream.from_external(torch.cuda.current_stream()):
    refused(lambda: kernel((1, 1, 1), (64, 1, 1), (np.int32(1),), shared_mem=100_000))
    refused(lambda: kernel((0, 1, 1), (64, 1, 1), (np.int32(1),)))
    refused(lambda: kernel((1, 1, 1), (64, 1, 1), (object(),)))
refused(lambda: kernel((1, 1, 1), (64, 1, 1), (np.int32(1),)))
print(seen)
"""
    site = gpu_needs.ROOT / "tests" / "rehearsal" / "site"
    paths = os.pathsep.join([str(site), str(gpu_needs.ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "PERFMODEL_HOME": str(kernel_home)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    invalid = "CUDA_ERROR_INVALID_VALUE"
    wanted = [
        "CUDA error",
        invalid,
        invalid,
        "Unsupported type <class 'object'>",
        "a launch outside of a device, or of a stream",
    ]
    assert done.stdout.strip() == str(wanted)
