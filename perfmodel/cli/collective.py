"""``perfmodel collective``: what a collective takes on a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from perfmodel.cli.options import (
    DEFAULT_MACHINE,
    CalibrationOption,
    ClockOption,
    CsvOption,
    GpusPerNodeOption,
    JsonOption,
    LibraryOption,
    MachineOption,
    SetOption,
    collective_name,
    count_values,
    library_of,
    machine_of,
    one_output,
    size_values,
    split_values,
)
from perfmodel.cli.output import emit, emit_json

if TYPE_CHECKING:
    import pandas as pd

    from perfmodel.predict import CollectiveModel
    from perfmodel.schema.machine import Machine

_ALL = "all"


def collective(
    op: Annotated[
        list[str],
        typer.Option(
            "--op",
            metavar="NAME",
            help="all_to_all, reduce_scatter, all_gather, all_reduce, broadcast; or all.",
        ),
    ],
    size: Annotated[
        list[str],
        typer.Option(
            "--size", metavar="SIZE", help="Bytes of one rank's buffer: 1GiB, 64KiB,1MiB or 1MiB..1GiB."
        ),
    ],
    gpus: Annotated[
        list[str], typer.Option("--gpus", metavar="N", help="Number of ranks: 128, 8,16 or 8..1024.")
    ],
    machine: MachineOption = DEFAULT_MACHINE,
    backend: LibraryOption = None,
    clock: ClockOption = None,
    gpus_per_node: GpusPerNodeOption = None,
    calibration: CalibrationOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
    as_csv: CsvOption = False,
) -> None:
    """Time, bandwidth and 95 % band of a collective, at any number of GPUs.

    The size is that of nccl-tests: the send buffer of one rank for all_to_all and reduce_scatter, the receive
    buffer for all_gather, the buffer for all_reduce and broadcast.

    \b
    Examples
      perfmodel collective --op all_to_all --size 1GiB --gpus 128
      perfmodel collective --op all --size 1MiB..64MiB --gpus 8,16 --machine h200-sxm-ib
      perfmodel collective --op all_gather --size 1GiB --gpus 64 --set nic_bytes_per_s=100GB/s --json
    """
    one_output(json=as_json, csv=as_csv)
    chosen = machine_of(machine, settings)
    frame = _questions(op, size, gpus, gpus_per_node or chosen.gpus_per_node)
    model, answers = _predict(frame, chosen, backend, clock, calibration)
    if as_csv:
        emit(answers.to_csv(index=False))
    elif as_json:
        results = answers.to_dict(orient="records")
        single = {str(k): v for k, v in results[0].items()} if len(results) == 1 else {}
        emit_json(
            "collective",
            machine=chosen.name,
            overrides=sorted(chosen.overrides),
            backend=str(model.calibration.backend),
            calibration=model.calibration_id,
            **single,
            results=results,
        )
    else:
        from perfmodel.report.collective import collective_text

        emit(collective_text(answers, model.calibration_id, chosen))


def _questions(ops: list[str], sizes: list[str], gpus: list[str], per_node: int) -> pd.DataFrame:
    import pandas as pd

    from perfmodel.schema.evidence import COLLECTIVES

    names = split_values(ops, "--op")
    wanted = list(COLLECTIVES) if names == [_ALL] else [collective_name(name) for name in names]
    rows = [
        (name, payload, ranks)
        for name in dict.fromkeys(wanted)
        for ranks in count_values(gpus, "--gpus")
        for payload in size_values(sizes)
    ]
    frame = pd.DataFrame(rows, columns=["collective", "payload_bytes", "gpus"])
    frame["gpus_per_node"] = frame["gpus"].clip(upper=per_node)
    return frame


def _predict(
    frame: pd.DataFrame, machine: Machine, backend: str | None, clock: str | None, calibration: str | None
) -> tuple[CollectiveModel, pd.DataFrame]:
    from perfmodel.predict import CollectiveModel, predict_collectives

    library = library_of(machine, backend, calibration)
    model = CollectiveModel.load(machine, library, clock, calibration)
    answers = predict_collectives(
        frame, machine=machine, backend=library, clock=clock, calibration=calibration
    )
    return model, answers
