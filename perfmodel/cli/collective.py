"""``perfmodel collective``: the time of a collective on a machine."""

from __future__ import annotations

import re
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import typer

from perfmodel.cli.options import EXPLAINED, apart, count_values, read_collective, size_values, split_values
from perfmodel.cli.output import CommandReply, note, warn
from perfmodel.cli.question import calibration_file, choose
from perfmodel.collectives.estimate import CollectiveModel, find_gates
from perfmodel.engine.settings import BEST
from perfmodel.errors import BadInputError, NoCalibrationError
from perfmodel.question.passes import CollectiveOptions
from perfmodel.report.collective_text import collective_text, gates_text
from perfmodel.report.projection_text import origin
from perfmodel.schema.evidence import COLLECTIVES, PER_PEER, RING_BACKENDS

if TYPE_CHECKING:
    import pandas as pd

_ALL = "all"
_NCCL_ALIGNMENT_BYTES = 16
_DECIMAL = re.compile(r"\d\s*[kKMGTP]B\b")  # a size that was typed in SI units


def collective(context: typer.Context | None, options: CollectiveOptions) -> CommandReply:
    """Predict collectives."""
    apart("--explain", options.explain, EXPLAINED, gates=options.gates)
    machine, backend, calibration = choose(vars(options))[0]
    if backend == BEST:
        raise BadInputError("--backend best compares the steps of a pass.", "give --backend nccl or nvshmem.")
    node = options.gpus_per_node or machine.gpus_per_node
    if node > machine.gpus_per_node:
        where = f"{machine.name} has 1 to {machine.gpus_per_node} in a node."
        raise BadInputError(f"--set gpus_per_node={node} cannot be used.", where)
    frame = list_collectives(options, node)
    binary = not any(_DECIMAL.search(text) for text in options.size)
    model = CollectiveModel.load(machine, backend, options.clock, calibration)
    check_alignment(frame, str(model.calibration.backend))
    rows = list(frame.itertuples(index=False, name=None))
    if options.explain:
        from perfmodel.engine.explained import explain_collective

        if len(rows) != 1:
            raise BadInputError(f"these are {len(rows)} collectives.", "explain one of them.")
        return CommandReply.explain(explain_collective(model, *rows[0]))
    if options.gates:
        gates = find_gates((model, name, gpus, node, [size]) for name, size, gpus, node in rows)
        if not gates:
            raise BadInputError("one GPU sends nothing: it has no gate.", "give --gpus 2 or more.")
        records = [gate._asdict() for gate in gates]
        return CommandReply(lambda: {"gates": records}, lambda: gates_text(gates, binary=binary))
    answers, missing = _predict(frame, model, leave_out=options.op == [_ALL])
    if missing:
        warn(f"{backend} has no {', '.join(missing)} on {machine.name}: left out")
    if (answers["gpus"] == 1).any():
        note("one GPU sends nothing: 0 s")
    file = calibration_file(calibration)
    results = answers.to_dict(orient="records")
    record = {
        "machine": machine.name,
        "overrides": sorted(machine.overrides),
        "backend": backend,
        "calibration": model.calibration_id,
        "calibration_file": file,
        "missing": missing,
        **({str(key): value for key, value in results[0].items()} if len(results) == 1 else {}),
        "results": results,
    }
    where = origin(model.calibration_id, file)
    return CommandReply(lambda: record, lambda: collective_text(answers, where, machine, binary=binary))


def list_collectives(options: CollectiveOptions, per_node: int) -> pd.DataFrame:
    """A row for each combination of what was typed. per_node  GPUs of a node that are used"""
    import pandas as pd

    names = [read_collective(name) for name in split_values(options.op, "--op") if options.op != [_ALL]]
    gpus = count_values(options.gpus, "--gpus")
    pairs = product(dict.fromkeys(names or COLLECTIVES), gpus, size_values(options.size))
    rows = [(name, size, count, min(count, per_node)) for name, count, size in pairs]
    return pd.DataFrame(rows, columns=["collective", "payload_bytes", "gpus", "gpus_per_node"])


def check_alignment(frame: pd.DataFrame, library: str) -> None:
    """Raise BadInputError for sizes of less than 16 B per peer with NCCL or RCCL, 1 B with other libraries.

    Smaller messages would send nothing.
    """
    ring = library in RING_BACKENDS
    least_bytes = _NCCL_ALIGNMENT_BYTES if ring else 1
    split = frame[frame["collective"].isin(PER_PEER) & (frame["gpus"] > 1)]
    short = split[split["payload_bytes"] < least_bytes * split["gpus"]]
    if len(short):
        size, ranks = short[["payload_bytes", "gpus"]].iloc[0]
        least = least_bytes * split["gpus"].max()
        limit = f"{library.upper()}'s {least_bytes} B alignment" if ring else "one byte"
        raise BadInputError(
            f"{size} B over {ranks} ranks is {size / ranks:.3g} B per peer, below {limit}: "
            "it would time an empty call.",
            f"the smallest size here is {least} B. A number without a unit is bytes.",
        )


def _predict(
    frame: pd.DataFrame, model: CollectiveModel, *, leave_out: bool
) -> tuple[pd.DataFrame, list[str]]:
    """(times of each row of ``frame``, collectives that the library lacks). leave_out  whether it may"""
    import pandas as pd

    parts: list[pd.DataFrame] = []
    missing: list[str] = []
    for name, rows in frame.groupby("collective", sort=False):
        try:
            parts.append(model.predict(rows))
        except NoCalibrationError:
            if not leave_out:
                raise
            missing.append(str(name))
    answers = pd.concat(parts)
    alone = answers["gpus"] == 1
    answers.loc[alone, ["algbw_bytes_per_s", "busbw_bytes_per_s"]] = np.nan
    answers["evidence"] = answers["evidence"].astype(object).mask(alone.to_numpy(), None)
    return answers, missing
