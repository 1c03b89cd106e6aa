"""Options of the commands that measure, import, or show what is measured and shipped."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from perfmodel.question.groups import Clock, OutputOptions
from perfmodel.question.spec import Arg, Opt
from perfmodel.units import parse_count, parse_ratio, parse_time

Texts = list[str] | None


@dataclass(frozen=True, kw_only=True)
class CalibrateOptions(OutputOptions):
    """Measure this machine: collectives, kernels and whole passes. Every result is checked.

    Starts its own ranks, or uses those of torchrun, srun or mpirun. Every sample is written to disk at once:
    Ctrl-C or a crash loses at most one short series of calls. Rerun the command to resume.

    \b
    Examples
      perfmodel calibrate --quick
      perfmodel calibrate --plan-only
      perfmodel calibrate --only gloo:all_to_all,gloo:reduce_scatter --ranks 2
      perfmodel calibrate --only passes --grid paper
      perfmodel calibrate --noise 1% --time-limit 30min --out runs
      torchrun --nproc-per-node 8 --no-python perfmodel calibrate
    """

    only: Annotated[
        Texts,
        Opt(
            "Measure only LIBRARY, LIBRARY:COLLECTIVE, kernels, kernels:NAME, composed (whole passes of the "
            "model) or passes (the paper's look-ups). Repeat, or separate with commas.",
            "WHAT",
        ),
    ] = None
    grid: Annotated[
        str | None, Opt("paper: time the look-ups of the paper's two grids; with --quick, a tenth.", "NAME")
    ] = None
    quick: Annotated[bool, Opt("About a minute: few sizes and rank counts, noise target 5 %.")] = False
    plan_only: Annotated[bool, Opt("Say what would be measured, and stop.")] = False
    ranks: Annotated[
        Texts, Opt("Numbers of ranks, e.g. 2,4,8 (default: up to one per GPU or core).", "N")
    ] = None
    sizes: Annotated[Texts, Opt("Payloads, e.g. 1KiB,1MiB or 1KiB..64MiB (doubling).", "SIZE")] = None
    backend: Annotated[Texts, Opt("Libraries, e.g. nccl or nccl,nvshmem.", "NAME")] = None
    clock: Annotated[Texts, Opt("Clocks: eager, stream.", "NAME")] = None
    device: Annotated[str, Opt("cuda, cpu, or auto: GPUs where there are any.", "NAME")] = "auto"
    machine: Annotated[
        str | None,
        Opt(
            "This machine: a shipped one, a TOML file, or a name of your own (default: recognized by its "
            "GPUs, else by its processor).",
            "NAME",
        ),
    ] = None
    noise: Annotated[
        str | None,
        Opt("Noise target: half of the 95 % interval, e.g. 2%.", "SHARE", read=parse_ratio,
            minimum="0.01%", maximum="99%"),
    ] = None  # fmt: skip
    time_limit: Annotated[
        str | None,
        Opt("Stop after this time, e.g. 90s, 10min or 2h.", "TIME", read=parse_time,
            minimum="1s", maximum="1000h"),
    ] = None  # fmt: skip
    out: Annotated[str | None, Opt("Folder of the runs (default: runs in $PERFMODEL_HOME).", "DIR")] = None
    fresh: Annotated[bool, Opt("Measure again what an earlier run has already measured.")] = False
    strict: Annotated[bool, Opt("Exit code 5 when a point failed, is noisy or was not reached.")] = False
    oversubscribe: Annotated[bool, Opt("Allow more ranks than cores: a functional check only.")] = False


@dataclass(frozen=True, kw_only=True)
class LogOptions(OutputOptions):
    """Options for what a log does not say itself."""

    turn, of_logs = 1, True
    op: Annotated[str | None, Opt("The collective, when a log does not name it.", "NAME")] = None
    gpus: Annotated[int | None, Opt("Ranks, when a log does not list them.", "N", read=parse_count)] = None
    settings: Annotated[Texts, Opt("Say what a log does not say, as below.", "KEY=VALUE", "--set")] = None
    gpus_per_node: Annotated[int | None, Opt("GPUs in each node.", read=parse_count, by_set=True)] = None
    library_version: Annotated[str | None, Opt("Version of the library.", by_set=True)] = None
    clock: Clock = None


@dataclass(frozen=True, kw_only=True)
class ImportOptions(LogOptions):
    """Calibrate from logs that you already have. What cannot be used is reported.

    Writes the calibration, and the samples beside it (FILE.samples.csv), only with --out.

    \b
    Examples
      perfmodel import all_gather.log reduce_scatter.log --machine h100-sxm-ib --out mine.json
      perfmodel import alltoall.json --machine h200-sxm-ib --set gpus_per_node=8
      perfmodel project --table-size 10TB --calibration mine.json
    """

    logs: Annotated[
        list[Path],
        Arg(
            "Logs: nccl-tests text or -J JSON, NVSHMEM perftest, CSV with the columns collective, "
            "payload_bytes, gpus and time_s; -: one on stdin."
        ),
    ]
    machine: Annotated[
        str | None, Opt("The machine that was measured (default: recognized by its GPU).", "NAME")
    ] = None
    out: Annotated[Path | None, Opt("Calibration to write (.json).", "FILE")] = None
    force: Annotated[bool, Opt("Replace existing files, and accept logs of another GPU.")] = False


@dataclass(frozen=True, kw_only=True)
class CheckOptions(LogOptions):
    """Is my cluster normal? Compare logs with similar clusters, and name the likeliest reasons.

    Every size is compared with the 95 % band of the shipped machine, or of your own --calibration. Exit
    code 6 where a log is slow, or faster than its links allow; else 2 where one cannot be read (the others
    have their verdicts).

    \b
    Examples
      perfmodel check alltoall.log all_reduce.log
      perfmodel check alltoall.log --machine h100-sxm-efa
      perfmodel check alltoall.log --calibration mine.json --json
      perfmodel check alltoall.log --gates gates.json
    """

    logs: Annotated[
        list[Path],
        Arg(
            "Logs of nccl-tests or rccl-tests (text, JSON), NVSHMEM perftest, or CSV in our format; "
            "-: a log on stdin. Logs of the same GPUs can explain each other."
        ),
    ]
    machine: Annotated[
        str | None,
        Opt("The machine that it should be like (default: recognized by its GPU and network).", "NAME"),
    ] = None
    calibration: Annotated[
        str | None,
        Opt("A calibration to compare with (default: the shipped one of the nearest version).", "FILE"),
    ] = None
    gates: Annotated[
        Path | None,
        Opt("Write the lowest busbw and the longest time that are normal, for each size, as JSON.", "FILE"),
    ] = None


LISTS = ("machines", "models", "chips", "calibrations")
"""What ``show`` lists."""


@dataclass(frozen=True, kw_only=True)
class ShowOptions(OutputOptions):
    """What is shipped, and what is in a file: machines, models, chips, calibrations, or one calibration.

    With a name or a file after it, a machine, a model or a chip is shown in full, with the source of every
    value; calibrations are listed of one machine after its name. A calibration is shown by its file, its id,
    or latest (your newest run): every fitted curve as a formula, with intervals and leave-one-out errors.

    A file of tables has a line for each table, with the columns rows, dim and pooling (ids per bag), and
    where they are wanted dtype, weighted (true: each id has a weight), distribution (of the ids, as in
    --distribution), name, and count (as many equal tables). TorchRec's names are read too.

    \b
    Examples
      perfmodel show machines
      perfmodel show h100-sxm-ib
      perfmodel show machines h100-sxm-ib --toml > my-cluster.toml
      perfmodel show models mlperf-dlrm-dcnv2
      perfmodel show calibrations h200-sxm-ib
      perfmodel show h100-sxm-ib/nccl-2.29.2-stream
    """

    what: Annotated[
        str | None, Arg("machines, models, chips, calibrations; or one by its name, its file, or latest.")
    ] = None
    name: Annotated[str | None, Arg("Show this one in full; without a name, list all.")] = None
    as_toml: Annotated[
        bool, Opt("Print the file of a machine or a chip, as a start for your own.", flag="--toml")
    ] = False


@dataclass(frozen=True, kw_only=True)
class ValidateOptions(OutputOptions):
    """How accurate is the tool, and which claims of the paper hold? Exit code 6 outside a band.

    A claim that does not hold is a finding: it does not make the command fail.

    \b
    Examples
      perfmodel validate
      perfmodel validate --held-out
      perfmodel validate --paper
      perfmodel validate --run latest
    """

    paper: Annotated[
        bool, Opt("Check the claims of arXiv 2512.05831 and other papers instead of the tool's own bands.")
    ] = False
    held_out: Annotated[
        bool, Opt("Also refit without a part of the samples, and predict that part (about 15 s).")
    ] = False
    run: Annotated[
        str | None, Opt("Check the whole passes of your own run instead: its folder, or latest.", "FOLDER")
    ] = None
