"""What a session on a GPU measured, put into the repository: samples kept, machine fitted again.

Run:    python benchmarks/gpu_samples.py first.tar.gz timings.tar.gz [--machine NAME]
Of the archives of benchmarks/one_gpu.py it takes
  runs/*/samples.jsonl   a row for each point into data/measurements/kernels; constants are fitted to the run
                         that has most samples at the clock stream and printed; those of FBGEMM's kernels,
                         which a machine's file describes, replace its values, as measured
  gather_variants.csv    into data/kernels: launches take the fastest variant from it
  gather.csv, floors.csv, stages.csv, sort.csv, dense.csv, environment.json   into data/measurements/kernels
and prints every value before and after. Files are named after the archive. Nothing is written where one of
the archives is a rehearsal's, whose times are made up: exit code 2.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from gather import LABELS

from perfmodel.errors import BadInputError, PerfmodelError
from perfmodel.fit.kernels import fit_kernels
from perfmodel.schema.evidence import Clock
from perfmodel.schema.kernel_fits import KERNEL_KEYS
from perfmodel.schema.machine import read_machine
from perfmodel.schema.run_files import Run, read_run
from perfmodel.schema.runs import REHEARSAL, functional_reason

ROOT = Path(__file__).resolve().parents[1]
AS_THEY_ARE = ("floors.csv", "stages.csv", "sort.csv", "dense.csv", "environment.json")
OF_A_MACHINE = "fbgemm"
"""Whose kernels the constants of a machine's file are: TorchRec runs them."""

SD_OF_95 = 3.92
"""Standard deviations in a 95 % interval."""


def taken(archives: Sequence[Path], folder: Path) -> list[Path]:
    """The folders of results in these archives.

    Raises BadInputError for what is no archive of a session, or a rehearsal's.
    """
    found = []
    for archive in archives:
        try:
            with tarfile.open(archive) as made:
                made.extractall(folder / archive.name, filter="data")
        except (OSError, tarfile.TarError) as error:
            raise BadInputError(f"{archive}: {error}", "name an archive of one_gpu.py.") from None
        results = next((path for path in (folder / archive.name).iterdir() if path.is_dir()), None)
        if results is None:
            raise BadInputError(f"{archive} is empty.", "name an archive of one_gpu.py.")
        said = [path for path in results.glob("*.csv") if REHEARSAL in path.read_text(encoding="utf-8")]
        if results.name.startswith("rehearsal") or said:
            raise BadInputError(f"{archive} is a rehearsal's: its times are made up.", "measure on a GPU.")
        found.append(results)
    return found


def best_run(folders: Sequence[Path]) -> Run | None:
    """The run with most samples of kernels at the clock stream; None: none.

    Raises BadInputError for a run that is no calibration.
    """
    best, most = None, 0
    for folder in folders:
        for path in sorted(folder.glob("runs/*/samples.jsonl")):
            run = read_run(path)
            if run.header.functional_only:
                raise BadInputError(f"{path.name}: {functional_reason(run.header)}.", "measure on a GPU.")
            samples = run.kernel_samples()
            count = int((samples["clock"] == Clock.STREAM).sum())
            if count > most:
                best, most = run, count
    return best


def with_values(text: str, values: Mapping[str, Mapping[str, Any]]) -> str:
    """The TOML of a machine with other fields of some of its values; fields that were not there come last."""
    blocks = text.split("\n[")
    for at, block in enumerate(blocks):
        head, _, rest = block.partition("\n")
        fields = dict(values.get(head.removeprefix("values.").removesuffix("]"), {}))
        if not head.startswith("values.") or not fields:
            continue
        body = rest.rstrip("\n")
        there = [line.partition(" = ")[0] for line in body.splitlines()]
        said = {word: f"{word} = {json.dumps(value)}" for word, value in fields.items()}
        lines = [said.get(word, line) for word, line in zip(there, body.splitlines(), strict=True)]
        lines += [line for word, line in said.items() if word not in there]
        blocks[at] = "\n".join([head, *lines]) + rest[len(body) :]
    return "\n[".join(blocks)


