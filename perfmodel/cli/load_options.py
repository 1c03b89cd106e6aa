"""Reads the options of ``perfmodel load`` and turns them into a question about a service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfmodel.errors import BadInputError
from perfmodel.passes.schemes import ROW_WISE
from perfmodel.question.passes import LoadOptions
from perfmodel.units import counted

if TYPE_CHECKING:
    from perfmodel.service.sizing import ServiceQuestion


def served_sharding(name: str | None, plan: Path | None, reduction: str, **memory: str | None) -> str:
    """The sharding of the service: the typed name, or ``best`` without one.

    memory  the options that place rows in other memory, by name; None: not typed
    Limits: unknown names, ``all``, a plan or options that imply another sharding or none -> BadInputError
    """
    from perfmodel.cli.workload import ALL, checked_sharding
    from perfmodel.service.best_pass import BEST

    if name is None:
        return BEST
    if plan is not None:
        raise BadInputError("--plan and --sharding cannot be combined.", "a plan is a sharding.")
    if name.strip().lower() == ALL:
        raise BadInputError("--sharding all is many passes.", "a service runs one: --sharding best.")
    return checked_sharding(name, reduction, **memory, more=BEST) or ROW_WISE


_OF_SERVICE = ("limit_s", "qps", "batch", "wait_s", "samples", "replicas", "overlap", "requests")


def service_options(typed: Mapping[str, Any]) -> dict[str, Any]:
    """The options of ``perfmodel load`` in SI units, by keyword; None: not typed. typed  by name

    Limits: no --p99, a wait as long as the limit, numbers that cannot be used -> BadInputError
    """
    if typed["p99"] is None:
        raise BadInputError("within what time?", "give --p99, e.g. --p99 10ms")
    values = LoadOptions.values(typed)
    if values["wait_s"] is not None and values["wait_s"] >= values["limit_s"]:
        raise BadInputError(
            f"--wait {typed['wait']} is not shorter than --p99 {typed['p99']}: a single request "
            "would be late before its pass begins.",
            "give a shorter --wait, e.g. --wait 0s.",
        )
    return values


def service_question(asked: Mapping[str, Any], served: Any, spread: Any, measured: Any) -> ServiceQuestion:
    """The question about a service.

    asked  from ``service_options``;  served  its pass;  spread  how late ranks come
    measured  ranks behind the mean times of the steps
    Limits: a wait with a batch of 1, a batch too large -> BadInputError
    """
    from perfmodel.service.arrivals import Poisson, read_arrivals
    from perfmodel.service.sizing import ServiceQuestion

    file, batch = asked["arrivals"], asked["batch"]
    arrivals = Poisson(asked["seed"]) if file is None else read_arrivals(file, asked["seed"])
    own = {name: asked[name] for name in _OF_SERVICE}
    found = ServiceQuestion(**own, served=served, arrivals=arrivals, spread=spread, measured=measured)
    if batch is not None and batch > served.largest_batch:
        raise BadInputError(
            f"--batch {batch} does not fit the memory of {counted(served.gpus, 'GPU')}.",
            f"at most {served.largest_batch}, or more --gpus.",
        )
    if batch is not None and found.wait_s and found.replica(1).rule(batch, 0.0, False).requests == 1:
        raise BadInputError(
            f"--wait without a batch: --batch {batch} on {counted(served.gpus, 'GPU')} is one request.",
            "leave --wait out, or give a larger --batch.",
        )
    if found.qps is None and arrivals.rate_per_s is not None:
        return replace(found, qps=arrivals.rate_per_s)
    return found
