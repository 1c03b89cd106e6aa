"""``perfmodel machines`` and ``perfmodel models``: the shipped machines and table sets, with sources."""

from __future__ import annotations

import typer

from perfmodel.cli.options import one_output
from perfmodel.cli.output import emit, emit_cited, emit_json
from perfmodel.errors import BadInputError
from perfmodel.question.measured import MachineListOptions, ModelListOptions
from perfmodel.report import catalogue_text
from perfmodel.schema.machine import list_machines, load_machine, machine_file
from perfmodel.schema.table_files import list_models, load_tables

_OWN_NAME = "A start for your own: write a name of its own below, and where you read each number."


def machines(context: typer.Context, options: MachineListOptions) -> None:
    """Print the list of machines, or all values of a machine."""
    one_output(json=options.as_json, toml=options.as_toml)
    if options.as_toml:
        if options.name is None:
            raise BadInputError(
                "--toml prints the file of one machine.", "perfmodel machines h100-sxm-ib --toml"
            )
        emit(f"# {_OWN_NAME}\n{machine_file(options.name).rstrip()}")
        return

    chosen = [load_machine(item) for item in ([options.name] if options.name else list_machines())]
    if options.as_json:
        emit_json("machines", machines=[machine.model_dump(mode="json") for machine in chosen])
        return

    emit_cited(
        catalogue_text.machine_text(chosen[0]) if options.name else catalogue_text.machines_text(chosen)
    )


def models(context: typer.Context, options: ModelListOptions) -> None:
    """Print the list of table sets, or the tables of a set."""
    chosen = [load_tables(item) for item in ([options.name] if options.name else list_models())]
    if options.as_json:
        emit_json(
            "models", models=[catalogue_text.model_record(item, full=bool(options.name)) for item in chosen]
        )
    else:
        emit(catalogue_text.model_text(chosen[0]) if options.name else catalogue_text.models_text(chosen))
