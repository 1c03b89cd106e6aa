"""Wheel and sdist of the last commit, byte for byte the same wherever they are built.

    python benchmarks/release.py --out dist

Files are those of the commit, not of the folder; times are the commit's, or ``SOURCE_DATE_EPOCH``; owners and
the permissions that this user gives new files are left out. It needs git and setuptools, and no network.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_BUILD = "import setuptools.build_meta as b; b.build_sdist('dist'); b.build_wheel('dist')"


def build(out: Path, checkout: Path = ROOT) -> list[Path]:
    """The two files of the last commit of ``checkout``, in ``out``, by name."""
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or call_git(checkout, "log", "-1", "--format=%ct"))
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        with tarfile.open(fileobj=io.BytesIO(call_git(checkout, "archive", "HEAD"))) as archive:
            archive.extractall(source, filter="data")
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "PYTHONHASHSEED": "0"}
        done = subprocess.run(
            [sys.executable, "-c", _BUILD], cwd=source, env=environment, capture_output=True, text=True,
            check=False, umask=0o022,
        )  # fmt: skip
        if done.returncode:
            sys.exit(done.stderr[-4000:])
        files = sorted((source / "dist").iterdir())
        for path in files:
            data = path.read_bytes()
            (out / path.name).write_bytes(normalize_tar(data, epoch) if path.suffix == ".gz" else data)
    return [out / path.name for path in files]


def call_git(checkout: Path, *words: str) -> bytes:
    done = subprocess.run(["git", "-C", str(checkout), *words], capture_output=True, check=False)
    if done.returncode:
        sys.exit(f"{checkout} is not a checkout with a commit: {done.stderr.decode().strip()}")
    return done.stdout


def normalize_tar(data: bytes, epoch: int) -> bytes:
    """The same files in the order of their names, without owners, all of one time."""
    packed = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(data)) as archive,
        gzip.GzipFile(filename="", fileobj=packed, mode="wb", mtime=epoch) as unpacked,
        tarfile.open(fileobj=unpacked, mode="w", format=tarfile.PAX_FORMAT) as written,
    ):
        for member in sorted(archive.getmembers(), key=lambda one: one.name):
            run = member.isdir() or bool(member.mode & 0o100)
            plain = tarfile.TarInfo(member.name)
            plain.type, plain.size, plain.linkname = member.type, member.size, member.linkname
            plain.mtime, plain.mode = epoch, 0o755 if run else 0o644
            written.addfile(plain, archive.extractfile(member) if member.isfile() else None)
    return packed.getvalue()


def main() -> None:
    """Build, and print the digests."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder of the two files")
    options = parser.parse_args()
    for path in build(options.out):
        print(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path}")


if __name__ == "__main__":
    main()
