"""What a session on a GPU needs: the check that names what is missing, and the wheels that are carried.

No package outside the standard library is imported before it is known to be there.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CARRIED = ROOT / "requirements" / "gpu-carry.txt"
"""Exact versions of the wheels that the first GPU machine lacks."""

MACHINE = ROOT / "requirements" / "gpu-machine.txt"
"""Versions of what it has, for an environment like it."""

WHEELS = ROOT / "build" / "wheels"
PYTHON = "3.12"
GLIBC = ("_2_34", "_2_28", "_2_27", "_2_17", "2014")
CARRIED_BYTES = 64 * 2**20
"""The checkout and the wheels together."""

NOT_IMPORTED = ("cuda-python", "cython")
"""What nvshmem4py names and does not import: a name for cuda-bindings, and what built it."""

TESTING = ("pytest", "pytest-timeout", "hypothesis")
TOOLS = {
    "nvidia-smi": "it comes with the driver",
    "nvcc": "it comes with the CUDA toolkit: one test builds the sources with it",
    "compute-sanitizer": "it comes with the CUDA toolkit: the sitting 'sanitizer' needs it",
}


def missing() -> list[str]:
    """What is not there, a line each: packages, tools, the GPU, NVSHMEM's parts; all there: none."""
    lacking = list(_packages())
    lacking += [f"{tool}: {why}" for tool, why in TOOLS.items() if shutil.which(tool) is None]
    lacking += _gpu()
    return lacking if lacking else list(_nvshmem())


def _packages() -> Iterator[str]:
    """Packages that pyproject.toml and the tests ask for, and what those that are carried ask for in turn."""
    if importlib.util.find_spec("packaging") is None:
        yield "packaging: not installed (nothing else could be looked at)"
        return
    from packaging.requirements import Requirement

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["gpu"], *TESTING]
    deep = {line.split("==")[0].lower() for line in CARRIED.read_text(encoding="utf-8").splitlines()}
    seen: set[str] = set()
    queue = [(text, "") for text in wanted]
    while queue:
        text, by = queue.pop(0)
        requirement = Requirement(text)
        if (
            text in seen
            or requirement.name.lower() in NOT_IMPORTED
            or (requirement.marker and not requirement.marker.evaluate({"extra": ""}))
        ):
            continue
        seen.add(text)
        asked = f"{requirement.name}{requirement.specifier}{by}"
        try:
            found = importlib.metadata.distribution(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            yield f"{asked}: not installed"
            continue
        if not requirement.specifier.contains(found.version, prereleases=True):
            yield f"{asked}: {found.version} is installed"
        if requirement.name.lower() in deep:
            queue += [(one, f" (for {requirement.name})") for one in found.requires or []]


def _gpu() -> list[str]:
    if shutil.which("nvidia-smi") is None:
        return []
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=4, check=False)
    except subprocess.TimeoutExpired:
        return ["a GPU: nvidia-smi -L does not answer"]
    found = [line for line in done.stdout.splitlines() if line.startswith("GPU ")]
    print("\n".join(found))
    return [] if found else [f"a GPU: nvidia-smi -L says {(done.stdout + done.stderr).strip()[:200]!r}"]


def _nvshmem() -> Iterator[str]:
    from calibrate.cuda.nvshmem_build import find_wheels
    from perfmodel.errors import NoHardwareError

    try:
        print(f"NVSHMEM: {find_wheels()}")
    except NoHardwareError as error:
        yield error.message


def check() -> int:
    """Print what is missing; 0 where nothing is, else 4."""
    print(f"python {sys.version.split()[0]} at {sys.executable}")
    lacking = missing()
    for line in lacking:
        print(f"MISSING {line}")
    if lacking:
        print(f"carry the wheels of {CARRIED.relative_to(ROOT)}: python benchmarks/one_gpu.py --pack")
        return 4
    print("everything is there")
    return 0


def pack(folder: Path = WHEELS) -> int:
    """Download the wheels to carry into ``folder``; 0 where they and the checkout may travel together."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    platforms = [f"--platform=manylinux{glibc}_x86_64" for glibc in GLIBC]
    line = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    line += [f"--python-version={PYTHON}", "--implementation=cp", *platforms]
    done = subprocess.run([*line, f"--dest={folder}", f"--requirement={CARRIED}"], check=False)
    if done.returncode:
        print(f"pip could not download what {CARRIED.relative_to(ROOT)} lists", file=sys.stderr)
        return done.returncode
    wheels, tree = folder_bytes(folder), checkout_bytes()
    mebibytes = f"{wheels / 2**20:.1f} MiB of wheels, {tree / 2**20:.1f} MiB of checkout"
    print(f"{mebibytes} (at most {CARRIED_BYTES // 2**20} together), in {folder}")
    return int(wheels + tree > CARRIED_BYTES)


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def checkout_bytes() -> int:
    """Bytes of the files that git knows, or would."""
    line = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(line, cwd=ROOT, capture_output=True, check=True).stdout.split(b"\0")
    return sum((ROOT / os.fsdecode(name)).lstat().st_size for name in names if name)


def install(folder: Path, site: Path) -> bool:
    """Install carried wheels beside what is there; whether there were any.

    Raises CalledProcessError where pip refuses.
    """
    wheels = sorted(str(path) for path in folder.glob("*.whl"))
    if not wheels:
        return False
    line = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile"]
    options = ["--no-cache-dir", "--upgrade", "--disable-pip-version-check", f"--target={site}"]
    subprocess.run([*line, *options, *wheels], check=True)
    return True
