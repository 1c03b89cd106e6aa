"""Checks the options of ``perfmodel plan`` and converts them to numbers."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfmodel.cli.effort import effort_of
from perfmodel.cli.options import apart, count_values
from perfmodel.cli.output import check_target, not_json, note
from perfmodel.cli.question import share_of
from perfmodel.engine.tables import PlanTables
from perfmodel.errors import BadInputError
from perfmodel.question.groups import DEFAULT_BATCH, RESERVE, read_share
from perfmodel.question.plans import FORMATS
from perfmodel.schema.files import unknown_name
from perfmodel.units import format_bytes, parse_bytes, parse_count

if TYPE_CHECKING:
    from perfmodel.schema.machine import Machine

OF_SEARCH = ("effort",)
"""Options of the search, which have no effect on a plan in a file."""


def check_out(out: Path | None, file_format: str) -> None:
    """Check where and in which format the plan, or a page about it, is to be saved.

    Limits: an unknown format, a format without a file, a file that cannot be written -> BadInputError
    """
    if file_format not in FORMATS:
        raise unknown_name("--format", file_format, FORMATS)
    if out is None:
        if file_format != FORMATS[0]:
            raise BadInputError(f"--format {file_format} needs a file.", "give --out, e.g. --out plan.json")
        return
    page = out.suffix == ".html" and file_format == FORMATS[0]
    if out.suffix.lower() != ".json" and not page:
        raise not_json(out, "a plan")
    check_target(out)


def numbers_of(plan_file: Path | None, **texts: str | None) -> dict[str, Any]:
    """Typed texts as numbers, by name: model (its name), gpus, many, batch, total, effort_s.

    gpus  None: the plan file says it;  many  all numbers of GPUs;  total  samples of all GPUs, or None
    """
    if texts["model"] is None:
        raise BadInputError(
            "which tables?", "give --model, e.g. --model mlperf-dlrm-dcnv2 (perfmodel show models lists them)"
        )
    if texts["gpus"] is None and plan_file is None:
        size = format_bytes(PlanTables.load(texts["model"]).total_bytes, binary=False)
        raise BadInputError(
            f"the number of GPUs is missing; the tables have {size}.",
            "give --gpus, e.g. --gpus 128, or several to compare: --gpus 8,32,128\n"
            "the fewest GPUs that hold them:\n"
            f"  perfmodel project --model {shlex.quote(texts['model'])}",
        )
    gpus = count_values([texts["gpus"]], "--gpus") if texts["gpus"] is not None else []
    total = texts.get("global_batch")
    apart("--set global_batch", total, "give --batch, of each GPU.", plan=plan_file)
    shares = [share_of(texts, each) for each in gpus] if total is not None else []
    batch = shares[0] if shares else parse_count(texts["batch"] or DEFAULT_BATCH, "--batch")
    return {
        "model": texts["model"],
        "gpus": gpus[0] if gpus else None,
        "many": gpus,
        "batch": batch,
        "total": batch * gpus[0] if shares else None,
        "effort_s": effort_of(texts["effort"]),
    }


def check_one_plan(many: list[int], **others: object) -> None:
    """Raise BadInputError if several numbers of GPUs were typed with an option for a single plan.

    many  the numbers of GPUs;  others  values of options for a single plan, by name; empty: not typed
    """
    if len(many) > 1:
        advice = f"{{other}} is of one plan: give one number of GPUs, e.g. --gpus {many[-1]}."
        apart(f"--gpus with {len(many)} numbers", many, advice, **others)


_LEAST_HBM = 1e6
"""Bytes: less was meant in another unit."""


def note_not_searched(typed: Sequence[str]) -> None:
    """Print a note that options of the search (``typed``) have no effect on a plan in a file."""
    if "effort" in typed:
        note("--effort has no effect with --plan: the plan in the file is priced, not searched for.")


def limits_of(machine: Machine, max_hbm: str | None, reserve: str | None) -> tuple[float | None, float]:
    """Bytes of HBM that tables may use on each GPU (None: all of it), and the share of the HBM kept free.

    max_hbm, reserve  as typed; None: not typed
    Limits: more than the machine's HBM -> BadInputError
    """
    if reserve is None:
        reserve = RESERVE if max_hbm is None else "0"

    whole = machine.value("hbm_bytes")
    most = None if max_hbm is None else parse_bytes(max_hbm, "--set max_hbm", least=_LEAST_HBM)
    if most is not None and most > whole:
        raise BadInputError(
            f"max_hbm={max_hbm} is more than the {format_bytes(whole, binary=False)} of {machine.name}.",
            f"give less, or change the machine: --set hbm_bytes={max_hbm}",
        )
    return most, read_share(reserve, "--set reserve")
