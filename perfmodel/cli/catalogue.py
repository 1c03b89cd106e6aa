"""``perfmodel machines`` and ``perfmodel models``: what is shipped, with sources."""

from __future__ import annotations

from typing import Annotated

import typer

from perfmodel.cli.options import JsonOption, one_output
from perfmodel.cli.output import emit, emit_cited, emit_json
from perfmodel.errors import BadInputError
from perfmodel.report import catalogue_text
from perfmodel.schema.machine import list_machines, load_machine, machine_file
from perfmodel.schema.table_files import list_models, load_tables

_OWN_NAME = "A start for your own: write a name of its own below, and where you read each number."
NameArgument = Annotated[str | None, typer.Argument(help="Show this one in full; without a name, list all.")]


TomlOption = Annotated[
    bool, typer.Option("--toml", help="Print the file of a shipped machine, as a start for your own.")
]


def machines(name: NameArgument = None, as_json: JsonOption = False, as_toml: TomlOption = False) -> None:
    """The shipped machines; with a name, every value with its source.

    \b
    Examples
      perfmodel machines
      perfmodel machines h100-sxm-ib
      perfmodel machines h100-sxm-ib --toml > my-cluster.toml
      perfmodel machines my-cluster.toml --json
    """
    one_output(json=as_json, toml=as_toml)
    if as_toml:
        if name is None:
            raise BadInputError(
                "--toml prints the file of one machine.", "perfmodel machines h100-sxm-ib --toml"
            )
        emit(f"# {_OWN_NAME}\n{machine_file(name).rstrip()}")
        return

    chosen = [load_machine(item) for item in ([name] if name else list_machines())]
    if as_json:
        emit_json("machines", machines=[machine.model_dump(mode="json") for machine in chosen])
        return

    emit_cited(catalogue_text.machine_text(chosen[0]) if name else catalogue_text.machines_text(chosen))


def models(name: NameArgument = None, as_json: JsonOption = False) -> None:
    """The shipped sets of embedding tables; with a name, what is in it.

    \b
    Examples
      perfmodel models
      perfmodel models mlperf-dlrm-dcnv2
      perfmodel models my-tables.yaml --json
    """
    chosen = [load_tables(item) for item in ([name] if name else list_models())]
    if as_json:
        emit_json("models", models=[catalogue_text.model_record(item, full=bool(name)) for item in chosen])
    else:
        emit(catalogue_text.model_text(chosen[0]) if name else catalogue_text.models_text(chosen))