def fitted_machine(path: Path, run: Run) -> str:
    """The machine's file with the constants of FBGEMM's kernels, where the run has them."""
    machine = read_machine(path)
    every = fit_kernels(run.kernel_samples(), machine, Clock.STREAM)
    if not every:
        raise BadInputError("these samples are too few to fit a kernel to.", "measure for longer.")
    for one in every:
        print(
            f"{one.implementation}, errors of left-out samples {100 * (one.loo_median or 0):.1f} % (median)"
        )
        for key, interval in one.values.items():
            print(f"  {key:<24} {machine.value(key):>12.4g} {interval.value:>12.4g}")
    known = every[0]
    if known.implementation != OF_A_MACHINE:
        print(f"no kernels of {OF_A_MACHINE}: the machine's file stays")
        return path.read_text(encoding="utf-8")
    gpu = run.header.stack.get("gpu", run.header.machine)
    source = f"perfmodel calibrate on {gpu}, {run.header.started_at[:10]}; data/measurements/kernels"
    changed: dict[str, dict[str, Any]] = {}
    for key, interval in known.values.items():
        if key not in KERNEL_KEYS or key not in machine.values or not interval.known or key in known.at_bound:
            print(f"{key:<24} not told by these samples: stays")
            continue
        changed[key] = {
            "value": interval.value,
            "source": source,
            "why": f"kernels of {known.implementation}, timed back to back, fitted to the kernel model",
            "evidence": "measured",
        }
        if interval.low and interval.high:
            changed[key]["log_sd"] = round(max(1e-3, math.log(interval.high / interval.low) / SD_OF_95), 4)
    return with_values(path.read_text(encoding="utf-8"), changed)


def put(folders: Sequence[Path], data: Path, machine: str | None) -> None:
    """Write what these folders hold below ``data``, files of machines last."""
    run = best_run(folders)
    made = None
    if run is not None:
        target = data / "machines" / f"{machine or run.header.machine}.toml"
        made = (target, fitted_machine(target, run))
    kept = data / "measurements" / "kernels"
    kept.mkdir(parents=True, exist_ok=True)
    for folder in folders:
        for path in sorted(folder.glob("runs/*/samples.jsonl"))[:1]:
            target = kept / f"{folder.name}-samples.csv"
            samples = read_run(path).kernel_samples().drop(columns=["key", "backend"])
            samples.to_csv(target, index=False, float_format="%.6g", lineterminator="\n")
            print(f"wrote {target}")
        for name in AS_THEY_ARE:
            if (folder / name).is_file():
                copied(folder / name, kept / f"{folder.name}-{name}")
        if (table := folder / "gather.csv").is_file():  # single variants are in gather_variants.csv
            rows = pd.read_csv(table)
            target = kept / f"{folder.name}-{table.name}"
            rows[rows["implementation"].isin(list(LABELS))].to_csv(target, index=False, lineterminator="\n")
            print(f"wrote {target}")
        if (folder / "gather_variants.csv").is_file():
            copied(folder / "gather_variants.csv", data / "kernels" / "gather_variants.csv")
    if made is not None:
        made[0].write_text(made[1], encoding="utf-8")
        read_machine(made[0])
        print(f"wrote {made[0]}")


def copied(path: Path, target: Path) -> None:
    """A copy, said."""
    shutil.copyfile(path, target)
    print(f"wrote {target}")


def main() -> int:
    """Exit code 2 for archives that cannot be used."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("archives", type=Path, nargs="+")
    parser.add_argument("--data", type=Path, default=ROOT / "data", help="where the shipped files are")
    parser.add_argument("--machine", help="whose file is fitted (default: that of the run)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        try:
            put(taken(given.archives, Path(folder)), given.data, given.machine)
        except PerfmodelError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
